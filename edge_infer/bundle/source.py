"""Where the files of a bundle lie: a folder, a zip, a URL, or memory. Nothing here checks their bytes."""

from __future__ import annotations

import os

from edge_infer.bundle.manifest import MANIFEST_NAME
from edge_infer.errors import BundleError, FetchError, Unauthorized
from edge_infer.platform import fetch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

#: A zip entry that unpacks to more than this and to more than 100 times its packed size is taken for a bomb.
_BOMB_BYTES = 16 * 2**20
_BOMB_RATIO = 100
_NOT_FOUND = 404
_SLASHES_OF_ORIGIN = 2  # of `http://HOST`


class Source:
    """A place that files are read from by their path inside the bundle.

    Attributes:
        is_sealed: Whether they lie encrypted there; `read` gives them in clear.
    """

    is_sealed = False

    def read(self, path: str, limit: int) -> bytes:
        """Return the bytes of a file, at most so many.

        Raises:
            BundleError: It is missing, or cannot be read.
            FetchError: Its URL does not answer with it.
        """
        raise NotImplementedError

    def inside(self, folder: str) -> Source:
        """Return a folder of it."""
        return _Inside(self, folder)


class _Inside(Source):
    """A folder of a source that lies in no folder of this machine."""

    def __init__(self, source: Source, folder: str) -> None:
        self._source = source
        self._folder = folder

    def read(self, path: str, limit: int) -> bytes:
        """See `Source.read`."""
        return self._source.read(f"{self._folder}/{path}", limit)


class Folder(Source):
    """A folder of this machine; some of its files may lie in memory."""

    def __init__(self, root: str, made: Mapping[str, bytes] | None = None) -> None:
        self._root = root
        self._made = dict(made or {})

    def with_files(self, files: Mapping[str, bytes]) -> Folder:
        """Return the folder with files that lie in memory."""
        return Folder(self._root, files)

    def path_of(self, path: str) -> str:
        """Return where a file lies, if it exists and is not a link that leaves the bundle."""
        place = os.path.join(self._root, *path.split("/"))
        if not os.path.isfile(place):
            raise _missing(path, self._root)
        root = os.path.realpath(self._root)
        if not os.path.realpath(place).startswith(os.path.join(root, "")):
            raise BundleError(f"`{path}` is a link that leaves the bundle `{self._root}`", path=path)
        return place

    def read(self, path: str, limit: int) -> bytes:
        """See `Source.read`."""
        if path in self._made:
            return self._made[path][:limit]
        with open(self.path_of(path), "rb") as file:
            return file.read(limit)

    def inside(self, folder: str) -> Folder:
        """Return a folder of it."""
        return Folder(os.path.join(self._root, *folder.split("/")))


class Archive(Source):
    """A zip in memory, of which no entry may be a bomb."""

    def __init__(self, data: bytes, location: str) -> None:
        import io
        import zipfile

        self._location = location
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise BundleError(
                f"`{location}` is not a zip: {error}", hint="download it again, or load the folder"
            ) from error

    def read(self, path: str, limit: int) -> bytes:
        """See `Source.read`."""
        import zipfile
        import zlib

        try:
            info = self._zip.getinfo(path)
        except KeyError:
            raise _missing(path, self._location) from None
        if info.file_size > max(_BOMB_BYTES, _BOMB_RATIO * info.compress_size):
            raise BundleError(
                f"`{path}` in `{self._location}` unpacks from {info.compress_size} to {info.file_size} bytes: refused",
                hint="unpack it yourself if you trust it, and load the folder",
                path=path,
            )
        try:
            with self._zip.open(info) as file:
                return file.read(limit)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise BundleError(
                f"`{path}` in `{self._location}` cannot be unpacked: {error}", hint="download it again", path=path
            ) from error


class Remote(Source):
    """A bundle at a URL; the path `""` is the URL itself.

    The API key of the environment goes to a server of edge-infer that asks for one, and to no other.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._headers: dict[str, str] = {}

    def read(self, path: str, limit: int) -> bytes:
        """See `Source.read`."""
        try:
            return fetch.fetch(self._url_of(path), limit, self._headers)
        except (FetchError, Unauthorized) as error:
            self._headers = self._key_for(error)
        return fetch.fetch(self._url_of(path), limit, self._headers)

    async def read_async(self, path: str, limit: int) -> bytes:
        """Read as `read` does, without blocking."""
        try:
            return await fetch.fetch_async(self._url_of(path), limit, self._headers)
        except (FetchError, Unauthorized) as error:
            self._headers = self._key_for(error)
        return await fetch.fetch_async(self._url_of(path), limit, self._headers)

    def inside(self, folder: str) -> Remote:
        """Return a folder of it."""
        return Remote(_join(self._url, folder))

    def _url_of(self, path: str) -> str:
        return _join(self._url, path) if path else self._url

    def _key_for(self, refused: FetchError | Unauthorized) -> dict[str, str]:
        """Return the header that a server asks for, where it has not seen it yet; else raise what it said."""
        headers = fetch.api_key()
        if isinstance(refused, Unauthorized) and headers and not self._headers:
            return headers
        root = self._url.rstrip("/")
        if refused.details.get("status") == _NOT_FOUND and root.count("/") == _SLASHES_OF_ORIGIN:
            refused.hint = f"{root}/models/NAME to run a model here, {root}/v2/models/NAME to run it there"
        raise refused


class Memory(Source):
    """Files in memory, each under its path."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._files = files

    def with_files(self, files: Mapping[str, bytes]) -> Memory:
        """Return these files and further ones."""
        return Memory({**files, **self._files})

    def read(self, path: str, limit: int) -> bytes:
        """See `Source.read`."""
        if path not in self._files:
            raise _missing(path, "the model")
        return self._files[path][:limit]


def below(location: str, folder: str) -> str:
    """Return the path or URL of a folder of a bundle, of which that is given."""
    return _join(location, folder) if fetch.is_url(location) else os.path.join(location, *folder.split("/"))


def name_of(url: str) -> str:
    """Return the last piece of a URL's path, decoded.

    Raises:
        BundleError: It is no URL.
    """
    from urllib.parse import unquote, urlsplit

    try:
        return unquote(urlsplit(url).path.rstrip("/").rpartition("/")[2])
    except ValueError as error:
        raise BundleError(f"`{url}` is not a URL: {error}", got=url) from error


def _join(url: str, path: str) -> str:
    """Append a file's path to a bundle's URL, before its query."""
    from urllib.parse import quote, urlsplit

    parts: Any = urlsplit(url)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{quote(path)}").geturl()  # type: ignore[no-any-return]


def _missing(path: str, location: str) -> BundleError:
    hint = "copy or convert it again"
    if path == MANIFEST_NAME:
        # A folder of the Hugging Face Hub has this file.
        is_hub = os.path.isfile(os.path.join(location, "config.json"))
        hint = f"edge-infer convert {location if is_hub else 'model.onnx'} -o model.bundle"
    return BundleError(f"`{location}` has no file `{path}`", hint=hint, path=path)
