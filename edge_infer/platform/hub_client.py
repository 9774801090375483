"""Bring files of a repository of the Hugging Face Hub into the cache of its own tools, each checked.

Sources: https://huggingface.co/docs/hub/api (the list of files), https://huggingface.co/docs/huggingface_hub, "Manage
the cache" (`blobs`, `refs` and `snapshots`) and "Environment variables" (`HF_ENDPOINT`, `HF_HOME`, `HF_HUB_CACHE`,
`HF_HUB_OFFLINE`, `HF_TOKEN`). The package `huggingface_hub` downloads where it is installed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from urllib.parse import quote

from edge_infer.errors import FetchError, InputError, IntegrityError
from edge_infer.platform import fetch
from edge_infer.platform.host import cache_path
from edge_infer.platform.hub import HubAddress, is_part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")
_MAX_LIST_BYTES = 64 * 2**20
_CHUNK = 2**20
#: The most bytes of a file whose size the Hub does not say; a model beyond has its weights in files of their own.
_MOST_UNSTATED_BYTES = 2**31
_YES = ("1", "true", "yes", "on")


class HubFile(NamedTuple):
    """A file of a repository.

    Attributes:
        size: Its bytes; None where the Hub does not say.
        digest: Its sha256 for large files, git's sha1 for others; empty where the Hub does not say.
    """

    size: int | None
    digest: str


class HubRepository:
    """A repository at one commit.

    Args:
        address: Its address.

    Attributes:
        commit: The commit.
        folder: Where its files are put.
        files: What it has by path; offline what is here.

    Raises:
        InputError: There is no such repository or revision; or it is not here, and this machine is offline.
        FetchError: The Hub does not answer.
    """

    def __init__(self, address: HubAddress) -> None:
        self._address = address
        self._endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
        self._place = os.path.join(_cache(), f"models--{address.name.replace('/', '--')}")
        self._is_offline = any(
            os.environ.get(name, "").lower() in _YES for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
        )
        self.commit, self.files = self._here() if self._is_offline else self._listed()
        self._links = self._snapshot(self.commit)
        self.folder = os.path.join(cache_path(), "hub", address.name.replace("/", "--"), self.commit)

    def download(self, paths: Sequence[str]) -> None:
        """Bring files here that are not; a file appears whole or not at all.

        The cache of the Hub's tools has links to files without their names. A bundle, and a model with its weights
        beside it, have no links that leave them: in the folder the files stand under their names, without a copy
        where the disk is the same.

        Raises:
            FetchError: The Hub does not answer.
            IntegrityError: A file has another size or hash than the Hub says.
        """
        for path in paths:
            if not self._is_offline and not self._is_here(path) and not self._package(path):
                self._plain(path)
            self._place_beside(path)
        if not self._is_offline:
            self._remember()

    def _place_beside(self, path: str) -> None:
        """Give a file of the cache its name in the folder."""
        real, target = os.path.realpath(self._target(path)), os.path.join(self.folder, *path.split("/"))
        with suppress(OSError):
            if os.path.samefile(real, target):
                return
        os.makedirs(os.path.dirname(target), exist_ok=True)
        temporary = f"{target}.{os.getpid()}.{threading.get_ident()}"
        try:
            try:
                os.link(real, temporary)
            except OSError:  # another disk, or a file system without links
                shutil.copyfile(real, temporary)
            os.replace(temporary, target)
        finally:
            with suppress(OSError):  # of one file, the replacement leaves both names
                os.unlink(temporary)

    def _listed(self) -> tuple[str, dict[str, HubFile]]:
        """Ask the Hub for the commit and its files."""
        name, revision = self._address.name, quote(self._address.revision, safe="")
        url = f"{self._endpoint}/api/models/{name}/revision/{revision}?blobs=true"
        try:
            document = json.loads(fetch.fetch(url, _MAX_LIST_BYTES, _token()))
            commit, entries = document["sha"], document["siblings"]
            files = dict(_entry(one) for one in entries)
        except FetchError as error:
            raise self._missing(error) from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise FetchError(f"{url} does not answer as a Hub does: {error}", hint="is HF_ENDPOINT right?") from error
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
            raise FetchError(f"{url} names the commit {commit!r}, expected 40 hexadecimal digits", url=url)
        return commit, files

    def _missing(self, error: FetchError) -> FetchError | InputError:
        status = error.details.get("status")
        text, at = self._address.text, f"{self._address.name}@{self._address.revision}"
        if status in (401, 403, 404):
            hint = (
                "check owner, name and revision" if _token() else "check it; for private and gated models set HF_TOKEN"
            )
            return InputError(f"`{text}`: the Hub has no {at} for you (status {status})", hint=hint, got=text)
        return FetchError(
            f"`{text}`: {error.message}", hint=f"HF_HUB_OFFLINE=1 takes what is in {self._place}", **error.details
        )

    def _here(self) -> tuple[str, dict[str, HubFile]]:
        """Return the commit that was fetched last by this revision, and its files that are here."""
        revision = self._address.revision
        commit = revision if _COMMIT.fullmatch(revision) else ""
        place = os.path.join(self._place, "refs", *revision.split("/"))
        with suppress(OSError, UnicodeDecodeError), open(place, encoding="ascii") as file:
            commit = file.read(41).strip()
        folder = self._snapshot(commit)
        if not _COMMIT.fullmatch(commit) or not os.path.isdir(folder):
            raise InputError(
                f"`{self._address.text}` is not in {self._place}, and HF_HUB_OFFLINE says that this machine is offline",
                hint="unset HF_HUB_OFFLINE once",
            )
        found: dict[str, HubFile] = {}
        for parent, _, names in os.walk(folder):
            inside = os.path.relpath(parent, folder).replace(os.sep, "/")
            for name in names:
                found[name if inside == "." else f"{inside}/{name}"] = HubFile(None, "")
        return commit, found

    def _snapshot(self, commit: str) -> str:
        return os.path.join(self._place, "snapshots", commit)

    def _target(self, path: str) -> str:
        return os.path.join(self._links, *path.split("/"))

    def _is_here(self, path: str) -> bool:
        """Tell whether a file is in the cache, of the size that the Hub says."""
        size = self.files[path].size
        with suppress(OSError):
            return size in (None, os.path.getsize(self._target(path)))
        return False

    def _package(self, path: str) -> bool:
        """Download by the package `huggingface_hub`; False where it is not installed."""
        try:
            from huggingface_hub import hf_hub_download
        except ImportError:
            return False
        try:
            found = hf_hub_download(
                self._address.name, path, revision=self.commit, cache_dir=_cache(), endpoint=self._endpoint
            )
        except Exception as error:  # of its own, of its web client, and of the system
            raise FetchError(
                f"`{self._address.text}`: {path} cannot be fetched: {type(error).__name__}", hint="try it again"
            ) from error
        wanted, size = self.files[path], os.path.getsize(found)
        digests = [hashlib.sha256(), _git(size)]
        with open(found, "rb") as file:
            while part := file.read(_CHUNK):
                for one in digests:
                    one.update(part)
        try:
            self._check(path, wanted, size, [one.hexdigest() for one in digests])
        except IntegrityError:
            for place in {os.path.realpath(found), found}:
                with suppress(OSError):
                    os.unlink(place)
            raise
        return True

    def _plain(self, path: str) -> None:
        """Download by HTTP, into a file beside the blobs that is renamed when it is whole and right."""
        wanted = self.files[path]
        url = f"{self._endpoint}/{self._address.name}/resolve/{self.commit}/{quote(path)}"
        blobs = os.path.join(self._place, "blobs")
        os.makedirs(blobs, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".incomplete", dir=blobs)
        try:
            with os.fdopen(handle, "wb") as file:
                size, digests = _save(url, file, wanted.size, _token(), [hashlib.sha256(), _git(wanted.size or 0)])
                file.flush()
                os.fsync(file.fileno())
            self._check(path, wanted, size, digests)
            blob = os.path.join(blobs, wanted.digest or digests[0])
            os.chmod(temporary, 0o644)
            os.replace(temporary, blob)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        target = self._target(path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with suppress(FileNotFoundError):
            os.unlink(target)
        try:
            os.symlink(os.path.relpath(blob, os.path.dirname(target)), target)
        except OSError:  # a system without links
            os.replace(blob, target)

    def _check(self, path: str, wanted: HubFile, size: int, digests: Sequence[str]) -> None:
        """Compare a file with what the Hub says of it.

        Raises:
            IntegrityError: Its size or its hash is another.
        """
        if wanted.size not in (None, size):
            raise IntegrityError(
                f"`{self._address.text}`: {path} has {size} bytes, the Hub says {wanted.size}", hint="try it again"
            )
        if wanted.digest and wanted.digest not in digests:
            raise IntegrityError(
                f"`{self._address.text}`: {path} has another hash than the Hub says", hint="try it again"
            )

    def _remember(self) -> None:
        """Write which commit the revision is, for a machine that is offline."""
        if _COMMIT.fullmatch(self._address.revision):
            return
        place = os.path.join(self._place, "refs", *self._address.revision.split("/"))
        os.makedirs(os.path.dirname(place), exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", dir=os.path.dirname(place))
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(self.commit)
        os.replace(temporary, place)


def _entry(entry: Mapping[str, Any]) -> tuple[str, HubFile]:
    """Read one file of the Hub's list.

    Raises:
        ValueError: Its path leaves the repository, or its size or hash is malformed.
    """
    path, size, large = entry["rfilename"], entry.get("size"), entry.get("lfs") or {}
    digest = large.get("sha256") or entry.get("blobId") or ""
    if not isinstance(path, str) or not all(is_part(one, also=_IN_PATHS) for one in path.split("/")):
        raise ValueError(f"a file is called {path!r}")
    if not isinstance(digest, str) or (digest and not _DIGEST.fullmatch(digest)):
        raise ValueError(f"`{path}` has the hash {digest!r}")
    if size is not None and (type(size) is not int or size < 0):
        raise ValueError(f"`{path}` has the size {size!r}")
    if size is None and len(digest) != 64:  # git's hash begins with the size
        digest = ""
    return path, HubFile(size, digest)


_IN_PATHS = " +,()=[]{}!#$%&'@~^`;"


def _home() -> str:
    caches = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("HF_HOME") or os.path.join(caches, "huggingface")


def _cache() -> str:
    return os.environ.get("HF_HUB_CACHE") or os.path.join(_home(), "hub")


def _token() -> dict[str, str]:
    """Return the header with the user's token; nothing where there is none. It is never part of a message."""
    token = os.environ.get("HF_TOKEN", "")
    if not token:
        place = os.environ.get("HF_TOKEN_PATH") or os.path.join(_home(), "token")
        with suppress(OSError, UnicodeDecodeError), open(place, encoding="ascii") as file:
            token = file.read(4096)
    token = token.strip()
    return {"Authorization": f"Bearer {token}"} if token and token.isprintable() else {}


