"""Measure a model when it is loaded: whether its requests may be batched at all, and how many at once pay.

A free first dimension proves nothing: a sequence may lie there, or an engine may quantize activations over the whole
batch, so that a request's answer would depend on its neighbours. So the rows of a batch are compared with each alone.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from edge_infer.errors import EdgeInferError, OutOfMemory
from edge_infer.server.execution.run_batch import has_batch_axis
from edge_infer.tensors.arrays import to_numpy
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from edge_infer.runtime.session import Session
    from edge_infer.tensors.tensor import TensorSpec

#: How far a row may move when it is batched, as a part of the output's root mean square: summation order moves it
#: by some 1e-6, a shared quantization scale by 1e-2.
_TOLERANCE = 1e-3
#: A larger batch must make a row this much cheaper, and may take this long: later requests wait for
#: all of it.
_GAIN = 0.9
_MAX_BATCH_S = 0.02
_BUDGET_S = 1.5
_REPEATS = 3
#: Short runs are repeated for so long, at most so often: on a busy machine one in three is undisturbed, or none.
_LEAST_S = 0.01
_MOST_REPEATS = 20
#: What the server itself spends on a batch, of whatever size: a thread is woken, then the event loop (measured: 190 us
#: a request with batches of one). A model that is done in less gains from batches that its own time would not ask for.
_HANDOVER_S = 0.00015
#: What free dimensions other than the first are tried with.
_FREE_DIM = 8


class Probe(NamedTuple):
    """The measurements of a model.

    Attributes:
        batch_size: The smallest batch that is about as cheap per row as any.
        row_s: The seconds that one row takes alone; 0 where it could not be measured.
        reason: Why requests are not batched; empty where they are.
        free_rows: How many rows of such a batch cost nothing: it takes the time of so many fewer, one by one.
    """

    batch_size: int
    row_s: float
    reason: str
    free_rows: float = 0.0


def probe(session: Session, max_batch_size: int) -> Probe:
    """Run a model on golden examples, or on made-up inputs, at growing batch sizes; it takes about a second.

    Args:
        session: The model.
        max_batch_size: The largest batch to consider.

    Raises:
        OutOfMemory: The device has no memory for a single row.
    """
    try:
        samples = _samples(session)
        row_s = _time(session, samples[0], repeats=5)
    except OutOfMemory:
        raise  # not even one row fits: it cannot be served
    except EdgeInferError as error:
        return Probe(1, 0.0, f"it could not be tried: {error.message}")
    if max_batch_size == 1:
        return Probe(1, row_s, "the batch size is set to 1")
    if not has_batch_axis(session.inputs, session.outputs):
        return Probe(1, row_s, "its tensors do not all begin with the same free dimension")
    try:
        if not _is_independent(session, samples):
            return Probe(1, row_s, "a row's answer depends on the other rows of its batch")
        costs = _costs(session, samples, max_batch_size, row_s)
    except EdgeInferError as error:
        return Probe(1, row_s, f"it failed on a batch of more than one: {error.message}")
    least = min(costs.values())
    size, cost = next((size, cost) for size, cost in costs.items() if cost * _GAIN <= least)
    return Probe(size, row_s, "", size * (1 - cost / costs[1]))


def _samples(session: Session) -> list[dict[str, Any]]:
    """Return two different inputs of one row each."""
    try:
        examples = session.bundle.examples()[:2]
    except EdgeInferError:
        examples = []
    if len(examples) == 2:
        return [{name: _array(tensor)[:1] for name, tensor in inputs.items()} for inputs, _ in examples]
    random = numpy.random.default_rng(7)
    return [{spec.name: _made_up(spec, random) for spec in session.inputs} for _ in range(2)]


def _array(tensor: Tensor) -> Any:
    array = to_numpy(tensor)
    return array.reshape(1) if not array.shape else array


def _made_up(spec: TensorSpec, random: numpy.random.Generator) -> Any:
    shape = [dim if isinstance(dim, int) else (1 if axis == 0 else _FREE_DIM) for axis, dim in enumerate(spec.shape)]
    if spec.dtype is DType.STRING:
        return Tensor(["text"] * int(numpy.prod(shape)), spec.dtype, shape)
    if spec.dtype in (DType.BFLOAT16, DType.INT4, DType.UINT4):
        return Tensor(bytes(spec.dtype.nbytes(shape)), spec.dtype, shape)
    if spec.dtype in (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64):
        return random.standard_normal(shape).astype(spec.dtype)
    return random.integers(0, 2, shape).astype(spec.dtype)  # 0 and 1 are valid tokens, bytes and truth values


def _stacked(samples: list[dict[str, Any]], size: int) -> dict[str, Any]:
    stacked: dict[str, Any] = {}
    for name, first in samples[0].items():
        rows = [samples[i % 2][name] for i in range(size)]
        if isinstance(first, Tensor):
            shape = (size, *first.shape[1:])
            data: Any = (
                [text for row in rows for text in row.reshape(-1).tolist()]
                if first.dtype is DType.STRING
                else b"".join(row.data() for row in rows)
            )
            stacked[name] = Tensor(data, first.dtype, shape)
        else:
            stacked[name] = numpy.concatenate(rows)
    return stacked


def _is_independent(session: Session, samples: list[dict[str, Any]]) -> bool:
    if any(one[name].shape != samples[0][name].shape for one in samples for name in one):
        samples = [samples[0], samples[0]]
    alone = [session.run(sample) for sample in samples]
    together = session.run(_stacked(samples, 2))
    for name, value in together.items():
        if not value.shape or value.shape[0] != 2:
            return False
        if isinstance(value, Tensor):
            if value.tolist() != [one[name].tolist()[0] for one in alone]:
                return False
            continue
        expected = numpy.concatenate([one[name] for one in alone])
        if value.dtype.kind != "f":
            if not numpy.array_equal(value, expected):
                return False
            continue
        error = numpy.abs(value.astype("float64") - expected.astype("float64"))
        scale = float(numpy.sqrt(numpy.mean(numpy.square(expected.astype("float64")))))
        if not numpy.array_equal(numpy.isnan(value), numpy.isnan(expected)) or numpy.nanmax(error, initial=0.0) > (
            _TOLERANCE * max(scale, 1e-9)
        ):
            return False
    return True


def _costs(session: Session, samples: list[dict[str, Any]], max_batch_size: int, row_s: float) -> dict[int, float]:
    """Return the seconds of a row in batches of growing size."""
    end = perf_counter() + _BUDGET_S
    costs = {1: row_s + _HANDOVER_S}
    size = 2
    while size <= max_batch_size and perf_counter() + 2 * _REPEATS * size * row_s < end:
        batch_s = _time(session, _stacked(samples, size), _REPEATS)
        if batch_s > _MAX_BATCH_S:
            break
        costs[size] = (batch_s + _HANDOVER_S) / size
        size *= 2
    return costs


def _time(session: Session, feeds: dict[str, Any], repeats: int) -> float:
    session.run(feeds)
    times: list[float] = []
    while len(times) < repeats or (sum(times) < _LEAST_S and len(times) < _MOST_REPEATS):
        start = perf_counter()
        session.run(feeds)
        times.append(perf_counter() - start)
    return min(times)  # what disturbs a run only ever makes it longer
