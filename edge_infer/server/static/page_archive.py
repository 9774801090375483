"""What Python in a page needs of edge-infer: its modules without server, commands, native engines and documentation.

`loadPython` fetches this instead of the wheel: 45 kB instead of 400 kB. It is a tar file, not compressed itself,
because the server compresses it whole, and better. Docstrings and comments become empty lines, so that tracebacks still
name the right ones; `help()` in a notebook has the wheel, which is whole.
"""

from __future__ import annotations

import ast
import io
import tarfile
import tokenize
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: What a page cannot use: rooms of a server or a shell, native engines, and what these alone import.
_LEFT_OUT = (
    "edge_infer/__main__.py",
    "edge_infer/backends/litert.py",
    "edge_infer/backends/onnxruntime/",
    "edge_infer/backends/reference.py",
    "edge_infer/backends/remote/websocket.py",
    "edge_infer/cli/",
    "edge_infer/formats/tflite.py",
    "edge_infer/formats/tflite_check.py",
    "edge_infer/formats/spans.py",
    "edge_infer/parity/quantization_steps.py",
    "edge_infer/platform/cuda.py",
    "edge_infer/platform/systemd.py",
    "edge_infer/py.typed",
    "edge_infer/runtime/live.py",
    "edge_infer/server/",
    "edge_infer/sync/",
    "edge_infer/tools/",
    "edge_infer/verify/",
)


class PageArchive(NamedTuple):
    """The archive: its file name and bytes."""

    name: str
    data: bytes


def build_page_archive(files: list[tuple[str, Path]], version: str) -> PageArchive:
    """Pack what a page needs; the same files always give the same bytes.

    Args:
        files: The files of the package, each with its path in the wheel.
        version: That of the distribution.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        info = f"edge_infer-{version}.dist-info/METADATA"
        _add(archive, info, f"Metadata-Version: 2.1\nName: edge-infer\nVersion: {version}\n".encode())
        for path, source in files:
            if not path.startswith(_LEFT_OUT):
                data = source.read_bytes()
                _add(archive, path, without_documentation(data.decode()).encode() if path.endswith(".py") else data)
    return PageArchive(f"edge_infer-{version}-page.tar", buffer.getvalue())


def _add(archive: tarfile.TarFile, path: str, data: bytes) -> None:
    entry = tarfile.TarInfo(path)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def without_documentation(source: str) -> str:
    """Return a module's source without docstrings, comments and imports for types, every other line where it was."""
    lines = source.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip() + "\n"
    tree = ast.parse(source)
    for first, last, column in [*_docstrings(tree), *_type_imports(tree)]:
        lines[first - 1] = " " * column + '""\n'
        for row in range(first, last):
            lines[row] = "\n"
    return "".join(lines)


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, int, int]]:
    """Give the first and the last line of each docstring, and its column."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            yield first.lineno, first.end_lineno or first.lineno, first.col_offset


def _type_imports(tree: ast.Module) -> Iterator[tuple[int, int, int]]:
    """Find what only type checkers import: first line, last line, column."""
    for node in tree.body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield node.body[0].lineno, node.body[-1].end_lineno or node.body[-1].lineno, node.body[0].col_offset
