"""The options of commands that generate text, and the line about their speed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge_infer.cli import output
from edge_infer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.generation.text_stream import TextStream

_SCHEMA = "Let the answer be JSON that a JSON Schema in FILE describes; `any` for any object."
_OPTIONS = (
    click.option("--max-tokens", type=int, metavar="N", help="The most new tokens.  [default: 256]"),
    click.option("--temperature", type=float, metavar="T", help="0 takes the most likely token; more varies more."),
    click.option("--top-k", type=int, metavar="K", help="Choose among the best K tokens; 0 for all."),
    click.option("--top-p", type=float, metavar="P", help="Choose among the best tokens with this share; 1 for all."),
    click.option("--min-p", type=float, metavar="P", help="Leave out tokens below this fraction of the best."),
    click.option("--seed", type=int, metavar="N", help="The same seed gives the same text."),
    click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; may be repeated."),
    click.option("--repetition-penalty", type=float, metavar="X", help="Above 1 against repetitions."),
    click.option("--frequency-penalty", type=float, metavar="X", help="Against frequent tokens of the answer."),
    click.option("--presence-penalty", type=float, metavar="X", help="Against tokens that the answer has."),
    click.option("--schema", metavar="FILE", help=_SCHEMA),
    click.option("--context", type=int, metavar="N", help="Tokens of prompt and answer together."),
    click.option("--threads", type=int, metavar="N", help="Threads that compute; as many as are faster unless given."),
    click.option("--variant", metavar="ID", help="The weights, such as decoder/int8; the smallest unless given."),
)
_LOAD = ("context", "threads", "variant")


def sampling(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of generation; the command gets them as keywords, None where they are not given."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def split(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what `edge_infer.generate` takes of the options, and what `stream` takes.

    Raises:
        InputError: `--schema` names no file with JSON.
    """
    asked = {name: value for name, value in given.items() if value not in (None, ())}
    schema = asked.pop("schema", None)
    if schema is not None:
        asked["response_format"] = _response_format(schema)
    return (
        {name: asked.pop(name) for name in _LOAD if name in asked},
        {**asked, "stop": list(asked["stop"])} if "stop" in asked else asked,
    )


def _response_format(path: str) -> dict[str, Any]:
    if path == "any":
        return {"type": "json_object"}
    try:
        return {"type": "json_schema", "schema": json.loads(Path(path).read_text("utf-8"))}
    except OSError as error:
        raise InputError(f"cannot read `{path}`: {error.strerror or error}", hint="--schema answer.json") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"`{path}` is not JSON: {error}", hint="--schema answer.json") from error


class Speed:
    """How fast a stream's tokens arrive."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._first = self._end = 0.0

    def show(self, stream: TextStream, *, is_shown: bool = True) -> None:
        """Read a stream to its end, and print its pieces as they arrive."""
        for piece in stream:
            self._first = self._first or time.monotonic()
            if is_shown:
                output.piece(piece)
        self._end = time.monotonic()

    def to_json(self, tokens: int) -> dict[str, float | None]:
        """Return the seconds to the first text, and the tokens of each second after it."""
        taken = self._end - self._first
        is_known = self._first > 0 and tokens > 1 and taken > 0
        return {
            "first_text_s": round(self._first - self._start, 4) if self._first else None,
            "tokens_per_s": round((tokens - 1) / taken, 2) if is_known else None,
        }

    def line(self, stream: TextStream) -> str:
        """Describe what was generated: `12 tokens, 45.1 tokens/s; prompt 30 tokens (20 cached) in 0.10 s`."""
        done = stream.completion
        prompt, count, cached = done.usage
        speed = self.to_json(count)
        parts = [f"{count} tokens"]
        if speed["tokens_per_s"] is not None:
            parts.append(f"{speed['tokens_per_s']:.1f} tokens/s")
        begin = f"prompt {prompt} tokens ({cached} cached)"
        if speed["first_text_s"] is not None:
            begin += f" in {speed['first_text_s']:.2f} s"
        ended = {"length": "ended at its length", "cancelled": "cancelled"}.get(done.finish_reason)
        return "; ".join([", ".join(parts), begin, *([ended] if ended else []), f"seed {done.seed}"])
