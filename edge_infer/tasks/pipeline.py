"""Public `pipeline`: from raw data to an answer."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.bundle.bundle import Bundle
from edge_infer.bundle.manifest import MANIFEST_NAME
from edge_infer.errors import BackendUnavailable, InputError, UnsupportedError
from edge_infer.runtime.load import load, load_async
from edge_infer.tasks.definition import check_arguments, definition_of
from edge_infer.tasks.prepared_steps import PreparedSteps
from edge_infer.tasks.registry import get_task, opener
from edge_infer.tasks.sources.opened import described

if TYPE_CHECKING:
    import os
    from collections.abc import Generator, Iterable, Iterator, Sequence
    from typing import Any, Self

    from edge_infer.runtime.session import Session
    from edge_infer.tasks.definition import Definition
    from edge_infer.tasks.shared import Shared
    from edge_infer.tensors.tensor import Tensor

    #: What one run of the model takes: the inputs, or those of each step of a stream.
    Work = dict[str, Tensor] | list[dict[str, Tensor]]
    Results = Any

#: How many raw inputs are read ahead, so that texts of one length can run together.
_AHEAD = 256


def pipeline(
    model: str | os.PathLike[str] | Bundle,
    source: str | os.PathLike[str] | Bundle | None = None,
    *,
    task: str | None = None,
    **options: Any,
) -> Pipeline:
    """Load a model with all that stands before and after it.

    Args:
        model: What `load` takes, with the fields `task` and `pipeline` in its manifest; a bare model file whose
            metadata say as much; or a folder of the Hugging Face Hub with `config.json` and `onnx/model.onnx`. Or the
            name of a task, and the model second, as in transformers.
        source: The model, where a task comes first.
        task: The task, which must be the bundle's; None for whatever it is.
        options: What `load` takes: `device`, `backend`, `variant`, `threads`, ... With `self_test` the steps and the
            answers are compared with the bundle's vectors too.

    Raises:
        InputError: There is no such task, or it is not the bundle's.
        UnsupportedError: The bundle does not say what stands before and after the model.
        ManifestError: What it says is wrong, or does not fit the model.
        EdgeInferError: What `load` raises.

    >>> find = pipeline("faces.bundle")
    >>> find("examples/faces/astronaut.jpg")[0]["label"]
    'face'
    """
    place, task = _arguments(model, source, task)
    found = described(place, task)
    own = _own_task(found)
    if own is not None:
        paired: Pipeline = opener(own)(found, task, options)
        return paired
    try:
        session = load(found, **_with_tensors(options))
    except BackendUnavailable as error:
        if error.details.get("formats") != ["decoder"]:
            raise
        # No session runs it, because it generates text.
        generating: Pipeline = opener("text-generation")(found, task, options)
        return generating
    with ExitStack() as opened:
        opened.callback(session.close)
        made = Pipeline(session, task)
        opened.callback(made.steps.close)
        if options.get("self_test"):
            from edge_infer.tasks.vectors import prove

            prove(made)
        opened.pop_all()
    return made


async def pipeline_async(
    model: str | os.PathLike[str] | Bundle,
    source: str | os.PathLike[str] | Bundle | None = None,
    *,
    task: str | None = None,
    **options: Any,
) -> Pipeline:
    """Load a model as `pipeline` does, without blocking; in a page it starts the engine where nobody has yet."""
    place, task = _arguments(model, source, task)
    found = described(place, task)
    own = _own_task(found)
    if own is not None:
        paired: Pipeline = await opener(own, is_async=True)(found, task, options)
        return paired
    try:
        session = await load_async(found, **_with_tensors(options))
    except BackendUnavailable as error:
        if error.details.get("formats") != ["decoder"]:
            raise
        # No session runs it, because it generates text.
        generating: Pipeline = await opener("text-generation", is_async=True)(found, task, options)
        return generating
    with ExitStack() as opened:
        opened.callback(session.close)
        made = Pipeline(session, task)
        opened.callback(made.steps.close)
        if options.get("self_test"):
            from edge_infer.tasks.vectors import prove_async

            await prove_async(made)
        opened.pop_all()
    return made


def _own_task(bundle: str | os.PathLike[str] | Bundle) -> str | None:
    """Return the task of a bundle whose model is an encoder and a decoder; None for all others, and for addresses."""
    if not isinstance(bundle, Bundle):
        path = Path(bundle)
        if not (path / MANIFEST_NAME).is_file() and not (path.suffix == ".zip" and path.is_file()):
            return None
        bundle = Bundle.open(path)
    kind = (bundle.manifest.generate or {}).get("kind")
    return bundle.manifest.task if isinstance(kind, str) and kind.startswith("encoder-decoder/") else None


def _arguments(model: Any, source: Any, task: str | None) -> tuple[Any, str | None]:
    if source is None:
        return model, task
    if task is not None:
        raise InputError("the task is given twice", hint='pipeline("image-classification", "model.bundle")')
    return source, get_task(str(model)).name


def _with_tensors(options: dict[str, Any]) -> dict[str, Any]:
    if "arrays" in options:
        raise InputError(
            "`arrays` is for tensors, and a pipeline answers with more", hint="edge_infer.load(arrays=...)"
        )
    return {**options, "arrays": "tensor"}


class Pipeline:
    """A model with what stands before and after it; made by `pipeline`.

    Args:
        session: The model, loaded with `arrays="tensor"`.
        task: The task that the bundle must have; None for whatever it is.
        definition: What stands before and after; None for what the bundle says.

    Attributes:
        task: What it is for, such as `object-detection`.
        session: The model.
        definition: The steps.
        steps: The steps, prepared for this model.

    A pipeline may be called from any thread.
    """

    def __init__(self, session: Session, task: str | None = None, definition: Definition | None = None) -> None:
        self.session = session
        self.definition = definition or definition_of(session.bundle.manifest)
        self.task = self.definition.task
        if task not in (None, self.task):
            raise InputError(
                f"`{session.bundle.manifest.name}` is for {self.task}, not for {task}",
                hint=f'pipeline("{self.task}", ...)',
                expected=self.task,
                got=task,
            )
        self._task = get_task(self.task)
        self.steps = PreparedSteps(self.definition, session)
        self._ahead = _AHEAD if self.steps.can_batch and self._task.takes in ("text", "table") else 1

    def __repr__(self) -> str:
        return f"Pipeline({self.task}, {self.session!r})"

    @property
    def labels(self) -> list[str]:
        """The names of the classes; an empty list where there are none."""
        return self.steps.place.labels

    def __call__(self, inputs: Any, **arguments: Any) -> Any:
        """Answer.

        Args:
            inputs: One raw input, a list of them, or an iterator. An image is a path, a URL, the bytes of a file, a
                Pillow image or an array [height, width, 3] of uint8; a sound a path of a WAV file, its bytes, or
                samples; a text a `str`, a pair of texts `{"text", "text_pair"}`.
            arguments: What the task's steps take, such as `top_k` or `threshold`.

        Returns:
            The answer to one raw input, a list of them for a list, an iterator for an iterator.

        Raises:
            InputError: An input is not what the task takes, or an argument is unknown.
            ExecutionError: The engine failed.
        """
        self._check(arguments)
        if hasattr(inputs, "__next__"):
            return self._each(inputs, arguments)
        if _is_list(inputs):
            return list(self._each(inputs, arguments))
        return next(self._each([inputs], arguments))

    async def run_async(self, inputs: Any, **arguments: Any) -> Any:
        """Answer as a call does, for engines that are asynchronous."""
        self._check(arguments)
        is_list = _is_list(inputs) or hasattr(inputs, "__next__")
        answers = [answer async for answer in self._each_async(inputs if is_list else [inputs], arguments)]
        return answers if is_list else answers[0]

    def listen(self, source: Any = None, **arguments: Any) -> Iterator[dict[str, Any]]:
        """Answer a sound that goes on, each answer as soon as it is certain.

        Args:
            source: None for the microphone (the package sounddevice reads it), a path of a sound, or an iterable of
                blocks of float32 samples, of any length, at the model's own rate.
            arguments: What the task's steps take.

        Returns:
            For `voice-activity-detection` `{"start", "end", "score"}` when a stretch of speech has ended; for other
            tasks `{"start", "end", "answer"}` of windows that overlap by half. Times are seconds from the beginning.

        Raises:
            InputError: The source is not a sound, or an argument is unknown.
            UnsupportedError: The task takes no sound, or the microphone cannot be read here.
        """
        from edge_infer.tasks.live.listening import blocks_of, listen

        if self._task.takes != "sound":
            raise UnsupportedError(f"{self.task} takes no sound", hint="pipeline(...)(inputs)")
        check_arguments(self.definition, arguments)
        return listen(self, blocks_of(self, source), arguments)

    def watch(self, camera: int | str = 0, **arguments: Any) -> Iterator[Any]:
        """Answer the newest picture of a camera, again and again: one that comes while the model runs is dropped.

        Args:
            camera: Its number, or what OpenCV opens: a file of a video, or the URL of a stream.
            arguments: What the task's steps take.

        Raises:
            InputError: An argument is unknown; with the first answer, there is no such camera.
            UnsupportedError: The task takes no image; with the first answer, neither OpenCV nor picamera2 is there.
        """
        from edge_infer.tasks.live.camera import frames

        if self._task.takes != "image":
            raise UnsupportedError(f"{self.task} takes no image", hint="pipeline(...)(inputs)")
        self._check(arguments)
        return self._each(frames(camera), arguments)

    def answer(self, values: Sequence[Any], arguments: dict[str, Any], shared: Shared) -> list[Any]:
        """Answer raw inputs that are there at the same time, as a chain has them.

        Args:
            values: The raw inputs.
            arguments: What the task's steps take.
            shared: What other pipelines' first steps made of the same inputs.
        """
        self._check(arguments)
        answers: list[Any] = []
        for at in range(0, len(values), _AHEAD):
            work = self._work(list(values[at : at + _AHEAD]), arguments, shared)
            try:
                asked = next(work)
                while True:
                    asked = work.send(self._run(asked))
            except StopIteration as end:
                answers += end.value
        return answers

    def predict_table(self, table: Any, *, scores: bool = False) -> Any:
        """Answer the rows of a table, whole columns at once.

        Args:
            table: Columns by name (a dict of lists or arrays), a table of pandas, polars or pyarrow, or what exports
                the Arrow C stream interface, such as a result of duckdb; its buffers are shared. Further columns are
                ignored. A table of one column of float32 lists, as long as the model has columns, is its input
                without a copy.
            scores: Whether the score of each class becomes a column `score_NAME` too.

        Returns:
            A table of the same library with the columns `label` and `score`, or `prediction` for a regression; one of
            pyarrow for others.

        Raises:
            InputError: A column is missing or of another type, or a row has a value that the model does not take; the
                message names both.
            UnsupportedError: The task takes no table, or neither pyarrow nor polars is installed to read this one.
        """
        from edge_infer.tasks.tabular.frames import predict_table

        return predict_table(self, table, scores=scores)

    def close(self) -> None:
        """Give the engine's memory back."""
        self.steps.close()
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self, arguments: dict[str, Any]) -> None:
        check_arguments(self.definition, arguments)

    def _each(self, inputs: Iterable[Any], arguments: dict[str, Any]) -> Iterator[Any]:
        for values in _parts(inputs, self._ahead):
            work = self._work(values, arguments)
            try:
                asked = next(work)
                while True:
                    asked = work.send(self._run(asked))
            except StopIteration as end:
                yield from end.value

    async def _each_async(self, inputs: Iterable[Any], arguments: dict[str, Any]) -> Any:
        for values in _parts(inputs, self._ahead):
            work = self._work(values, arguments)
            try:
                asked = next(work)
                while True:
                    done = self._run(asked) if isinstance(asked, list) else await self.session.run_async(asked)
                    asked = work.send(done)
            except StopIteration as end:
                for answer in end.value:
                    yield answer

    def _run(self, asked: Work) -> Results:
        if not isinstance(asked, list):
            return self.session.run(asked)
        with self.session.stream(initial=self.steps.first_state) as stream:
            return [stream.step(feeds) for feeds in asked]

    def _work(
        self, values: list[Any], arguments: dict[str, Any], shared: Shared | None = None
    ) -> Generator[Work, Results, list[Any]]:
        """Ask for the runs that some raw inputs take, and return their answers."""
        combine = self._task.combine
        groups = [self.steps.runs(value, arguments) for value in values]
        ready = [self.steps.before(one, arguments, shared=shared) for group in groups for one in group]
        answers: list[Any] = [None] * len(ready)
        for batch in self.steps.batches(ready, is_alike=shared is not None):
            if ready[batch[0]].frames:
                steps = yield self.steps.framed(ready[batch[0]])
                answers[batch[0]] = self.steps.after(self.steps.of_stream(steps), ready[batch[0]].item)
                continue
            outputs = yield self.steps.feeds([ready[i] for i in batch])
            for row, i in enumerate(batch):
                answers[i] = self.steps.after(self.steps.of_one(outputs, row, len(batch)), ready[i].item)
        if combine is None:
            return answers
        left = iter(answers)
        return [
            combine([next(left) for _ in group], value, arguments, self.steps.place)
            for value, group in zip(values, groups, strict=True)
        ]


def _is_list(inputs: Any) -> bool:
    """Tell whether these are several raw inputs; a list of numbers is the samples of one sound."""
    return type(inputs) in (list, tuple) and not (inputs and isinstance(inputs[0], (int, float)))


def _parts(inputs: Iterable[Any], most: int) -> Iterator[list[Any]]:
    part: list[Any] = []
    for value in inputs:
        part.append(value)
        if len(part) == most:
            yield part
            part = []
    if part:
        yield part
