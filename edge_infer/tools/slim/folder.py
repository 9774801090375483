"""Write a slim folder: the engine's library, the runtime of a bare device (`rooms.py`), one variant.

    FOLDER/__main__.py            runs the model: `python -I -S FOLDER inputs.json`
    FOLDER/edge_infer/            the runtime, which needs nothing but Python; with `tasks` for a bundle's pipeline
    FOLDER/libonnxruntime.so      the engine; a compiled model needs none, its kernels are in edge_infer/kernels/built
    FOLDER/model.bundle/          the variant with its labels and golden examples, or the bare model file

As a zipapp the first two are one file, `app.pyz`. A library cannot be loaded out of a zip: it lies beside it, and so do
the kernels, in `kernels/`.
"""

from __future__ import annotations

import compileall
import io
import py_compile
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import edge_infer
from edge_infer.bundle.bundle import Bundle
from edge_infer.bundle.manifest import MANIFEST_NAME, Manifest
from edge_infer.errors import InputError, UnsupportedError
from edge_infer.formats.onnx import external_locations
from edge_infer.kernels.library import library_files
from edge_infer.platform.atomic_write import write_file
from edge_infer.rooms import FOR_COMPILED, runs_in
from edge_infer.runtime.options import LoadOptions
from edge_infer.runtime.selection import by_rule, choices
from edge_infer.tools.slim.engine import this_platform

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer.bundle.variant import Variant
    from edge_infer.tools.slim.engine import Library

LIBRARY = "libonnxruntime.so"
_MARK = "__main__.py"
# A zip's time of change, so that the same input gives the same bytes.
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


class Slim(NamedTuple):
    """The written folder: the bytes of each part, by its name in the folder, and the variant's id."""

    folder: Path
    variant: str
    sizes: dict[str, int]

    @property
    def size(self) -> int:
        """All bytes."""
        return sum(self.sizes.values())


def write_slim(
    source: str,
    folder: Path,
    library: Library | None,
    *,
    platform: str = "",
    variant: str | None = None,
    as_zip: bool = False,
    force: bool = False,
) -> Slim:
    """Write the folder, whole or not at all.

    Args:
        source: A bundle or a bare `.onnx`, `.ort` or compiled `.wasm` file.
        folder: What to write; it is made beside its place and renamed.
        library: The engine for the target; None for a compiled model, which needs none.
        platform: The target, whose kernels a compiled model calls: `x86_64`, `aarch64` or `armv7`.
        variant: The id of the variant; None for the one that `load` takes on a CPU.
        as_zip: Whether the runtime is to be one file, `app.pyz`.
        force: Whether a slim folder that is there is replaced.

    Raises:
        InputError: The folder is there.
        UnsupportedError: The variant is a TFLite file, whose engine needs numpy, or the bundle is encrypted.
        BackendUnavailable: There are no kernels for the platform.
    """
    if folder.exists() and not (force and _is_slim(folder)):
        what = "and is not a slim folder" if force else ""
        raise InputError(f"`{folder}` is there already {what}".rstrip(), hint="--force replaces a slim folder")
    bundle = Bundle.open(source)
    if bundle.is_encrypted:
        raise UnsupportedError(
            f"`{source}` is encrypted, and in a slim folder its files would lie in clear",
            hint="take the bundle that was published, where they may",
        )
    chosen = chosen_variant(bundle, variant)
    kernels = library_files(platform or this_platform()) if chosen.format == "compiled" else {}
    folder.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        building.chmod(0o755)
        _write_model(bundle, chosen, building)
        _write_runtime(building, kernels, has_pipeline=bundle.manifest.pipeline is not None, as_zip=as_zip)
        if library is not None:
            write_file(building / LIBRARY, library.data)
        if folder.exists():
            shutil.rmtree(folder)
        building.replace(folder)
    except BaseException:
        shutil.rmtree(building, ignore_errors=True)
        raise
    sizes = {part.name: _size(part) for part in sorted(folder.iterdir())}
    return Slim(folder, chosen.id, sizes)


def _is_slim(folder: Path) -> bool:
    """Tell whether a folder was written here."""
    has_program = any((folder / name).is_file() for name in (_MARK, "app.pyz"))
    return (folder / LIBRARY).is_file() or (has_program and any(folder.glob("model.*")))


