"""`edge-infer run` on raw data: images, sounds and texts to answers."""

from __future__ import annotations

import glob
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from edge_infer.cli import output
from edge_infer.errors import InputError
from edge_infer.tasks.answers import as_json
from edge_infer.tasks.image.image import Image
from edge_infer.tasks.pipeline import pipeline
from edge_infer.tasks.registry import get_task
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edge_infer.tasks.pipeline import Pipeline


_SUFFIXES = {
    "image": (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff"),
    "sound": (".wav", ".flac", ".ogg", ".mp3"),
    "text": (".txt",),
}
#: The most files of a folder.
_MOST = 1_000_000
_SHOWN = 8
_EXAMPLES = {"image": "photo.jpg", "sound": "speech.wav", "text": "'a text'"}


def answer(
    source: str,
    raw: Sequence[str],
    arguments: Sequence[str],
    save: str | None,
    task: str | None,
    *,
    as_json_lines: bool,
    **choice: Any,
) -> None:
    """Answer raw inputs, and print a table or a line of JSON for each.

    Args:
        source: The bundle.
        raw: Files, folders, patterns such as `photos/*.jpg`; for a text its own words.
        arguments: `NAME=VALUE`, as the pipeline takes them.
        save: Where the picture with what was found in it is written; None for nowhere.
        task: The task that the bundle must have, or None.
        as_json_lines: Whether to print JSON.
        choice: What `load` takes.

    Raises:
        InputError: There is no such file, or it is not what the task takes.
    """
    given = dict(map(_argument, arguments))
    with pipeline(source, task=task, **choice) as run:
        takes = get_task(run.task).takes
        inputs = [one for text in raw for one in _found(text, takes)]
        if save is not None and (takes != "image" or len(inputs) != 1):
            raise InputError("--save draws on one image", hint="edge-infer run faces.bundle photo.jpg --save found.png")
        with output.progress("Answering", len(inputs)) as advance:
            for one, found in zip(inputs, run(iter(inputs), **given), strict=True):
                advance(1)
                if as_json_lines:
                    line = {"input": one, "answer": output.finite(as_json(found))}
                    output.data(json.dumps(line, ensure_ascii=False, allow_nan=False))
                else:
                    _show(one if len(inputs) > 1 else "", found)
        if save is not None:
            _save(Path(save), inputs[0], found)
        output.talk(f"Answered {len(inputs)} with {run!r}" + (f", wrote {save}" if save is not None else ""))


def answer_live(
    source: str,
    live: Live,
    arguments: Sequence[str],
    task: str | None,
    *,
    as_json_lines: bool,
    **choice: Any,
) -> None:
    """Answer a camera, a microphone or a pipe until it ends, a line for each answer.

    Args:
        source: The bundle.
        live: What is read.
        arguments: `NAME=VALUE`, as the pipeline takes them.
        task: The task that the bundle must have, or None.
        as_json_lines: Whether to print JSON.
        choice: What `load` takes.

    Raises:
        InputError: The task does not take it, or there is no such camera or microphone.
        UnsupportedError: The package that reads it is not installed.
    """
    given = dict(map(_argument, arguments))
    with pipeline(source, task=task, **choice) as run:
        takes = get_task(run.task).takes
        if takes != ("image" if live.camera is not None else "sound"):
            raise InputError(
                f"{run.task} takes {'an' if takes == 'image' else 'a'} {takes}",
                hint=f"edge-infer run BUNDLE {_EXAMPLES[takes]}",
            )
        output.talk(
            f"Listening with {run!r}; Ctrl-C ends it"
            if live.camera is None
            else f"Watching with {run!r}; Ctrl-C ends it"
        )
        for found in _answers(run, live, given):
            if as_json_lines:
                line = json.dumps(output.finite(as_json(found)), ensure_ascii=False, allow_nan=False)
                output.data(line)
            elif live.camera is None:
                output.data(_cell({key: value if key != "answer" else _best(value) for key, value in found.items()}))
            else:
                output.data(_best(found["answer"]))
            sys.stdout.flush()


class Live(NamedTuple):
    """What is read until it ends: a camera's number, or None for sound, which comes from the pipe or a microphone."""

    camera: int | None = None
    is_pipe: bool = False


def _answers(run: Pipeline, live: Live, given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if live.camera is not None:
        for answered in run.watch(live.camera, **given):
            yield {"answer": answered}
        return
    source = None
    if live.is_pipe:
        from edge_infer.tasks.live.listening import rate_and_block
        from edge_infer.tasks.live.microphone import raw_blocks

        source = raw_blocks(sys.stdin.buffer, rate_and_block(run)[1])
    yield from run.listen(source, **given)


def _best(found: Any) -> str:
    """Write an answer in one line: what was found, and how sure that is."""
    rows = found if isinstance(found, list) else [found]
    if rows and all(isinstance(row, dict) and "label" in row for row in rows):
        return ", ".join(
            row["label"] if row.get("score") is None else f"{row['label']} {row['score']:.2f}" for row in rows
        )
    return _cell(found) if found != [] else "nothing found"


def _argument(pair: str) -> tuple[str, Any]:
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--argument is `{pair}`, expected NAME=VALUE, such as top_k=3")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _found(text: str, takes: str) -> Iterator[Any]:
    """Give the raw inputs that one word of the command line names."""
    path = Path(text)
    suffixes = _SUFFIXES.get(takes, ())
    if text and path.is_dir():  # an empty text is no folder
        files = sorted(one for one in path.rglob("*") if one.suffix.lower() in suffixes and one.is_file())
        if not files:
            raise InputError(f"the folder `{text}` has no file of {', '.join(suffixes)}", hint="name the files")
        yield from map(str, files[:_MOST])
    elif path.is_file():
        yield from _lines(path) if takes == "text" else [text]
    elif takes != "text" and glob.has_magic(text):
        matches = sorted(one for one in glob.glob(text, recursive=True) if Path(one).is_file())  # noqa: PTH207 - absolute
        if not matches:
            raise InputError(f"no file is named like `{text}`")
        yield from matches
    elif takes == "text":
        yield json.loads(text) if text.startswith("{") and text.endswith("}") else text
    elif text.startswith(("http://", "https://")):
        yield text
    else:
        raise InputError(f"there is no file or folder `{text}`", hint=f"edge-infer run BUNDLE FILE.{suffixes[0][1:]}")


def _lines(path: Path) -> Iterator[str]:
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(f"`{path}` is not text in UTF-8: {error}") from error
    yield from (line for line in lines if line.strip())


def _show(name: str, found: Any) -> None:
    """Print an answer for people."""
    if name:
        output.data(f"{name}:")
    rows = found if isinstance(found, list) else [found]
    if rows and all(isinstance(row, dict) for row in rows):
        columns = list(dict.fromkeys(key for row in rows for key in row))
        cells = [[_cell(row.get(column)) for column in columns] for row in rows]
        output.table(columns, cells, right=[one for one in columns if one in ("score", "start", "end")])
    else:
        output.data(_cell(found) if found != [] else "nothing found")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, Image):
        return f"{value.width} x {value.height} pixels, {sum(map(bool, value.data))} of them"
    if isinstance(value, Tensor):
        numbers = value.reshape(-1).tolist()
        shown = ", ".join(f"{number:.4g}" for number in numbers[:_SHOWN])
        more = ", ..." if len(numbers) > _SHOWN else ""
        return f"{value.dtype}[{', '.join(map(str, value.shape))}]: {shown}{more}"
    if isinstance(value, dict):
        return " ".join(
            f"{key}={member:.0f}" if isinstance(member, float) else f"{key}={member}" for key, member in value.items()
        )
    if isinstance(value, list):
        return "; ".join(map(_cell, value))
    return str(value)


def _save(path: Path, source: str, found: Any) -> None:
    from edge_infer.tools.annotate import annotated

    annotated(source, found).save(path)
