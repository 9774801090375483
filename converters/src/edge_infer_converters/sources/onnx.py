"""Read an ONNX file, check it, and run it as the reference that every variant is measured against."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from edge_infer.errors import ConversionError, InputError, UnsupportedModel, listed
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import TensorSpec
from edge_infer_converters.engine import first_line, hint_for
from edge_infer_converters.passes.clean_up import clean_up
from edge_infer_converters.passes.fold_branches import fold_branches
from edge_infer_converters.passes.graphs import (
    graphs_of,
    nbytes_of,
    not_a_number,
    sort_nodes,
    tensor_nbytes,
    tensors_of,
    without_weights,
)
from edge_infer_converters.passes.opset import to_opset
from edge_infer_converters.passes.own_zero_points import own_zero_points
from edge_infer_converters.passes.plain_outputs import to_plain_outputs
from edge_infer_converters.passes.prune_channels import prune_channels
from edge_infer_converters.passes.quantized_weights import store_quantized_weights
from edge_infer_converters.passes.sessions import LARGE_BYTES, session_of
from edge_infer_converters.passes.unfuse import unfuse
from edge_infer_converters.passes.weights_in_files import WeightsInFiles, nbytes_in_files, read_apart
from edge_infer_converters.sources.bindings import bind_inputs
from edge_infer_converters.sources.dynamic import axes_of, check_free, sizes_of
from edge_infer_converters.sources.foreign import refuse
from edge_infer_converters.sources.framework import FrameworkReference, compare
from edge_infer_converters.sources.free_axes import free_axes, name_axes
from edge_infer_converters.sources.layout import to_channels_last
from edge_infer_converters.sources.options import SourceOptions
from edge_infer_converters.sources.ranks import with_ranks
from edge_infer_converters.sources.shapes import fix_shapes
from edge_infer_converters.sources.source import Source
from edge_infer_converters.support import Support, check, native_lacks, tflite_graph, unsupported

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import numpy as np

    from edge_infer_converters.sources.framework import Framework
    from edge_infer_converters.writers.tflite import FloatGraph

#: What protobuf can hold in one message; larger models have their weights in files beside them.
MAX_BYTES = 2**31 - 1
NO_OPTIONS = SourceOptions()

_DTYPES: dict[int, DType] = {
    onnx.TensorProto.FLOAT: DType.FLOAT32,
    onnx.TensorProto.DOUBLE: DType.FLOAT64,
    onnx.TensorProto.FLOAT16: DType.FLOAT16,
    onnx.TensorProto.BFLOAT16: DType.BFLOAT16,
    onnx.TensorProto.INT4: DType.INT4,
    onnx.TensorProto.UINT4: DType.UINT4,
    onnx.TensorProto.INT8: DType.INT8,
    onnx.TensorProto.UINT8: DType.UINT8,
    onnx.TensorProto.INT16: DType.INT16,
    onnx.TensorProto.UINT16: DType.UINT16,
    onnx.TensorProto.INT32: DType.INT32,
    onnx.TensorProto.UINT32: DType.UINT32,
    onnx.TensorProto.INT64: DType.INT64,
    onnx.TensorProto.UINT64: DType.UINT64,
    onnx.TensorProto.BOOL: DType.BOOL,
    onnx.TensorProto.STRING: DType.STRING,
}
#: What `numpy` has no type for, so that such inputs can be neither drawn nor fed.
_NOT_IN_NUMPY = (DType.BFLOAT16, DType.INT4, DType.UINT4)
#: The first version of the format whose initializers need not be inputs.
_OWN_INITIALIZERS_IR = 4
#: The domains of ONNX Runtime's own operators, of version 1 all of them.
_ENGINE_DOMAINS = frozenset({"com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"})
_PRECISIONS: dict[int, str] = {
    onnx.TensorProto.FLOAT: "fp32",
    onnx.TensorProto.DOUBLE: "fp32",
    onnx.TensorProto.FLOAT16: "fp16",
    onnx.TensorProto.BFLOAT16: "fp16",
    onnx.TensorProto.INT8: "int8",
    onnx.TensorProto.UINT8: "int8",
    onnx.TensorProto.INT4: "int4",
    onnx.TensorProto.UINT4: "int4",
}


@dataclass(frozen=True, slots=True)
class SourceModel(Source):
    """An ONNX model that was read.

    Attributes:
        name: The file's name without its suffix.
        proto: The model, its weights inside.
        inputs: What it takes.
        outputs: What it gives.
        precision: What most bytes of its weights are stored in: `fp32`, `fp16`, `int8` or `int4`.
        nbytes: The size of the file, external weights included.
        framework: The model in the framework that it was exported from, or None.
        notes: What the user should know of its export.
        usual_sizes: The sizes of dimensions that were made free, by name.
        in_files: The values of the initializers that have none, where there are more than 2 GB; else None.
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

    @property
    def count(self) -> str:
        """How many nodes it has, in words."""
        return f"{len(self.proto.graph.node)} nodes"

    @property
    def is_engines_own(self) -> bool:
        """Whether ONNX Runtime's outputs are the reference, and not those of a framework that it was exported from."""
        return self.framework is None

    def reference(self, *, optimised: bool = False) -> Reference | FrameworkReference:
        """Load the model into ONNX Runtime; a model that was exported is run by its framework."""
        if self.framework is not None and not optimised:
            return FrameworkReference(self.framework, {spec.name: spec.dtype for spec in self.outputs})
        return Reference(self, optimised=optimised)

    def nan_weights(self) -> list[str]:
        """Name the weights that hold NaN."""
        if self.in_files is not None:
            return self.in_files.nan()
        return not_a_number(self.proto)

    def cleaned(self, opset: int | None, *, prunes: bool) -> tuple[SourceModel, Mapping[str, int] | None]:
        """Return the model without exporter's notes, in this operator set, and without dead channels on request."""
        if self.in_files is not None and prunes:
            raise _needs_memory(self.name, "--prune-dead-channels")
        proto = own_zero_points(to_opset(clean_up(self.proto), opset))
        if not prunes or self.precision != "fp32":
            return replace(self, proto=proto), None
        found = prune_channels(proto)
        return replace(self, proto=found.model if found.removed else proto), found.removed

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
    return take(_parse(place), place, options)


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
    proto = _parse(path)
    if options.dynamic:
        name_axes(proto, axes_of(options.dynamic, [_spec(value, "Input", path) for value in proto.graph.input]))
    source = take(proto, path, options._replace(dynamic=()))
    check_free(options.dynamic, source.inputs, framework)
    is_same = not options.bind and options.layout == NO_OPTIONS.layout
    axes = axes_of(options.dynamic, source.inputs)
    usual = sizes_of(axes, {name: value.shape for name, value in framework.examples.items()})
    return replace(source, framework=framework if is_same else None, notes=notes, usual_sizes=usual)


