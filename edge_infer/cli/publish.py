"""`edge-infer publish`: put a signed version of a bundle into a store of static files."""

from __future__ import annotations

from pathlib import Path

import click

from edge_infer.cli import options, output
from edge_infer.cli.store import keys_option


@click.command()
@click.argument("bundle", type=click.Path(path_type=Path))
@click.argument("store")
@click.option(
    "--model-version", "version", metavar="VERSION", help="What to call this version; default: as in the manifest."
)
@click.option(
    "--stage",
    default="all",
    show_default=True,
    metavar="SHARE",
    help="Which devices take it now: canary:10%, 10% or all.",
)
@click.option(
    "--encrypt-to",
    metavar="KEYFILE",
    type=click.Path(path_type=Path),
    help="Encrypt the weights for the first key of this file; `edge-infer store keys encryption` makes one.",
)
@click.option("--in-clear", is_flag=True, help="Publish in clear a model whose last version was encrypted.")
@keys_option
@options.as_json
def publish(
    bundle: Path,
    store: str,
    version: str | None,
    stage: str,
    encrypt_to: Path | None,
    in_clear: bool,
    keys: Path,
    as_json: bool,
) -> None:
    """Publish a BUNDLE, or an index, into a STORE: a folder that any web server can host, s3://BUCKET/PREFIX or oci://HOST/NAME.

    Writes the full pack, the differences to the last three versions where they are worth it, and signs them. Make the
    store and its keys first: `edge-infer store keys init STORE --keys DIR`. With --stage only a share of the devices
    takes it; `edge-infer store stage` raises that share or ends the roll-out. With --encrypt-to the weights lie in the
    store and on devices so that only who has the key reads them; names and sizes of files stay in clear.
    """
    if encrypt_to is not None and in_clear:
        raise click.UsageError("--encrypt-to and --in-clear exclude each other")
    options.require_extra("sync")
    from edge_infer.sync.publish import publish as publish_bundle
    from edge_infer.sync.publisher import published
    from edge_infer.sync.stage import WHOLE, parse_share
    from edge_infer.vectors.published import contents_of, is_index

    part = parse_share(stage)
    with published(store) as repository:
        what = contents_of(bundle) if is_index(bundle) else bundle
        done = publish_bundle(
            what, repository, keys, version=version, share=part, encrypt_to=encrypt_to, in_clear=in_clear
        )
    revision = done.revision
    if as_json:
        output.data_json(
            {
                "model": revision.model,
                "version": revision.version,
                "sequence": revision.sequence,
                "bundle": revision.bundle,
                "size": revision.size,
                "full": revision.pack.size,
                "share": part / WHOLE,
                "key": revision.key,
                "deltas": [{"from": name, "size": size} for name, size in done.deltas],
            }
        )
        return
    full = revision.pack.size
    rows = [("full", output.size(full), f"{full / revision.size:.1%}")]
    for name, size in done.deltas:
        share = "-" if size is None else f"{size / revision.size:.1%}"
        rows.append((f"from {name}", "not worth it" if size is None else output.size(size), share))
    output.table(["pack", "size", "of the files"], rows, right=["size", "of the files"])
    to = "" if part == WHOLE else f", for {part / WHOLE:.2%} of the devices"
    sealed = f", encrypted for the key {revision.key}" if revision.key else ""
    whole = output.size(revision.size)
    output.talk(f"Published {revision.model} {revision.version} in {store}: {whole} of files{to}{sealed}")