def chosen_variant(bundle: Bundle, variant: str | None) -> Variant:
    """Return the variant that a slim folder of a bundle gets.

    Args:
        bundle: The bundle, or a bare model file.
        variant: Its id; unless given the ONNX variant that `load` takes on a CPU, or else a compiled one.

    Raises:
        UnsupportedError: It is a TFLite file, or there is no other.
        InputError: There is no variant of this id.
    """
    chosen = bundle.manifest.variant(variant) if variant is not None else None
    readable = [one for one in bundle.manifest.variants if one.format in ("onnx", "compiled")]
    if (chosen is not None and chosen not in readable) or not readable:
        raise UnsupportedError(
            f"{f'`{chosen.id}` is {chosen.format}' if chosen else f'`{bundle.label}` has no onnx variant'}: "
            "only onnxruntime and compiled models run without numpy",
            hint=f"--variant {readable[0].id}"
            if readable
            else 'pip install "edge-infer[tflite]" on the device, and load the bundle there; or convert an ONNX source',
        )
    if chosen is not None:
        return chosen
    if not any(one.format == "onnx" for one in readable):
        return by_rule(readable, "cpu")[0]
    return next(choices(bundle.manifest, LoadOptions("cpu", "onnxruntime"))).variant


def _copy_weights(beside: Path, location: str, building: Path) -> None:
    """Copy a file that a bare model refers to by its name."""
    weights, target = (beside / location).resolve(), (building / location).resolve()
    if not (weights.is_relative_to(beside.resolve()) and target.is_relative_to(building.resolve())):
        raise InputError(
            f"The model keeps weights in `{location}`, which leaves its folder: refused",
            hint="save it again with its weights beside it",
            got=location,
        )
    if not weights.is_file():
        raise InputError(
            f"The model keeps weights in `{location}`, which is missing", hint=f"put it into `{beside}`", got=location
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(weights, target)


def _write_model(bundle: Bundle, variant: Variant, building: Path) -> None:
    manifest = bundle.manifest
    if not manifest.inputs and manifest.examples is None and len(manifest.variants) == 1:
        model = bundle.model(variant)  # a bare file
        content = model if isinstance(model, bytes) else Path(model).read_bytes()
        write_file(building / f"model{Path(variant.file).suffix}", content)
        if not isinstance(model, bytes) and variant.file.endswith(".onnx"):
            for location in external_locations(content):
                _copy_weights(Path(model).parent, location, building)
        return
    kept = [path for path in (variant.file, *variant.external, manifest.labels, manifest.examples) if path is not None]
    if manifest.pipeline is not None:
        others = {path for one in manifest.variants for path in (one.file, *one.external)}
        kept += [path for path in manifest.files if path not in kept and path not in others]
    for path in kept:
        target = building / "model.bundle" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        write_file(target, bundle.read(path))
    smaller = Manifest(
        manifest.name,
        manifest.version,
        manifest.inputs,
        manifest.outputs,
        [variant],
        [manifest.files[path] for path in kept],
        labels=manifest.labels,
        examples=manifest.examples,
        task=manifest.task,
        pipeline=manifest.pipeline,
        source=manifest.source,
    )
    write_file(building / "model.bundle" / MANIFEST_NAME, smaller.to_bytes())


def _write_runtime(building: Path, kernels: Mapping[str, bytes], *, has_pipeline: bool, as_zip: bool) -> None:
    package = Path(edge_infer.__file__).parent
    program = (Path(__file__).parent / "program.py").read_bytes()
    names = {path.relative_to(package).as_posix() for path in package.rglob("*.*") if path.suffix in (".py", ".json")}
    if not has_pipeline:
        names = {name for name in names if not name.startswith("tasks/")}
    kept = sorted(name for name in names if runs_in(name, "device") or (kernels and name in FOR_COMPILED))
    files = {f"edge_infer/{name}": (package / name).read_bytes() for name in kept}
    place = building / ("kernels" if as_zip else "edge_infer/kernels/built")
    for name, data in kernels.items():
        place.mkdir(parents=True, exist_ok=True)
        write_file(place / name, data)
    if as_zip:
        packed = io.BytesIO(b"#!/usr/bin/env python3\n")
        packed.seek(0, io.SEEK_END)
        with zipfile.ZipFile(packed, "a", zipfile.ZIP_DEFLATED) as archive:
            for name, data in {**files, _MARK: program}.items():
                archive.writestr(zipfile.ZipInfo(name, _ZIP_TIME), data, zipfile.ZIP_DEFLATED)
        write_file(building / "app.pyz", packed.getvalue())
        (building / "app.pyz").chmod(0o755)
        return
    for name, data in files.items():
        target = building / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    (building / _MARK).write_bytes(program)
    # Bytecode of this Python's version, which a read-only device could not write itself; another version ignores it.
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(building / "edge_infer", quiet=2, stripdir=building, invalidation_mode=unchecked)


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