def take(proto: onnx.ModelProto, place: Path, options: SourceOptions = NO_OPTIONS) -> SourceModel:
    """Check a model that was read from the file `place`; `load` documents the errors."""
    _check_graph(proto, place)
    _check_text(proto, place)
    with suppress(ValueError):  # a circle, which the checker names
        for graph in graphs_of(proto.graph):
            sort_nodes(graph)
    external, in_files = _load_external(proto, place)
    nbytes = place.stat().st_size + external
    size = nbytes_of(proto)
    if size > MAX_BYTES:
        raise _too_large(place, size)
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
    _import_domains(proto)
    _drop_default_inputs(proto)
    _free_negative_dims(proto)
    proto = unfuse(proto)
    _check_operators(proto, place, in_files)
    proto = fold_branches(fix_shapes(bind_inputs(to_plain_outputs(proto), options.bind), options.shapes))
    proto = store_quantized_weights(proto)
    if options.layout == "nhwc":
        proto = to_channels_last(proto)
    inputs = tuple(_spec(value, "Input", place) for value in proto.graph.input)
    usual: Mapping[str, int] = {}
    if options.dynamic:
        axes = axes_of(options.dynamic, inputs, options.shapes)
        usual = sizes_of(axes, {spec.name: spec.shape for spec in inputs})
        proto = free_axes(proto, axes, inputs, place.name)
        inputs = tuple(_spec(value, "Input", place) for value in proto.graph.input)
    proto = with_ranks(proto, inputs, place.name)
    model = SourceModel(
        place.stem,
        proto,
        inputs,
        tuple(_spec(value, "Output", place) for value in proto.graph.output),
        _precision(proto, in_files),
        nbytes,
        usual_sizes=usual,
        in_files=in_files,
    )
    Reference(model)  # the engine is the last judge of whether a model can run
    return model


