"""`edge-infer chain`: several bundles and indexes to one bundle, whose steps feed one another."""

from __future__ import annotations

from pathlib import Path

import click

from edge_infer.cli import options, output


@click.command()
@click.argument("description", type=click.Path(path_type=Path))
@click.option("-o", "--output", "target", required=True, type=click.Path(path_type=Path), help="The bundle to write.")
@click.option("--force", is_flag=True, help="Replace a bundle that is there.")
@options.as_json
def chain(description: Path, target: Path, force: bool, as_json: bool) -> None:
    """Join bundles and indexes into one bundle, as the TOML or JSON file DESCRIPTION says.

    Each step names what it reads: an input of the chain, or another step. Bundles and indexes are paths beside the
    file; they are copied into the chain. A circle, a name that is not there or kinds that do not fit are refused by
    name. The chain is run once, on made-up inputs or the `[[examples]]` of the file, and its answers are kept for
    `verify`.

    \b
    edge-infer chain faces.toml -o faces-and-moods.bundle
    edge-infer info faces-and-moods.bundle
    edge-infer run faces-and-moods.bundle photo.jpg --json
    edge-infer verify faces-and-moods.bundle
    edge-infer serve faces-and-moods.bundle         # POST /v2/models/NAME/predict
    """  # noqa: D301  click reads the \b
    from edge_infer.chains.build import build_chain, read_description

    found = read_description(description)
    bundle = build_chain(found, description.parent, target, force=force)
    manifest = bundle.manifest
    total = sum(entry.size for entry in manifest.files.values())
    steps = [step["name"] for step in (manifest.chain or {})["steps"]]
    if as_json:
        output.data_json({"bundle": str(target), "revision": bundle.revision, "steps": steps, "bytes": total})
    output.talk(f"Wrote {target}: {' -> '.join(steps)}, {len(manifest.files)} files, {output.size(total)}")
