"""Measure how much noise each weight adds to the outputs when it alone is stored in fewer bits.

The float model is loaded once, with its weights as inputs, so that another set of weights costs a run and no new
session. Ranking by the noise that each weight adds is worth 3 dB at the same size against a random order
(convert.md A5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import onnx
from onnx import helper, numpy_helper

from edge_infer_converters.data.reference_outputs import decibels, noise
from edge_infer_converters.engine import make_session
from edge_infer_converters.passes.graphs import drop_unread_tensors
from edge_infer_converters.passes.weight import INTEGERS
from edge_infer_converters.passes.weight_only import round_trip
from edge_infer_converters.search.trial_cache import TrialCache

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy as np

    from edge_infer_converters.passes.packing import Packed
    from edge_infer_converters.passes.weight import Weight

    Arrays = Mapping[str, np.ndarray]


class Sensitivity(NamedTuple):
    """The noise in the outputs when one weight is stored in one encoding.

    Attributes:
        weight: Which weight.
        encoding: How it is stored.
        noise: The error's energy over the signal's, of the worst float output.
    """

    weight: Weight
    encoding: str
    noise: float

    @property
    def sqnr_db(self) -> float:
        """The same as a signal to noise ratio in dB."""
        return decibels(self.noise)


class WeightSession:
    """A float model whose weights can be exchanged between runs.

    Args:
        model: A prepared model.
        weights: The weights that will be exchanged.
        fitted: The blocks of matrices in int4, as `weight_only.rewrite` takes them.
    """

    def __init__(
        self, model: onnx.ModelProto, weights: Sequence[Weight], fitted: Mapping[str, Packed] | None = None
    ) -> None:
        wanted = {weight.name for weight in weights}
        self.outputs = [value.name for value in model.graph.output]
        self._values = {
            tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name in wanted
        }
        self._changed: dict[str, tuple[str, np.ndarray]] = {}
        self._weights = tuple(weights)
        self._fitted = fitted or {}
        open_model = onnx.ModelProto()
        for field in ("ir_version", "opset_import", "functions"):
            _copy(model, open_model, field)
        graph = open_model.graph
        graph.name = model.graph.name
        for field in ("node", "input", "output"):
            _copy(model.graph, graph, field)
        graph.initializer.extend(t for t in model.graph.initializer if t.name not in wanted)
        graph.input.extend(
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, value.shape)
            for name, value in self._values.items()
        )
        drop_unread_tensors(graph)
        self._session = make_session(open_model.SerializeToString(), "the model with its weights as inputs")

    def run(self, calls: Sequence[Arrays], choice: Mapping[str, str]) -> list[dict[str, np.ndarray]]:
        """Run the model as if its weights were stored as chosen; what is not named stays fp32."""
        feeds: dict[str, np.ndarray] = {}
        for weight in self._weights:
            encoding = choice.get(weight.name, "fp32")
            if encoding == "fp32":
                self._changed.pop(weight.name, None)
                feeds[weight.name] = self._values[weight.name]
                continue
            known = self._changed.get(weight.name)
            if known is None or known[0] != encoding:
                known = (encoding, round_trip(weight, self._values[weight.name], encoding, self._fitted))
                self._changed[weight.name] = known
            feeds[weight.name] = known[1]
        results = [self._session.run(self.outputs, {**call, **feeds}) for call in calls]
        return [dict(zip(self.outputs, result, strict=True)) for result in results]

    def close(self) -> None:
        """Let the weights go: they take as much memory as the model."""
        self._values.clear()
        self._changed.clear()


def rank(
    session: WeightSession,
    weights: Sequence[Weight],
    calls: Sequence[Arrays],
    advance: Callable[[int], None] = lambda _: None,
    known: TrialCache | None = None,
) -> tuple[Sensitivity, ...]:
    """Measure each weight in each integer encoding, alone, all others in fp32.

    Args:
        session: The model.
        weights: Which weights.
        calls: Inputs to measure on; a dozen are enough to rank by.
        advance: Told after each weight.
        known: What was measured before; what is new is added.
    """
    known = known or TrialCache(None)
    references: list[dict[str, np.ndarray]] = []
    found: list[Sensitivity] = []
    for weight in weights:
        for encoding in weight.encodings:
            if encoding not in INTEGERS:
                continue
            added = known.noise(weight.name, encoding)
            if added is None:
                references = references or session.run(calls, {})
                added = noise(references, session.run(calls, {weight.name: encoding}))
                known.add_noise(weight.name, encoding, added)
            found.append(Sensitivity(weight, encoding, added))
        advance(1)
    return tuple(found)


def _copy(source: onnx.ModelProto | onnx.GraphProto, target: onnx.ModelProto | onnx.GraphProto, field: str) -> None:
    value = getattr(source, field)
    if isinstance(value, int):
        setattr(target, field, value)
    else:
        getattr(target, field).extend(value)
