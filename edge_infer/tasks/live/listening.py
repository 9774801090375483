"""Answers to a sound that goes on: frame by frame for models with state, else window by window."""

from __future__ import annotations

import os
from array import array
from typing import TYPE_CHECKING, Protocol, cast

from edge_infer.errors import UnsupportedError
from edge_infer.tasks.audio.sound import Sound
from edge_infer.tasks.item import Item
from edge_infer.tasks.live import microphone
from edge_infer.tasks.post.speech_segments import SpeechDetector
from edge_infer.tasks.steps import read_step
from edge_infer.tasks.values import flat

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from edge_infer.runtime.session import Session
    from edge_infer.tasks.definition import Definition
    from edge_infer.tasks.prepared_steps import PreparedSteps
    from edge_infer.tasks.steps import Step

#: How much of a window the next one has again.
_OVERLAP = 0.5


class Listener(Protocol):
    """What answers sounds; `edge_infer.Pipeline` is the one."""

    task: str
    session: Session
    definition: Definition
    steps: PreparedSteps

    def __call__(self, inputs: Any, **arguments: Any) -> Any:
        """Answer one sound."""


def rate_and_block(pipeline: Listener) -> tuple[int, int]:
    """Return how many samples per second a pipeline of sound takes, and how many samples it takes at a time.

    Raises:
        UnsupportedError: Its steps do not say how long a frame or a window is.
    """
    steps = _steps(pipeline)
    rate = _parameter(steps, "audio.resample", "rate") or _parameter(steps, "audio.decode", "rate") or 16_000
    block = _parameter(steps, "audio.frame", "samples") or _parameter(steps, "audio.fit", "samples")
    if block is None:
        raise UnsupportedError(
            f"{pipeline.task} cannot listen: its steps have neither audio.frame nor audio.fit",
            hint='add {"step": "audio.fit", "samples": 16000} to the definition',
        )
    return rate, block


def _steps(pipeline: Listener) -> list[Step]:
    return [step for chain in pipeline.definition.inputs.values() for step in chain]


def _parameter(steps: list[Step], name: str, parameter: str) -> int | None:
    return next((int(step.parameters[parameter]) for step in steps if step.name == name), None)


def listen(pipeline: Listener, blocks: Iterable[Any], arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Give an answer as soon as it is certain.

    Args:
        pipeline: Of a task that takes sounds.
        blocks: Samples as they come, any number at a time, at the rate of `rate_and_block`.
        arguments: What the pipeline takes.
    """
    rate, block = rate_and_block(pipeline)
    last = pipeline.definition.outputs[-1]
    if _parameter(_steps(pipeline), "audio.frame", "samples") is not None and last.name == "post.speech_segments":
        yield from _segments(pipeline, _cut(blocks, block, block), rate, block, arguments)
        return
    hop = max(int(block * (1 - _OVERLAP)), 1)
    for number, window in enumerate(_cut(blocks, block, hop)):
        answer = pipeline(Sound(window, rate), **arguments)
        yield {"start": number * hop / rate, "end": (number * hop + block) / rate, "answer": answer}


def blocks_of(pipeline: Listener, source: Any) -> Iterable[Any]:
    """Return the blocks of a source: the microphone for None, a sound's file, or blocks as they are."""
    rate, block = rate_and_block(pipeline)
    if source is None:
        return microphone.blocks(rate, block)
    if not isinstance(source, (str, os.PathLike)):
        return cast("Iterable[Any]", source)
    item = Item()
    sound = read_step({"step": "audio.decode"}, "listen").prepare(pipeline.steps.place)(source, item)
    convert = read_step({"step": "audio.resample", "rate": rate}, "listen").prepare(pipeline.steps.place)
    return [convert(sound, item).samples]


def _cut(blocks: Iterable[Any], size: int, hop: int) -> Iterator[array[float]]:
    """Give windows of one size."""
    held = array("f")
    for block in blocks:
        held.extend(block if isinstance(block, array) else array("f", memoryview(block).tobytes()))
        while len(held) >= size:
            yield held[:size]
            del held[:hop]


def _segments(
    pipeline: Listener, frames: Iterator[array[float]], rate: int, size: int, arguments: dict[str, Any]
) -> Iterator[dict[str, float]]:
    """Give each stretch of speech when it has ended."""
    prepared, step = pipeline.steps, pipeline.definition.outputs[-1]
    item = Item(arguments)
    detector = SpeechDetector({name: item.argument(name, value) for name, value in step.parameters.items()}, rate, size)
    before = array("f", bytes(4 * (_parameter(_steps(pipeline), "audio.frame", "context") or 0)))
    name = prepared.place.output(step.parameters["tensor"], step.name)
    with pipeline.session.stream(initial=prepared.first_state) as stream:
        for frame in frames:
            part = Item(arguments)
            part.before = before
            (feeds,) = prepared.framed(prepared.before(Sound(frame, rate), arguments, part))
            before = (before + frame)[len(frame) :]
            detector.step(flat(stream.step(feeds)[name])[0])
            yield from detector.ended()
    yield from detector.finish()
