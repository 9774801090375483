"""The archives of the modules that Python in a page needs, without docstrings and comments.

`loadPython` fetches the first one instead of the wheel: 54 kB instead of 1.4 MB; the second one follows with the first
import of a room in it. `rooms.py` says which modules are in which. Each is
a tar file without compression of its own, because the server compresses the whole file, and better. Docstrings and
comments become empty lines, so that tracebacks name the right lines; the wheel has them for `help()` in a notebook.
"""

from __future__ import annotations

import ast
import io
import re
import tarfile
from functools import partial
from typing import TYPE_CHECKING

from edge_infer.rooms import LATER, runs_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: A string, or a comment with the space before it.
_STRING_OR_COMMENT = re.compile(
    r"""
      "{3} (?: \\. | [^\\] )*? "{3} | " (?: \\. | [^"\\\n] )* "
    | '{3} (?: \\. | [^\\] )*? '{3} | ' (?: \\. | [^'\\\n] )* '
    | [ \t]* \# [^\n]*
    """,
    re.DOTALL | re.VERBOSE,
)


def archive_builders(version: str) -> dict[str, Callable[[list[tuple[str, Path]]], bytes]]:
    """Return the file name of each archive, and the function that packs it out of the files of the package."""
    return {
        f"edge_infer-{version}-page.tar": partial(build_archive, version=version),
        f"edge_infer-{version}-page-later.tar": build_later_archive,
    }


def build_archive(files: list[tuple[str, Path]], version: str) -> bytes:
    """Pack what a page needs at its start; the same files always give the same bytes.

    Args:
        files: The files of the package, each with its path in the wheel.
        version: That of the distribution.
    """
    info = f"edge_infer-{version}.dist-info/METADATA"
    metadata = f"Metadata-Version: 2.1\nName: edge-infer\nVersion: {version}\n".encode()
    return _packed(files, {info: metadata}, is_later=False)


def build_later_archive(files: list[tuple[str, Path]]) -> bytes:
    """Pack the rooms that a page fetches when one of them is first imported (`platform/later_rooms.py`)."""
    return _packed(files, {}, is_later=True)


def _packed(files: list[tuple[str, Path]], more: dict[str, bytes], *, is_later: bool) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, data in more.items():
            _add(archive, path, data)
        for path, source in files:
            inside = path.partition("/")[2]
            if runs_in(inside, "page") and (inside.partition("/")[0] in LATER) == is_later:
                data = source.read_bytes()
                _add(archive, path, without_documentation(data.decode()).encode() if path.endswith(".py") else data)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, path: str, data: bytes) -> None:
    entry = tarfile.TarInfo(path)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def without_documentation(source: str) -> str:
    """Return a module's source without docstrings, comments and imports for types, every other line where it was."""
    tree = ast.parse(source)
    lines = _STRING_OR_COMMENT.sub(_kept, source).splitlines(keepends=True)
    for first, last, instead in [*_docstrings(tree), *_type_imports(tree)]:
        lines[first - 1 : last] = [f"{instead}\n", *["\n"] * (last - first)]
    return "".join(lines)


def _kept(found: re.Match[str]) -> str:
    return found.group() if found.group()[0] in "\"'" else ""


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, int, str]]:
    """Give the first and the last line of each docstring, and the text that keeps a body from being empty."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and type(first.value.value) is str:
                is_alone = len(node.body) == 1 and not isinstance(node, ast.Module)
                yield first.lineno, first.end_lineno or first.lineno, _nothing(first) if is_alone else ""


def _type_imports(tree: ast.Module) -> Iterator[tuple[int, int, str]]:
    """Give the first and the last line of the imports for type checkers, and the text that stands for them."""
    for node in tree.body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno, _nothing(node.body[0])


def _nothing(statement: ast.stmt) -> str:
    return " " * statement.col_offset + '""'
