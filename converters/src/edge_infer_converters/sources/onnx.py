"""An ONNX model as a source: read, checked, and run as the reference that every variant is measured against."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import onnx

from edge_infer.errors import ConversionError, InputError, UnsupportedModel
from edge_infer.platform.cpu import read_processor
from edge_infer_converters.engine import first_line
from edge_infer_converters.passes.clean_up import clean_up
from edge_infer_converters.passes.fold_branches import fold_branches
from edge_infer_converters.passes.graphs import (
    graphs_of,
    nbytes_of,
    not_a_number,
    sort_nodes,
)
from edge_infer_converters.passes.opset import to_opset
from edge_infer_converters.passes.own_zero_points import own_zero_points
from edge_infer_converters.passes.plain_outputs import to_plain_outputs
from edge_infer_converters.passes.prune_channels import prune_channels
from edge_infer_converters.passes.quantized_weights import store_quantized_weights
from edge_infer_converters.passes.sessions import session_of
from edge_infer_converters.passes.unfuse import unfuse
from edge_infer_converters.passes.widen import widen
from edge_infer_converters.sources.bindings import bind_inputs
from edge_infer_converters.sources.dynamic import axes_of, check_free, sizes_of
from edge_infer_converters.sources.framework import FrameworkReference, compare
from edge_infer_converters.sources.free_axes import free_axes, name_axes
from edge_infer_converters.sources.layout import to_channels_last
from edge_infer_converters.sources.onnx_checks import (
    check_graph,
    check_operators,
    check_text,
    drop_default_inputs,
    free_negative_dims,
    import_domains,
)
from edge_infer_converters.sources.onnx_file import MAX_BYTES, check_size, load_external, parse
from edge_infer_converters.sources.onnx_specs import precision_of, spec_of
from edge_infer_converters.sources.options import SourceOptions
from edge_infer_converters.sources.ranks import with_ranks
from edge_infer_converters.sources.shapes import fix_shapes
from edge_infer_converters.sources.source import Source
from edge_infer_converters.support import Support, check, native_lacks, tflite_graph, unsupported

_INTEGER_PRODUCTS = (
    *("ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"),
    *("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QGemm"),  # ONNX Runtime's own
)

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import numpy as np

    from edge_infer.tensors.tensor import TensorSpec
    from edge_infer_converters.passes.weights_in_files import WeightsInFiles
    from edge_infer_converters.sources.framework import Framework
    from edge_infer_converters.writers.tflite import FloatGraph

NO_OPTIONS = SourceOptions()


@dataclass(frozen=True, slots=True)
class SourceModel(Source):
    """An ONNX model that was read.

    Attributes:
        name: The file's name without its suffix.
        proto: The model, its weights inside; one in half precision computes in float32 where `halves` has it.
        inputs: What it takes.
        outputs: What it gives.
        precision: What most bytes of its weights are stored in: `fp32`, `fp16`, `int8` or `int4`.
        nbytes: The size of the file, external weights included.
        framework: The model in the framework that it was exported from, or None.
        notes: What the user should know of its export.
        usual_sizes: The sizes of dimensions that were made free, by name.
        in_files: The values of the initializers that have none, where there are more than 2 GB; else None.
        halves: The model as it came, where that computes in half precision and `proto` in float32; else None.
    """

    format: ClassVar = "onnx"
    name: str
    proto: onnx.ModelProto
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    precision: str
    nbytes: int
    framework: Framework | None = None
    notes: tuple[str, ...] = ()
    usual_sizes: Mapping[str, int] = field(default_factory=dict)
    in_files: WeightsInFiles | None = None
    halves: onnx.ModelProto | None = None

    @property
    def is_float(self) -> bool:
        """Whether it computes in float32, or in half precision and in float32 too."""
        return self.precision == "fp32" or self.halves is not None

    @property
    def count(self) -> str:
        """How many nodes it has, in words."""
        return f"{len((self.halves or self.proto).graph.node)} nodes"

    @property
    def is_engines_own(self) -> bool:
        """Whether ONNX Runtime's outputs are the reference, and not those of a framework that it was exported from."""
        return self.framework is None

    def reference(self, *, optimised: bool = False) -> Reference | FrameworkReference:
        """Load the model into ONNX Runtime; a model that was exported is run by its framework.

        Optimised, one in half precision is run in float32: how far that is from it is its own error.
        """
        if self.framework is not None and not optimised:
            return FrameworkReference(self.framework, {spec.name: spec.dtype for spec in self.outputs})
        exact = self if optimised or self.halves is None else replace(self, proto=self.halves)
        return Reference(exact, optimised=optimised)

    def nan_weights(self) -> list[str]:
        """Name the weights that hold NaN."""
        if self.in_files is not None:
            return self.in_files.nan()
        return not_a_number(self.proto)

    def cleaned(self, opset: int | None, *, prunes: bool) -> tuple[SourceModel, Mapping[str, int] | None]:
        """Return the model without exporter's notes, in this operator set, and without dead channels on request."""
        if self.in_files is not None and prunes:
            raise _needs_memory(self.name, "--prune-dead-channels")
        proto = _cleaned(self.proto, opset)
        halves = None if self.halves is None else _cleaned(self.halves, opset)
        if not prunes or not self.is_float:
            return replace(self, proto=proto, halves=halves), None
        found = prune_channels(proto)
        return replace(self, proto=found.model if found.removed else proto, halves=halves), found.removed

    def support(self, targets: Sequence[str], formats: Sequence[str]) -> Support:
        """Find the operators that targets lack; see `support.check`."""
        if self.in_files is not None:
            error = ConversionError(
                f"`{self.name}` has {self.nbytes} bytes of weights, a TFLite file at most {MAX_BYTES}",
                hint="--format onnx",
            )
            if "onnx" not in formats:
                raise error
            return check(self.proto, targets, ["onnx"], self.name)._replace(tflite=error)
        return check(self.proto, targets, formats, self.name)

    def graph_for_one(self, targets: Sequence[str]) -> FloatGraph:
        """Return the model in TFLite operators, its batch fixed to 1."""
        return tflite_graph(self.proto, targets, self.name, fixed_batch=True)

    def describe(self, graph: FloatGraph, name: str, version: str, classes: Sequence[str], *, keep_names: bool) -> None:
        """Write name, version and classes into the metadata of a TFLite graph."""
        graph.keep_names = keep_names
        graph.describe(name, version, classes)

    def release(self, formats: Sequence[str]) -> tuple[SourceModel, onnx.ModelProto]:  # noqa: ARG002
        """Return this source without its weights, and the model that held them."""
        return replace(self, proto=onnx.ModelProto(), framework=None), self.proto


