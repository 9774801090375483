"""Pipelines of models with an encoder and a decoder: speech to text, and text to text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from edge_infer.bundle.bundle import Bundle
from edge_infer.errors import InputError, UnsupportedError
from edge_infer.generation.encoder_decoder import SequenceModel
from edge_infer.generation.speech import Recognizer
from edge_infer.platform.host import run_in_thread
from edge_infer.tasks.pipeline import Pipeline
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from edge_infer.tasks.shared import Shared

SPEECH = "automatic-speech-recognition"
#: By task of texts, what transformers calls the answer.
TEXTS = {
    "text2text-generation": "generated_text",
    "summarization": "summary_text",
    "translation": "translation_text",
}
_MOST_TOKENS = 1_000_000


def open_pipeline(
    bundle: str | os.PathLike[str] | Bundle, task: str | None, options: dict[str, Any]
) -> SpeechRecognition | TextToText:
    """Load a bundle with an encoder and a decoder.

    Args:
        bundle: What `Bundle.open` takes.
        task: The task that is wanted; None for what the bundle is for.
        options: What `load` takes.

    Raises:
        InputError: The task is another.
        EdgeInferError: What `load` raises.
    """
    made = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
    own = made.manifest.task or ""
    may_be = {own, *(TEXTS if own in TEXTS else ())}
    if task not in (None, *may_be):
        raise InputError(f"`{made.manifest.name}` is for {own}, not for {task}", hint=f'pipeline("{own}", ...)')
    model = SequenceModel(made, **options)
    try:
        return SpeechRecognition(model) if own == SPEECH else TextToText(model, task or own)
    except BaseException:
        model.close()
        raise


async def open_pipeline_async(
    bundle: str | os.PathLike[str] | Bundle, task: str | None, options: dict[str, Any]
) -> SpeechRecognition | TextToText:
    """Load a bundle as `open_pipeline` does, without blocking."""
    return await run_in_thread(lambda: open_pipeline(bundle, task, options))


class _Sequences(Pipeline, ABC):
    """A model that is called like a pipeline.

    Args:
        model: The model.
        task: What it is for.

    Attributes:
        task: Likewise.
        model: The model.
    """

    def __init__(self, model: SequenceModel, task: str) -> None:
        self.model = model
        self.session = model.decoder
        self.task = task

    def __repr__(self) -> str:
        return f"Pipeline({self.task}, {self.model.definition.architecture}, {self.model.variant})"

    @property
    def labels(self) -> list[str]:
        """An empty list: texts have no classes."""
        return []

    def __call__(self, inputs: Any, **arguments: Any) -> Any:
        """Answer one input, a list of them, or an iterator.

        Raises:
            InputError: An input is not what the task takes, or an argument is unknown.
            ExecutionError: The engine failed.
        """
        if hasattr(inputs, "__next__"):
            return self._all(inputs, arguments)
        is_samples = isinstance(inputs, (list, tuple)) and bool(inputs) and isinstance(inputs[0], (int, float))
        if isinstance(inputs, (list, tuple)) and not is_samples:
            return list(self._all(iter(inputs), arguments))
        return self._checked(inputs, arguments)

    async def run_async(self, inputs: Any, **arguments: Any) -> Any:
        """Answer as a call does, without blocking."""
        return await run_in_thread(lambda: self(inputs, **arguments))

    def listen(self, source: Any = None, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Refuse: a window is heard whole."""
        del source, arguments
        raise UnsupportedError(f"{self.task} does not listen: it takes whole sounds", hint="pipeline(...)(sound)")

    def answer(self, values: Sequence[Any], arguments: dict[str, Any], shared: Shared) -> list[Any]:
        """Refuse: a chain has no step for models with an encoder and a decoder."""
        del values, arguments, shared
        raise UnsupportedError(f"{self.task} cannot be a step of a chain", hint="pipeline(...)(input)")

    def predict_table(self, table: Any, *, scores: bool = False) -> Any:
        """Refuse: the model takes no columns."""
        del table, scores
        raise UnsupportedError(f"{self.task} takes no table", hint="pipeline(...)(input)")

    def close(self) -> None:
        """Give the memory back."""
        self.model.close()

    def _all(self, inputs: Iterator[Any], arguments: dict[str, Any]) -> Iterator[Any]:
        for one in inputs:
            yield self._checked(one, arguments)

    def _checked(self, value: Any, arguments: dict[str, Any]) -> Any:
        unknown = [name for name in arguments if name not in self._takes]
        if unknown:
            raise InputError(
                f"{self.task} has no argument `{unknown[0]}`", hint=f"it takes {', '.join(self._takes)}", got=unknown[0]
            )
        return self._one(value, arguments)

    _takes: tuple[str, ...] = ()

    @abstractmethod
    def _one(self, value: Any, arguments: dict[str, Any]) -> Any: ...


class SpeechRecognition(_Sequences):
    """Speech to text, with the answers of transformers.

    Its calls take `language` (`en`; heard where it is left out), `task` (`transcribe` or `translate`),
    `return_timestamps` and `sampling_rate`. The answer is `{"text"}`, with times `{"text", "chunks": [{"timestamp":
    (start, end), "text"}]}`. Of sounds longer than a window all segments are one text.
    """

    _takes = ("language", "task", "return_timestamps", "sampling_rate")

    def __init__(self, model: SequenceModel) -> None:
        super().__init__(model, SPEECH)
        self._recognizer = Recognizer(model)

    def _one(self, value: Any, arguments: dict[str, Any]) -> Any:
        has_times = arguments.get("return_timestamps", False)
        if not isinstance(has_times, bool):
            raise InputError(f"`return_timestamps` is {has_times!r}, expected True or False", hint="times of segments")
        recognizer = self._recognizer
        segments = list(
            recognizer.segments(
                value,
                language=arguments.get("language"),
                task=arguments.get("task", "transcribe"),
                has_times=has_times,
                sampling_rate=arguments.get("sampling_rate"),
            )
        )
        texts = [recognizer.text(one.tokens) for one in segments]
        if not has_times:
            return {"text": "".join(texts)}
        chunks = [
            {"timestamp": (round(one.start, 2), None if one.end is None else round(one.end, 2)), "text": text}
            for one, text in zip(segments, texts, strict=True)
        ]
        return {"text": "".join(texts), "chunks": chunks}


class TextToText(_Sequences):
    """Text to text, with the answers of transformers: `[{"generated_text"}]`, or what the task calls it.

    Its calls take `max_tokens`, 256 unless told otherwise; the most likely tokens are taken.
    """

    _takes = ("max_tokens",)

    def _one(self, value: Any, arguments: dict[str, Any]) -> Any:
        if not isinstance(value, str):
            raise InputError(f"{self.task} takes texts, not {type(value).__name__}", hint='"translate: Hello"')
        most = arguments.get("max_tokens", 256)
        if type(most) is not int or not 1 <= most <= _MOST_TOKENS:
            raise InputError(f"`max_tokens` is {most!r}, expected 1 to {_MOST_TOKENS}")
        model = self.model
        crossed = model.encode({"input_ids": Tensor.from_list([model.tokenize(value)], DType.INT64)})
        try:
            tokens = list(model.tokens(crossed, [model.definition.start], most))
        finally:
            model.forget(crossed)
        return [{TEXTS[self.task]: model.tokenizer.decode(tokens)}]
