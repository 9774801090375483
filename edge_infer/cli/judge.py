"""Judge what an engine gives for the golden examples of a bundle: a row of `edge-infer verify` for each variant."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.backends.registry import get_backend
from edge_infer.parity.comparison import Verdict, compare_outputs, worst_of
from edge_infer.parity.quantization_steps import steps_apart
from edge_infer.parity.verdict import Limits, changed_since, judge_variant
from edge_infer.runtime.load import load
from edge_infer.runtime.selection import exact_engine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.bundle.variant import Variant
    from edge_infer.errors import EdgeInferError
    from edge_infer.formats.safetensors import Example
    from edge_infer.parity.comparison import Parity
    from edge_infer.tensors.tensor import Tensor
    from edge_infer.verify.pipelines import PipelineRow

    Outputs = list[dict[str, Tensor]]

# Two engines may round a value that lies between two steps to different sides, and so differ by one.
_MAX_STEPS = 1.001


class Row(NamedTuple):
    """One line of the verdict: a variant on an engine, and how near it is to the source.

    Attributes:
        outputs: The same of each output.
    """

    variant: str
    backend: str
    engine: str
    max_err: float
    sqnr_db: float
    top1: float
    steps: float | None
    verdict: str
    reason: str
    outputs: Mapping[str, Parity] = {}

    def to_json(self) -> dict[str, object]:
        """Describe this for machines."""
        return {**self._asdict(), "outputs": {name: one._asdict() for name, one in self.outputs.items()}}


class Judge:
    """Judges what an engine gives for a bundle's golden examples.

    Args:
        bundle: The bundle.
        engine: The engine's name.
        examples: The golden examples.
        limits: What the user asks for.
        is_given: Whether they are the user's and not the bundle's own.
    """

    def __init__(self, bundle: Bundle, engine: str, examples: list[Example], limits: Limits, *, is_given: bool) -> None:
        self.bundle = bundle
        self.engine = engine
        self.examples = examples
        self._references = [outputs for _, outputs in examples]
        self._limits = limits
        self.given = examples if is_given else []
        #: What a page said of the vectors of the pipeline.
        self.in_page: list[PipelineRow] = []

    def row(self, variant: Variant, version: str, results: Outputs) -> Row:
        """Judge the outputs of a variant."""
        outputs = compare_outputs(self._references, results)
        verdict = judge_variant(outputs, variant)
        steps = None
        exact = exact_engine(variant.format)
        is_integer = variant.precision not in ("fp32", "fp16")
        if is_integer and exact not in ("", self.engine) and get_backend(exact).availability().ready:
            steps = self._steps_from(exact, variant, results)
            if steps > _MAX_STEPS and verdict.word != "fail":
                verdict = Verdict("fail", f"{steps:.1f} quantization steps from {exact}, expected at most 1")
        elif (
            verdict.word == "ok"
            and exact == self.engine
            and not self.given
            and (change := changed_since(outputs, variant))
        ):
            verdict = Verdict("warn", change)
        if self._limits.is_set:
            verdict = self._limits.judge(outputs, self._references, results, verdict)
        parity = worst_of(outputs.values())
        return Row(variant.id, self.engine, version, *parity[:3], steps, verdict.word, verdict.reason, outputs)

    def failure(self, variant: Variant, error: EdgeInferError, word: str = "fail") -> Row:
        """Describe a variant that cannot run."""
        return Row(variant.id, self.engine, "", math.nan, math.nan, math.nan, None, word, error.message)

    def _steps_from(self, exact: str, variant: Variant, results: Outputs) -> float:
        with load(
            self.bundle, backend=exact, variant=variant.id, device="cpu", strict=True, arrays="tensor"
        ) as session:
            return steps_apart([session.run(inputs) for inputs, _ in self.examples], results)
