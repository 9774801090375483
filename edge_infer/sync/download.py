"""Fetch a large object of a store in parts of 1 MiB, each checked by its sha256 as it comes; go on where it stopped."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from edge_infer.bundle.manifest import PART_SIZE
from edge_infer.errors import FetchError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edge_infer.sync.disk import Disk
    from edge_infer.sync.revision import Object
    from edge_infer.sync.source import Source

#: How often a part that came wrong or not at all is asked for again.
ATTEMPTS = 3


def download(
    source: Source, wanted: Object, target: Path, disk: Disk, progress: Callable[[int], None] = lambda _bytes: None
) -> int:
    """Fetch an object into a file; parts that the file holds already are kept if their sha256 is right.

    Returns:
        How many bytes were fetched.

    Raises:
        FetchError: The server cannot be reached, breaks off, or sends other bytes, after some attempts.
        OSError: The disk is full; what came so far stays and is used next time.
    """
    have = _good_parts(target, wanted)
    progress(min(have * PART_SIZE, wanted.size))
    fetched = failures = 0
    while have < len(wanted.parts):
        part = bytearray()
        before = have
        try:
            for piece in source.stream(wanted.path, have * PART_SIZE):
                fetched += len(piece)
                part += piece
                while len(part) >= (size := _part_size(wanted, have)):
                    data = bytes(part[:size])
                    del part[:size]
                    if hashlib.sha256(data).hexdigest() != wanted.parts[have]:
                        raise FetchError(
                            f"Part {have} of `{wanted.path}` is not the one that was published",
                            hint="a proxy or the server changes it: compare the store with its source",
                            part=have,
                            status=0,
                        )
                    disk.write(target, data, have * PART_SIZE)
                    have += 1
                    progress(size)
                    if have == len(wanted.parts):
                        break
                if have == len(wanted.parts):
                    break
            else:
                raise FetchError(f"`{wanted.path}` is cut short: {have} of {len(wanted.parts)} parts came", status=0)
        except FetchError as error:
            failures = failures + 1 if have == before else 1
            if failures >= ATTEMPTS or error.details.get("status") in (403, 404, 410):
                raise
    disk.sync(target)
    return fetched


def _part_size(wanted: Object, number: int) -> int:
    return min(PART_SIZE, wanted.size - number * PART_SIZE)


def _good_parts(target: Path, wanted: Object) -> int:
    """Count the parts at the start of a file that are right: of a download that was cut."""
    have = 0
    if target.is_symlink() or not target.is_file():
        target.unlink(missing_ok=True)
        return 0
    with target.open("rb") as file:
        while have < len(wanted.parts):
            data = file.read(_part_size(wanted, have))
            if hashlib.sha256(data).hexdigest() != wanted.parts[have]:
                break
            have += 1
    return have
