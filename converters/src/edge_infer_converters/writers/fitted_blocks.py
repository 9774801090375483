"""Choose the 4 bits of matrices by what calibration data put into them, so that their products change least.

Each matrix is rounded as in a decoder (`writers.decoder.compensated`, GPTQ), by the inputs that reach it in the float
model. The outputs of calls that nothing was learnt from judge the result: where data are few, or unlike one another,
plain rounding may be better, and stays.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from edge_infer_converters.data.reference_outputs import decibels, noise
from edge_infer_converters.passes.graphs import drop_stored_shapes
from edge_infer_converters.passes.packing import BLOCK, Packed
from edge_infer_converters.passes.sessions import session_of
from edge_infer_converters.passes.weight_only import rewrite
from edge_infer_converters.writers.decoder.compensated import add_products, factor, fitted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import onnxruntime

    from edge_infer_converters.data.calibration import CalibrationSet
    from edge_infer_converters.passes.weight import Weight

    Call = Mapping[str, np.ndarray]

#: Every so many-th call judges; the others are learnt from.
JUDGING = 4
#: Fewer calls tell too little.
MIN_CALLS = 32
_MIN_GAIN_DB = 0.1
# As wide as those of decoders; and the bytes of the sums of products that are collected in one pass of the calls.
_MOST_COLUMNS = 8192
_SUMS_BYTES = 2**28
# Rows of inputs that are multiplied at once.
_ROWS = 4096
# Scales are stored in half precision; matrices with larger or only smaller values keep plain rounding.
_RANGE = (2.0**-10, 65504.0)


class FittedBlocks(NamedTuple):
    """The blocks of some matrices.

    Attributes:
        blocks: By the weight's name; empty where plain rounding is as good.
        said: What to say of them.
    """

    blocks: Mapping[str, Packed]
    said: str


def fit_blocks(model: onnx.ModelProto, weights: Sequence[Weight], data: CalibrationSet) -> FittedBlocks:
    """Choose the blocks of the matrices of a model that int4 can hold.

    Args:
        model: A prepared model.
        weights: What `weight_only.weights_of` found in it.
        data: Typical inputs.
    """
    none = FittedBlocks({}, "")
    groups = _groups_of(model, weights)
    if not groups or len(data.calls) < MIN_CALLS:
        return none
    held_out = data.calls[JUDGING - 1 :: JUDGING]
    learnt = [call for place, call in enumerate(data.calls) if place % JUDGING != JUDGING - 1]
    blocks = dict(_fitted(model, groups, learnt))
    if not blocks:
        return none
    choice = dict.fromkeys(blocks, "int4")
    references = _outputs(model, held_out)
    plain, better = (
        decibels(noise(references, _outputs(rewrite(model, weights, choice, fitted=one), held_out)))
        for one in ({}, blocks)
    )
    if not better - plain >= _MIN_GAIN_DB:
        return none
    return FittedBlocks(
        blocks, f"{len(blocks)} matrices fitted to {data}: +{better - plain:.1f} dB on {len(held_out)} held out"
    )


def _groups_of(model: onnx.ModelProto, weights: Sequence[Weight]) -> dict[tuple[str, ...], list[Weight]]:
    """Return the matrices that can be fitted, by the names of what they are multiplied by."""
    found: dict[tuple[str, ...], list[Weight]] = defaultdict(list)
    for weight in weights:
        if weight.kind == "matrix" and "int4" in weight.encodings and _columns(weight) <= _MOST_COLUMNS:
            inputs = tuple(dict.fromkeys(node.input[0] for node in model.graph.node if weight.name in node.input))
            found[inputs].append(weight)
    return found


def _fitted(
    model: onnx.ModelProto, groups: Mapping[tuple[str, ...], Sequence[Weight]], calls: Sequence[Call]
) -> Iterator[tuple[str, Packed]]:
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    for part in _portions(groups):
        for inputs, sums in _sums(model, {one: _columns(groups[one][0]) for one in part}, calls).items():
            if not np.isfinite(sums).all():
                continue
            upper = factor(sums)
            for weight in groups[inputs]:
                rows = weight.as_rows(numpy_helper.to_array(stored[weight.name]))
                if _RANGE[0] <= np.abs(rows).max() <= _RANGE[1]:
                    whole, scales = fitted(_filled_up(rows, len(upper)), upper)
                    yield weight.name, Packed(whole.T.astype(np.int8), scales.T.astype(np.float32))


def _portions(groups: Mapping[tuple[str, ...], Sequence[Weight]]) -> Iterator[list[tuple[str, ...]]]:
    """Divide groups so that the sums of each portion fit into memory."""
    portion: list[tuple[str, ...]] = []
    nbytes = 0
    for inputs, weights in groups.items():
        more = 8 * _columns(weights[0]) ** 2
        if portion and nbytes + more > _SUMS_BYTES:
            yield portion
            portion, nbytes = [], 0
        portion.append(inputs)
        nbytes += more
    yield portion


def _sums(
    model: onnx.ModelProto, columns: Mapping[tuple[str, ...], int], calls: Sequence[Call]
) -> dict[tuple[str, ...], np.ndarray]:
    """Return the sums of products of the inputs of some matrices, filled up to whole blocks."""
    given = {value.name for value in model.graph.input}
    names = sorted({name for inputs in columns for name in inputs} - given)
    session = _tapped(model, names)
    sizes = {inputs: -(-count // BLOCK) * BLOCK for inputs, count in columns.items()}
    sums = {inputs: np.zeros((size, size)) for inputs, size in sizes.items()}
    waiting: dict[tuple[str, ...], list[np.ndarray]] = defaultdict(list)

    def add(inputs: tuple[str, ...]) -> None:
        if waiting[inputs]:
            add_products(sums[inputs], _filled_up(np.concatenate(waiting.pop(inputs)), sizes[inputs]))

    for call in calls:
        values = dict(call) | (dict(zip(names, session.run(names, dict(call)), strict=True)) if names else {})
        for inputs, count in columns.items():
            waiting[inputs].extend(values[name].reshape(-1, count) for name in inputs)
            if sum(map(len, waiting[inputs])) >= _ROWS:
                add(inputs)
    for inputs in sums:
        add(inputs)
    return sums


def _tapped(model: onnx.ModelProto, names: Sequence[str]) -> onnxruntime.InferenceSession:
    """Load a model that gives some of its inner values too."""
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    drop_stored_shapes(tapped.graph)
    known = {value.name for value in tapped.graph.output}
    tapped.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    return session_of(tapped, "the model with the inputs of its matrices as outputs")


def _outputs(model: onnx.ModelProto, calls: Sequence[Call]) -> list[dict[str, np.ndarray]]:
    names = [value.name for value in model.graph.output]
    session = session_of(model, "the model in int4")
    return [dict(zip(names, session.run(names, dict(call)), strict=True)) for call in calls]


def _columns(weight: Weight) -> int:
    return weight.shape[1] if weight.is_transposed else weight.shape[0]


def _filled_up(rows: np.ndarray, columns: int) -> np.ndarray:
    return np.pad(rows, ((0, 0), (0, columns - rows.shape[1])))
