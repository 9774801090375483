"""What `compile` is given: a TFLite or ONNX file, a variant of a bundle, or a model over tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.bundle.bundle import Bundle
from edge_infer.errors import ConversionError, InputError, UnsupportedOperator, listed
from edge_infer_converters.sources.options import SourceOptions

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

    from edge_infer_converters.sources.onnx import SourceModel

#: Single models; others are bundles.
FILES = (".tflite", ".onnx", ".ort")
_NO_OPTIONS = SourceOptions()


def read(
    source: Path, variant: str | None = None, options: SourceOptions = _NO_OPTIONS
) -> tuple[str, bytes | onnx.ModelProto]:
    """Read what is to be compiled.

    Args:
        source: A `.tflite`, `.onnx` or `.ort` file, or a bundle.
        variant: The variant of a bundle; None for its int8 TFLite file, or else its first.
        options: The sizes to fix or to free, and the inputs to bind, of a file.

    Returns:
        Its name for messages, and its TFLite file, or the model itself where it is one over tables.

    Raises:
        InputError: There is no such file or variant, or an option does not fit it.
        UnsupportedOperator: TFLite has no form of some operators; all of them are named.
        ConversionError: It is not written as TFLite for another reason.
        UnsupportedModel: It cannot be read.
    """
    suffix = source.suffix.lower()
    if not source.exists():
        raise InputError(f"There is no file or bundle `{source}`", hint="edge-infer compile MODEL.tflite -o FOLDER")
    if variant is not None and suffix in FILES:
        raise InputError(f"`{source}` is one model, without variants", hint="leave --variant out")
    if suffix == ".tflite":
        return source.name, _tflite(source, options)
    if suffix in FILES:
        return source.name, _of_onnx(source, options)
    if options != _NO_OPTIONS:
        raise InputError(
            f"`{source}` is a bundle: --shape, --dynamic and --bind are for the file of a model",
            hint="edge-infer compile MODEL.onnx with them, or edge-infer convert MODEL with them first",
        )
    return _of_bundle(Bundle.open(source), source, variant)


def _tflite(source: Path, options: SourceOptions) -> bytes:
    if options == _NO_OPTIONS:
        return source.read_bytes()
    from edge_infer_converters.sources import tflite

    return tflite.load(source, options).data


def _of_onnx(source: Path, options: SourceOptions) -> bytes | onnx.ModelProto:
    """Write a model as TFLite; return a model over tables unchanged."""
    from edge_infer_converters.sources.factory import open_source
    from edge_infer_converters.sources.onnx import SourceModel
    from edge_infer_converters.writers.compiled.tables.reading import is_table

    model, _ = open_source(source, options).cleaned(None, prunes=False)
    if not isinstance(model, SourceModel):
        raise AssertionError("a file of ONNX is read as such")
    return model.proto if is_table(model.proto) else _as_tflite(model, source)


def _as_tflite(model: SourceModel, source: Path) -> bytes:
    """Write floats as they are, and quantized numbers with the scales that they came with."""
    from edge_infer_converters.sources.onnx_file import MAX_BYTES
    from edge_infer_converters.support import tflite_graph

    if model.in_files is not None:
        raise ConversionError(f"`{source}` has {model.nbytes} bytes of weights, a compiled model at most {MAX_BYTES}")
    try:
        _refuse_graphs_of_nodes(model)
        graph = tflite_graph(model.proto, ("pi",), model.name)
    except UnsupportedOperator as error:
        error.hint = _instead(error, model, source)
        raise
    if graph.scales is None and not model.is_float:
        raise ConversionError(
            f"`{source}` stores its weights in {model.precision}, expected float32, or int8 with the scales of "
            "QuantizeLinear or QLinearConv",
            hint=f"edge-infer convert FLOAT.onnx --format compiled --calibration DATA -o {source.stem}.bundle",
        )
    return graph.write("fp32" if graph.scales is None else "int8").data


def _refuse_graphs_of_nodes(model: SourceModel) -> None:
    """Refuse what no size of an input changes: nodes that run graphs of their own; branches may be decided yet."""
    found = {
        node.op_type: node.name or node.output[0]
        for node in model.proto.graph.node
        if node.op_type != "If" and any(one.HasField("g") or one.graphs for one in node.attribute)
    }
    if found:
        said = listed([f"{operator} ({name})" for operator, name in found.items()])
        raise UnsupportedOperator(f"No kernel computes {said}: a node with a graph of its own", operators=sorted(found))


def _instead(error: UnsupportedOperator, model: SourceModel, source: Path) -> str:
    """Say what to do where TFLite has no form of an operator."""
    if any(operator.startswith("If ") for operator in error.details.get("operators", ())):
        scalars = [f"--bind {spec.name}=VALUE" for spec in model.inputs if not spec.shape]
        free = [
            f"--shape {spec.name}=SIZES" for spec in model.inputs if any(isinstance(dim, str) for dim in spec.shape)
        ]
        return f"{' '.join(scalars or free)}, where it is always the same: it decides which branch runs"
    return f"edge-infer convert {source} --format onnx -o {source.stem}.bundle, for an engine that has them"


def _of_bundle(bundle: Bundle, source: Path, variant: str | None) -> tuple[str, bytes | onnx.ModelProto]:
    if variant is None or variant.startswith("onnx/"):
        table = _table_of(bundle, variant)
        if table is not None:
            return table
    found = [one for one in bundle.manifest.variants if one.format == "tflite"]
    if not found:
        raise InputError(
            f"`{source}` has no TFLite variant", hint="edge-infer convert MODEL --format tflite -o model.bundle"
        )
    if variant is None:
        chosen = next((one for one in found if one.id == "tflite/int8"), found[0])
    else:
        chosen = bundle.manifest.variant(variant)
        if chosen.format != "tflite":
            raise InputError(
                f"variant `{variant}` of `{source}` is {chosen.format}, expected tflite",
                hint=f"--variant {found[0].id}",
            )
    return chosen.id, bundle.read(chosen.file)


def _table_of(bundle: Bundle, variant: str | None) -> tuple[str, onnx.ModelProto] | None:
    """Return the ONNX variant of a bundle that is a model over tables; None where there is none."""
    import onnx

    from edge_infer_converters.writers.compiled.tables.reading import is_table

    for one in bundle.manifest.variants:
        if one.format == "onnx" and one.precision == "fp32" and variant in (None, one.id):
            model = onnx.load_model_from_string(bundle.read(one.file))
            return (one.id, model) if is_table(model) else None
    return None