class Reference:
    """The source model on ONNX Runtime as it was written: one thread, no optimisation, so always the same numbers.

    Args:
        model: The model.
        optimised: Whether the engine may join and replace nodes.

    Raises:
        UnsupportedModel: ONNX Runtime cannot load the model.
    """

    def __init__(self, model: SourceModel, *, optimised: bool = False) -> None:
        self.outputs = [spec.name for spec in model.outputs]
        self._session = session_of(model.proto, model.name, optimised=optimised, in_files=model.in_files)

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


def missing(path: Path) -> ConversionError:
    """Return the error of a model file that is not there."""
    return ConversionError(
        f"There is no file `{path}`", hint="give an .onnx, .ort, .pt, .pt2, .keras, .h5 or .tflite file"
    )


def _parse(path: Path) -> onnx.ModelProto:
    refuse(path)
    try:
        if path.is_file() and path.stat().st_size > MAX_BYTES:
            raise _too_large(path, path.stat().st_size)
        data = path.read_bytes()
    except IsADirectoryError:
        raise ConversionError(
            f"`{path}` is a folder, expected an .onnx file", hint=f"edge-infer convert {path}/model.onnx"
        ) from None
    except FileNotFoundError:
        raise ConversionError(f"There is no file `{path}`", hint=_near(path)) from None
    except OSError as error:
        raise ConversionError(f"`{path}` cannot be read: {error.strerror}") from error
    if not data:
        raise ConversionError(f"`{path}` is empty, expected an ONNX model", hint="export or download it again")
    try:
        return onnx.load_model_from_string(data)
    except DecodeError as error:
        raise ConversionError(
            f"`{path}` is not an ONNX model, or is cut short: its {len(data)} bytes cannot be parsed",
            hint="export or download it again",
            got=len(data),
        ) from error


def _too_large(path: Path, nbytes: int) -> ConversionError:
    return ConversionError(
        f"`{path}` has {nbytes} bytes with its weights, expected at most {MAX_BYTES}",
        hint="save it with its weights beside it: onnx.save(model, path, save_as_external_data=True)",
        got=nbytes,
    )


def _needs_memory(name: str, options: str) -> InputError:
    return InputError(
        f"`{name}` has more than 2 GB of weights, which are read one at a time: {options} would need all of them",
        hint="leave them out, or change the model before it is converted",
    )


