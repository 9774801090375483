"""Find the operators of a model that an engine or a format lacks, all of them before any other work.

What native ONNX Runtime has comes from its own table of kernels. What the page's engine lacks of that was measured:
onnxruntime-web 1.30.0 was given one model for each of the 1321 native kernels that a single node can ask for, and
ONNX's own tests of each operator; tests/browser asks it again. What TFLite lacks, its writer says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import onnx

from edge_infer.errors import ConversionError, EdgeInferError, UnsupportedOperator, listed
from edge_infer_converters.passes.graphs import graphs_of, nbytes_of, opset_of
from edge_infer_converters.targets import TARGETS
from edge_infer_converters.writers.compiled.tables.reading import is_table
from edge_infer_converters.writers.compiled.worth import check_worth

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from edge_infer_converters.writers.tflite import FloatGraph

NATIVE, PAGE, TFLITE = "onnxruntime", "onnxruntime-web", "tflite"
#: What onnxruntime-web 1.30.0 reads.
PAGE_OPSET, PAGE_IR = 26, 13
#: What onnxruntime-web 1.30.0 lacks of native 1.31.1: operators, and types of one.
PAGE_LACKS = frozenset(
    {
        ("com.microsoft", "BranchwiseRMSNorm"),
        ("com.microsoft", "HyperConnectionPostMix"),
        ("com.microsoft", "HyperConnectionPreMix"),
    }
)
PAGE_LACKS_TYPES = {("", "Where"): (onnx.TensorProto.INT8,)}
_ANY_VERSION = 2**31 - 1


class Lack(NamedTuple):
    """An operator that something lacks.

    Attributes:
        operator: Its name, with its domain where that is not ONNX's own.
        nodes: The names of the nodes that use it.
        where: The engines and formats that lack it.
        advice: What to do.
    """

    operator: str
    nodes: tuple[str, ...]
    where: tuple[str, ...]
    advice: str


class Support(NamedTuple):
    """The formats that can be made of a model, and the reasons against the others.

    Attributes:
        lacks: What is not supported somewhere.
        tflite: Why TFLite cannot be written, or None.
        graph: The model in TFLite operators, where it can be written and is to be.
        is_table: Whether a compiled model is made of the ONNX model itself: it has operators of ONNX-ML.
        onnx: Why ONNX cannot be written, or None.
    """

    lacks: tuple[Lack, ...]
    tflite: EdgeInferError | None
    graph: FloatGraph | None = None
    is_table: bool = False
    onnx: EdgeInferError | None = None


def native_lacks(model: onnx.ModelProto) -> list[Lack]:
    """List the operators that ONNX Runtime, as installed, has no CPU kernel for."""
    from onnxruntime.capi import onnxruntime_pybind11_state as engine

    kernels: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for kernel in engine.get_all_opkernel_def():
        kernels.setdefault((kernel.domain, kernel.op_name), []).append(kernel.version_range)
    versions: dict[tuple[str, str], list[int]] = {}
    for schema in engine.get_all_operator_schema():
        versions.setdefault((schema.domain, schema.name), []).append(schema.since_version)
    opsets = {_domain(entry.domain): entry.version for entry in model.opset_import}
    functions = {(_domain(function.domain), function.name) for function in model.functions}
    found: dict[str, list[onnx.NodeProto]] = {}
    advice: dict[str, str] = {}
    for node in _nodes_of(model):
        key = (_domain(node.domain), node.op_type)
        if key in functions or key == ("", "Constant"):
            continue
        known = [version for version in versions.get(key, ()) if version <= opsets.get(key[0], 0)]
        if not known or not (_has_kernel(kernels.get(key, ()), max(known)) or _is_function(key, opsets[key[0]])):
            found.setdefault(_label(node), []).append(node)
            advice[_label(node)] = _advice(key, versions, opsets.get(key[0], 0))
    return [Lack(what, _names(nodes), (NATIVE,), advice[what]) for what, nodes in found.items()]


def page_lacks(model: onnx.ModelProto) -> list[Lack]:
    """List the operators of a model that native ONNX Runtime runs and the page's engine lacks."""
    advice = "replace it, or leave the page out"
    if opset_of(model) > PAGE_OPSET or model.ir_version > PAGE_IR:
        what = f"opset {opset_of(model)}, IR {model.ir_version}"
        return [Lack(what, ("the model",), (PAGE,), f"--opset {PAGE_OPSET}")]
    nodes = list(_nodes_of(model))
    types: dict[str, int] = {}
    if any((_domain(node.domain), node.op_type) in PAGE_LACKS_TYPES for node in nodes):
        graph = onnx.shape_inference.infer_shapes(model).graph
        types = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info)}
        types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    found: dict[str, list[onnx.NodeProto]] = {}
    for node in nodes:
        key = (_domain(node.domain), node.op_type)
        foreign = [types.get(name) for name in node.input if types.get(name) in PAGE_LACKS_TYPES.get(key, ())]
        if key in PAGE_LACKS or foreign:
            kind = f" of {onnx.TensorProto.DataType.Name(foreign[0] or 0).lower()}" if foreign else ""
            found.setdefault(f"{_label(node)}{kind}", []).append(node)
    return [Lack(what, _names(nodes), (PAGE,), advice) for what, nodes in found.items()]


