"""The manifest of a bundle: `manifest.json`, parsed and checked.

The format is described by `docs/reference/manifest.schema.json`. Unknown fields are ignored, an unknown major
version is refused, and so are the fields that are reserved for later versions, because ignoring them would give
wrong answers. The classes are plain slotted ones: each dataclass would cost a device a millisecond of start-up.
"""

from __future__ import annotations

from edge_infer.errors import InputError, ManifestError, did_you_mean, listed
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import TensorSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

SCHEMA_VERSION = "1.0"
#: The file's name inside a bundle.
MANIFEST_NAME = "manifest.json"
#: A larger manifest is refused unread: 16 MiB describe a bundle of 4 TiB.
MAX_MANIFEST_BYTES = 16 * 2**20
#: Files above this size carry the sha256 of each part of this size, so that a download can be resumed and checked.
PART_SIZE = 2**20

FORMATS = ("onnx", "tflite", "compiled", "decoder")
PRECISIONS = ("fp32", "fp16", "int8", "int4", "mixed")
TARGETS = ("web", "pi", "cuda", "mcu", "any")
_RESERVED_IN_VARIANT = ("generate", "stream")
_PARITY = ("sqnr_db", "max_err", "top1", "equal", "steps", "lost_slices")
_HEX = r"[0-9a-f]{64}"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
_VARIANT_ID = r"[a-z0-9]+/[a-z0-9][a-z0-9._-]{0,63}"


class FileEntry:
    """One file of the bundle: its path inside it (`/` between folders), size in bytes and sha256 in hex."""

    __slots__ = ("parts", "path", "sha256", "size")

    def __init__(self, path: str, size: int, sha256: str, parts: Sequence[str] = ()) -> None:
        self.path = path
        self.size = size
        self.sha256 = sha256
        self.parts = tuple(parts)

    def to_json(self) -> dict[str, Any]:
        """Describe this file as the manifest does."""
        entry: dict[str, Any] = {"path": self.path, "size": self.size, "sha256": self.sha256}
        if self.parts:
            entry["parts"] = list(self.parts)
        return entry


class State:
    """The state that a variant carries from step to step of a stream.

    Args:
        output: The output that becomes an input of the next step; empty for hidden state, which only the engine sees.
        input: That input.
    """

    __slots__ = ("input", "output")

    def __init__(self, output: str = "", input: str = "") -> None:  # noqa: A002
        self.output = output
        self.input = input

    @property
    def is_hidden(self) -> bool:
        """Whether no input and output shows it: variables of a TFLite file."""
        return not self.output

    def __repr__(self) -> str:
        return "State()" if self.is_hidden else f"State({self.output!r}, {self.input!r})"

    def to_json(self) -> dict[str, str]:
        """Describe this state as the manifest does."""
        return {"kind": "hidden"} if self.is_hidden else {"kind": "pair", "out": self.output, "in": self.input}


