"""Write the bundle of a chain from its description and the bundles and indexes that it names."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.bundle.bundle import Bundle
from edge_infer.bundle.manifest import MANIFEST_NAME, PART_SIZE, FileEntry, Manifest
from edge_infer.chains.cache import StepCache
from edge_infer.chains.chain import Chain
from edge_infer.chains.definition import MAX_STEPS, VERSION
from edge_infer.chains.kinds import WORKS
from edge_infer.chains.vectors import MAX_CASES, PATH, ChainVectors, answers_to, cases_for
from edge_infer.errors import BundleError, InputError, did_you_mean, listed
from edge_infer.vectors.catalogue import NAME, read_catalogue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MAX_BYTES = 2**20
_FIELDS = ("name", "version", "inputs", "steps", "outputs", "examples")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def read_description(path: Path) -> dict[str, Any]:
    """Read the description of a chain: TOML, or JSON where its name ends in `.json`.

    Raises:
        InputError: It is not there, too large, or neither.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"`{path}` cannot be read: {error.strerror}", hint="edge-infer chain chain.toml -o x.bundle"
        ) from error
    if len(data) > _MAX_BYTES:
        raise InputError(
            f"`{path}` has more than {_MAX_BYTES:,} bytes", hint="it names bundles, and does not hold them"
        )
    try:
        found = json.loads(data) if path.suffix == ".json" else tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"`{path}` is not {'JSON' if path.suffix == '.json' else 'TOML'}: {error}") from error
    if not isinstance(found, dict):
        raise InputError(f"`{path}` is not an object", hint="name, inputs, steps, outputs")
    for field in found:
        if field not in _FIELDS:
            raise InputError(
                f"`{path}` has the field `{field}`",
                hint=did_you_mean(field, [*_FIELDS]) or f"it may have {listed([*_FIELDS])}",
                field=field,
            )
    return found


