"""The only place that prints: data to stdout, talk to stderr, readable without colour."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

from edge_infer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from edge_infer.errors import EdgeInferError


def data(text: str) -> None:
    """Print a line of the command's result; a terminal gets no control characters."""
    sys.stdout.write((_shown(text) if sys.stdout.isatty() else text) + "\n")


def piece(text: str) -> None:
    """Print a part of the command's result at once, as models generate it; a terminal gets no control characters."""
    if sys.stdout.isatty():
        text = _shown(text)
    sys.stdout.write(text)
    sys.stdout.flush()


def _shown(text: str) -> str:
    """Return a text that commands no terminal: a server, a device or a file may have written it."""
    return "".join(one if one in "\n\t" or one.isprintable() else "\ufffd" for one in text)


def ask(prompt: str) -> str | None:
    """Return the next line of the input without its end, or None where it has ended.

    Args:
        prompt: Shown where a person types; a pipe is not asked.

    Raises:
        InputError: The line is not UTF-8.
    """
    try:
        if sys.stdin.isatty():
            import readline  # noqa: F401  importing it gives `input` a history and editing

            return input(prompt)
        line = sys.stdin.readline()
        line.encode()  # other bytes are half surrogates where the locale is C, and an error of the reader elsewhere
    except EOFError:
        return None
    except UnicodeError as error:
        raise InputError("the input is not UTF-8", hint="iconv -t UTF-8") from error
    return line.rstrip("\r\n") if line else None


def data_json(document: Any) -> None:
    """Print the command's result for machines: one JSON document."""
    sys.stdout.write(json.dumps(finite(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


def data_json_line(document: Any) -> None:
    """Print one of several results for machines: a line of JSON."""
    sys.stdout.write(json.dumps(finite(document), ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


def finite(value: Any) -> Any:
    """Return a JSON value with null for NaN and the infinities, which JSON does not know."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(member) for key, member in value.items()}
    return [finite(member) for member in value] if isinstance(value, (list, tuple)) else value


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """Print the command's result as aligned columns.

    Args:
        columns: The headings.
        rows: One sequence of cells for each line.
        right: The columns to align at the right: numbers.
    """
    lines = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(columns), *lines]) for i in range(len(columns))]
    for line in [[column.upper() for column in columns], *lines]:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ]
        data("  ".join(cells).rstrip())


def talk(text: str) -> None:
    """Print a line of talk: what is being done, what was made."""
    sys.stderr.write(_shown(text) + "\n")
    sys.stderr.flush()


def warn(text: str, hint: str = "") -> None:
    """Print a warning and its hint."""
    _marked("warning:", "yellow", text, hint)


def error(failure: EdgeInferError) -> None:
    """Print an error and its hint."""
    _marked("error:", "red", failure.message, failure.hint)


def _marked(mark: str, colour: str, text: str, hint: str) -> None:
    from rich.console import Console
    from rich.text import Text

    colours: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    console = Console(stderr=True, soft_wrap=True, highlight=False, color_system=colours)
    console.print(Text.assemble((mark, f"bold {colour}"), " ", _shown(text)))
    if hint:
        console.print(Text.assemble(("hint:", "bold"), " ", _shown(hint)))


@contextmanager
def progress(description: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on stderr while a long job runs; where stderr is not a terminal, show nothing.

    Args:
        description: What is being done.
        total: The number of steps, or None where it is not known.

    Yields:
        A function that takes how many steps were done since its last call.
    """
    if not sys.stderr.isatty():
        yield lambda _steps: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda steps: bar.advance(task, steps)


def size(nbytes: int) -> str:
    """Write a number of bytes for people: `3.5 MB`, 1 MB being a million."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if nbytes >= scale:
            return f"{nbytes / scale:.1f} {unit}"
    return f"{nbytes} B"