class Variant:
    """One encoding of the model.

    Args:
        id: Unique in the bundle, format first: `onnx/int8`.
        format: `onnx`, `tflite` or `compiled`, which `load` runs, or `decoder`, which `generate` runs.
        precision: What the weights are stored in.
        file: The path of the model file.
        external: The paths of files that the model file refers to by name (ONNX external data).
        targets: The kinds of place it was made for; none where it is only taken by its id.
        options: Per backend, the engine settings that parity needs, as the engine spells them.
        inputs: Its input specs where they differ from the bundle's, else None.
        outputs: Likewise its output specs.
        state: What a stream carries from step to step.
        parity: By output, how far from the source it may be; see `edge_infer.parity.verdict`.
    """

    __slots__ = (
        *("external", "file", "format", "id", "inputs", "options", "outputs", "parity", "precision", "state"),
        "targets",
    )

    def __init__(
        self,
        id: str,  # noqa: A002
        format: str,  # noqa: A002
        precision: str,
        file: str,
        *,
        external: Sequence[str] = (),
        targets: Sequence[str] = ("any",),
        options: Mapping[str, Mapping[str, str]] | None = None,
        inputs: Sequence[TensorSpec] | None = None,
        outputs: Sequence[TensorSpec] | None = None,
        state: Sequence[State] = (),
        parity: Mapping[str, Mapping[str, float]] | None = None,
    ) -> None:
        self.id = id
        self.format = format
        self.precision = precision
        self.file = file
        self.external = tuple(external)
        self.targets = tuple(targets)
        self.options = {backend: dict(settings) for backend, settings in (options or {}).items()}
        self.inputs = None if inputs is None else tuple(inputs)
        self.outputs = None if outputs is None else tuple(outputs)
        self.state = tuple(state)
        self.parity = {output: dict(figures) for output, figures in (parity or {}).items()}

    def __repr__(self) -> str:
        return f"Variant({self.id!r}, {self.file!r})"

    def to_json(self) -> dict[str, Any]:
        """Describe this variant as the manifest does."""
        entry: dict[str, Any] = {
            "id": self.id,
            "format": self.format,
            "precision": self.precision,
            "file": self.file,
            "targets": list(self.targets),
        }
        if self.external:
            entry["external"] = list(self.external)
        if self.options:
            entry["options"] = self.options
        if self.inputs is not None:
            entry["inputs"] = [spec.to_json() for spec in self.inputs]
        if self.outputs is not None:
            entry["outputs"] = [spec.to_json() for spec in self.outputs]
        if self.state:
            entry["state"] = [state.to_json() for state in self.state]
        if self.parity:
            entry["parity"] = self.parity
        return entry


