"""Make the fastest file within a budget: which matrices are dynamic int8, and which int8 by blocks.

Dynamic int8 rounds a whole tensor by its largest value: the fastest arithmetic of CPUs, and the coarsest. Blocks
(`passes.int8_blocks`) keep almost everything and take longer. Which matrices pay for blocks is found as in
`search.bit_allocation`: noise of each alone, on one session, then bisection along noise per product saved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_infer.errors import ConversionError
from edge_infer_converters.data.reference_outputs import noise
from edge_infer_converters.engine import fast_session, make_session
from edge_infer_converters.passes import packing
from edge_infer_converters.passes.int8_blocks import can_be_blocked
from edge_infer_converters.passes.int8_dynamic import to_dynamic_int8
from edge_infer_converters.passes.int8_static import prepare
from edge_infer_converters.report.reporter import decibels as spelled
from edge_infer_converters.writers import onnx as onnx_target

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer_converters.data.calibration import CalibrationSet
    from edge_infer_converters.measure.judge import Judge, Judgement
    from edge_infer_converters.report.reporter import Reporter

#: How many inputs matrices are ranked on.
RANKING_CALLS = 8
#: How many files are written and measured before giving up, each with a tenth more of the matrices in blocks.
_MAX_WRITTEN = 4


class Product(NamedTuple):
    """A multiplication by a stored matrix.

    Attributes:
        node: The node's name.
        operand: What is multiplied.
        weight: The matrix, by name.
        work: Its elements: the products for each row.
    """

    node: str
    operand: str
    weight: str
    work: int


@dataclass(frozen=True, slots=True)
class DynamicModel:
    """The file that a search ended with.

    Attributes:
        data: The bytes of the `.onnx` file.
        blocked: The nodes that multiply by blocks.
        products: How many there are in all.
        trials: How many choices were measured.
    """

    data: bytes
    blocked: tuple[str, ...]
    products: int
    trials: int

    @property
    def note(self) -> str:
        """The note beside its size."""
        return f"{len(self.blocked)} of {self.products} matrices by blocks; {self.trials} trials"


class DynamicSearch:
    """One search: a model, the inputs that judge it, and a budget.

    Args:
        cleaned: The source after `clean_up`.
        data: The inputs that each trial runs on.
        judge: Compares their outputs with the source's, within the budget.
        reporter: The receiver of progress and warnings.
    """

    def __init__(self, cleaned: onnx.ModelProto, data: CalibrationSet, judge: Judge, reporter: Reporter) -> None:
        self._cleaned = cleaned
        self._calls = data.calls
        self._judge = judge
        self._reporter = reporter
        self._trials = 0

    def run(self) -> DynamicModel:
        """Search, write and measure.

        Raises:
            ConversionError: There is no matrix, or even blocks everywhere are not good enough.
        """
        everything_dynamic = onnx_target.write(to_dynamic_int8(self._cleaned))
        products = products_of(prepare(self._cleaned))
        if self._measured(everything_dynamic).is_within or not products:
            return DynamicModel(everything_dynamic, (), len(products), self._trials)
        session = RoundingSession(prepare(self._cleaned), products)
        ranked = self._rank(session, products)
        low, high = 0, len(ranked)  # the first `low` may be dynamic, `high` may not
        with self._reporter.progress(f"Searching: which of {high} matrices by blocks", None) as advance:
            while high - low > 1:
                middle = (low + high) // 2
                self._trials += 1
                rounded = {product.node for product in ranked[:middle]}
                is_within = self._judge.judge(session.run(self._calls, rounded)).is_within
                low, high = (middle, high) if is_within else (low, middle)
                advance(1)
        session.close()
        return self._written(ranked, low)

    def _rank(self, session: RoundingSession, products: Sequence[Product]) -> list[Product]:
        """Order products by the noise that rounding adds for each multiplication that it makes faster."""
        calls = self._calls[:RANKING_CALLS]
        references = session.run(calls, set())
        prices: dict[str, float] = {}
        with self._reporter.progress(f"Ranking {len(products)} matrices", len(products)) as advance:
            for product in products:
                prices[product.node] = noise(references, session.run(calls, {product.node})) / product.work
                advance(1)
        return sorted(products, key=lambda product: (prices[product.node], product.node))

    def _written(self, ranked: Sequence[Product], count: int) -> DynamicModel:
        """Write the fastest file that is good enough on the engine itself; rank by rank more goes into blocks."""
        best: Judgement | None = None
        for _ in range(_MAX_WRITTEN):
            blocked = tuple(product.node for product in ranked[count:])
            data = onnx_target.write(to_dynamic_int8(self._cleaned, set(blocked)))
            judged = self._measured(data)
            if judged.is_within:
                return DynamicModel(data, blocked, len(ranked), self._trials)
            best = judged
            if not count:
                break
            count = max(0, count - max(1, len(ranked) // 10))
        found = "" if best is None else f": the best found loses {max(best.loss, 0):.2%} at {spelled(best.sqnr_db)}"
        raise ConversionError(
            f"No int8 with ranges from each call keeps the budget ({self._judge.limits()}){found}",
            hint="allow more, or take --precision mixed",
        )

    def _measured(self, data: bytes) -> Judgement:
        self._trials += 1
        session = fast_session(data)  # without optimisation, integers saturate on x86 CPUs without VNNI
        names = list(self._judge.references[0])
        return self._judge.judge(
            [dict(zip(names, session.run(names, dict(call)), strict=True)) for call in self._calls]
        )


def products_of(model: onnx.ModelProto) -> list[Product]:
    """List the multiplications of a prepared model that can be done by blocks."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    return [
        Product(node.name, node.input[0], node.input[1], int(np.prod(shapes[node.input[1]])))
        for node in model.graph.node
        if can_be_blocked(node, shapes, shapes.get(node.input[1], ()) if len(node.input) > 1 else ())
    ]


