"""`pipeline("text-generation")`: a generator in the shape of a pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError, UnsupportedError
from edge_infer.generation.generate import generate, generate_async
from edge_infer.platform.host import run_in_thread
from edge_infer.tasks.pipeline import Pipeline

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.generation.generator import Generator

_TASK = "text-generation"
_OPTIONS = ("context", "slots", "threads", "variant")


def open_pipeline(bundle: str | os.PathLike[str] | Bundle, task: str | None, options: dict[str, Any]) -> TextGeneration:
    """Load a bundle that generates text.

    Args:
        bundle: What `generate` takes.
        task: The task that is wanted; None for what the bundle is for.
        options: What `generate` takes; `load`'s `device` and `backend` may say what is so in any case.

    Raises:
        InputError: The task is another, or an option is not of generation.
        EdgeInferError: What `generate` raises.
    """
    return TextGeneration(generate(bundle, **_given(task, options)))


async def open_pipeline_async(
    bundle: str | os.PathLike[str] | Bundle, task: str | None, options: dict[str, Any]
) -> TextGeneration:
    """Load a bundle as `open_pipeline` does, without blocking."""
    return TextGeneration(await generate_async(bundle, **_given(task, options)))


def _given(task: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """Return what `generate` takes of a pipeline's options."""
    if task not in (None, _TASK):
        raise InputError(f"the bundle is for {_TASK}, not for {task}", hint=f'pipeline("{_TASK}", ...)')
    given = {name: value for name, value in options.items() if value is not None}
    if given.get("device") in ("auto", "cpu"):
        del given["device"]
    for name in given:
        if name not in _OPTIONS:
            raise InputError(f"text is generated without `{name}`", hint=f"it takes {', '.join(_OPTIONS)}")
    return given


class TextGeneration(Pipeline):
    """A generator that is called like a pipeline, with the answers of transformers.

    Args:
        generator: The model.

    Attributes:
        task: `text-generation`.
        generator: The model.
    """

    def __init__(self, generator: Generator) -> None:
        self.generator = generator
        self.task = _TASK

    def __repr__(self) -> str:
        return f"Pipeline({self.task}, {self.generator!r})"

    @property
    def labels(self) -> list[str]:
        """An empty list: texts have no classes."""
        return []

    def __call__(self, inputs: Any, **arguments: Any) -> Any:
        """Generate.

        Args:
            inputs: A text, the messages of a conversation, a list of either, or an iterator.
            arguments: The options of `Generator.stream`, and `return_full_text`: whether the prompt stands before the
                new text, as it does unless told otherwise.

        Returns:
            `[{"generated_text": ...}]` for one input, a list of them for a list, an iterator for an iterator. Of a
            conversation the generated text is its messages with the answer as the last.

        Raises:
            InputError: An input is neither a text nor messages, or an argument is unknown.
            ExecutionError: The model failed.
        """
        if hasattr(inputs, "__next__"):
            return self._all(inputs, arguments)
        if isinstance(inputs, (list, tuple)) and not _is_conversation(inputs):
            return list(self._all(iter(inputs), arguments))
        return self._one(inputs, **arguments)

    async def run_async(self, inputs: Any, **arguments: Any) -> Any:
        """Generate as a call does, without blocking."""
        return await run_in_thread(lambda: self(inputs, **arguments))

    def listen(self, source: Any = None, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Refuse: the task takes no sound."""
        del source, arguments
        raise UnsupportedError(f"{self.task} takes no sound", hint="pipeline(...)(text)")

    def close(self) -> None:
        """Give the memory back."""
        self.generator.close()

    def _all(self, inputs: Iterator[Any], arguments: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
        for one in inputs:
            yield self._one(one, **arguments)

    def _one(self, value: Any, *, return_full_text: bool = True, **options: Any) -> list[dict[str, Any]]:
        if not isinstance(value, str) and not _is_conversation(value):
            raise InputError(
                f"{self.task} takes texts and messages, not {type(value).__name__}",
                hint='[{"role": "user", "content": "Hello"}]',
            )
        text = self.generator.stream(value, **options).result().text
        if not return_full_text:
            return [{"generated_text": text}]
        if isinstance(value, str):
            return [{"generated_text": value + text}]
        return [{"generated_text": [*value, {"role": "assistant", "content": text}]}]


def _is_conversation(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and hasattr(value[0], "get") and "role" in value[0]
