"""Open a bundle: a folder, a zip or a URL with a manifest; or a bare model file.

Nothing is used before it is checked: a path must be one that the manifest names, and its bytes must have the size
and sha256 that the manifest gives.
"""

from __future__ import annotations

import os

from edge_infer.bundle.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, FileEntry, Manifest
from edge_infer.bundle.source import Archive, Folder, Memory, Remote, below, name_of
from edge_infer.bundle.variant import Variant
from edge_infer.errors import BundleError, IntegrityError, ManifestError, UnsupportedError
from edge_infer.platform import fetch
from edge_infer.platform.hashing import sha256, sha256_of_file
from edge_infer.platform.host import in_browser

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from mmap import mmap

    from edge_infer.bundle.keys import KeySource
    from edge_infer.bundle.source import Source
    from edge_infer.formats.safetensors import Example

#: Model files that are loaded without a bundle, by their suffix.
MODEL_FORMATS = {".onnx": "onnx", ".ort": "onnx", ".tflite": "tflite", ".wasm": "compiled"}
#: From this size on an engine reads a checked ONNX file itself.
_LARGE_BYTES = 2**26
# How a file begins that `edge_infer.bundle.sealed` reads, which is imported only then.
_SEALED = b"EISEAL01"


class Bundle:
    """A model with its manifest and files; made by `open`, `of_files` or `of_server`.

    Attributes:
        manifest: What the bundle holds.
        location: Where it was opened from: a path or a URL.
    """

    def __init__(self, manifest: Manifest, revision: str, location: str, source: Source) -> None:
        self.manifest = manifest
        self.location = location
        self._revision = revision
        self._source = source

    @classmethod
    def of_files(cls, manifest: Manifest, files: Mapping[str, bytes]) -> Bundle:
        """Make a bundle whose files are in memory, each under its path."""
        return cls(manifest, manifest.name, manifest.name, Memory(dict(files)))

    @classmethod
    def of_server(cls, manifest: Manifest, url: str) -> Bundle:
        """Make the bundle of a model whose files stay on a server."""
        return cls(manifest, sha256(manifest.to_bytes()), url, Remote(url))

    @property
    def revision(self) -> str:
        """The identity of these weights: the sha256 of `manifest.json`, which names every file's sha256.

        Of a bare model it is the sha256 of the file.
        """
        return self._revision or next(iter(self.manifest.files.values())).sha256

    @property
    def is_bare(self) -> bool:
        """Whether this is a model file without a manifest, whose `revision` takes reading the whole file."""
        return not self._revision

    @property
    def is_encrypted(self) -> bool:
        """Whether its files lie encrypted where it was opened from; `read` gives them in clear."""
        return self._source.is_sealed

    @property
    def label(self) -> str:
        """The model's name with the first digits of its revision; of a bare model, which has none, the name."""
        return f"{self.manifest.name}@{self._revision[:6]}" if self._revision else self.manifest.name

    def __repr__(self) -> str:
        return f"Bundle({self.label}, {self.location!r})"

    @classmethod
    def open(cls, source: str | os.PathLike[str], *, key: KeySource = None) -> Bundle:
        """Open a bundle (folder, `.zip` or URL) or a bare `.onnx`, `.ort`, `.tflite` or `.wasm` file.

        `hf:owner/name[@revision]` is fetched from the Hugging Face Hub first: its bundle, or its `onnx/model.onnx`.

        Args:
            source: Where it is.
            key: The key file of a bundle that is encrypted; None for the one that `EDGE_INFER_KEY_FILE` names.

        Raises:
            EncryptedError: It is encrypted, and the key is another or none.
            BundleError: There is nothing, or nothing that is a bundle or a model.
            ManifestError: Its manifest is wrong.
            FetchError: Its URL does not answer.
        """
        text = os.fspath(source)
        if fetch.is_url(text):
            remote, name = Remote(text), name_of(text)
            if _has_own_file(name):
                return cls._from_bytes(remote.read("", fetch.MAX_FETCH_BYTES), name, text, key)
            return cls._from_manifest(remote.read(MANIFEST_NAME, MAX_MANIFEST_BYTES), text, remote, key)
        if text.startswith(("ws://", "wss://")):
            raise BundleError(
                f"`{text}` is not a model on a server: over a WebSocket models run there",
                hint="ws://HOST/v2/models/NAME, or http://HOST/models/NAME to run it here",
            )
        if text.startswith("hf:"):
            if in_browser():
                raise UnsupportedError(
                    f"A page does not load `{text}`: it takes bundles",
                    hint=f"edge-infer convert {text} -o model.bundle, then load that bundle by its URL",
                )
            from edge_infer.bundle.hub import bring

            model = bring(text)
            return cls.open(model.file or model.folder)
        if os.path.isdir(text):
            folder = Folder(text)
            return cls._from_manifest(folder.read(MANIFEST_NAME, MAX_MANIFEST_BYTES + 1), text, folder, key)
        if not os.path.isfile(text):
            raise BundleError(
                f"There is no file or folder `{text}`", hint="edge-infer convert model.onnx -o model.bundle"
            )
        name = os.path.basename(text)
        if _suffix(name) in MODEL_FORMATS:
            real = os.path.realpath(text)
            parent, own = os.path.split(real)
            bare = _BareFile(own, os.path.getsize(real), lambda: sha256_of_file(real))
            return cls(_bare_manifest(bare, name), "", text, Folder(parent))
        return cls._from_bytes(_read(text) if _suffix(name) == ".zip" else b"", name, text, key)

    @classmethod
    async def open_async(cls, source: str | os.PathLike[str]) -> Bundle:
        """Open a bundle as `open` does; a URL is fetched without blocking, with every file that a variant may need."""
        text = os.fspath(source)
        if not fetch.is_url(text):
            return cls.open(text)
        remote, name = Remote(text), name_of(text)
        if _has_own_file(name):
            return cls._from_bytes(await remote.read_async("", fetch.MAX_FETCH_BYTES), name, text)
        return cls._from_manifest(await remote.read_async(MANIFEST_NAME, MAX_MANIFEST_BYTES), text, remote)

    @classmethod
    def _from_manifest(cls, data: bytes, location: str, source: Source, key: KeySource = None) -> Bundle:
        if data.startswith(_SEALED):
            if in_browser():
                raise UnsupportedError(
                    f"`{location}` is encrypted, which Python in a page does not read",
                    hint="in JavaScript: load('edge+/store/MODEL', { key })",
                )
            from edge_infer.bundle import keys, sealed

            ring = keys.KeyRing.of(key)
            clear = sealed.opened(data, ring, location)
            return cls(Manifest.from_bytes(clear), sha256(data), location, sealed.SealedSource(source, ring))
        return cls(Manifest.from_bytes(data), sha256(data), location, source)

    @classmethod
    def _from_bytes(cls, data: bytes, name: str, location: str, key: KeySource = None) -> Bundle:
        """Open the bytes of one file: a zipped bundle or a bare model."""
        if name.endswith(".zip"):
            archive = Archive(data, location)
            return cls._from_manifest(archive.read(MANIFEST_NAME, MAX_MANIFEST_BYTES + 1), location, archive, key)
        if _suffix(name) not in MODEL_FORMATS:
            raise BundleError(
                f"`{location}` is neither a bundle nor a model; expected a folder, a .zip, or one of "
                f"{', '.join(MODEL_FORMATS)}",
                got=name,
            )
        bare = _BareFile(name, len(data), lambda: sha256(data))
        return cls(_bare_manifest(bare, name), "", location, Memory({name: data}))

    def described(self, manifest: Manifest, files: Mapping[str, bytes]) -> Bundle:
        """Return this bare model with the manifest that its file lacks.

        Args:
            manifest: It names the model's file first, and the further files.
            files: The bytes of the further files by their path; they stay in memory.

        Raises:
            BundleError: This is not a bare model.
        """
        if isinstance(self._source, (Folder, Memory)) and self.is_bare:
            return Bundle(manifest, "", self.location, self._source.with_files(files))
        raise BundleError(f"`{self.location}` has a manifest of its own", hint="change manifest.json")

    def inner(self, folder: str) -> Bundle:
        """Return the bundle that lies in a folder of this one, as in that of a chain.

        Raises:
            ManifestError: This manifest names no such bundle, or that one's is wrong.
            IntegrityError: Its manifest is another than this one says.
        """
        data = self.read(f"{folder}/{MANIFEST_NAME}")
        return self._from_manifest(data, below(self.location, folder), self._source.inside(folder))

    # -- its files --

    def read(self, path: str) -> bytes:
        """Return the bytes of a file, checked against the manifest.

        Raises:
            ManifestError: The manifest names no such file.
            IntegrityError: Its size or sha256 is another than the manifest says.
            BundleError: It is missing.
        """
        entry = self._entry(path)
        return self._checked(entry, self._source.read(path, entry.size + 1))

    async def read_async(self, path: str) -> bytes:
        """Return the bytes of a file as `read` does; a URL is fetched without blocking."""
        entry = self._entry(path)
        if isinstance(self._source, Remote):
            return self._checked(entry, await self._source.read_async(path, entry.size + 1))
        return self.read(path)

    def model(self, variant: Variant) -> str | bytes:
        """Return a variant's model file, checked: its bytes, or its path where it is bare, large or has external data.

        Raises:
            IntegrityError: It, or a file that it refers to, is another than the manifest says.
            BundleError: It is missing, or refers to external data that lies in no folder.
        """
        if not isinstance(self._source, Folder):
            if variant.external:
                raise BundleError(
                    f"Variant `{variant.id}` has external data, which engines read from a folder only",
                    hint=f"unpack `{self.location}` into a folder and load that",
                )
            return self.read(variant.file)
        entry = self._entry(variant.file)
        is_large = entry.size >= _LARGE_BYTES and variant.format == "onnx"  # its bytes would be one more copy
        if not (variant.external or is_large or isinstance(entry, _BareFile)):
            return self.read(variant.file)  # as bytes, an engine cannot read further files that nobody has checked
        places = {path: self._source.path_of(path) for path in (variant.file, *variant.external)}
        for path, place in places.items():
            self._check_file(self._entry(path), place)
        model = places[variant.file]
        if variant.external or not isinstance(entry, _BareFile):
            self._check_external(variant, _mapped(model) if is_large else _read(model))
        return model

    def file_path(self, path: str) -> str | None:
        """Return where a file of the bundle lies, checked against the manifest; None where it lies in no folder.

        Raises:
            ManifestError: The manifest names no such file.
            IntegrityError: Its size or sha256 is another than the manifest says.
            BundleError: It is missing.
        """
        entry = self._entry(path)
        if not isinstance(self._source, Folder):
            return None
        place = self._source.path_of(path)
        self._check_file(entry, place)
        return place

    async def model_async(self, variant: Variant) -> str | bytes:
        """Return a variant's model file as `model` does; a URL is fetched without blocking."""
        if isinstance(self._source, Remote) and not variant.external:
            return await self.read_async(variant.file)
        return self.model(variant)

    def examples(self) -> list[Example]:
        """Return the golden examples, each (inputs, outputs) by tensor name; an empty list where there are none."""
        if self.manifest.examples is None:
            return []
        from edge_infer.formats.safetensors import read_examples

        return read_examples(self.read(self.manifest.examples))

    def read_note(self, path: str, limit: int) -> bytes:
        """Return the bytes of a file that the manifest does not name and nothing checks.

        Raises:
            BundleError: It is missing.
            FetchError: Its URL does not answer with it.
        """
        return self._source.read(path, limit)

    def labels(self) -> list[str]:
        """Return the class names; an empty list where there are none.

        Raises:
            BundleError: The file is not a JSON list of texts.
        """
        if self.manifest.labels is None:
            return []
        import json

        try:
            labels = json.loads(self.read(self.manifest.labels))
        except ValueError as error:
            raise BundleError(f"`{self.manifest.labels}` is not JSON: {error}") from error
        if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
            raise BundleError(f"`{self.manifest.labels}` is not a JSON list of texts")
        return labels

    def _check_external(self, variant: Variant, model: bytes | mmap) -> None:
        """Refuse a model that refers to a file which the manifest does not list as its external data."""
        from edge_infer.formats.onnx import external_locations

        try:
            locations = external_locations(model)
        except ValueError as error:
            raise IntegrityError(f"`{variant.file}` in `{self.location}` is not an ONNX file: {error}") from error
        folder = variant.file.rpartition("/")[0]
        for location in locations:
            if f"{folder}/{location}".lstrip("/") not in variant.external:
                raise IntegrityError(
                    f"`{variant.file}` in `{self.location}` refers to `{location}`, which the manifest does not list",
                    hint="convert the bundle again",
                    path=variant.file,
                )

    def _entry(self, path: str) -> FileEntry:
        entry = self.manifest.files.get(path)
        if entry is None:
            raise ManifestError(
                f"Bundle `{self.manifest.name}` has no file `{path}`", hint="convert the bundle again", got=path
            )
        return entry

    def _checked(self, entry: FileEntry, data: bytes) -> bytes:
        size = f"more than {entry.size}" if len(data) > entry.size else len(data)
        self._compare(entry, size, lambda: sha256(data))
        return data

    def _check_file(self, entry: FileEntry, path: str) -> None:
        self._compare(entry, os.path.getsize(path), lambda: sha256_of_file(path))

    def _compare(self, entry: FileEntry, size: int | str, digest: Callable[[], str]) -> None:
        if size != entry.size:
            raise self._mismatch(entry, "size", size)
        if not isinstance(entry, _BareFile) and (found := digest()) != entry.sha256:
            raise self._mismatch(entry, "sha256", found)

    def _mismatch(self, entry: FileEntry, what: str, got: object) -> IntegrityError:
        expected = getattr(entry, what)
        return IntegrityError(
            f"`{entry.path}` in `{self.location}` has {what} {got}, the manifest says {expected}",
            hint="the file was changed or cut short: copy or convert the bundle again",
            path=entry.path,
            expected=expected,
            got=got,
        )


class _BareFile(FileEntry):
    """A model file that no manifest describes: whatever it is, it is the right one, and is hashed only when asked."""

    __slots__ = ("_digest", "_hash")

    def __init__(self, path: str, size: int, digest: Callable[[], str]) -> None:
        self.path = path
        self.size = size
        self.parts = ()
        self._hash = digest
        self._digest = ""

    @property
    def sha256(self) -> str:  # type: ignore[override]
        """The file's sha256 in hex."""
        self._digest = self._digest or self._hash()
        return self._digest


def _bare_manifest(entry: FileEntry, name: str) -> Manifest:
    """Describe a model file without a manifest; the engine will tell its inputs and outputs."""
    stem, suffix = os.path.splitext(name)
    format_ = MODEL_FORMATS[suffix]
    return Manifest(stem, "0", (), (), [Variant(f"{format_}/model", format_, "", entry.path)], [entry])


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1]


def _mapped(path: str) -> mmap:
    """Return a file's bytes without reading them; they are let go with the last view of them."""
    import mmap

    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _has_own_file(name: str) -> bool:
    return name.endswith(".zip") or _suffix(name) in MODEL_FORMATS
