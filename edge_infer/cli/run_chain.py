"""`edge-infer run` of a chain: raw inputs to answers, and what each step took."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.chains.chain import Chain
from edge_infer.cli import output
from edge_infer.errors import InputError, did_you_mean, listed
from edge_infer.tasks.answers import as_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.bundle.bundle import Bundle


def answer_chain(
    bundle: Bundle, raw: Sequence[str], refused: Sequence[str], *, as_json_lines: bool, **choice: Any
) -> None:
    """Answer raw inputs, together, and print a line of JSON for each answer.

    Args:
        bundle: The chain.
        raw: Files, or for a text its own words; of a chain with several inputs `NAME=VALUE`, all of one answer.
        refused: Options that were given and do not apply.
        as_json_lines: Whether to print the times as JSON too.
        choice: What `Chain.open` takes.

    Raises:
        InputError: An option does not apply, an input lacks, or is not what the chain takes.
    """
    if refused:
        raise InputError(
            f"a chain takes no {listed([*refused])}",
            hint="the description of the chain says what its steps are given: [steps.with]",
        )
    with Chain.open(bundle, **choice) as chain:
        if not raw:
            raise InputError("nothing is given", hint=f"edge-infer run {bundle.location} {_usage(chain.inputs)}")
        if len(chain.inputs) == 1:
            kind = next(iter(chain.inputs.values()))
            inputs: list[Any] = [_value(text, kind) for text in raw]
        else:
            inputs = [_named(raw, chain.inputs)]
        run = chain.run(inputs)
    for found in run.answer:
        line = output.finite(as_json(found))
        output.data(json.dumps({"answer": line} if as_json_lines else line, ensure_ascii=False, allow_nan=False))
    if as_json_lines:
        output.data_json_line({"timings": [one._asdict() for one in run.timings], "spared": run.spared})
        return
    output.talk("; ".join(f"{one.name} {one.ms:.1f} ms ({one.values})" for one in run.timings))


def _named(raw: Sequence[str], inputs: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in raw:
        name, equals, text = pair.partition("=")
        if not equals or name not in inputs:
            hint = did_you_mean(name, [*inputs]) or f"edge-infer run BUNDLE {_usage(inputs)}"
            raise InputError(f"`{pair}` names no input of the chain", hint=hint)
        found[name] = _value(text, inputs[name])
    return found


def _usage(inputs: Mapping[str, str]) -> str:
    words = {"image": "photo.jpg", "sound": "speech.wav", "text": "'a text'", "tensor": "'[1, 2]'"}
    if len(inputs) == 1:
        return words[next(iter(inputs.values()))]
    return " ".join(f"{name}={words[kind]}" for name, kind in inputs.items())


def _value(text: str, kind: str) -> Any:
    """Return a raw input: a path, a text or the words of a text file, or numbers as JSON.

    Raises:
        InputError: They are no numbers, or the file is not text.
    """
    if kind == "text" and text.endswith(".txt") and Path(text).is_file():
        try:
            return Path(text).read_text("utf-8-sig").strip()
        except UnicodeDecodeError as error:
            raise InputError(f"`{text}` is not text in UTF-8: {error}") from error
    if kind != "tensor":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"`{text}` is not JSON: {error}", hint="'[0.5, 1]'") from error
