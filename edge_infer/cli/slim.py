"""`edge-infer slim`: write a folder with one model, its engine and the runtime."""

from __future__ import annotations

from pathlib import Path

import click

from edge_infer.cli import options, output


@click.command()
@click.argument("source")
@click.option("-o", "--output", "folder", required=True, type=click.Path(path_type=Path), help="The folder to write.")
@click.option(
    "--variant",
    default=None,
    metavar="ID",
    help="The variant, an ONNX or compiled one; default: as `load` takes.",
)
@click.option(
    "--platform",
    default=None,
    metavar="NAME",
    help="x86_64, aarch64; of compiled models armv7 too.",
)
@click.option(
    "--wheel",
    default=None,
    type=click.Path(path_type=Path),
    help="A wheel of onnxruntime for that platform, or a folder with one; default: the one installed here.",
)
@click.option("--zipapp", is_flag=True, help="The runtime as one file, app.pyz.")
@click.option("--force", is_flag=True, help="Replace a slim folder that is there.")
@options.as_json
def slim(
    source: str,
    folder: Path,
    variant: str | None,
    platform: str | None,
    wheel: Path | None,
    zipapp: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Copy only what the bundle or model SOURCE needs: the engine's library or kernels, the runtime, one variant.

    The folder runs on a bare Python 3.11 or newer, without pip and without numpy:

    \b
    edge-infer slim digits.bundle -o digits-device
    python3 -I -S digits-device inputs.json
    python3 -I -S digits-device --self-test
    """  # noqa: D301  click reads the \b
    from edge_infer.bundle.bundle import Bundle
    from edge_infer.tools.slim.engine import find_library, this_platform
    from edge_infer.tools.slim.folder import chosen_variant, write_slim

    target = platform or this_platform()
    needs_engine = chosen_variant(Bundle.open(source), variant).format != "compiled"
    library = find_library(target, wheel) if needs_engine else None
    made = write_slim(source, folder, library, platform=target, variant=variant, as_zip=zipapp, force=force)
    if as_json:
        output.data_json(
            {"folder": str(folder), "variant": made.variant, "platform": target, "size": made.size, "parts": made.sizes}
        )
        return
    output.table(["part", "size"], [(name, output.size(size)) for name, size in made.sizes.items()], right=["size"])
    output.talk(f"Wrote {folder} for {target}, {made.variant}: {output.size(made.size)}")