def load(path: str | os.PathLike[str], options: SourceOptions = NO_OPTIONS) -> SourceModel:
    """Read and check an ONNX file; weights in files beside it are read too.

    Args:
        path: The `.onnx` file.
        options: The dimensions to fix, the inputs to bind, and the layout of images.

    Raises:
        ConversionError: There is no such file, it is not an ONNX model, it is cut short, or its weights cannot be read.
        UnsupportedOperator: It uses operators that ONNX Runtime does not know: all of them are named.
        UnsupportedModel: It uses an operator set or a type that ONNX Runtime does not know.
        InputError: The shapes do not fit it.

    >>> from edge_infer_converters.sources import onnx as source
    >>> model = source.load("digits.onnx")  # doctest: +SKIP
    >>> print(*model.inputs)  # doctest: +SKIP
    image: float32[batch, 1, 8, 8]
    """
    place = Path(path)
    return take(parse(place), place, options)


def load_export(
    path: Path, framework: Framework | None, where: str, options: SourceOptions = NO_OPTIONS
) -> SourceModel:
    """Read the export of a model, and compare it with the framework that made it.

    Args:
        path: The `.onnx` file.
        framework: The model in its framework; None where its outputs have another form.
        where: What the user calls the model.
        options: As for `load`. With bound inputs or another layout the export itself is what variants are judged by.

    Raises:
        ConversionError: The export computes something else, or fixes what the model leaves free; and as for `load`.
    """
    if framework is None:
        return replace(
            load(path, options),
            notes=(f"`{where}` is compared with its export only: the outputs of the model itself have another form",),
        )
    notes = (*framework.notes, *compare(framework, path, where, allow_baked=options.allow_baked))
    proto = parse(path)
    if options.dynamic:
        name_axes(proto, axes_of(options.dynamic, [spec_of(value, "Input", path) for value in proto.graph.input]))
    source = take(proto, path, options._replace(dynamic=()))
    check_free(options.dynamic, source.inputs, framework)
    is_same = not options.bind and options.layout == NO_OPTIONS.layout
    axes = axes_of(options.dynamic, source.inputs)
    usual = sizes_of(axes, {name: value.shape for name, value in framework.examples.items()})
    return replace(source, framework=framework if is_same else None, notes=notes, usual_sizes=usual)


