"""The manifest of a bundle: `manifest.json`, parsed and checked.

The format is described by `docs/reference/manifest.schema.json`. Unknown fields are ignored, an unknown major
version is refused, and so are the fields that are reserved for later versions, because ignoring them would give
wrong answers. The classes are plain slotted ones: each dataclass would cost a device a millisecond of start-up.
"""

from __future__ import annotations

from edge_infer.bundle.fields import file_of, kind_of, list_of, matches, object_of, specs_of, text_of
from edge_infer.bundle.variant import parse_variant
from edge_infer.errors import InputError, ManifestError, did_you_mean, listed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from edge_infer.bundle.variant import Variant
    from edge_infer.tensors.tensor import TensorSpec

SCHEMA_VERSION = "1.0"
#: The file's name inside a bundle.
MANIFEST_NAME = "manifest.json"
#: A larger manifest is refused unread: 16 MiB describe a bundle of 4 TiB.
MAX_MANIFEST_BYTES = 16 * 2**20
#: Files above this size carry the sha256 of each part of this size, so that a download can be resumed and checked.
PART_SIZE = 2**20

#: The fields that a bundle may lack, in the order of the file.
_OPTIONAL = ("labels", "examples", "task", "pipeline", "generate", "source", "chain", "license", "monitor")
_HEX = r"[0-9a-f]{64}"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}"


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

    __slots__ = ("files", "inputs", "name", "outputs", "variants", "version", *_OPTIONAL)

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

    def size_of(self, variant: Variant) -> int:
        """Return the bytes of a variant's files."""
        return sum(self.files[path].size for path in (variant.file, *variant.external))

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
        for name in _OPTIONAL:
            if (value := getattr(self, name)) is not None:
                document[name] = value
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
        raise ManifestError(f"manifest.json holds {kind_of(document)}, expected an object")
    version = text_of(document, "schema_version", "manifest")
    if version.split(".")[0] != SCHEMA_VERSION.split(".")[0]:
        raise ManifestError(
            f"manifest.json has schema_version `{version}`, this edge-infer reads {SCHEMA_VERSION.split('.')[0]}.x",
            hint="pip install --upgrade edge-infer",
            is_newer=True,
            got=version,
        )
    name = text_of(document, "name", "manifest")
    if not is_name(name):
        raise ManifestError(f"manifest: `name` is {name!r}, expected letters, digits, `.`, `_` and `-`", got=name)

    files: dict[str, FileEntry] = {}
    for i, entry in enumerate(list_of(document, "files", "manifest")):
        file = _parse_file(entry, f"files[{i}]")
        if file.path in files:
            raise ManifestError(f"files[{i}]: `{file.path}` is named twice", got=file.path)
        files[file.path] = file

    variants: list[Variant] = []
    for i, entry in enumerate(list_of(document, "variants", "manifest")):
        variant = parse_variant(entry, f"variants[{i}]", files)
        if any(variant.id == other.id for other in variants):
            raise ManifestError(f"variants[{i}]: id `{variant.id}` is used twice", got=variant.id)
        variants.append(variant)
    if not variants and "chain" not in document:
        raise ManifestError("manifest: `variants` is empty, expected at least one")

    return Manifest(
        name,
        text_of(document, "version", "manifest"),
        specs_of(list_of(document, "inputs", "manifest"), "inputs"),
        specs_of(list_of(document, "outputs", "manifest"), "outputs"),
        variants,
        files.values(),
        labels=file_of(document, "labels", "manifest", files, optional=True),
        examples=file_of(document, "examples", "manifest", files, optional=True),
        task=text_of(document, "task", "manifest") if "task" in document else None,
        pipeline=object_of(document["pipeline"], "manifest: `pipeline`") if "pipeline" in document else None,
        generate=_parse_generate(document["generate"], files) if "generate" in document else None,
        source=_parse_source(document["source"]) if "source" in document else None,
        chain=object_of(document["chain"], "manifest: `chain`") if "chain" in document else None,
        license=text_of(document, "license", "manifest") if "license" in document else None,
        monitor=_parse_monitor(document["monitor"], files) if "monitor" in document else None,
    )


def _parse_source(entry: Any) -> dict[str, str]:
    """Check where a model came from; unknown fields are left out."""
    found = object_of(entry, "manifest: `source`")
    return {field: text_of(found, field, "source") for field in ("hub", "revision")}


def _parse_generate(entry: Any, files: Mapping[str, FileEntry]) -> dict[str, Any]:
    """Check the kind and the files; the rest is checked by what generates."""
    where = "generate"
    found = object_of(entry, "manifest: `generate`")
    text_of(found, "kind", where)
    for field in ("tokenizer", "chat_template", "vectors"):
        file_of(found, field, where, files, optional=True)
    return found


def _parse_monitor(entry: Any, files: Mapping[str, FileEntry]) -> dict[str, Any]:
    found = object_of(entry, "manifest: `monitor`")
    file_of(found, "reference", "monitor", files)
    return found


def _parse_file(entry: Any, where: str) -> FileEntry:
    entry = object_of(entry, where)
    path = check_path(text_of(entry, "path", where), where)
    if path in (MANIFEST_NAME, "quality.json"):
        raise ManifestError(f"{where}: `{path}` cannot be named by the manifest", got=path)
    size = entry.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 2**53:
        raise ManifestError(f"{where}: `size` is {size!r}, expected a number of bytes", got=size)
    sha256 = text_of(entry, "sha256", where)
    parts = list_of(entry, "parts", where, optional=True)
    for digest in (sha256, *parts):
        if not isinstance(digest, str) or not matches(_HEX, digest):
            raise ManifestError(f"{where}: {digest!r} is not a sha256, expected 64 hexadecimal digits", got=digest)
    if parts and len(parts) != -(-size // PART_SIZE):
        raise ManifestError(
            f"{where}: {len(parts)} part hashes for {size} bytes, expected {-(-size // PART_SIZE)}", got=len(parts)
        )
    return FileEntry(path, size, sha256, parts)


def is_name(text: str) -> bool:
    """Tell whether a text can be the name of a bundle, or of what a store offers."""
    return matches(_NAME, text)


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
