"""Documents to pieces of text: plain text, Markdown, HTML, JSON lines and CSV; or images, each a piece of its own.

A piece has at most so many characters. It ends where a paragraph does, else at the end of a sentence or of a word; a
heading begins a new one. Its metadata say where it comes from: `source`, the file; `part`, its number there; `title`,
the heading above it. Rows of JSON lines and CSV have their other fields as metadata as well.
"""

from __future__ import annotations

import csv
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import InputError, listed
from edge_infer.platform.hashing import sha256

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    #: Pieces as (heading, text), or rows as (fields, text).
    Read = Callable[[Path, str | None], Iterator[tuple[dict[str, Any], str]]]

MAX_CHARACTERS = 800
_MAX_FILE_BYTES = 256 * 2**20
#: Where a long paragraph may be cut, the best first.
_CUTS = (re.compile(r"[.!?。！？]\s"), re.compile(r"\s"))
_HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
_FENCE = re.compile(r"^\s*(```|~~~)")
_IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp")
_TEXT_FIELDS = ("text", "content", "body")


class Piece(NamedTuple):
    """A piece of a document.

    Attributes:
        text: The text; of an image the name of its file.
        metadata: Where it comes from, and the fields of its row.
        image: The file of an image; None for a text.
    """

    text: str
    metadata: dict[str, Any]
    image: Path | None = None


def find_documents(places: Sequence[str], *, images: bool = False) -> list[Path]:
    """Return the files of documents, folders with all that lie in them, in the order of their names.

    Args:
        places: Files and folders.
        images: Whether images are looked for, in the place of texts.

    Raises:
        InputError: There is no such file or folder, no document in it, or the file is none.
    """
    found: list[Path] = []
    known = _IMAGES if images else tuple(_READERS)
    for place in places:
        path = Path(place)
        if path.is_dir():
            inside = sorted(one for one in path.rglob("*") if one.suffix.lower() in known and one.is_file())
            if not inside:
                kind = "image" if images else "document"
                raise InputError(f"there is no {kind} in `{place}`", hint=f"it reads {listed([*known])}")
            found += inside
            continue
        if not path.is_file():
            raise InputError(f"there is no file or folder `{place}`", hint="edge-infer index build docs/ notes.md ...")
        if path.suffix.lower() not in known:
            kind = "an image" if images else "a document"
            raise InputError(f"`{place}` is not {kind}", hint=f"it reads {listed([*known])}")
        found.append(path)
    return list(dict.fromkeys(found))


def read_pieces(path: Path, most: int = MAX_CHARACTERS, field: str | None = None) -> Iterator[Piece]:
    """Give the pieces of a document.

    Args:
        path: The file.
        most: The most characters of a piece.
        field: The field or column of the text, in JSON lines and CSV; `text`, `content` or `body` unless given.

    Raises:
        InputError: The file is too large, not UTF-8, or not what its name says.
    """
    if path.stat().st_size > _MAX_FILE_BYTES and path.suffix.lower() not in (".jsonl", ".csv"):
        raise InputError(f"`{path}` has more than {_MAX_FILE_BYTES:,} bytes", hint="cut it, or give JSON lines")
    if path.suffix.lower() in _IMAGES:
        digest = sha256(path.read_bytes())[:16]
        yield Piece(path.name, {"source": path.as_posix(), "part": 0, "sha256": digest}, path)
        return
    number = 0
    try:
        for fields, text in _READERS[path.suffix.lower()](path, field):
            for part in cut(text, most):
                yield Piece(part, {**fields, "source": path.as_posix(), "part": number})
                number += 1
    except UnicodeDecodeError as error:
        raise InputError(
            f"`{path}` is not UTF-8: {error.reason} at byte {error.start}", hint="save it as UTF-8"
        ) from error


def cut(text: str, most: int) -> Iterator[str]:
    """Cut a text into pieces; short paragraphs are joined."""
    held = ""
    for paragraph in re.split(r"\n\s*\n", text):
        left = paragraph.strip()
        while left:
            if held and len(held) + 2 + len(left) <= most:
                held, left = f"{held}\n\n{left}", ""
            elif len(left) <= most:
                if held:
                    yield held
                held, left = left, ""
            else:
                if held:
                    yield held
                    held = ""
                end = _end(left, most)
                yield left[:end].strip()
                left = left[end:].strip()
    if held:
        yield held


