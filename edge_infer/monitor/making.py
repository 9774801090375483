"""Make a reference from data: bins of equal mass, categories, directions of the largest variance. It needs numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import InputError
from edge_infer.monitor.features import array_of, columns_of, whole_numbers
from edge_infer.monitor.reference import (
    BINS,
    MAX_CATEGORIES,
    SIDE,
    Feature,
    Group,
    Reference,
    read_reference,
    write_reference,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.tasks.definition import Definition
    from edge_infer.tensors.tensor import TensorSpec

    Runs = Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]

#: The directions of vectors and images.
DIRECTIONS = 16
#: A row of more numbers is watched by directions, and one of fewer column by column.
MAX_COLUMNS = 64
#: What a reference takes at most: vectors and images get fewer directions, where their file would be larger.
MAX_BYTES = 8192
#: Fewer rows say too little of what is usual.
LEAST_ROWS = 200
_LARGEST = 4096.0
_PROJECTED = ("vector", "image")
#: The share of the largest variance below which there is none.
_LEAST_VARIANCE = 1e-9
#: A direction of a longer vector takes more than half of `MAX_BYTES`.
_MAX_WIDTH = 4096
#: Directions of vectors that are longer than this come of so many rows, for the time that they take.
_MOST_ROWS = 1000


def make_reference(
    runs: Runs,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    names: Mapping[str, Sequence[str]] | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    labels: Sequence[str] = (),
) -> bytes:
    """Make the file of a reference.

    Args:
        runs: The inputs and outputs of each run of the model, the batch along the first axis.
        inputs: The specs of the inputs.
        outputs: The specs of the outputs.
        names: By tensor the names of its columns.
        categories: By column what its numbers stand for.
        labels: The names of the classes.

    Raises:
        InputError: There are fewer than `LEAST_ROWS` rows, or no tensor that can be watched.
    """
    named, known = names or {}, categories or {}
    seen: list[tuple[Group, list[Any]]] = []
    for of, specs in (("inputs", inputs), ("outputs", outputs)):
        for spec in specs:
            values = [array_of(run[of == "outputs"][spec.name]) for run in runs if spec.name in run[of == "outputs"]]
            group = _group(of, spec, values, named, labels)
            if group is not None:
                seen.append((group, values))
    groups: list[Group] = []
    directions: list[list[int]] = []
    for group, values in seen:
        if group.take in _PROJECTED:
            found = _directions(values, group)
            group = group._replace(names=[f"{group.tensor} {i + 1}" for i in range(len(found))])
            directions += found
        groups.append(_unique(group, groups))
    if not groups:
        raise InputError("no tensor of the model can be watched", hint="rows of numbers, vectors, images or scores can")
    reference = Reference(0, groups, [], directions, "")
    parts = [list(columns_of(reference, *run)) for run in runs]
    columns = [np.concatenate([np.asarray(part[i], "f8") for part in parts]) for i in range(len(parts[0]))]
    rows = max(len(column) for column in columns)
    if rows < LEAST_ROWS:
        raise InputError(f"{rows} rows are too few for a reference, expected {LEAST_ROWS}", hint="give more data")
    features = []
    for name, column in zip([name for group in groups for name in group.names], columns, strict=True):
        is_class = any(group.take == "best" and group.names[0] == name for group in groups)
        said = list(labels) if is_class else list(known.get(name, ()))
        features.append(_feature(name, column, said, is_class=is_class))
    made: Reference | None = reference._replace(rows=rows, features=features)
    while made is not None:
        data = write_reference(made)
        made = _with_less(made) if len(data) > MAX_BYTES else None
    read_reference(data)  # what is written can be read
    return data


def _with_less(reference: Reference) -> Reference | None:
    """Leave out the direction of the least variance, of the group that has the most; None where each has one."""
    projected = [group for group in reference.groups if group.take in _PROJECTED and len(group.names) > 1]
    if not projected:
        return None
    most = max(projected, key=lambda group: len(group.names))
    last = next(i for i, one in enumerate(reference.features) if one.name == most.names[-1])
    before = reference.groups[: reference.groups.index(most) + 1]
    at = sum(len(group.names) for group in before if group.take in _PROJECTED) - 1
    groups = [group._replace(names=group.names[:-1]) if group is most else group for group in reference.groups]
    features = [one for i, one in enumerate(reference.features) if i != last]
    directions = [one for i, one in enumerate(reference.directions) if i != at]
    return reference._replace(groups=groups, features=features, directions=directions)


def described(definition: Definition) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the names of the columns by input, and the categories by column."""
    names: dict[str, list[str]] = {}
    categories: dict[str, list[str]] = {}
    for tensor, chain in definition.inputs.items():
        for step in chain:
            if step.name in ("tabular.columns", "tabular.derive"):
                names[tensor] = list(step.parameters["names"])
            if step.name == "tabular.categories":
                categories |= {name: [str(one) for one in known] for name, known in step.parameters["values"].items()}
    return names, categories


