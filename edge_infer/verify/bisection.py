"""Find the first node whose output differs: inner values of two models are given out and compared in order.

Two variants of one model seldom share names: a quantizer adds nodes, folds others and renames what is left. So values
are matched by what they are computed from. Nodes that only store or scale a value in another way (`QuantizeLinear`,
`Cast`, a bias, a folded normalization, an activation that a quantizer takes into its range) are passed through, and of
several such forms of a value the last counts: an engine can then still join a convolution with what surrounds it.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import UnsupportedModel
from edge_infer.parity.comparison import Parity, compare, judge
from edge_infer.parity.quantization_steps import steps_apart
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor
from edge_infer.verify.graphs import inferred_types, parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from edge_infer.verify.graphs import Graph, Node

    Key = tuple[object, ...]
    Runs = Sequence[Mapping[str, Tensor]]

# Two engines may round a value that lies between two steps to different sides.
_MAX_STEPS = 1.001
_PASSED = frozenset(
    {
        "QuantizeLinear",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "Identity",
        "Cast",
        "BatchNormalization",
        "Relu",
        "Clip",
        "QUANTIZE",
        "DEQUANTIZE",
    }
)
# These pass a value through where their other operand is constant: a bias, a scale.
_SCALING = frozenset({"Add", "Sub", "Mul", "Div"})
# These give quantized values out.
_INTEGER = frozenset(
    {"QuantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger", "QLinearConv", "QLinearMatMul"}
)
# Operators that a quantizer writes for another.
_ALIASES = {
    "Gemm": "MatMul", "MatMulNBits": "MatMul", "MatMulInteger": "MatMul", "QLinearMatMul": "MatMul", "QGemm": "MatMul",
    "DynamicQuantizeMatMul": "MatMul", "ConvInteger": "Conv", "QLinearConv": "Conv", "FusedConv": "Conv",
    "GatherBlockQuantized": "Gather",
}  # fmt: skip


class Tap(NamedTuple):
    """A value that both models have.

    Attributes:
        node: The name of the node that makes it in the first model; for a value of several forms, the first of them.
        operator: That node's operator.
        name: What the value is called in the first model.
        other: What it is called in the second.
        inputs: What the node reads and does not store, by its names in the first model.
    """

    node: str
    operator: str
    name: str
    other: str
    inputs: tuple[str, ...]


class Finding(NamedTuple):
    """The first value that differs.

    Attributes:
        tap: The value.
        parity: How far apart its two forms are.
        reason: What decided it.
        inputs: The SQNR in dB of each value that its node reads; model inputs, which are equal, are left out.
    """

    tap: Tap
    parity: Parity
    reason: str
    inputs: Mapping[str, float]


def taps_of(first: Graph, second: Graph | None = None) -> list[Tap]:
    """List the values that can be compared, in the order in which they are computed.

    Args:
        first: A model.
        second: Another encoding of it in the same format; None for the same file.

    Raises:
        UnsupportedModel: They have no value in common.
    """
    if second is None:
        return [_tap(node, name, first) for node, name in _made(first)]
    (ours, made_by), (theirs, _) = _keys(first), _keys(second)
    by_key = {key: name for name, key in theirs.items()}
    last = {key: name for name, key in ours.items()}
    found = []
    for _, name in _made(first):
        key = ours.get(name)
        if key in by_key and key in made_by and last[key] == name:
            node, sources = made_by[key]
            inputs = tuple(dict.fromkeys(last[source] for source in sources if source in last))
            found.append(Tap(node.name or node.outputs[0], node.operator, name, by_key[key], inputs))
    if not found:
        raise UnsupportedModel("The two models have no inner values that can be matched")
    return found


def give_out(model: bytes, names: Sequence[str]) -> bytes:
    """Return an ONNX model that gives these inner values out beside its outputs."""
    import onnx

    proto = parsed(model)
    known = {value.name for value in proto.graph.output}
    types = inferred_types(proto)
    proto.graph.output.extend(
        types.get(name) or onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names) if name not in known
    )
    data: bytes = proto.SerializeToString()
    return data


def first_difference(
    taps: Sequence[Tap],
    precision: str,
    run: Callable[[Sequence[Tap]], tuple[Runs, Runs]],
    *,
    is_same_file: bool = False,
    chunk: int,
) -> tuple[Finding | None, int]:
    """Compare values in order until one differs.

    Args:
        taps: The values.
        precision: The lower precision of the two: it decides what counts as a difference (`parity.judge`).
        run: Runs both models on the same inputs and returns the values asked for, under each one's own names.
        is_same_file: Whether both engines run the same integer model: then more than one quantization step differs.
        chunk: How many values are given out at once.

    Returns:
        The first difference or None, and how many values were compared.
    """
    noise: dict[str, float] = {}
    for start in range(0, len(taps), chunk):
        part = taps[start : start + chunk]
        wanted, got = run(part)
        for place, tap in enumerate(part):
            pair = _only(wanted, tap.name), _only(got, tap.other, tap.name)
            parity = compare(*pair)
            noise[tap.name] = parity.sqnr_db
            reason = _difference(parity, precision, pair, is_same_file)
            if reason:
                inputs = {name: noise[name] for name in tap.inputs if name in noise}
                return Finding(tap, parity, reason, inputs), start + place + 1
    return None, len(taps)


def _difference(parity: Parity, precision: str, pair: tuple[Runs, Runs], is_same_file: bool) -> str:
    if is_same_file and precision not in ("fp32", "fp16"):
        steps = steps_apart(*pair)
        return f"{steps:.1f} quantization steps apart" if steps > _MAX_STEPS else ""
    # The best class of an inner value means nothing, nor that it lies between 0 and 1.
    verdict = judge(parity._replace(top1=1.0, probability_err=inf), precision)
    return "" if verdict.word == "ok" else verdict.reason


def _only(runs: Runs, name: str, label: str = "") -> list[dict[str, Tensor]]:
    return [{label or name: _as_float32(run[name])} for run in runs if name in run]


def _made(graph: Graph) -> Iterator[tuple[Node, str]]:
    """Yield the tensors that nodes make from inputs, in order, with their nodes."""
    for node in graph.nodes:
        for name in node.outputs:
            if name not in graph.stored and name not in graph.no_tensors:
                yield node, name


def _tap(node: Node, name: str, graph: Graph) -> Tap:
    inputs = tuple(dict.fromkeys(one for one in node.inputs if one not in graph.stored))
    return Tap(node.name or name, node.operator, name, name, inputs)


def _keys(graph: Graph) -> tuple[dict[str, Key], dict[Key, tuple[Node, list[Key]]]]:
    """Say what each value is computed from; those that are forms of one value have the same key.

    Returns:
        The key of each value that can be compared, and for each key the node that makes it with what it reads.
    """
    keys: dict[str, Key] = {name: ("input", name) for name in graph.inputs}
    made_by: dict[Key, tuple[Node, list[Key]]] = {}
    counts: Counter[Key] = Counter()
    for node in graph.nodes:
        read = [keys[name] for name in node.inputs if name in keys]
        if not read:
            continue
        operator = _ALIASES.get(node.operator, node.operator)
        if operator in _PASSED or (operator in _SCALING and len(read) == 1):
            key = read[0]
        else:
            # Nodes that look alike, as the three projections of attention do, are told apart by their order.
            shape = (operator, *map(hash, read))
            counts[shape] += 1
            key = (*shape, counts[shape])
            made_by[key] = (node, read)
        for place, name in enumerate(node.outputs):
            if name:
                keys[name] = key if place == 0 else (*key, place)
                if place and key in made_by:
                    made_by[keys[name]] = made_by[key]
    # A quantized value is not its float form: only what can be compared is kept.
    integer = {name for node in graph.nodes if node.operator in _INTEGER for name in node.outputs}
    return {name: key for name, key in keys.items() if name not in integer and name not in graph.inputs}, made_by


def _as_float32(value: Tensor) -> Tensor:
    """Return a value of another float type as float32: half precision computes in its own."""
    if value.dtype not in (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64):
        return value
    return Tensor.from_list(value.tolist(), DType.FLOAT32)
