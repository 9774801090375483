"""Graphs that run by conditions, loops, sequences and optional values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.backends.reference.elements import numpy_dtype
from edge_infer.backends.reference.operators.shapes import edges_of, ints

if TYPE_CHECKING:
    from edge_infer.backends.reference.call import Array, Call, Operator
    from edge_infer.formats.onnx_model import ValueInfo


def if_(call: Call, condition: Array) -> tuple[Any, ...]:
    """Compute If."""
    return tuple(call.run("then_branch" if bool(np.asarray(condition).reshape(())) else "else_branch", []))


def loop(call: Call, count: Array | None, condition: Array | None, *carried: Any) -> tuple[Any, ...]:
    """Compute Loop."""
    limit = None if count is None else int(np.asarray(count).reshape(()))
    goes_on = condition is None or bool(np.asarray(condition).reshape(()))
    state = list(carried)
    collected: list[list[Any]] = [[] for _ in range(call.outputs - len(state))]
    i = 0
    while goes_on and (limit is None or i < limit):
        going, *results = call.run("body", [np.array(i, np.int64), np.array(goes_on), *state])
        goes_on = bool(np.asarray(going).reshape(()))
        state = results[: len(state)]
        for rows, one in zip(collected, results[len(state) :], strict=False):
            rows.append(one)
        i += 1
    infos = call.graphs["body"].infos[1 + len(state) :]
    return *state, *(_stacked(rows, info, 0) for rows, info in zip(collected, infos, strict=False))


def _stacked(rows: list[Any], info: ValueInfo, axis: int) -> Array:
    """Return rows as one array; where there are none, of the type and the sizes that the body states."""
    if rows:
        return np.stack(rows, axis)
    sizes = [one if isinstance(one, int) else 0 for one in info.shape or ()]
    sizes.insert(axis if axis >= 0 else axis + len(sizes) + 1, 0)
    return np.zeros(sizes, numpy_dtype(info.kind or 1))


def scan(call: Call, *inputs: Any) -> tuple[Any, ...]:
    """Compute Scan; version 8 has lengths, and a batch around all."""
    count = call.get("num_scan_inputs", 1)
    if call.opset < 9:
        lengths, *rest = inputs
        states, scanned = rest[: len(rest) - count], rest[len(rest) - count :]
        rows = [
            _scan(
                call, [one[b] for one in states], [one[b][: None if lengths is None else lengths[b]] for one in scanned]
            )
            for b in range(scanned[0].shape[0])
        ]
        return tuple(np.stack(parts) for parts in zip(*rows, strict=True))
    return _scan(call, list(inputs[: len(inputs) - count]), list(inputs[len(inputs) - count :]))


def _scan(call: Call, state: list[Any], inputs: list[Array]) -> tuple[Any, ...]:
    name = "scan_input_directions" if call.opset >= 9 else "directions"
    backwards = call.get(name, None) or [0] * len(inputs)
    axes = call.get("scan_input_axes", None) or [0] * len(inputs)
    rows = [np.moveaxis(one, axis, 0) for one, axis in zip(inputs, axes, strict=True)]
    rows = [one[::-1] if back else one for one, back in zip(rows, backwards, strict=True)]
    collected: list[list[Any]] = [[] for _ in range(call.outputs - len(state))]
    for i in range(rows[0].shape[0]):
        results = call.run("body", [*state, *(one[i] for one in rows)])
        state = results[: len(state)]
        for made, one in zip(collected, results[len(state) :], strict=True):
            made.append(one)
    out_axes = call.get("scan_output_axes", None) or [0] * len(collected)
    out_back = call.get("scan_output_directions", None) or [0] * len(collected)
    infos = call.graphs["body"].infos[len(state) :]
    stacked = [
        _stacked(made[::-1] if back else made, info, axis)
        for made, back, axis, info in zip(collected, out_back, out_axes, infos, strict=True)
    ]
    return *state, *stacked


def _place(position: Array | None, default: int) -> int:
    return default if position is None else int(np.asarray(position).reshape(()))


def sequence_insert(call: Call, sequence: list[Array], one: Array, position: Array | None = None) -> list[Array]:
    """Compute SequenceInsert."""
    made = list(sequence)
    made.insert(_place(position, len(made)), one)
    return made


def sequence_erase(call: Call, sequence: list[Array], position: Array | None = None) -> list[Array]:
    """Compute SequenceErase."""
    made = list(sequence)
    del made[_place(position, -1)]
    return made


def sequence_map(call: Call, sequence: list[Array], *others: Any) -> tuple[Any, ...]:
    """Compute SequenceMap."""
    made: tuple[list[Array], ...] = tuple([] for _ in range(call.outputs))
    for i, one in enumerate(sequence):
        results = call.run("body", [one, *(other[i] if isinstance(other, list) else other for other in others)])
        for rows, result in zip(made, results, strict=True):
            rows.append(result)
    return made


def split_to_sequence(call: Call, x: Array, sizes: Array | None = None) -> list[Array]:
    """Compute SplitToSequence."""
    axis = call.get("axis", 0)
    count = x.shape[axis]
    if sizes is None:
        parts = [np.take(x, [i], axis) for i in range(count)]
        return parts if call.get("keepdims", 1) else [np.squeeze(one, axis) for one in parts]
    edges = edges_of(ints(sizes), count) if np.ndim(sizes) else list(range(int(sizes), count, int(sizes)))
    return list(np.split(x, edges, axis))


def concat_from_sequence(call: Call, sequence: list[Array]) -> Array:
    """Compute ConcatFromSequence."""
    axis = call.get("axis", 0)
    return np.stack(sequence, axis) if call.get("new_axis", 0) else np.concatenate(sequence, axis)


def optional_element(call: Call, x: Any) -> Any:
    """Compute OptionalGetElement."""
    if x is None:
        raise ValueError("the optional value is empty")
    return x


OPERATORS: dict[str, Operator] = {
    "ConcatFromSequence": concat_from_sequence,
    "If": if_,
    "Loop": loop,
    "Optional": lambda call, x=None: (x,),
    "OptionalGetElement": optional_element,
    "OptionalHasElement": lambda call, x=None: np.array(x is not None),
    "Scan": scan,
    "SequenceAt": lambda call, sequence, position: sequence[_place(position, 0)],
    "SequenceConstruct": lambda call, *inputs: list(inputs),
    "SequenceEmpty": lambda call: [],
    "SequenceErase": sequence_erase,
    "SequenceInsert": sequence_insert,
    "SequenceLength": lambda call, sequence: np.array(len(sequence), np.int64),
    "SequenceMap": sequence_map,
    "SplitToSequence": split_to_sequence,
}
