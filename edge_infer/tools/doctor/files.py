"""Read facts from files under a root folder: `/` on the machine, a prepared tree in tests."""

from __future__ import annotations

from pathlib import Path

#: The machine itself.
ROOT = Path("/")


def text_of(path: Path) -> str:
    """Return a file's text without the white space around it; empty where it cannot be read."""
    try:
        return path.read_text("utf-8", "replace").strip("\0 \t\n")
    except OSError:
        return ""


def number_of(path: Path) -> int | None:
    """Return the whole number that a file holds, decimal or `0x` hexadecimal; None where it holds none."""
    try:
        return int(text_of(path), 0)
    except ValueError:
        return None


def followed(root: Path, path: str) -> Path:
    """Follow a file's links as the system under a root would: an absolute one starts at that root."""
    place = root / path
    for _ in range(40):  # as many as Linux follows
        try:
            target = place.readlink()
        except OSError:
            return place  # it is not a link
        place = root / target.relative_to(ROOT) if target.is_absolute() else place.parent / target
    return root  # links in a circle lead to no file