class RoundingSession:
    """A float model in which what is multiplied is rounded to 8 bits where a run asks for it.

    Each operand passes through `DynamicQuantizeLinear` and back; a flag, fed as an input, chooses between that and the
    float itself. Weights have been through 8 bits in all runs.

    Args:
        model: A prepared model; it is changed.
        products: Its multiplications.
    """

    def __init__(self, model: onnx.ModelProto, products: Sequence[Product]) -> None:
        self.outputs = [value.name for value in model.graph.output]
        graph = model.graph
        stored = {tensor.name: tensor for tensor in graph.initializer}
        by_node = {product.node: product for product in products}
        self._flags = {product.node: f"{product.node}/is_rounded" for product in products}
        for name in {product.weight for product in products}:
            matrix = numpy_helper.to_array(stored[name])
            back = packing.unpack_slices(packing.pack_slices(matrix, 1))
            stored[name].CopyFrom(numpy_helper.from_array(back, name))
        nodes: list[onnx.NodeProto] = []
        for node in graph.node:
            copy = onnx.NodeProto.FromString(node.SerializeToString())
            if node.name in by_node:
                nodes += _chosen(copy, self._flags[node.name])
            nodes.append(copy)
        del graph.node[:]
        graph.node.extend(nodes)
        graph.input.extend(
            helper.make_tensor_value_info(flag, onnx.TensorProto.BOOL, []) for flag in self._flags.values()
        )
        self._session = make_session(model.SerializeToString(), "the model with rounding to choose")

    def run(self, calls: Sequence[Mapping[str, np.ndarray]], rounded: set[str]) -> list[dict[str, np.ndarray]]:
        """Run the model with the operands of these nodes rounded."""
        flags = {flag: np.array(node in rounded) for node, flag in self._flags.items()}
        results = [self._session.run(self.outputs, {**call, **flags}) for call in calls]
        return [dict(zip(self.outputs, result, strict=True)) for result in results]

    def close(self) -> None:
        """Let the model go."""
        del self._session


def _chosen(node: onnx.NodeProto, flag: str) -> list[onnx.NodeProto]:
    """Return the nodes that round a product's operand, and make it read their result."""
    value = node.input[0]
    codes, scale, zero, back, chosen = (f"{flag}/{part}" for part in ("codes", "scale", "zero", "back", "chosen"))
    node.input[0] = chosen
    return [
        helper.make_node("DynamicQuantizeLinear", [value], [codes, scale, zero]),
        helper.make_node("DequantizeLinear", [codes, scale, zero], [back]),
        helper.make_node("Where", [flag, back, value], [chosen]),
    ]