def _group(
    of: str, spec: TensorSpec, values: list[Any], names: Mapping[str, Sequence[str]], labels: Sequence[str]
) -> Group | None:
    if not values or values[0].dtype.kind != "f" or not values[0].size:
        return None
    first = values[0]
    largest = max(float(np.abs(np.nan_to_num(one, posinf=0, neginf=0)).max(initial=0)) for one in values)
    if first.ndim == 4 and of == "inputs" and (first.shape[1] in (1, 3) or first.shape[3] in (1, 3)):
        # Sums over the cells of a large picture stay exact.
        return Group(of, spec.name, "image", [], _power(255 / largest)) if largest else None
    if first.ndim != 2:
        return None
    width = first.shape[1]
    own = list(names.get(spec.name, ()))
    if of == "outputs" and 2 <= width <= 1024 and (len(labels) == width or spec.name in ("probabilities", "scores")):
        return Group(of, spec.name, "best", ["label", "score"])
    if len(own) == width or width <= MAX_COLUMNS:
        made = own if len(own) == width else [f"{spec.name} {i + 1}" for i in range(width)]
        return Group(of, spec.name, "columns", ["prediction"] if of == "outputs" and width == 1 else made)
    if width > _MAX_WIDTH:
        return None
    return Group(of, spec.name, "vector", [], _power(_LARGEST / largest)) if largest else None


def _power(scale: float) -> float:
    """Return the power of two below a scale: multiplying by it rounds nothing."""
    return float(2.0 ** np.floor(np.log2(scale)))


def _unique(group: Group, others: Sequence[Group]) -> Group:
    taken = {name for other in others for name in other.names}
    return group._replace(names=[name if name not in taken else f"{group.tensor}: {name}" for name in group.names])


def _directions(values: list[Any], group: Group) -> list[list[int]]:
    """Return the directions of the largest variance, as whole numbers up to 127."""
    width = SIDE * SIDE if group.take == "image" else values[0].shape[1]
    rows = np.concatenate([whole_numbers(one, group, width) for one in values])[:20_000]
    if width > _MOST_ROWS:
        rows = rows[:: -(-len(rows) // _MOST_ROWS)]
    centred = rows - rows.mean(0)
    # Of few long rows the products of rows with one another have the same variances, and are a smaller matrix.
    is_long = len(rows) < width
    variances, vectors = np.linalg.eigh(centred @ centred.T if is_long else centred.T @ centred)
    vectors = centred.T @ vectors if is_long else vectors
    order = np.argsort(-variances)[:DIRECTIONS]
    # Where nothing varies a direction is what rounding makes of it: another with each number of threads.
    varied = order[variances[order] > variances.max() * _LEAST_VARIANCE]
    best = vectors[:, varied].T if len(varied) else np.eye(1, width)
    signs = np.where(best[np.arange(len(best)), np.abs(best).argmax(1)] < 0, -1.0, 1.0)
    whole = np.rint(best * signs[:, None] / np.abs(best).max(1, keepdims=True) * 127).astype(int)
    return [[int(one) for one in row] for row in whole]


def _feature(name: str, column: Any, labels: list[str], *, is_class: bool) -> Feature:
    good = column[~np.isnan(column)]
    missing = int(len(column) - len(good))
    distinct, counts = np.unique(good, return_counts=True)
    is_category = is_class or bool(labels)
    is_whole = bool((np.trunc(distinct) == distinct).all())
    if is_category or (0 < len(distinct) <= MAX_CATEGORIES and is_whole and np.isfinite(distinct).all()):
        order = np.argsort(-counts, kind="stable")[:MAX_CATEGORIES]
        values = [float(one) for one in distinct[order]]
        own = [int(one) for one in counts[order]]
        said = [labels[int(one)] if 0 <= one < len(labels) else f"{one:g}" for one in values] if labels else []
        return Feature(name, [], values, [*own, int(counts.sum()) - sum(own)], missing, 0.0, 0.0, said)
    if not len(good):
        return Feature(name, [], [0.0], [0, 0], missing, 0.0, 0.0, [])
    finite = good[np.isfinite(good)]
    finite = finite if len(finite) else np.zeros(1)
    edges = [float(np.float32(one)) for one in np.quantile(finite, np.arange(1, BINS) / BINS)]
    bins = np.bincount(np.searchsorted(np.array(edges), good, side="right"), minlength=BINS)
    low, high = float(np.float32(finite.min())), float(np.float32(finite.max()))
    low = low if low <= finite.min() else float(np.nextafter(np.float32(low), np.float32(-np.inf)))
    high = high if high >= finite.max() else float(np.nextafter(np.float32(high), np.float32(np.inf)))
    return Feature(name, edges, [], [int(one) for one in bins], missing, low, high, [])