def take(proto: onnx.ModelProto, place: Path, options: SourceOptions = NO_OPTIONS) -> SourceModel:
    """Check a model that was read from the file `place`; `load` documents the errors."""
    check_graph(proto, place)
    check_text(proto, place)
    with suppress(ValueError):  # a circle, which the checker names
        for graph in graphs_of(proto.graph):
            sort_nodes(graph)
    external, in_files = load_external(proto, place)
    nbytes = place.stat().st_size + external
    check_size(place, nbytes_of(proto))
    try:
        return _checked(proto, place, options, nbytes, in_files)
    except UnsupportedModel as error:
        # The checker and the engine name the first operator that they do not know, we all of them.
        if lacks := native_lacks(proto):
            raise unsupported(lacks) from error
        raise


def _checked(
    proto: onnx.ModelProto, place: Path, options: SourceOptions, nbytes: int, in_files: WeightsInFiles | None
) -> SourceModel:
    if in_files is not None and options._replace(shapes={}) != NO_OPTIONS:
        raise _needs_memory(place.name, "--bind, --layout nhwc, --opset, --dynamic and --allow-baked")
    import_domains(proto)
    drop_default_inputs(proto)
    free_negative_dims(proto)
    proto = unfuse(proto)
    check_operators(proto, place, in_files)
    proto = fold_branches(fix_shapes(bind_inputs(to_plain_outputs(proto), options.bind), options.shapes))
    proto = store_quantized_weights(proto)
    if options.layout == "nhwc":
        proto = to_channels_last(proto)
    inputs = tuple(spec_of(value, "Input", place) for value in proto.graph.input)
    usual: Mapping[str, int] = {}
    if options.dynamic:
        axes = axes_of(options.dynamic, inputs, options.shapes)
        usual = sizes_of(axes, {spec.name: spec.shape for spec in inputs})
        proto = free_axes(proto, axes, inputs, place.name)
        inputs = tuple(spec_of(value, "Input", place) for value in proto.graph.input)
    proto = with_ranks(proto, inputs, place.name)
    model = SourceModel(
        place.stem,
        proto,
        inputs,
        tuple(spec_of(value, "Output", place) for value in proto.graph.output),
        precision_of(proto, in_files),
        nbytes,
        usual_sizes=usual,
        in_files=in_files,
    )
    Reference(model)  # the engine is the last judge of whether a model can run
    return _widened(model)


def _widened(model: SourceModel) -> SourceModel:
    """Return a model in half precision with the same in float32, where there is memory and the engine runs that."""
    if model.precision != "fp16" or model.in_files is not None or 2 * nbytes_of(model.proto) > MAX_BYTES:
        return model
    wide = widen(model.proto)
    with suppress(UnsupportedModel):
        if wide is not None:
            session_of(wide, model.name)
            return replace(model, proto=wide, halves=model.proto)
    return model


def _cleaned(proto: onnx.ModelProto, opset: int | None) -> onnx.ModelProto:
    return own_zero_points(to_opset(clean_up(proto), opset))


class Reference:
    """The source model on ONNX Runtime as it was written: one thread, no optimisation, so always the same numbers.

    Integer operators saturate on x86 CPUs without VNNI, save in the precise mode, which comes with optimisation.

    Args:
        model: The model.
        optimised: Whether the engine may join and replace nodes.

    Raises:
        UnsupportedModel: ONNX Runtime cannot load the model.
    """

    def __init__(self, model: SourceModel, *, optimised: bool = False) -> None:
        self.outputs = [spec.name for spec in model.outputs]
        session = partial(session_of, model.proto, model.name, in_files=model.in_files)
        if not optimised and read_processor().saturates and _multiplies_integers(model.proto):
            with suppress(UnsupportedModel):  # the precise mode lacks kernels for some signed numbers
                self._session = session(optimised=True)
                return
        self._session = session(optimised=optimised)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once.

        Raises:
            ConversionError: ONNX Runtime failed; the message is its own.
        """
        try:
            results: Sequence[np.ndarray] = self._session.run(self.outputs, dict(feeds))
        except Exception as error:  # onnxruntime's classes have no common base but this
            raise ConversionError(
                f"The model failed to run: {first_line(error)}",
                hint="give inputs that it runs on: --calibration samples.npz",
            ) from error
        return dict(zip(self.outputs, results, strict=True))


def _multiplies_integers(model: onnx.ModelProto) -> bool:
    return any(node.op_type in _INTEGER_PRODUCTS for graph in graphs_of(model.graph) for node in graph.node)


def _needs_memory(name: str, options: str) -> InputError:
    return InputError(
        f"`{name}` has more than 2 GB of weights, which are read one at a time: {options} would need all of them",
        hint="leave them out, or change the model before it is converted",
    )
