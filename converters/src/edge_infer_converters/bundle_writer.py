"""Write a bundle; no other module of the converters writes manifests.

Files go into a temporary folder beside the bundle; `commit` puts it into place in one step. After an error before that,
an older bundle is unchanged, and nothing half-written is left.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.bundle.manifest import MANIFEST_NAME, PART_SIZE, FileEntry, Manifest
from edge_infer.errors import BundleError, InputError
from edge_infer.monitor.reference import PATH as REFERENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType
    from typing import Self

    from edge_infer.bundle.variant import Variant
    from edge_infer.tasks.definition import Definition
    from edge_infer.tensors.tensor import TensorSpec

#: What was measured, beside the manifest and outside of its revision.
QUALITY_NAME = "quality.json"
EXAMPLES_NAME = "examples/golden.safetensors"
LABELS_NAME = "labels.json"
# Both stand in URLs: `/v2/models/NAME/versions/VERSION`.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")


class BundleWriter:
    """Collects the files of a bundle and puts them into place; use it in a `with` statement.

    Args:
        path: The folder to write.
        force: Whether to replace a bundle that is there.
        source: Where the model came from, for the manifest; None where it came from a local file.
        license: The licence of the weights, for the manifest.

    Raises:
        BundleError: Something is there already, or the folder to write into is missing.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        force: bool = False,
        source: Mapping[str, str] | None = None,
        license: str | None = None,  # noqa: A002  the manifest's word
    ) -> None:
        self.path = Path(path)
        self._license = license or None
        self._source = source
        self._entries: dict[str, FileEntry] = {}
        _check_path(self.path, force)

    def __enter__(self) -> Self:
        try:
            self.folder = Path(tempfile.mkdtemp(prefix=f".{self.path.name}.", dir=self.path.parent))
            self.folder.chmod(0o755)
        except OSError as error:
            raise BundleError(
                f"`{self.path.parent}` cannot be written to: {error.strerror}", hint="-o, with another place"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def size(self) -> int:
        """The bytes of all files so far, the manifest not counted."""
        return sum(entry.size for entry in self._entries.values())

    def add(self, path: str, data: bytes) -> None:
        """Write a file of the bundle.

        Args:
            path: Its path inside, `/` between folders.
            data: Its bytes.
        """
        self._write(path, data)
        parts = [
            hashlib.sha256(data[start : start + PART_SIZE]).hexdigest()
            for start in range(0, len(data) if len(data) > PART_SIZE else 0, PART_SIZE)
        ]
        self._entries[path] = FileEntry(path, len(data), hashlib.sha256(data).hexdigest(), parts)

    def adopt(self, path: str) -> int:
        """Take a file that was written into the folder, however large, and return its size.

        Args:
            path: Its path inside, `/` between folders.
        """
        whole, parts, size = hashlib.sha256(), [], 0
        with (self.folder / path).open("rb") as file:
            while part := file.read(PART_SIZE):
                whole.update(part)
                parts.append(hashlib.sha256(part).hexdigest())
                size += len(part)
            os.fsync(file.fileno())  # what wrote it may not have waited for the disk
        self._entries[path] = FileEntry(path, size, whole.hexdigest(), parts if size > PART_SIZE else [])
        return size

    def read(self, path: str) -> bytes | None:
        """Return a file that was added, or None."""
        return (self.folder / path).read_bytes() if path in self._entries else None

    def drop(self, *paths: str) -> None:
        """Take files of one folder out again."""
        for path in paths:
            del self._entries[path]
            (self.folder / path).unlink()
        parent = (self.folder / paths[0]).parent
        if parent != self.folder and not any(parent.iterdir()):
            parent.rmdir()

    def write_manifest(
        self,
        name: str,
        version: str,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        variants: Sequence[Variant],
        definition: Definition | None = None,
        *,
        task: str | None = None,
        generate: Mapping[str, Any] | None = None,
    ) -> str:
        """Write `manifest.json` over the files that were added, and return its sha256, the revision.

        Labels, golden examples and the reference of drift are named where they were added. The task is the
        definition's, or the given one of a model that generates text.
        """
        manifest = Manifest(
            name,
            version,
            inputs,
            outputs,
            variants,
            self._entries.values(),
            labels=LABELS_NAME if LABELS_NAME in self._entries else None,
            examples=EXAMPLES_NAME if EXAMPLES_NAME in self._entries else None,
            task=task if definition is None else definition.task,
            pipeline=None if definition is None else definition.to_json(),
            generate=generate,
            monitor={"reference": REFERENCE} if REFERENCE in self._entries else None,
            source=self._source,
            license=self._license,
        )
        data = manifest.to_bytes()
        Manifest.from_bytes(data)  # what is written can be read
        self._write(MANIFEST_NAME, data)
        return hashlib.sha256(data).hexdigest()

    def write_quality(self, document: dict[str, Any]) -> None:
        """Write `quality.json`."""
        self._write(QUALITY_NAME, (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())

    def commit(self) -> None:
        """Put the bundle into place.

        Raises:
            BundleError: The file system refused; what was there before is still there.
        """
        for folder, _, _ in os.walk(self.folder):
            _sync(Path(folder))
        try:
            if self.path.exists():
                _replace(self.folder, self.path)
            else:
                self.folder.rename(self.path)
            _sync(self.path.parent)
        except OSError as error:
            raise BundleError(f"`{self.path}` cannot be written: {error.strerror}") from error

    def _write(self, path: str, data: bytes) -> None:
        place = self.folder / path
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise BundleError(f"`{self.path}` cannot be written: {error.strerror}") from error


def checked_name(name: str | None, file_name: str) -> str:
    """Return the name that is asked for, or else one made of the file's.

    Raises:
        InputError: It has characters that names cannot have.
    """
    if name is None:
        return re.sub(r"[^A-Za-z0-9._-]+", "-", file_name).strip("-._")[:128] or "model"
    if not _NAME.fullmatch(name):
        raise InputError(
            f"Name {name!r} does not fit, expected letters, digits, `.`, `_` and `-`", hint="--name my-model", got=name
        )
    return name


def checked_version(version: str) -> str:
    """Return the version that is asked for.

    Raises:
        InputError: It has characters that versions cannot have.
    """
    if not _VERSION.fullmatch(version):
        raise InputError(
            f"Version {version!r} does not fit, expected letters, digits, `.`, `_`, `+` and `-`",
            hint="--model-version 2",
            got=version,
        )
    return version


def _check_path(path: Path, force: bool) -> None:
    if not path.parent.is_dir():
        raise BundleError(f"There is no folder `{path.parent}`", hint=f"mkdir -p {path.parent}")
    if not path.exists():
        return
    is_bundle = path.is_dir() and ((path / MANIFEST_NAME).is_file() or not any(path.iterdir()))
    if not is_bundle:
        raise BundleError(f"`{path}` exists and is not a bundle: it is not overwritten", hint="choose another name")
    if not force and any(path.iterdir()):
        raise BundleError(f"`{path}` exists", hint="--force replaces it")


def _replace(folder: Path, path: Path) -> None:
    """Exchange the path for the new folder; on failure the old one is put back."""
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
    try:
        path.rename(aside / path.name)
        try:
            folder.rename(path)
        except OSError:
            (aside / path.name).rename(path)
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Make a folder's entries survive a power cut, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
