"""The tasks, by the names that transformers gives them.

Rooms above this one add their tasks by `register`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import InputError, UnsupportedError, did_you_mean, listed
from edge_infer.tasks import several_runs
from edge_infer.tasks.tabular import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Literal

    from edge_infer.tasks.place import Place

    Kind = Literal["image", "sound", "text", "table"]


class Task(NamedTuple):
    """The purpose of a pipeline.

    Attributes:
        name: Such as `image-classification`.
        takes: The kind of its raw input.
        arguments: What the caller may give besides the arguments of the steps.
        expand: Returns the raw inputs that one of the task takes: a run of the model for each. None for one run.
        combine: Returns the answer from those of the runs.
    """

    name: str
    takes: Kind
    arguments: tuple[str, ...] = ()
    expand: Callable[[Any, Mapping[str, Any]], list[Any]] | None = None
    combine: Callable[[list[Any], Any, Mapping[str, Any], Place], Any] | None = None


_TASKS: dict[str, Task] = {}
#: Tasks of rooms above this one that make pipelines of their own: the module with `open_pipeline`, by its name.
_OPENERS = {
    "text-generation": "edge_infer.generation.pipeline",
    "automatic-speech-recognition": "edge_infer.generation.sequence_pipeline",
    **dict.fromkeys(
        ("text2text-generation", "summarization", "translation"), "edge_infer.generation.sequence_pipeline"
    ),
}


def register(task: Task) -> None:
    """Add a task."""
    _TASKS[task.name] = task


def get_task(name: str) -> Task:
    """Return a task.

    Raises:
        InputError: There is none of this name.
    """
    if name not in _TASKS:
        known = sorted(_TASKS)
        hint = did_you_mean(name, known) or f"choose from {listed(known)}"
        raise InputError(f"there is no task `{name}`", hint=hint, allowed=known)
    return _TASKS[name]


def opener(task: str, *, is_async: bool = False) -> Callable[..., Any]:
    """Return what opens the pipelines of a task whose models no session runs: a function, or a coroutine's.

    Raises:
        UnsupportedError: The task's room is not in this archive.
    """
    try:
        room = import_module(_OPENERS[task])
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"{task} is not in this archive of edge-infer", hint="pip install edge-infer") from error
    found: Callable[..., Any] = room.open_pipeline_async if is_async else room.open_pipeline
    return found


#: The tasks of this room. `web/generate_parameters.py` writes their names and arguments for JavaScript.
OWN = (
    Task("depth-estimation", "image"),
    Task("image-classification", "image"),
    Task("image-feature-extraction", "image"),
    Task("image-segmentation", "image"),
    Task("image-to-image", "image"),
    Task("keypoint-detection", "image"),
    Task("object-detection", "image"),
    Task("audio-classification", "sound"),
    Task("automatic-speech-recognition", "sound"),
    Task("tabular-classification", "table", (), rows.rows_of, rows.answer_of),
    Task("tabular-regression", "table", (), rows.rows_of, rows.answer_of),
    Task("voice-activity-detection", "sound"),
    Task("feature-extraction", "text"),
    Task("fill-mask", "text"),
    Task("text-classification", "text"),
    Task("token-classification", "text"),
    Task(
        "question-answering",
        "text",
        ("doc_stride",),
        several_runs.question_and_context,
        several_runs.best_answers,
    ),
    Task(
        "zero-shot-classification",
        "text",
        ("candidate_labels", "hypothesis_template", "multi_label"),
        several_runs.hypotheses,
        several_runs.by_entailment,
    ),
    Task("text-ranking", "text", ("top_k",), several_runs.query_and_documents, several_runs.by_relevance),
)
for _task in (*OWN, *(Task(_name, "text") for _name in _OPENERS if _name not in {one.name for one in OWN})):
    register(_task)