class Manifest:
    """The contents of a bundle.

    Args:
        name: The model's name: letters, digits, `.`, `_`, `-`.
        version: The publisher's word for this state of it.
        inputs: The specs of the model's inputs; empty for a bare model file, whose engine tells them.
        outputs: Likewise of its outputs.
        variants: The encodings of the model, the publisher's preferred order.
        files: Every file of the bundle but `manifest.json` and `quality.json`.
        labels: The path of a JSON list of class names, or None.
        examples: The path of the golden inputs and outputs (see `edge_infer.formats.safetensors`), or None.
        task: What the model is for, such as `image-classification`; None where nobody says.
        pipeline: The steps before and after the model, as JSON (see `edge_infer.tasks.definition`), or None.
        generate: What the generation of text needs beside the weights, as JSON (docs/concepts/bundle.md), or None.
        source: Where the model came from: `hub` and `revision` of the Hugging Face Hub, a commit; or None.
        chain: How the bundles inside feed one another, as JSON (see `edge_infer.chains.definition`), or None. Such a
            bundle has no variants of its own.
        license: The licence of the weights, as an SPDX expression or in words; None where nobody says.
        monitor: What drift is compared with: `{"reference": PATH}` (docs/concepts/bundle.md), or None.
    """

    __slots__ = (
        *("chain", "examples", "files", "generate", "inputs", "labels", "license", "monitor", "name"),
        *("outputs", "pipeline", "source", "task", "variants", "version"),
    )

    def __init__(
        self,
        name: str,
        version: str,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        variants: Sequence[Variant],
        files: Iterable[FileEntry],
        *,
        labels: str | None = None,
        examples: str | None = None,
        task: str | None = None,
        pipeline: Mapping[str, Any] | None = None,
        generate: Mapping[str, Any] | None = None,
        source: Mapping[str, str] | None = None,
        chain: Mapping[str, Any] | None = None,
        license: str | None = None,  # noqa: A002
        monitor: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.version = version
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.variants = tuple(variants)
        self.files = {entry.path: entry for entry in files}
        self.labels = labels
        self.examples = examples
        self.task = task
        self.pipeline = None if pipeline is None else dict(pipeline)
        self.generate = None if generate is None else dict(generate)
        self.source = None if source is None else dict(source)
        self.chain = None if chain is None else dict(chain)
        self.license = license
        self.monitor = None if monitor is None else dict(monitor)

    def variant(self, id: str) -> Variant:  # noqa: A002
        """Return the variant of this id.

        Raises:
            InputError: There is none.
        """
        for variant in self.variants:
            if variant.id == id:
                return variant
        known = [variant.id for variant in self.variants]
        raise InputError(
            f"Bundle `{self.name}` has no variant `{id}`; choose from {listed(known)}",
            hint=did_you_mean(id, known) or f"ask for `{known[0]}`",
            allowed=known,
        )

    def to_json(self) -> dict[str, Any]:
        """Describe this manifest as the JSON object of `manifest.json`."""
        document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "name": self.name,
            "version": self.version,
            "inputs": [spec.to_json() for spec in self.inputs],
            "outputs": [spec.to_json() for spec in self.outputs],
            "variants": [variant.to_json() for variant in self.variants],
            "files": [self.files[path].to_json() for path in sorted(self.files)],
        }
        if self.labels is not None:
            document["labels"] = self.labels
        if self.examples is not None:
            document["examples"] = self.examples
        if self.task is not None:
            document["task"] = self.task
        if self.pipeline is not None:
            document["pipeline"] = self.pipeline
        if self.generate is not None:
            document["generate"] = self.generate
        if self.source is not None:
            document["source"] = self.source
        if self.chain is not None:
            document["chain"] = self.chain
        if self.license is not None:
            document["license"] = self.license
        if self.monitor is not None:
            document["monitor"] = self.monitor
        return document

    def to_bytes(self) -> bytes:
        """Write the bytes of `manifest.json`: the same manifest always gives the same bytes."""
        import json

        return (json.dumps(self.to_json(), indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Parse and check the bytes of a `manifest.json`.

        Raises:
            ManifestError: It is too large, no JSON, or not a manifest; the message names the field.
        """
        if len(data) > MAX_MANIFEST_BYTES:
            raise ManifestError(
                f"manifest.json has {len(data)} bytes, expected at most {MAX_MANIFEST_BYTES}",
                expected=MAX_MANIFEST_BYTES,
                got=len(data),
            )
        import json

        try:
            document = json.loads(data.decode())
            if b"\\u" in data:
                json.dumps(document, ensure_ascii=False).encode()  # half of a surrogate pair could not be written again
        except (ValueError, RecursionError) as error:
            raise ManifestError(
                f"manifest.json is not JSON: {error}", hint="make the bundle again with `edge-infer convert`"
            ) from error
        return _parse(document)


def _parse(document: Any) -> Manifest:
    if not isinstance(document, dict):
        raise ManifestError(f"manifest.json holds {_kind(document)}, expected an object")
    version = _text(document, "schema_version", "manifest")
    if version.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise ManifestError(
            f"manifest.json has schema_version `{version}`, this edge-infer reads {SCHEMA_VERSION.split('.')[0]}.x",
            hint="pip install --upgrade edge-infer",
            is_newer=True,
            got=version,
        )
    name = _text(document, "name", "manifest")
    if not is_name(name):
        raise ManifestError(f"manifest: `name` is {name!r}, expected letters, digits, `.`, `_` and `-`", got=name)

    files: dict[str, FileEntry] = {}
    for i, entry in enumerate(_list(document, "files", "manifest")):
        file = _parse_file(entry, f"files[{i}]")
        if file.path in files:
            raise ManifestError(f"files[{i}]: `{file.path}` is named twice", got=file.path)
        files[file.path] = file

    variants: list[Variant] = []
    for i, entry in enumerate(_list(document, "variants", "manifest")):
        variant = _parse_variant(entry, f"variants[{i}]", files)
        if any(variant.id == other.id for other in variants):
            raise ManifestError(f"variants[{i}]: id `{variant.id}` is used twice", got=variant.id)
        variants.append(variant)
    if not variants and "chain" not in document:
        raise ManifestError("manifest: `variants` is empty, expected at least one")

    return Manifest(
        name,
        _text(document, "version", "manifest"),
        parse_specs(_list(document, "inputs", "manifest"), "inputs"),
        parse_specs(_list(document, "outputs", "manifest"), "outputs"),
        variants,
        files.values(),
        labels=_named_file(document, "labels", "manifest", files, optional=True),
        examples=_named_file(document, "examples", "manifest", files, optional=True),
        task=_text(document, "task", "manifest") if "task" in document else None,
        pipeline=_object(document["pipeline"], "manifest: `pipeline`") if "pipeline" in document else None,
        generate=_parse_generate(document["generate"], files) if "generate" in document else None,
        source=_parse_source(document["source"]) if "source" in document else None,
        chain=_object(document["chain"], "manifest: `chain`") if "chain" in document else None,
        license=_text(document, "license", "manifest") if "license" in document else None,
        monitor=_parse_monitor(document["monitor"], files) if "monitor" in document else None,
    )


def _parse_source(entry: Any) -> dict[str, str]:
    """Check where a model came from; unknown fields are left out."""
    found = _object(entry, "manifest: `source`")
    return {field: _text(found, field, "source") for field in ("hub", "revision")}


def _parse_generate(entry: Any, files: Mapping[str, FileEntry]) -> dict[str, Any]:
    """Check the kind and the files; the rest is checked by what generates."""
    where = "generate"
    found = _object(entry, "manifest: `generate`")
    _text(found, "kind", where)
    for field in ("tokenizer", "chat_template", "vectors"):
        _named_file(found, field, where, files, optional=True)
    return found


def _parse_monitor(entry: Any, files: Mapping[str, FileEntry]) -> dict[str, Any]:
    found = _object(entry, "manifest: `monitor`")
    _named_file(found, "reference", "monitor", files)
    return found


def _parse_file(entry: Any, where: str) -> FileEntry:
    entry = _object(entry, where)
    path = check_path(_text(entry, "path", where), where)
    if path in (MANIFEST_NAME, "quality.json"):
        raise ManifestError(f"{where}: `{path}` cannot be named by the manifest", got=path)
    size = entry.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**53:
        raise ManifestError(f"{where}: `size` is {size!r}, expected a number of bytes", got=size)
    sha256 = _text(entry, "sha256", where)
    parts = _list(entry, "parts", where, optional=True)
    for digest in (sha256, *parts):
        if not isinstance(digest, str) or not _matches(_HEX, digest):
            raise ManifestError(f"{where}: {digest!r} is not a sha256, expected 64 hexadecimal digits", got=digest)
    if parts and len(parts) != -(-size // PART_SIZE):
        raise ManifestError(
            f"{where}: {len(parts)} part hashes for {size} bytes, expected {-(-size // PART_SIZE)}", got=len(parts)
        )
    return FileEntry(path, size, sha256, parts)


def _parse_variant(entry: Any, where: str, files: Mapping[str, FileEntry]) -> Variant:
    entry = _object(entry, where)
    _refuse_reserved(entry, _RESERVED_IN_VARIANT, where)
    id_ = _text(entry, "id", where)
    if not _matches(_VARIANT_ID, id_):
        raise ManifestError(f"{where}: `id` is {id_!r}, expected something like `onnx/int8`", got=id_)
    options = _object(entry.get("options", {}), f"{where}.options")
    for backend, settings in options.items():
        for key, value in _object(settings, f"{where}.options.{backend}").items():
            if not isinstance(value, str):
                raise ManifestError(f"{where}.options.{backend}.{key} is {value!r}, expected a string", got=value)
    external = _list(entry, "external", where, optional=True)
    for path in external:
        if not isinstance(path, str) or path not in files:
            raise ManifestError(f"{where}: external file {path!r} is not in `files`", got=path)
    return Variant(
        id_,
        _choice(entry, "format", where, FORMATS),
        _choice(entry, "precision", where, PRECISIONS),
        _named_file(entry, "file", where, files) or "",
        external=external,
        targets=[_member(one, "targets", where, TARGETS) for one in _list(entry, "targets", where)]
        if "targets" in entry
        else ["any"],
        options=options,
        inputs=parse_specs(entry["inputs"], f"{where}.inputs") if "inputs" in entry else None,
        outputs=parse_specs(entry["outputs"], f"{where}.outputs") if "outputs" in entry else None,
        state=[_parse_state(state, f"{where}.state") for state in _list(entry, "state", where, optional=True)],
        parity=_parse_parity(entry.get("parity", {}), f"{where}.parity"),
    )


def _parse_parity(entry: Any, where: str) -> dict[str, dict[str, float]]:
    for output, figures in _object(entry, where).items():
        for key, value in _object(figures, f"{where}.{output}").items():
            if key in _PARITY and (isinstance(value, bool) or not isinstance(value, (int, float)) or value != value):
                raise ManifestError(f"{where}.{output}.{key} is {value!r}, expected a number", got=value)
    return {output: {key: figures[key] for key in _PARITY if key in figures} for output, figures in entry.items()}


def _parse_state(entry: Any, where: str) -> State:
    entry = _object(entry, where)
    if _choice(entry, "kind", where, ("hidden", "pair")) == "hidden":
        return State()
    return State(_text(entry, "out", where), _text(entry, "in", where))


def parse_specs(entries: Any, where: str) -> list[TensorSpec]:
    """Parse a JSON list of tensor specs.

    Raises:
        ManifestError: It is none, or two tensors have one name.
    """
    if not isinstance(entries, list):
        raise ManifestError(f"{where} is {_kind(entries)}, expected a list of tensor specs")
    specs: list[TensorSpec] = []
    for i, item in enumerate(entries):
        place = f"{where}[{i}]"
        entry = _object(item, place)
        name = _text(entry, "name", place)
        dtype = _choice(entry, "dtype", place, tuple(str(member) for member in DType))
        shape = _list(entry, "shape", place)
        for dim in shape:
            if isinstance(dim, bool) or not (isinstance(dim, str) or (isinstance(dim, int) and dim >= 0)):
                raise ManifestError(f"{place}: dimension {dim!r} is neither a number nor a symbol", got=dim)
        if any(name == other.name for other in specs):
            raise ManifestError(f"{place}: the name `{name}` is used twice", got=name)
        specs.append(TensorSpec(name, dtype, shape))
    return specs


def is_name(text: str) -> bool:
    """Tell whether a text can be the name of a bundle, or of what a store offers."""
    return _matches(_NAME, text)


def check_path(path: str, where: str) -> str:
    """Return a path if it stays inside the bundle on every system.

    Raises:
        ManifestError: It is absolute, goes up, names a drive or a backslash, or is not in its plainest spelling.
    """
    pieces = path.split("/")
    if "\\" in path or ":" in path or "\0" in path or any(piece in ("", ".", "..") for piece in pieces):
        raise ManifestError(
            f"{where}: path {path!r} leaves the bundle or is not plain, expected something like `onnx/model.onnx`",
            got=path,
        )
    return path


def _refuse_reserved(entry: Mapping[str, Any], reserved: Sequence[str], where: str) -> None:
    for field in reserved:
        if field in entry:
            raise ManifestError(
                f"{where}: the field `{field}` is reserved for a later version of edge-infer",
                hint="pip install --upgrade edge-infer",
                is_newer=True,
                field=field,
            )


def _matches(pattern: str, text: str) -> bool:
    from re import fullmatch  # with a manifest, whose `json` needs it too; a bare model file does without

    return fullmatch(pattern, text) is not None


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a truth value", int: "a number", float: "a number"}
    return names.get(type(value), "nothing")


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ManifestError(f"{where} is {_kind(value)}, expected an object")
    return value


def _text(entry: Mapping[str, Any], field: str, where: str) -> str:
    value = entry.get(field)
    if not isinstance(value, str) or not value:
        raise ManifestError(f"{where}: `{field}` is {_kind(value)}, expected text", field=field)
    return value


def _list(entry: Mapping[str, Any], field: str, where: str, *, optional: bool = False) -> list[Any]:
    if optional and field not in entry:
        return []
    value = entry.get(field)
    if not isinstance(value, list):
        raise ManifestError(f"{where}: `{field}` is {_kind(value)}, expected a list", field=field)
    return value


def _member(value: Any, field: str, where: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise ManifestError(
            f"{where}: `{field}` has {value!r}; choose from {listed(list(allowed))}", field=field, allowed=list(allowed)
        )
    return str(value)


def _choice(entry: Mapping[str, Any], field: str, where: str, allowed: Sequence[str]) -> str:
    return _member(_text(entry, field, where), field, where, allowed)


def _named_file(
    entry: Mapping[str, Any], field: str, where: str, files: Mapping[str, FileEntry], *, optional: bool = False
) -> str | None:
    if optional and field not in entry:
        return None
    path = _text(entry, field, where)
    if path not in files:
        raise ManifestError(f"{where}: `{field}` names `{path}`, which is not in `files`", field=field, got=path)
    return path