def _check_text(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse names that are not UTF-8, and drop such descriptions: protobuf hands over both as bytes."""
    nodes = (node for graph in graphs_of(proto.graph) for node in graph.node)
    for message in (proto, *graphs_of(proto.graph), *nodes, *tensors_of(proto.graph)):
        if not isinstance(message.doc_string, str):
            message.ClearField("doc_string")
    own: list[object] = [proto.producer_name, proto.producer_version, proto.domain]
    own += [text for entry in proto.metadata_props for text in (entry.key, entry.value)]
    for graph in graphs_of(proto.graph):
        values = (*graph.input, *graph.output, *graph.value_info)
        names = [*own, graph.name, *(named.name for named in (*values, *graph.initializer))]
        names += [dim.dim_param for value in values for dim in value.type.tensor_type.shape.dim]
        for node in graph.node:
            names += [node.name, node.op_type, node.domain, *node.input, *node.output]
        if any(not isinstance(name, str) for name in names):
            raise ConversionError(
                f"`{path}` is not a valid ONNX model: it has names that are not UTF-8",
                hint="export or download it again",
            )


def _check_graph(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse what parses by chance: protobuf takes many a file for a message of unknown fields."""
    if proto.ir_version < 1 or not proto.opset_import or not proto.graph.output:
        raise ConversionError(
            f"`{path}` is not an ONNX model: it has no graph with outputs", hint="export or download it again"
        )
    supported = onnx.defs.onnx_opset_version()
    for opset in proto.opset_import:
        if opset.domain in ("", "ai.onnx") and not 1 <= opset.version <= supported:
            raise UnsupportedModel(
                f"`{path}` uses operator set {opset.version}, the installed onnx knows 1 to {supported}",
                hint="export it with a lower `opset_version`, or pip install --upgrade onnx onnxruntime",
                got=opset.version,
                expected=supported,
            )


def _load_external(proto: onnx.ModelProto, path: Path) -> tuple[int, WeightsInFiles | None]:
    """Read the weights that lie in files beside the model; those of more than 2 GB stay there.

    Returns:
        Their size in bytes, and where they lie if they were not read.
    """
    names = {
        entry.value
        for tensor in tensors_of(proto.graph)
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    folder = path.resolve().parent
    for name in names:
        target = (folder / name).resolve()
        if Path(name).is_absolute() or not target.is_relative_to(folder):
            raise ConversionError(
                f"`{path}` keeps weights in `{name}`, which leaves its folder: refused",
                hint="save it again with its weights beside it",
                got=name,
            )
        if not target.is_file():
            raise ConversionError(
                f"`{path}` keeps weights in `{name}`, which is missing", hint=f"put it into `{folder}`", got=name
            )
    nbytes = sum((folder / name).stat().st_size for name in names)
    if path.stat().st_size + nbytes > MAX_BYTES:  # protobuf cannot hold it, and memory need not
        nbytes = sum(nbytes_in_files(tensor) for tensor in tensors_of(proto.graph))
        return nbytes, read_apart(proto, folder, path.name) or None
    if names:
        try:
            onnx.load_external_data_for_model(proto, str(folder))
        except (OSError, ValueError, RuntimeError, onnx.checker.ValidationError) as error:
            raise ConversionError(
                f"The weights of `{path}` cannot be read: {first_line(error)}", hint="copy or export them again"
            ) from error
    return nbytes, None


def _import_domains(proto: onnx.ModelProto) -> None:
    """Import the engine's own domains that nodes name and the file does not: ONNX Runtime runs it without."""
    imported = {entry.domain for entry in proto.opset_import}
    for graph in graphs_of(proto.graph):
        for domain in {node.domain for node in graph.node}.difference(imported).intersection(_ENGINE_DOMAINS):
            proto.opset_import.add(domain=domain, version=1)
            imported.add(domain)


def _drop_default_inputs(proto: onnx.ModelProto) -> None:
    """Take the initializers out of the inputs, where IR 3 lists them: every pass takes them for weights then."""
    stored = {tensor.name for tensor in proto.graph.initializer}
    for value in [value for value in proto.graph.input if value.name in stored]:
        proto.graph.input.remove(value)
    if stored:
        proto.ir_version = max(proto.ir_version, _OWN_INITIALIZERS_IR)


def _free_negative_dims(proto: onnx.ModelProto) -> None:
    """Make the dimensions that are -1 free ones."""
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.HasField("dim_value") and dim.dim_value < 0:
                dim.ClearField("dim_value")


def _check_operators(proto: onnx.ModelProto, path: Path, in_files: WeightsInFiles | None) -> None:
    if (
        in_files is not None or nbytes_of(proto) >= LARGE_BYTES
    ):  # the checker copies the model three times; the engine checks the weights
        light, large = without_weights(proto)
        empty = {tensor.name for tensor in large}.union(in_files or ())
        for tensor in light.graph.initializer:
            if tensor.name in empty:
                tensor.dims[:] = [0]
        proto = light
    try:
        onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, ValueError) as error:  # ValueError: a name that is not UTF-8
        text = first_line(error)
        if "No Op registered for" in text and not native_lacks(proto):
            return  # an operator of the engine's own in ONNX's domain, such as LayerNormalization before set 17
        if "No Op registered for" in text or "ir_version" in text or "No opset import" in text:
            raise UnsupportedModel(f"`{path}` cannot be converted: {text}", hint=hint_for(text)) from error
        raise ConversionError(f"`{path}` is not a valid ONNX model: {text}", hint="export it again") from error


def _spec(value: onnx.ValueInfoProto, kind: str, path: Path) -> TensorSpec:
    which = value.type.WhichOneof("value")
    if which != "tensor_type":
        what = (which or "nothing").removesuffix("_type").replace("_", " ")
        raise UnsupportedModel(
            f"{kind} `{value.name}` of `{path}` is a {what}, expected a tensor",
            hint="export it with plain tensors as inputs and outputs" if what != "nothing" else "",
            tensor=value.name,
        )
    tensor = value.type.tensor_type
    if tensor.elem_type not in _DTYPES:
        known = {number: name for name, number in onnx.TensorProto.DataType.items()}
        name = known.get(tensor.elem_type, f"number {tensor.elem_type}")
        raise UnsupportedModel(
            f"{kind} `{value.name}` of `{path}` has the type {name}, which no engine here takes",
            hint="export it with float32, float16 or integer tensors",
        )
    dtype = _DTYPES[tensor.elem_type]
    if kind == "Input" and dtype in _NOT_IN_NUMPY:
        raise UnsupportedModel(
            f"Input `{value.name}` of `{path}` is {dtype}, which numpy cannot hold",
            hint="export it with float32 inputs",
        )
    if not tensor.HasField("shape"):
        raise UnsupportedModel(
            f"{kind} `{value.name}` of `{path}` has no rank", hint="run onnx.shape_inference.infer_shapes on it first"
        )
    dims = [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{value.name}_{axis}"
        for axis, dim in enumerate(tensor.shape.dim)
    ]
    return TensorSpec(value.name, dtype, dims)


def _precision(proto: onnx.ModelProto, in_files: WeightsInFiles | None) -> str:
    sizes: dict[str, int] = {}
    if in_files is not None:
        for name in in_files:
            precision = _PRECISIONS.get(in_files.dtype(name), "")
            sizes[precision] = sizes.get(precision, 0) + in_files.nbytes(name)
        sizes.pop("", None)
    for tensor in tensors_of(proto.graph):
        if tensor.data_type in _PRECISIONS:
            precision = _PRECISIONS[tensor.data_type]
            sizes[precision] = sizes.get(precision, 0) + tensor_nbytes(tensor)
    return max(sizes, key=lambda precision: sizes[precision]) if sizes else "fp32"


def _near(path: Path) -> str:
    """Name a model beside a file that is not there: the one that is spelt most like it, else the first few."""
    models = {place.stem: place.name for place in sorted(path.parent.glob("*.onnx"))}
    close = get_close_matches(path.stem, models, n=1)
    if close:
        return f"did you mean `{models[close[0]]}`?"
    return (
        f"in that folder: {listed(list(models.values())[:3])}"
        if models
        else "edge-infer convert model.onnx -o model.bundle"
    )
