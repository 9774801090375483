"""Whole batches of rows through a pipeline: columns in, columns of answers out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import UnsupportedError
from edge_infer.tasks.item import Item
from edge_infer.tasks.post.outputs import reader
from edge_infer.tasks.registry import get_task
from edge_infer.tasks.tabular.table import Table
from edge_infer.tasks.values import flat
from edge_infer.tasks.values import rows as rows_of
from edge_infer.tensors.arrays import has_numpy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Protocol

    from edge_infer.runtime.session import Session
    from edge_infer.tasks.definition import Definition
    from edge_infer.tasks.prepared_steps import PreparedSteps
    from edge_infer.tensors.tensor import Tensor

    class Pipeline(Protocol):
        """What is needed of `edge_infer.tasks.pipeline.Pipeline`, which imports this file."""

        session: Session
        definition: Definition
        steps: PreparedSteps

        @property
        def labels(self) -> list[str]:
            """The names of the classes."""


class Names(NamedTuple):
    """A column of texts of which there are few.

    Attributes:
        codes: For each row the place of its text.
        names: The texts.
    """

    codes: Any
    names: list[str]

    def tolist(self) -> list[str]:
        """Return the text of each row."""
        return [self.names[code] for code in self.codes]


class Answers(NamedTuple):
    """What a batch gave.

    Attributes:
        columns: By name the answers to the rows that are left: `Names`, or numbers.
        rows: The numbers of these rows in the batch, in order.
        rejected: By number of a row why it has no answer.
    """

    columns: dict[str, Any]
    rows: Sequence[int]
    rejected: dict[int, str]


def check_task(pipeline: Pipeline) -> None:
    """Check that a pipeline answers rows of a table.

    Raises:
        UnsupportedError: It is for something else.
    """
    task = pipeline.definition.task
    if get_task(task).takes != "table":
        raise UnsupportedError(
            f"`{pipeline.session.bundle.manifest.name}` is for {task}, which takes no table",
            hint="edge-infer run BUNDLE FILE, or a bundle for tabular-classification or tabular-regression",
        )


def names_of(pipeline: Pipeline) -> dict[str, str]:
    """Return the columns that a pipeline reads, with their types."""
    for chain in pipeline.definition.inputs.values():
        for step in chain:
            if step.name == "tabular.columns":
                return dict(zip(step.parameters["names"], step.parameters["types"], strict=True))
    return {}


def predict(
    pipeline: Pipeline,
    columns: Mapping[str, Any],
    rows: int,
    *,
    scores: bool = False,
    rejects: bool = False,
    matrix: Any = None,
) -> Answers:
    """Answer the rows of a batch.

    Args:
        pipeline: A pipeline for a task of tables.
        columns: By name an array of numbers, or a list of values.
        rows: How many there are.
        scores: Whether the score of each class becomes a column too.
        rejects: Whether a row that cannot go on is left out; else it is an error.
        matrix: The model's input where it is there already: no column is read.

    Raises:
        InputError: A column is missing or of another type; or a row cannot go on.
        UnsupportedError: The pipeline is not for tables.
    """
    check_task(pipeline)
    prepared, table = pipeline.steps, Table(dict(columns), rows, rejects=rejects)
    if matrix is None:
        feeds = prepared.feeds([prepared.before(table, {})])
    else:
        feeds = {next(iter(pipeline.definition.inputs)): matrix}
    rejected = dict(table.rejected or {})
    wanted = _wanted(pipeline)
    outputs = pipeline.session.run(feeds, wanted) if rows else {}
    found = _columns(pipeline, outputs, scores=scores) if rows else {}
    if rejects:
        rejected = dict(sorted((dict.fromkeys(_without_answer(found), "the model gives NaN") | rejected).items()))
    left = [row for row in range(rows) if row not in rejected] if rejected else range(rows)
    if rejected:
        found = {name: take(values, left) for name, values in found.items()}
    return Answers(found, left, rejected)


def _without_answer(found: Mapping[str, Any]) -> list[int]:
    """Return the rows whose number is NaN, as that of infinite columns may be."""
    values = found.get("prediction", found.get("score", ()))
    if hasattr(values, "dtype"):
        return [int(row) for row in (values != values).nonzero()[0]]
    return [row for row, value in enumerate(values) if value != value]


def take(values: Any, rows: Sequence[int]) -> Any:
    """Return some rows of a column."""
    if isinstance(values, Names):
        return Names(take(values.codes, rows), values.names)
    if hasattr(values, "dtype"):
        return values[list(rows)]
    return [values[row] for row in rows]


def _wanted(pipeline: Pipeline) -> list[str] | None:
    """Return the outputs that the steps read; None for all."""
    named = [step.parameters.get("tensor") for step in pipeline.definition.outputs]
    return [named[0]] if named[0] is not None else None


def _columns(pipeline: Pipeline, outputs: Mapping[str, Any], *, scores: bool) -> dict[str, Any]:
    value = pipeline.steps.before_last(outputs, Item())
    last = pipeline.definition.outputs[-1]
    tensor = reader(last.parameters.get("tensor"), pipeline.steps.place, last.name)(value)
    if last.name == "post.value":
        return {"prediction": _array(tensor)}
    if last.name == "post.label":
        return {"label": _labels(tensor)}
    if last.name == "post.top_k":
        return _best(tensor, pipeline, scores=scores)
    raise UnsupportedError(
        f"answers of `{last.name}` cannot be columns of a table", hint="end with post.top_k, post.label or post.value"
    )


def _array(tensor: Tensor) -> Any:
    if not has_numpy():
        return flat(tensor)
    import numpy as np

    return np.frombuffer(tensor.data(), str(tensor.dtype))


def _labels(tensor: Tensor) -> Names:
    texts = [str(one) for one in tensor.reshape(-1).tolist()]
    names = sorted(set(texts))
    places = {name: i for i, name in enumerate(names)}
    return Names([places[text] for text in texts], names)


def _best(tensor: Tensor, pipeline: Pipeline, *, scores: bool) -> dict[str, Any]:
    """Return the best class of each row and its score; of equal ones the lower class, as `post.top_k` has it."""
    classes = tensor.shape[-1]
    pipeline.steps.place.check_labels(classes)
    names = [pipeline.steps.place.label(i) for i in range(classes)]
    if has_numpy():
        table = _array(tensor).reshape(-1, classes)
        codes = table.argmax(1)
        best = table[range(len(table)), codes] if len(table) < 2 else table.max(1)
        each = {f"score_{name}": table[:, i] for i, name in enumerate(names)}
    else:
        parts = rows_of(tensor)
        codes = [max(range(classes), key=part.__getitem__) for part in parts]
        best = [part[code] for part, code in zip(parts, codes, strict=True)]
        each = {f"score_{name}": [part[i] for part in parts] for i, name in enumerate(names)}
    return {"label": Names(codes, names), "score": best, **(each if scores else {})}
