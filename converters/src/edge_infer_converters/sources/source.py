"""The base of a source: the operations that a conversion needs of a model of any format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import onnx

    from edge_infer.tensors.tensor import TensorSpec
    from edge_infer_converters.passes.weights_in_files import WeightsInFiles
    from edge_infer_converters.support import Support
    from edge_infer_converters.writers.tflite import FloatGraph


class Reference(Protocol):
    """The model on its engine: without optimisation, every variant is compared with it."""

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once."""


class Source(ABC):
    """A model that was read. The methods with a body suit a format whose file is kept unchanged.

    Attributes:
        format: The variants' format that holds the source itself: `onnx` or `tflite`.
        name: The file's name without its suffix.
        inputs: The specs of its inputs.
        outputs: The specs of its outputs.
        precision: The precision of most of its weights: `fp32`, `fp16`, `int8` or `int4`.
        nbytes: The size of the file.
        notes: What the user should know of how it was read.
    """

    __slots__ = ()

    format: ClassVar[str]
    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    precision: str
    nbytes: int

    @property
    def is_float(self) -> bool:
        """Whether it computes in float32, or can, and is written in other precisions; else its weights are kept."""
        return self.precision == "fp32"

    @property
    def notes(self) -> tuple[str, ...]:
        """Nothing, where a file was read unchanged."""
        return ()

    @property
    def usual_sizes(self) -> Mapping[str, int]:
        """The sizes that free dimensions had before they were made free, by name."""
        return {}

    @property
    def in_files(self) -> WeightsInFiles | None:
        """The values of the initializers that have none, where they do not fit into memory; else None."""
        return None

    @property
    def is_engines_own(self) -> bool:
        """Whether the engine's outputs are the reference, and not those of another framework."""
        return True

    @property
    @abstractmethod
    def count(self) -> str:
        """The number of its nodes or operators, in words."""

    @abstractmethod
    def reference(self, *, optimised: bool = False) -> Reference:
        """Load the model into its engine, as it was written or as the engine optimises it."""

    @abstractmethod
    def support(self, targets: Sequence[str], formats: Sequence[str]) -> Support:
        """Find the operators that targets lack, and the TFLite graph."""

    def nan_weights(self) -> list[str]:
        """Name the weights that hold NaN, where they are searched for it."""
        return []

    def cleaned(self, opset: int | None, *, prunes: bool) -> tuple[Self, Mapping[str, int] | None]:  # noqa: ARG002
        """Return the model to convert, and the channels removed from each tensor, None without pruning."""
        return self, None

    def graph_for_one(self, targets: Sequence[str]) -> FloatGraph | None:  # noqa: ARG002
        """Return a TFLite graph with its batch fixed to 1, or None where the source's graph is kept."""
        return None

    def describe(  # noqa: B027  optional: a kept file has none to write
        self, graph: FloatGraph, name: str, version: str, classes: Sequence[str], *, keep_names: bool
    ) -> None:
        """Write name, version and classes into the metadata of a TFLite graph made from this source."""

    def own_file(self, id_: str) -> bytes | None:  # noqa: ARG002
        """Return the source's bytes where they are this variant unchanged, else None."""
        return None

    @property
    def halves(self) -> onnx.ModelProto | None:
        """The ONNX model as it came, where it computes in half precision and others are made of it in float32."""
        return None

    def release(self, formats: Sequence[str]) -> tuple[Self, onnx.ModelProto]:  # noqa: ARG002
        """Return this source without its ONNX weights, and the ONNX model for the variants of these formats."""
        import onnx

        return self, onnx.ModelProto()
