"""Write a folder with the studio and bundles, which any host of static files serves."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from edge_infer.bundle.bundle import Bundle
from edge_infer.bundle.manifest import MANIFEST_NAME
from edge_infer.errors import InputError, UnsupportedError
from edge_infer.platform.atomic_write import write_file
from edge_infer.server.static.models import described

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: What the page reads in place of a server's list of models.
LIST = "models.json"
# A host such as GitHub Pages leaves out files and folders that its site generator would not take.
_PLAIN = ".nojekyll"
_LARGE = 100 * 2**20
#: The engine files that a format needs: folders of `vendor/`, and of their files those for the CPU.
_ENGINES = {"onnx": "onnxruntime-web", "tflite": "litert", "decoder": "jinja"}
_CPU_ONLY = {"onnxruntime-web": ("ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")}


class Exported(NamedTuple):
    """What was written.

    Attributes:
        folder: The folder.
        models: The names of the models.
        sizes: By part of the folder its bytes.
        large: Files above 100 MB, which hosts such as GitHub Pages refuse.
    """

    folder: Path
    models: list[str]
    sizes: Mapping[str, int]
    large: list[str]


def write_site(
    sources: Sequence[Path], folder: Path, web_root: Path, *, with_webgpu: bool = False, force: bool = False
) -> Exported:
    """Write the site.

    Args:
        sources: Bundles: folders, or zip files.
        folder: What to write; it is made beside its place and renamed.
        web_root: The folder that has `src`, `studio` and `vendor`.
        with_webgpu: Whether the builds of ONNX Runtime for the GPU are added: 44 MB.
        force: Whether a site that was written before is replaced.

    Raises:
        InputError: The folder is there, or two bundles have one name.
        UnsupportedError: A bundle is a chain, or has no variant that a page can read.
        BundleError: A bundle or the web files are missing or damaged.
    """
    if folder.exists() and not (force and (folder / LIST).is_file() and (folder / "studio").is_dir()):
        what = "and is not an exported page" if force else ""
        hint = "choose another folder" if force else "--force replaces an exported page"
        raise InputError(f"`{folder}` is there already {what}".rstrip(), hint=hint)
    bundles = _named(sources)
    folder = folder.resolve()  # "." has no name, and no parent to build beside
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        building.chmod(0o755)
        entries = []
        for name, bundle in bundles.items():
            _write_bundle(bundle, building / "models" / name)
            entries.append({"name": name, "url": f"models/{quote(name)}", **described(bundle)})
        write_file(building / LIST, (json.dumps({"models": entries}, indent=1) + "\n").encode())
        formats = {variant.format for bundle in bundles.values() for variant in bundle.manifest.variants}
        _write_web(web_root, building, formats, with_webgpu=with_webgpu)
        if folder.exists():
            shutil.rmtree(folder)
        building.replace(folder)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    sizes: dict[str, int] = {}
    for path in files:
        part = path.relative_to(folder).parts[0]
        sizes[part] = sizes.get(part, 0) + path.stat().st_size
    large = [path.relative_to(folder).as_posix() for path in files if path.stat().st_size > _LARGE]
    return Exported(folder, list(bundles), sizes, large)


def _named(sources: Sequence[Path]) -> dict[str, Bundle]:
    bundles: dict[str, Bundle] = {}
    for source in sources:
        bundle = Bundle.open(source)
        name = bundle.manifest.name
        if bundle.is_bare:
            raise InputError(
                f"`{source}` is a bare model file, expected a bundle",
                hint=f"edge-infer convert {source} -o {name}.bundle",
            )
        if bundle.is_encrypted:
            raise UnsupportedError(
                f"`{source}` is encrypted, and in a page's folder its files would lie in clear",
                hint="a page loads it from its store: load('edge+/store/MODEL', { key })",
            )
        if bundle.manifest.chain is not None:
            raise UnsupportedError(f"`{source}` is a chain, which the studio does not show", hint="edge-infer serve")
        if all(variant.external for variant in bundle.manifest.variants):
            raise UnsupportedError(
                f"No page can read `{source}`: the weights of each variant are in a file beside it",
                hint="edge-infer serve, or convert a smaller model",
            )
        if name in bundles:
            raise InputError(f"Two bundles are named `{name}`", hint="convert one of them with --name", got=name)
        bundles[name] = bundle
    return bundles


def _write_bundle(bundle: Bundle, folder: Path) -> None:
    """Copy a bundle's files, each compared with its hash on the way."""
    manifest = bundle.manifest
    for path in manifest.files:
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        write_file(place, bundle.read(path))
    write_file(folder / MANIFEST_NAME, bundle.read_note(MANIFEST_NAME, 2**24))


def _write_web(root: Path, building: Path, formats: set[str], *, with_webgpu: bool) -> None:
    for part in ("src", "studio"):
        shutil.copytree(root / part, building / part)
    vendor, target = root / "vendor", building / "vendor"
    if not (vendor / "versions.json").is_file():
        raise InputError(
            "The engine files of the page are not there", hint="pip install 'edge-infer[web]', or make setup"
        )
    target.mkdir()
    for name in ("NOTICE", "versions.json"):
        shutil.copy(vendor / name, target)
    shutil.copytree(vendor / "LICENSES", target / "LICENSES")
    for kind, engine in _ENGINES.items():
        if kind not in formats:
            continue
        only = None if with_webgpu else _CPU_ONLY.get(engine)
        (target / engine).mkdir()
        for path in sorted((vendor / engine).iterdir()):
            if only is None or path.name in only:
                shutil.copy(path, target / engine)
    page = (building / "studio" / "index.html").read_text("utf-8")
    (building / "studio" / "index.html").unlink()  # it would look for a server
    page = page.replace('"studio.', '"studio/studio.')
    devices = "wasm webgpu" if with_webgpu else "wasm"
    notes = f'<meta name="edge-infer-models" content="{LIST}">\n<meta name="edge-infer-devices" content="{devices}">'
    page = page.replace("<head>", f"<head>\n{notes}", 1)
    write_file(building / "index.html", page.encode())
    shutil.copy(root / "src" / "service-worker.js", building / "service-worker.js")
    write_file(building / _PLAIN, b"")
