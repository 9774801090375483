"""`edge-infer export-page`: write the studio and bundles as a static folder."""

from __future__ import annotations

from pathlib import Path

import click

from edge_infer.cli import options, output
from edge_infer.cli.options import require_extra


@click.command("export-page")
@click.argument("sources", nargs=-1, required=True, metavar="BUNDLE...", type=click.Path(path_type=Path))
@click.option("-o", "--output", "folder", required=True, type=click.Path(path_type=Path), help="The folder to write.")
@click.option("--webgpu", is_flag=True, help="Add the builds of ONNX Runtime for the GPU: 44 MB.")
@click.option("--web-root", default=None, type=click.Path(path_type=Path), help="Other web files than those installed.")
@click.option("--force", is_flag=True, help="Replace an exported page that is there.")
@options.as_json
def export_page(
    sources: tuple[Path, ...], folder: Path, webgpu: bool, web_root: Path | None, force: bool, as_json: bool
) -> None:
    """Write a folder with the studio and each BUNDLE, for any host of static files: no server of ours is needed.

    The page runs the models in JavaScript; only the engines that the bundles need are copied. Where the host sends no
    COOP and COEP headers, engines use one thread.

    \b
    edge-infer export-page digits.bundle -o site/
    python3 -m http.server --directory site
    """  # noqa: D301  click reads the \b
    require_extra("server")  # the web files are found, and described, by its modules
    from edge_infer.server.static.pages import find_web_root
    from edge_infer.tools.page_export.folder import write_site

    made = write_site(sources, folder, find_web_root(web_root), with_webgpu=webgpu, force=force)
    if made.large:
        output.warn(f"Files above 100 MB, which hosts such as GitHub Pages refuse: {', '.join(made.large)}", "")
    if as_json:
        output.data_json({"folder": str(folder), "models": made.models, "parts": dict(made.sizes)})
        return
    output.table(["part", "size"], [(name, output.size(size)) for name, size in made.sizes.items()], right=["size"])
    output.talk(f"Wrote {folder} with {', '.join(made.models)}: {output.size(sum(made.sizes.values()))}")
