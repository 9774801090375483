"""Write the files of a compiled model into a folder: what an earlier run wrote goes, what others wrote stays.

The folder gets a list of its files with their SHA-256, `compiled.sha256`, as `sha256sum --check` reads it. By it the
next run knows which files are its own and unchanged: those it may replace and remove. It keeps all others.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from edge_infer.errors import InputError, listed
from edge_infer.platform.atomic_write import write_file

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: The list, in the folder.
LIST = "compiled.sha256"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
#: A list is short: a larger file is somebody else's.
_MAX_LIST_BYTES = 1_000_000


def check_place(folder: Path, files: Sequence[Path | None] = ()) -> None:
    """Refuse a folder, or files beside it, that cannot be made, before any work.

    Args:
        folder: The folder to write; it and its parents are made where they are missing.
        files: Single files to write into folders that exist; None is left out.

    Raises:
        InputError: The folder, or one above it, is a file; or there is no folder for a file.
    """
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise InputError(f"`{place}` is a file, expected a folder to write to", hint=f"-o {place}_compiled")
    for file in files:
        if file is not None and not file.parent.is_dir() and file.parent != folder:
            raise InputError(f"There is no folder `{file.parent}` for `{file.name}`", hint=f"mkdir -p {file.parent}")


def write(folder: Path, files: Mapping[str, bytes], *, force: bool = False) -> list[str]:
    """Write files, and remove those that an earlier run wrote and this one does not.

    Args:
        folder: The folder; it is made where it is missing.
        files: The bytes of each file by its path in the folder, with `/` between.
        force: Whether to replace files that others wrote, or that were changed since.

    Returns:
        The files of the earlier run that were removed.

    Raises:
        InputError: A file would be replaced that others wrote, or that was changed since; nothing is written then.
    """
    before = _listed(folder)
    foreign = [path for path, data in files.items() if not _is_free(folder, path, data, before)]
    if foreign and not force:
        raise InputError(
            f"`{folder}` has {listed(foreign)} already, not as `compile` wrote {'it' if len(foreign) == 1 else 'them'}",
            hint="--force replaces them; or choose another folder by -o",
            files=foreign,
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_file(folder / path, data)
    gone = [path for path, digest in before.items() if path not in files and _digest(folder, path) == digest]
    for path in gone:
        _remove(folder, path)
    lines = [f"{hashlib.sha256(data).hexdigest()}  {path}\n" for path, data in sorted(files.items())]
    write_file(folder / LIST, "".join(lines).encode())
    return gone


def _listed(folder: Path) -> dict[str, str]:
    """Return the digests of the files that the earlier run wrote, by path; none where there is no such list."""
    place = folder / LIST
    if not place.is_file() or place.stat().st_size > _MAX_LIST_BYTES:
        return {}
    found = [_LINE.fullmatch(line) for line in place.read_text("utf-8", "replace").splitlines()]
    return {line[2]: line[1] for line in found if line is not None and _stays_inside(line[2])}


def _stays_inside(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\\" not in path and "\0" not in path


def _is_free(folder: Path, path: str, data: bytes, before: Mapping[str, str]) -> bool:
    """Tell whether nothing is lost by writing a file."""
    place = folder / path
    if not place.exists() and not place.is_symlink():
        return True
    found = _digest(folder, path)
    return found is not None and found in (before.get(path), hashlib.sha256(data).hexdigest())


def _digest(folder: Path, path: str) -> str | None:
    """Return the SHA-256 of a file; None where there is none, or a link stands on the way to it."""
    place = folder
    for part in PurePosixPath(path).parts:
        place /= part
        if place.is_symlink():
            return None
    return hashlib.sha256(place.read_bytes()).hexdigest() if place.is_file() else None


def _remove(folder: Path, path: str) -> None:
    """Remove a file, and the folders that are empty then."""
    place = folder / path
    place.unlink()
    for above in place.parents:
        if above == folder or any(above.iterdir()):
            break
        above.rmdir()