def _git(size: int) -> Any:
    """Return the hash of git's blobs of a size, begun."""
    return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)


def _save(
    url: str, file: BinaryIO, size: int | None, headers: Mapping[str, str], digests: Sequence[Any]
) -> tuple[int, list[str]]:
    """Write the bytes of a URL to a file, a part at a time, where there are sockets.

    Args:
        url: An `http://` or `https://` URL.
        file: The file, open for writing.
        size: How many bytes are expected; None where that is not known.
        headers: More headers to send, which no other origin is told.
        digests: Hashes of `hashlib`, begun; each is told all bytes.

    Returns:
        The bytes that were written, at most one part more than expected, and the digests as text.

    Raises:
        FetchError: It does not answer, answers with an error, breaks off, or does not end within the bytes that a
            file of no stated size may have.
    """
    from http.client import HTTPException, IncompleteRead

    reached, most = 0, _MOST_UNSTATED_BYTES if size is None else size
    try:
        with fetch.open_url(url, headers) as response:
            while reached <= most and (part := response.read(_CHUNK)):
                file.write(part)
                for one in digests:
                    one.update(part)
                reached += len(part)
            if response.length and reached <= most:
                raise IncompleteRead(b"", response.length)
    except (OSError, ValueError, HTTPException) as error:
        raise fetch.translated(url, error) from error
    if size is None and reached > most:
        raise FetchError(
            f"{url} has more than {most} bytes, and the Hub does not say how many",
            hint="pip install huggingface_hub, which fetches it",
            url=url,
        )
    return reached, [one.hexdigest() for one in digests]
