"""The interface of a source: the operations that a conversion needs of a model of any format."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import onnx

    from edge_infer.tensors.tensor import TensorSpec
    from edge_infer_converters.support import Support
    from edge_infer_converters.writers.tflite import FloatGraph


class Reference(Protocol):
    """The model on its engine, without optimisation: every variant is compared with it."""

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once."""


class Source(Protocol):
    """A model that was read; `sources.onnx.SourceModel` and `sources.tflite.TFLiteSource` are such."""

    @property
    def name(self) -> str:
        """The file's name without its suffix."""

    @property
    def format(self) -> str:
        """`onnx` or `tflite`."""

    @property
    def precision(self) -> str:
        """The precision of most of its weights: `fp32`, `fp16`, `int8` or `int4`."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The specs of its inputs."""

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The specs of its outputs."""

    @property
    def nbytes(self) -> int:
        """The size of the file."""

    @property
    def count(self) -> str:
        """The number of its nodes or operators, in words."""

    def reference(self) -> Reference:
        """Load the model into its engine."""

    def nan_weights(self) -> list[str]:
        """Name the weights that hold NaN."""

    def cleaned(self, opset: int | None, *, prunes: bool) -> tuple[Self, Mapping[str, int] | None]:
        """Return the model to convert, and the channels removed from each tensor, None without pruning."""

    def support(self, targets: Sequence[str], formats: Sequence[str]) -> Support:
        """Find the operators that targets lack, and the TFLite graph."""

    def graph_for_one(self, targets: Sequence[str]) -> FloatGraph | None:
        """Return a TFLite graph with its batch fixed to 1, or None where the source's graph is kept."""

    def describe(self, graph: FloatGraph, name: str, version: str, classes: Sequence[str], *, keep_names: bool) -> None:
        """Write name, version and classes into the metadata of a TFLite graph made from this source."""

    def own_file(self, id_: str) -> bytes | None:
        """Return the source's bytes where they are this variant unchanged, else None."""

    def release(self) -> tuple[Self, onnx.ModelProto]:
        """Return this source without its weights, and the ONNX model that held them."""