def _end(text: str, most: int) -> int:
    for pattern in _CUTS:
        ends = [one.end() for one in pattern.finditer(text, most // 2, most)]
        if ends:
            return ends[-1]
    return most


def _text(path: Path, field: str | None) -> Iterator[tuple[dict[str, Any], str]]:  # noqa: ARG001
    yield {}, path.read_text("utf-8")


def _markdown(path: Path, field: str | None) -> Iterator[tuple[dict[str, Any], str]]:  # noqa: ARG001
    title, lines, is_code = "", list[str](), False
    for line in path.read_text("utf-8").splitlines():
        is_code ^= bool(_FENCE.match(line))
        heading = None if is_code else _HEADING.match(line)
        if heading:
            yield _titled(title), "\n".join(lines)
            title, lines = heading[1], []
        lines.append(line)
    yield _titled(title), "\n".join(lines)


class _Page(HTMLParser):
    """Takes the text of a page by heading."""

    _HIDDEN = ("script", "style", "template", "noscript", "head", "svg", "nav")
    _BLOCK = re.compile(
        "address|article|aside|blockquote|br|dd|div|dl|dt|figure|footer|form|h[1-6]|header|hr|li|main|ol|p|pre|section|"
        "table|td|th|tr|ul"
    )

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[tuple[str, str]] = []
        self._title, self._text, self._heading = "", list[str](), None
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        self._hidden += tag in self._HIDDEN
        if self._BLOCK.fullmatch(tag):
            self._text.append("\n\n")
        if re.fullmatch("h[1-6]", tag) and not self._hidden:
            self.end()
            self._text = []

    def handle_endtag(self, tag: str) -> None:
        self._hidden = max(0, self._hidden - (tag in self._HIDDEN))
        if re.fullmatch("h[1-6]", tag) and not self._hidden:
            self._title = " ".join("".join(self._text).split())
        if self._BLOCK.fullmatch(tag):
            self._text.append("\n\n")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self._text.append(re.sub(r"\s+", " ", data))

    def end(self) -> None:
        """End the part under a heading."""
        self.parts.append((self._title, "".join(self._text)))


def _html(path: Path, field: str | None) -> Iterator[tuple[dict[str, Any], str]]:  # noqa: ARG001
    page = _Page()
    page.feed(path.read_text("utf-8"))
    page.close()
    page.end()
    yield from ((_titled(title), text) for title, text in page.parts)


def _titled(title: str) -> dict[str, Any]:
    return {"title": title} if title else {}


def _json_lines(path: Path, field: str | None) -> Iterator[tuple[dict[str, Any], str]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(
                    f"`{path}`, line {number} is not JSON: {error}", hint="give an object in each line"
                ) from error
            if not isinstance(row, dict):
                raise InputError(f"`{path}`, line {number} is not an object", hint='{"text": "...", "tag": "a"}')
            yield _row(row, path, number, field)


def _csv(path: Path, field: str | None) -> Iterator[tuple[dict[str, Any], str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            for row in reader:
                if None in row or None in row.values():
                    raise InputError(
                        f"`{path}`, line {reader.line_num} does not have {len(reader.fieldnames or ())} fields",
                        hint="put quotes around fields with commas",
                    )
                yield _row({name: _number(value) for name, value in row.items()}, path, reader.line_num, field)
        except csv.Error as error:
            raise InputError(f"`{path}`, line {reader.line_num}: {error}", hint="save it as CSV") from error


def _number(text: str) -> Any:
    """Return a field as a number where it is written as one."""
    if re.fullmatch(r"-?(0|[1-9]\d{0,14})", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?(0|[1-9]\d{0,14})\.\d+", text) else text


def _row(row: dict[str, Any], path: Path, number: int, field: str | None) -> tuple[dict[str, Any], str]:
    name = field or next((one for one in _TEXT_FIELDS if one in row), _TEXT_FIELDS[0])
    if name not in row:
        raise InputError(
            f"`{path}`, line {number} has no field `{name}`", hint=f"--text-field, one of {listed([*row])}", line=number
        )
    return {one: value for one, value in row.items() if one != name}, str(row[name])


_READERS: dict[str, Read] = {
    ".txt": _text,
    ".md": _markdown,
    ".markdown": _markdown,
    ".html": _html,
    ".htm": _html,
    ".jsonl": _json_lines,
    ".csv": _csv,
}


def pieces_of(paths: Iterable[Path], most: int, field: str | None) -> Iterator[Piece]:
    """Give the pieces of several documents, in their order."""
    for path in paths:
        yield from read_pieces(path, most, field)