def build_chain(description: Mapping[str, Any], folder: Path, target: Path, *, force: bool = False) -> Bundle:
    """Write the bundle of a chain, and prove that it runs.

    Args:
        description: What `read_description` gives: `name`, `version`, `inputs`, `steps` whose `bundle` and `index` are
            paths, `outputs`, and `examples` of inputs for the vectors.
        folder: What these paths are relative to.
        target: The folder to write.
        force: Whether to replace what is there.

    Raises:
        BundleError: Something is at the target already, or a bundle or an index is missing or damaged.
        ManifestError: The chain is wrong: a circle, a name that is not there, kinds that do not fit.
        InputError: The description lacks something, or an example does not fit.
    """
    if (target.exists() or target.is_symlink()) and not (force and (target / MANIFEST_NAME).is_file()):
        raise BundleError(
            f"`{target}` is there already", hint="--force replaces a bundle" if not force else "remove it"
        )
    name = description.get("name", target.stem)
    version = str(description.get("version", "1"))
    for what, word in (("name", name), ("version", version)):
        if not isinstance(word, str) or not _WORD.fullmatch(word):
            raise InputError(f"`{what}` is {word!r}, expected letters, digits, `.`, `_` and `-`", field=what)
    try:
        made = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise BundleError(
            f"`{target.parent}` cannot be written to: {error.strerror}", hint="-o, another place"
        ) from error
    try:
        made.chmod(0o755)
        chain = {
            "version": VERSION,
            "inputs": description.get("inputs", {}),
            "steps": _steps(description, folder, made),
        }
        if "outputs" in description:
            chain["outputs"] = description["outputs"]
        _write(made, name, version, chain)
        _prove(made, name, version, chain, description.get("examples", []))
        _put(made, target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return Bundle.open(target)


def _steps(description: Mapping[str, Any], folder: Path, made: Path) -> list[Any]:
    """Copy what the steps name into the bundle, each once, and return the steps with where it lies there."""
    entries = description.get("steps")
    if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_STEPS:
        raise InputError(f"`steps` is not a list of 1 to {MAX_STEPS} steps", hint="[[steps]]", field="steps")
    places: dict[str, str] = {}
    found = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not _WORD.fullmatch(entry["name"]):
            raise InputError(f"step {number} has no name", hint='name = "faces"', field="steps")
        step = dict(entry)
        for holds in ("bundle", "index"):
            if holds in step:
                if not isinstance(step[holds], str):
                    raise InputError(f"step `{step['name']}`: `{holds}` is not a path", field=holds)
                source = folder / step[holds]
                inside = f"steps/{step['name']}" + (".index" if holds == "index" else "")
                copy = _copy_bundle if holds == "bundle" else _copy_index
                step[holds], default = copy(source, made, inside, places)
                step.setdefault("do", default)
        if "do" not in step:
            raise InputError(
                f"step `{step['name']}` does nothing", hint=f"`do` is one of {listed([*WORKS])}", field=step["name"]
            )
        found.append(step)
    return found


def _copy_bundle(source: Path, made: Path, inside: str, places: dict[str, str]) -> tuple[str, str]:
    """Copy a bundle, unless it is there, and return where it lies and what a step does with it unless told."""
    bundle = Bundle.open(source)
    if bundle.is_bare:
        raise BundleError(f"`{source}` is a model without a manifest", hint=f"edge-infer convert {source} -o x.bundle")
    manifest = bundle.manifest
    does = "generate" if manifest.generate is not None else "model" if manifest.pipeline is not None else "tensors"
    if manifest.task == "text-ranking" and does == "model":
        does = "rank"
    if bundle.revision not in places:
        places[bundle.revision] = inside
        _copy(made / inside / MANIFEST_NAME, None, bundle.read_note(MANIFEST_NAME, 2**30))
        for path in manifest.files:
            _copy(made / inside / path, bundle.file_path(path), None if bundle.file_path(path) else bundle.read(path))
    return places[bundle.revision], does


def _copy_index(source: Path, made: Path, inside: str, places: dict[str, str]) -> tuple[str, str]:
    if not (source / NAME).is_file():
        raise BundleError(
            f"there is no index at `{source}`", hint=f"edge-infer index build DOCS --model BUNDLE -o {source}"
        )
    data = (source / NAME).read_bytes()
    key = hashlib.sha256(data).hexdigest()
    if key not in places:
        places[key] = inside
        catalogue = read_catalogue(data, source.name)
        _copy(made / inside / NAME, None, data)
        for entry in catalogue.files:
            if not (source / entry.path).is_file():
                raise BundleError(f"`{source}` has no file `{entry.path}`", hint="build the index again")
            _copy(made / inside / entry.path, str(source / entry.path), None)
    return places[key], "search"


def _copy(target: Path, source: str | None, data: bytes | None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source is not None:
        shutil.copyfile(source, target)
    else:
        target.write_bytes(data or b"")


def _write(made: Path, name: str, version: str, chain: Mapping[str, Any]) -> None:
    (made / MANIFEST_NAME).unlink(missing_ok=True)
    files = [_entry(path, made) for path in sorted(made.rglob("*")) if path.is_file()]
    data = Manifest(name, version, (), (), (), files, chain=chain).to_bytes()
    Manifest.from_bytes(data)  # what is written can be read
    (made / MANIFEST_NAME).write_bytes(data)


def _entry(path: Path, made: Path) -> FileEntry:
    whole, parts, size = hashlib.sha256(), [], 0
    with path.open("rb") as file:
        while part := file.read(PART_SIZE):
            whole.update(part)
            parts.append(hashlib.sha256(part).hexdigest())
            size += len(part)
    return FileEntry(path.relative_to(made).as_posix(), size, whole.hexdigest(), parts if size > PART_SIZE else ())


def _prove(made: Path, name: str, version: str, chain: dict[str, Any], examples: Any) -> None:
    """Run the chain on the cases of its vectors, and write its answers into the bundle."""
    if not isinstance(examples, list) or not all(isinstance(one, dict) for one in examples):
        raise InputError("`examples` is not a list of objects", hint='[[examples]]\nquestion = "..."', field="examples")
    if len(examples) > MAX_CASES:
        raise InputError(f"there are {len(examples)} `examples`, expected at most {MAX_CASES}", field="examples")
    with Chain.open(made, cache=StepCache()) as opened:
        cases = cases_for(opened.definition, _checked(examples, opened.inputs))
        if not cases:
            return
        vectors = ChainVectors(cases, answers_to(opened, cases))
    (made / PATH).parent.mkdir(parents=True, exist_ok=True)
    (made / PATH).write_bytes(vectors.to_bytes())
    chain["vectors"] = PATH
    _write(made, name, version, chain)


def _checked(examples: Sequence[Mapping[str, Any]], inputs: Mapping[str, str]) -> Sequence[Mapping[str, Any]]:
    for example in examples:
        for name in example:
            if name not in inputs:
                raise InputError(
                    f"an example has `{name}`, which the chain does not take",
                    hint=did_you_mean(name, [*inputs]) or f"it takes {listed([*inputs])}",
                    field=name,
                )
            if inputs[name] not in ("text", "tensor"):
                raise InputError(
                    f"an example has `{name}`, which is {inputs[name]}",
                    hint="examples are texts and numbers",
                    field=name,
                )
    return examples


def _put(made: Path, target: Path) -> None:
    """Put the folder into place in one step; what was there before is removed after it."""
    for path in made.rglob("*"):
        if path.is_file():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
    old = None
    if target.exists():
        old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent)) / "old"
        target.rename(old)
    try:
        made.rename(target)
    except OSError:
        if old is not None:
            old.rename(target)
        raise
    if old is not None:
        shutil.rmtree(old.parent, ignore_errors=True)