def check(model: onnx.ModelProto, targets: Sequence[str], formats: Iterable[str], name: str = "model") -> Support:
    """Find what is not supported where, and refuse a target that would get nothing.

    Args:
        model: The model, cleaned up.
        targets: The targets of the bundle.
        formats: The formats of the variants to make.
        name: What the model is called.

    Raises:
        UnsupportedOperator: A target lacks operators in every format that is to be made for it.
        ConversionError: A target takes TFLite only, which cannot be written for another reason.
    """
    wanted = set(formats)
    lacks: list[Lack] = []
    refused: ConversionError | None = None
    graph: FloatGraph | None = None
    if wanted & {"tflite", "compiled"}:  # a compiled model is made of the TFLite file
        try:
            if "compiled" in wanted and len(wanted) > 1 and "tflite" not in wanted:
                check_worth(nbytes_of(model))
            graph = tflite_graph(model, targets, name)
        except ConversionError as error:
            refused = error
            nodes = (error.details.get("nodes") or {}) if wanted != {"onnx", "compiled"} else {}
            lacks += [Lack(what, tuple(names), (TFLITE,), "--format onnx") for what, names in nodes.items()]
    is_compiled_itself = refused is not None and is_table(model)
    in_page = page_lacks(model) if {"any", "web"} & set(targets) else []
    for target in targets:
        left = wanted & set(TARGETS[target].formats)
        left -= {"tflite", *(() if is_compiled_itself else ("compiled",))} if refused else set()
        left -= {"compiled"} if len(wanted) > 1 else set()  # the model may not fit: an engine's format must be left
        left -= {"onnx"} if target == "web" and in_page else set()
        if not left:
            everything = _merged([*lacks, *in_page])
            if refused and not (target == "web" and in_page) and not lacks:
                raise refused
            raise unsupported(everything, f" for `{target}`" if target != "any" else "")
    return Support(tuple(_merged([*lacks, *in_page])), refused, graph, is_compiled_itself)


def tflite_graph(model: onnx.ModelProto, targets: Sequence[str], name: str, *, fixed_batch: bool = False) -> FloatGraph:
    """Turn a model into TFLite operators for these targets; see `FloatGraph.of_onnx`."""
    from edge_infer_converters.writers import tflite

    for_page = bool({"any", "web"} & set(targets))
    return tflite.FloatGraph.of_onnx(model, name, for_page=for_page, fixed_batch=fixed_batch)


def unsupported(lacks: Sequence[Lack], where: str = "") -> UnsupportedOperator:
    """Make the error that names all of them."""
    said = "; ".join(
        f"`{lack.operator}` ({len(lack.nodes)} node{'s' * (len(lack.nodes) > 1)}: {listed(list(lack.nodes[:3]))}"
        f"{' …' if len(lack.nodes) > 3 else ''}; not in {' and '.join(lack.where)})"
        for lack in lacks
    )
    count = f"{len(lacks)} operators are" if len(lacks) != 1 else "One operator is"
    return UnsupportedOperator(
        f"{count} not supported{where}: {said}",
        hint=lacks[0].advice if lacks else "",
        operators=[lack.operator for lack in lacks],
        nodes={lack.operator: list(lack.nodes) for lack in lacks},
        lacks=[{**lack._asdict(), "nodes": list(lack.nodes), "where": list(lack.where)} for lack in lacks],
    )


def table(lacks: Sequence[Lack]) -> list[str]:
    """Write them as lines of aligned columns."""
    rows = [("OPERATOR", "NODES", "FIRST", "NOT IN", "WHAT TO DO")]
    for lack in lacks:
        first = ", ".join(lack.nodes[:3]) + (" …" if len(lack.nodes) > 3 else "")
        rows.append((lack.operator, str(len(lack.nodes)), first, ", ".join(lack.where), lack.advice))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _merged(lacks: Sequence[Lack]) -> list[Lack]:
    """Join the lines of one operator that several lack."""
    joined: dict[str, Lack] = {}
    for lack in lacks:
        old = joined.get(lack.operator)
        joined[lack.operator] = lack if old is None else old._replace(where=(*old.where, *lack.where))
    return list(joined.values())


def _nodes_of(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    for graph in graphs_of(model.graph):
        yield from graph.node
    for function in model.functions:
        yield from function.node


def _has_kernel(ranges: Iterable[tuple[int, int]], since: int) -> bool:
    """Tell whether a kernel is of this version; one without an end is of its first version only, as in the engine."""
    return any(start == since or (end != _ANY_VERSION and start <= since <= end) for start, end in ranges)


def _is_function(key: tuple[str, str], opset: int) -> bool:
    """Tell whether the standard defines an operator by others, which the engine then runs."""
    domain, name = key
    if domain or not onnx.defs.has(name, opset, ""):
        return False
    schema = onnx.defs.get_schema(name, opset, "")
    return bool(schema.has_function or schema.has_context_dependent_function)  # type: ignore[attr-defined]


def _advice(key: tuple[str, str], versions: dict[tuple[str, str], list[int]], opset: int) -> str:
    domain, name = key
    if "training" in domain:
        return "export the model for inference, without its optimizer"
    if key in versions and min(versions[key]) > opset:
        return f"it is newer than operator set {opset}: export with {min(versions[key])} or a newer one"
    if domain in ("", "ai.onnx.ml"):
        return "replace it" if onnx.defs.has(name, domain) else "it is not an operator of ONNX: is its domain missing?"
    return "write it with ONNX's own operators, or as a function of the model"


def _domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _label(node: onnx.NodeProto) -> str:
    domain = _domain(node.domain)
    return f"{domain}.{node.op_type}" if domain else node.op_type


def _names(nodes: Iterable[onnx.NodeProto]) -> tuple[str, ...]:
    return tuple(node.name or next(iter(node.output), "?") for node in nodes)
