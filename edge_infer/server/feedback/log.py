"""The files that feedback is kept in: appended to, a new one after some MiB, up to a quota.

    secret                     what the ids of answers are signed by, for the owner only
    feedback-000001.jsonl      one JSON object a line: id, time, model, version, tenant, label, and inputs by consent

    lock                       held by the server that writes

A line is written by one call and synced. One that a power cut or a full disk left in part is skipped when it is read.
Several servers may share a folder: each reads the ids that the others wrote before it writes itself.
"""

from __future__ import annotations

import json
import os
import secrets
from collections import OrderedDict
from contextlib import contextmanager
from threading import Lock
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError, StoreError
from edge_infer.platform.posix import lock_alone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

#: The most bytes of a file; the next line begins another.
FILE_BYTES = 16 * 2**20
#: How many ids are remembered as used.
_USED = 100_000
_SECRET_BYTES = 32
#: For how long another server may hold the folder, in seconds; it does so for the time of one write.
_PATIENCE_S = 10.0


class FeedbackLog:
    """The feedback in a folder, which is made where there is none.

    Args:
        folder: Where it lies.
        quota: The most bytes of all files.
        file_bytes: The most bytes of one.

    Raises:
        StoreError: The folder cannot be made or read.
    """

    def __init__(self, folder: Path, *, quota: int = 2**28, file_bytes: int = FILE_BYTES) -> None:
        self.folder = folder
        self._quota = quota
        self._file_bytes = file_bytes
        self._lock = Lock()
        self._used: OrderedDict[str, None] = OrderedDict()
        self._read: dict[str, int] = {}  # how much of each file was read for its ids
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.secret = _secret(folder / "secret")
            self._catch_up()
        except OSError as error:
            raise StoreError(
                f"`{folder}` cannot keep feedback: {error}", hint="--feedback DIR, in a folder that can be written"
            ) from error

    def add(self, record: dict[str, Any]) -> None:
        """Append a record, whole or not at all.

        Raises:
            InputError: There was feedback to this id already.
            StoreError: The quota is used up, or the disk is full.
        """
        name, line = record["id"], json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        try:
            with self._lock, self._alone():
                self._catch_up()
                if name in self._used:
                    said = "There was feedback to this answer already"
                    raise InputError(said, hint="each answer takes one", field="id")
                self._append(line)
                self._remember(name)
        except OSError as error:
            raise StoreError(f"The feedback cannot be kept: {error}", hint="make room on the disk") from error

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the folder alone, among the servers that share it; Windows has no such lock, nor servers that share."""
        if os.name != "posix":
            yield
            return
        end = monotonic() + _PATIENCE_S
        with (self.folder / "lock").open("ab") as file:
            while True:
                try:
                    lock_alone(file)
                    break
                except OSError:
                    if monotonic() > end:
                        raise
                    sleep(0.002)
            yield

    def _catch_up(self) -> None:
        """Remember the ids that others wrote: this server before it was started again, and those beside it."""
        for path in files_of(self.folder):
            start, size = self._read.get(path.name, 0), path.stat().st_size
            if size == start:
                continue
            with path.open("rb") as file:
                file.seek(start if start < size else 0)
                for record in _records(file):
                    self._remember(str(record["id"]))
            self._read[path.name] = size

    def _append(self, line: bytes) -> None:
        found = files_of(self.folder)
        if sum(path.stat().st_size for path in found) + len(line) > self._quota:
            raise StoreError(
                f"The feedback in `{self.folder.name}` has its {self._quota} bytes",
                hint="edge-infer feedback export, then remove the oldest files, or raise --feedback-mb",
            )
        path = found[-1] if found else self.folder / _name(1)
        if found and path.stat().st_size + len(line) > self._file_bytes:
            path = self.folder / _name(_number(path) + 1)
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        try:
            if _is_torn(path):
                line = b"\n" + line
            if os.write(handle, line) != len(line):
                raise OSError("the disk took only a part")
            os.fsync(handle)
            self._read[path.name] = os.fstat(handle).st_size
        finally:
            os.close(handle)

    def _remember(self, name: str) -> None:
        self._used[name] = None
        if len(self._used) > _USED:
            self._used.popitem(last=False)


def files_of(folder: Path) -> list[Path]:
    """List the files of a folder in their order."""
    return sorted((path for path in folder.glob("feedback-*.jsonl") if _number(path)), key=_number)


def records_of(files: list[Path]) -> Iterator[dict[str, Any]]:
    """Yield the records of some files; lines that were written in part are left out."""
    for path in files:
        with path.open("rb") as file:
            yield from _records(file)


def _records(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict) and "id" in record and "label" in record:
            yield record


def _name(number: int) -> str:
    return f"feedback-{number:06}.jsonl"


def _number(path: Path) -> int:
    digits = path.stem.removeprefix("feedback-")
    return int(digits) if digits.isdecimal() and len(digits) < 12 else 0


def _is_torn(path: Path) -> bool:
    """Tell whether the last line has no end."""
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"


def _secret(path: Path) -> bytes:
    """Return the secret in a file; the first server that comes makes it, whole, under another name before."""
    if not path.exists():
        temporary = path.with_name(f".secret.{secrets.token_hex(4)}")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)  # fails where another server was faster
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
    found = path.read_bytes()
    if len(found) != _SECRET_BYTES:
        raise OSError(f"`{path}` has {len(found)} bytes, expected {_SECRET_BYTES}; remove it")
    return found
