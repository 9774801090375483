"""Requests for the steps of a model with state: JSON of `infer` with the parameters `state`, `sequence` and `steps`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from edge_infer.errors import InputError, did_you_mean, listed
from edge_infer.server.protocol.fast import Parser
from edge_infer.tensors.arrays import to_numpy
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.server.protocol.requests import InferRequest
    from edge_infer.tensors.tensor import Array

#: The most steps of one request.
MAX_STEPS = 100_000
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_OWN = ("state", "sequence", "steps")
_EXAMPLE = '"parameters": {"state": "h_out:h_in", "sequence": "x"}'


class Plan(NamedTuple):
    """A request for steps, checked.

    Attributes:
        request: The inputs of the first step; those of `sequence` with one dimension more in front.
        state: Which output becomes which input.
        sequence: The inputs of which each step takes one entry.
        steps: How many steps.
    """

    request: InferRequest
    state: dict[str, str]
    sequence: tuple[str, ...]
    steps: int


def parse_plan(
    body: bytes,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    max_rows: int = 0,
    known_state: Mapping[str, str] | None = None,
) -> Plan:
    """Parse a request for steps.

    An input that is state may be left out where the other inputs tell its shape: it starts with zeros.

    Args:
        body: The JSON of `infer`, with the parameters `state`, `sequence` and `steps`.
        inputs: The model's inputs.
        outputs: The model's outputs.
        max_rows: The most rows of a step; 0 for any number.
        known_state: Which output becomes which input where the request has no `state`: what the bundle names.

    Raises:
        InputError: A field is not what it must be; the message names it.
    """
    try:
        document = _decode(body)  # the tensors stay text: only `Parser` reads them
        parameters = msgspec.json.decode(document.get("parameters", b"null"))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"The body is not a JSON object: {error}"[:300], hint=_EXAMPLE) from error
    if not isinstance(parameters, dict):
        raise InputError("`parameters` is missing: they say what the steps are", hint=_EXAMPLE)
    names = [spec.name for spec in outputs], [spec.name for spec in inputs]
    state = _pairs(parameters["state"], *names) if "state" in parameters else dict(known_state or {})
    sequence = tuple(_names(parameters.get("sequence", ""), "sequence", [spec.name for spec in inputs]))
    _check_kinds(state, inputs, outputs)
    both = set(sequence) & set(state.values())
    if both:
        raise InputError(f"Input `{both.pop()}` is in `state` and in `sequence`", hint=_EXAMPLE)
    steps = parameters.get("steps")
    others = {name: value for name, value in parameters.items() if name not in _OWN}
    document["parameters"] = msgspec.Raw(msgspec.json.encode(others))
    given = _given(document.get("inputs", b"[]"))
    begun = [spec for spec in inputs if spec.name in state.values() and spec.name not in given]
    specs = [TensorSpec(s.name, s.dtype, ("steps", *s.shape)) if s.name in sequence else s for s in inputs]
    specs = [spec for spec in specs if all(spec.name != one.name for one in begun)]
    request = Parser(specs, outputs, max_rows, sequence).parse(msgspec.json.encode(document))
    request = request._replace(binary=frozenset())
    # numpy arrays can be sliced and batched; what numpy has no dtype for stays a Tensor.
    arrays = {n: to_numpy(value) if isinstance(value, Tensor) else value for n, value in request.inputs.items()}
    sizes = {
        dim: size
        for spec in specs
        if spec.is_rank_known
        for dim, size in zip(spec.shape, arrays[spec.name].shape, strict=True)
        if isinstance(dim, str)
    }
    arrays |= {spec.name: _zeros(spec, sizes) for spec in begun}
    request = request._replace(inputs=arrays)
    lengths = {name: int(request.inputs[name].shape[0]) for name in sequence}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise InputError(
            f"The inputs of `sequence` have {lengths} steps", hint="give each the same number, at least one"
        )
    if steps is None and lengths:
        steps = next(iter(lengths.values()))
    if type(steps) is not int or not 0 < steps <= MAX_STEPS or (lengths and steps > min(lengths.values())):
        most = min([*lengths.values(), MAX_STEPS])
        raise InputError(
            f"`parameters.steps` is {json.dumps(steps)[:40]}, expected a whole number from 1 to {most}",
            hint='"steps": 10, or name a `sequence`',
            field="parameters.steps",
        )
    return Plan(request, state, sequence, steps)


class _Named(msgspec.Struct):
    name: str = ""


def _given(inputs: bytes) -> set[str]:
    """Name the inputs that a request has; what is malformed is found by whoever parses all of it."""
    try:
        return {one.name for one in msgspec.json.decode(inputs, type=list[_Named])}
    except (msgspec.MsgspecError, RecursionError):
        return set()


def _zeros(spec: TensorSpec, sizes: Mapping[str, int]) -> Array:
    """Make the first value of a state whose free dimensions other inputs have."""
    shape = [dim if isinstance(dim, int) else sizes.get(dim, -1) for dim in spec.shape]
    if -1 in shape or not spec.is_rank_known or spec.dtype is DType.STRING:
        raise InputError(
            f"The state `{spec}` has no first value, and its shape is not known",
            hint=f"give `{spec.name}` among the inputs: it is the state before the first step",
            input=spec.name,
        )
    return to_numpy(Tensor(bytes(spec.dtype.nbytes(shape)), spec.dtype, shape))


def _names(text: object, field: str, known: list[str]) -> list[str]:
    if not isinstance(text, str):
        raise InputError(f"`parameters.{field}` is not a text", hint=_EXAMPLE, field=f"parameters.{field}")
    names = [name for name in text.split(",") if name]
    for name in names:
        if name not in known or names.count(name) > 1:
            raise InputError(
                f"`parameters.{field}` names `{name[:128]}`; choose each once from {listed(known)}",
                hint=did_you_mean(name[:128], known),
                field=f"parameters.{field}",
            )
    return names


def _pairs(text: object, outputs: list[str], inputs: list[str]) -> dict[str, str]:
    if not isinstance(text, str):
        raise InputError("`parameters.state` is not a text", hint=_EXAMPLE, field="parameters.state")
    pairs = [pair.rpartition(":") for pair in text.split(",") if pair]
    for first, colon, last in pairs:
        if not first or not last:
            raise InputError(
                f"`parameters.state` has `{(first + colon + last)[:128]}`, expected `OUTPUT:INPUT`",
                hint=_EXAMPLE,
                field="parameters.state",
            )
    _names(",".join(first for first, _, _ in pairs), "state", outputs)
    _names(",".join(last for _, _, last in pairs), "state", inputs)
    return {first: last for first, _, last in pairs}


def _check_kinds(state: dict[str, str], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
    """Refuse outputs that do not fit the inputs they become: a batch joins tensors without asking for dtypes."""
    targets, sources = ({spec.name: spec for spec in specs} for specs in (inputs, outputs))
    for output, name in state.items():
        source, target = sources[output], targets[name]
        if source.dtype is target.dtype and _may_be_equal(source, target):
            continue
        raise InputError(
            f"Output `{output}` cannot become input `{name}`: it is {source}, expected {target}",
            hint="name an output of the input's dtype and shape",
            field="parameters.state",
        )


def _may_be_equal(one: TensorSpec, other: TensorSpec) -> bool:
    """Tell whether a tensor can have both shapes, as far as these are known."""
    if not (one.is_rank_known and other.is_rank_known):
        return True
    pairs = zip(one.shape, other.shape, strict=False)
    return len(one.shape) == len(other.shape) and all(
        a == b or isinstance(a, str) or isinstance(b, str) for a, b in pairs
    )
