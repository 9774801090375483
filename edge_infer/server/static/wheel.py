"""Build the wheel of the running edge-infer from its installed files, for micropip in a page.

It works from a checkout and from an installed wheel alike, and the same files always give the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from base64 import urlsafe_b64encode
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import edge_infer
from edge_infer.errors import BundleError
from edge_infer.server.static.page_archive import archive_builders

if TYPE_CHECKING:
    from collections.abc import Iterator

DISTRIBUTION = "edge-infer"
_SUFFIXES = (".py", ".json", ".typed")
#: The first moment that a zip can tell: the wheel has no clock in it.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_TAGS = "Wheel-Version: 1.0\nGenerator: edge-infer\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


class Wheel(NamedTuple):
    """A built wheel: its version, file name, bytes, sha256 in hex, and the Pythons it is for."""

    version: str
    name: str
    data: bytes
    sha256: str
    requires_python: str


class WheelBuilder:
    """Builds the wheel and the page's parts of it, each when it is first wanted or a file of the package changed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._stamp: tuple[tuple[str, int, int], ...] = ()
        self._wheel: Wheel | None = None
        self._archives: dict[str, bytes] = {}

    def build(self) -> Wheel:
        """Return the wheel.

        Raises:
            BundleError: edge-infer is not installed, so that nobody can tell what it depends on.
        """
        with self._lock:
            return self._current()

    def archive_names(self) -> list[str]:
        """List the parts of the package that Python in a page needs; an error where `build` raises one."""
        return list(archive_builders(self.build().version))

    def archive(self, name: str) -> bytes:
        """Return one of `archive_names`; it is packed when first wanted."""
        with self._lock:
            version = self._current().version
            if name not in self._archives:
                self._archives[name] = archive_builders(version)[name](package_files())
            return self._archives[name]

    def _current(self) -> Wheel:
        status = [(path, source.stat()) for path, source in package_files()]
        stamp = tuple((path, s.st_size, s.st_mtime_ns) for path, s in status)
        if self._wheel is None or stamp != self._stamp:
            self._wheel, self._stamp = build_wheel(), stamp
            self._archives.clear()
        return self._wheel


def build_wheel() -> Wheel:
    """Build the wheel of the running edge-infer.

    Raises:
        BundleError: edge-infer is not installed.
    """
    try:
        installed = distribution(DISTRIBUTION)
    except PackageNotFoundError as error:
        raise BundleError(
            "edge-infer runs from a folder that is not installed, so its wheel cannot be built",
            hint="pip install -e .",
        ) from error
    info = f"edge_infer-{installed.version}.dist-info"
    files = {path: source.read_bytes() for path, source in package_files()}
    files |= {f"{info}/{path}": data for path, data in _metadata_files(installed)}
    files[f"{info}/WHEEL"] = _TAGS.encode()
    files[f"{info}/RECORD"] = _record(files, f"{info}/RECORD")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(files, key=lambda path: (".dist-info/" in path, path)):
            entry = zipfile.ZipInfo(path, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            entry.create_system = 3
            archive.writestr(entry, files[path])
    data = buffer.getvalue()
    requires_python = str(installed.metadata.json.get("requires_python", ""))
    name = f"edge_infer-{installed.version}-py3-none-any.whl"
    return Wheel(installed.version, name, data, hashlib.sha256(data).hexdigest(), requires_python)


def package_files() -> list[tuple[str, Path]]:
    """List the files of the package, each with its path in the wheel, sorted."""
    root = Path(edge_infer.__file__).parent
    files = [
        (f"edge_infer/{path.relative_to(root).as_posix()}", path)
        for path in root.rglob("*")
        if path.suffix in _SUFFIXES and "__pycache__" not in path.parts
    ]
    return sorted(files)


def _metadata_files(installed: Distribution) -> Iterator[tuple[str, bytes]]:
    """Yield what the distribution says of itself; `direct_url.json` and its like, which name folders, stay behind."""
    for path in ("METADATA", "entry_points.txt", "licenses/LICENSE"):
        text = installed.read_text(path)
        if text:
            yield path, text.encode()


def _record(files: dict[str, bytes], itself: str) -> bytes:
    lines = []
    for path in sorted(files):
        digest = urlsafe_b64encode(hashlib.sha256(files[path]).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(files[path])}\n")
    return "".join([*lines, f"{itself},,\n"]).encode()
