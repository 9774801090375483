"""Store weights in fewer bits and compute in float: the smallest of fp16, int8 and int4 that keeps the quality.

- fp16 and int8 weights are turned into float by `Cast` and `Mul`, which every engine folds when it loads the model:
  the file is small, the speed and the numbers are those of float32.
- int4 filters of convolutions: `DequantizeLinear` with blocks of 32, which came with operator set 21.
- int4 matrices stay packed in memory: `com.microsoft.MatMulNBits`, blocks of 32.
- palettes: see `passes.palette`.
- Tables (`Gather` of rows) stay packed in memory too, and only the rows that are read are turned into float: int8 by
  standard operators with one scale for each row, int4 by `com.microsoft.GatherBlockQuantized`.

Both `com.microsoft` operators are in onnxruntime from 1.20 and in the plain wasm build of onnxruntime-web.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_infer_converters.passes import packing
from edge_infer_converters.passes.fold_batch_norm import fold_batch_norm_in
from edge_infer_converters.passes.fold_constants import fold_constants
from edge_infer_converters.passes.graphs import (
    FreshNames,
    attributes_of,
    drop_stored_shapes,
    drop_unread_tensors,
    graphs_of,
    names_in,
    opset_of,
)
from edge_infer_converters.passes.palette import pack_palette, unpack_palette
from edge_infer_converters.passes.shorten_names import shorten_names
from edge_infer_converters.passes.weight import ENCODINGS, PALETTES, Weight
from edge_infer_converters.passes.weights_in_files import Stored

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DOMAIN = "com.microsoft"
_NONE: Mapping[str, onnx.TensorProto] = {}
_NOT_FITTED: Mapping[str, packing.Packed] = {}
# The first operator set whose DequantizeLinear knows blocks, and the last before it with the same operators: from 20 to
# 21 all but GroupNormalization only took more types.
_BLOCK_OPSET = 21
_NEAR_BLOCK_OPSET = 20
# INT4 tensors came with IR version 10.
_INT4_IR_VERSION = 10
# From how many scales on they are stored in half precision: the node that turns them back takes 30 bytes.
_MIN_HALF_SCALES = 24
_MIN_ELEMENTS = 64
_LARGEST_HALF = 65504.0


def engine_options(weights: Sequence[Weight], choice: Mapping[str, str]) -> dict[str, dict[str, str]] | None:
    """Return the engine settings that a choice needs, by backend, or None.

    ONNX Runtime keeps `DequantizeLinear` for its int8 kernels, of which these models have none, and would turn int4
    filters into float again in each call: 1.7 times the time of float on MobileNetV2, where 1.0 is possible.
    """
    if not any(weight.kind == "filter" and choice.get(weight.name) == "int4" for weight in weights):
        return None
    return {backend: {"session.disable_quant_qdq": "1"} for backend in ("onnxruntime", "ort-web")}


def prepare(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in the form whose weights are packed: constants and batch normalization folded."""
    prepared = fold_constants(model)
    fold_batch_norm_in(prepared.graph)
    drop_stored_shapes(prepared.graph)
    return prepared


def weights_of(model: onnx.ModelProto, apart: Mapping[str, onnx.TensorProto] = _NONE) -> tuple[Weight, ...]:
    """List the weights of a prepared model that can be made smaller, in the order in which they are read.

    Weights that hold NaN or infinity, and those that subgraphs read, stay as they are.

    Args:
        model: The model.
        apart: The values of its initializers that have none; see `graphs.without_weights`.
    """
    graph = model.graph
    given = {value.name for value in (*graph.input, *graph.output)}
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = defaultdict(list)
    for node in graph.node:
        for place, name in enumerate(node.input):
            readers[name].append((node, place))
    inner = {name for part in graphs_of(graph) if part is not graph for node in part.node for name in node.input}
    stored = Stored(graph, apart)
    has_blocks = _has_blocks(model)
    found: list[Weight] = []
    for name in readers:
        tensor = stored.get(name)
        if tensor is None or name in given or name in inner or tensor.data_type != onnx.TensorProto.FLOAT:
            continue
        weight = _describe(name, tuple(tensor.dims), readers[name], has_blocks)
        if int(np.prod(weight.shape)) < _MIN_ELEMENTS:
            continue
        values = numpy_helper.to_array(tensor)
        largest = max(float(values.max()), -float(values.min()))  # NaN where there is one
        if not np.isfinite(largest):
            continue
        usable = [e for e in weight.encodings if e != "fp16" or largest <= _LARGEST_HALF]
        smaller = [e for e in usable if e == "fp32" or weight.nbytes(e) < weight.nbytes("fp32")]
        if len(smaller) > 1:
            found.append(replace(weight, encodings=tuple(smaller)))
    return tuple(found)


def round_trip(
    weight: Weight, values: np.ndarray, encoding: str, fitted: Mapping[str, packing.Packed] = _NOT_FITTED
) -> np.ndarray:
    """Return what a weight's values become when they are stored in this encoding; `fitted` as in `rewrite`."""
    if encoding == "fp16":
        return values.astype(np.float16).astype(np.float32)
    if encoding in PALETTES:
        return unpack_palette(pack_palette(values, weight.axis, PALETTES[encoding]))
    if encoding == "int8":
        return packing.unpack_slices(packing.pack_slices(values, weight.axis))
    if encoding == "int4":
        rows = weight.as_rows(values)
        packed = fitted.get(weight.name) or packing.pack_blocks(rows)
        unpacked = packing.unpack_blocks(packed, rows.shape[1])
        back = unpacked if weight.kind == "filter" else weight.as_rows(unpacked)  # transposing twice changes nothing
        return np.ascontiguousarray(back).reshape(values.shape)
    return values


def rewrite(
    model: onnx.ModelProto,
    weights: Sequence[Weight],
    choice: Mapping[str, str],
    apart: Mapping[str, onnx.TensorProto] = _NONE,
    fitted: Mapping[str, packing.Packed] = _NOT_FITTED,
) -> onnx.ModelProto:
    """Return a copy whose weights are stored as chosen; inputs, outputs and arithmetic stay float32.

    Args:
        model: A prepared model.
        weights: What `weights_of` found in it.
        choice: The encoding of each weight by name; what is not named stays `fp32`.
        apart: The values of initializers that have none.
        fitted: The blocks of matrices in int4 by name, where they are not those of least squared error.
    """
    packed = onnx.ModelProto()
    packed.CopyFrom(model)
    writer = _Writer(packed, apart, fitted)
    for weight in weights:
        encoding = choice.get(weight.name, "fp32")
        if encoding != "fp32":
            writer.store(weight, encoding)
    writer.finish()
    for tensor in packed.graph.initializer:
        if tensor.name in apart:
            tensor.CopyFrom(apart[tensor.name])
    shorten_names(packed)
    return packed


class _Writer:
    """Changes one model in place."""

    def __init__(
        self,
        model: onnx.ModelProto,
        apart: Mapping[str, onnx.TensorProto],
        fitted: Mapping[str, packing.Packed],
    ) -> None:
        self._model = model
        self._graph = model.graph
        self._fresh = FreshNames(names_in(model.graph))
        self._stored = Stored(model.graph, apart)
        self._fitted = fitted
        self._first: list[onnx.NodeProto] = []
        self._replaced: dict[int, list[onnx.NodeProto]] = {}
        self._is_custom = False
        self._has_blocks = False

    def store(self, weight: Weight, encoding: str) -> None:
        values = numpy_helper.to_array(self._stored[weight.name])
        if encoding in PALETTES:
            self._store_palette(weight, PALETTES[encoding], values)
        elif weight.kind == "table":
            self._store_table(weight, encoding, values)
        elif encoding == "int4" and weight.kind == "filter":
            self._store_filter(weight, values)
        elif encoding == "int4":
            self._store_blocks(weight, values)
        else:
            self._store_body(weight, encoding, values)

    def finish(self) -> None:
        nodes = [new for i, node in enumerate(self._graph.node) for new in self._replaced.get(i, [node])]
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in (*self._first, *nodes)]
        del self._graph.node[:]
        self._graph.node.extend(copies)
        drop_unread_tensors(self._graph)
        if self._has_blocks:
            for entry in self._model.opset_import:
                if entry.domain in ("", "ai.onnx"):
                    entry.version = max(entry.version, _BLOCK_OPSET)
            self._model.ir_version = max(self._model.ir_version, _INT4_IR_VERSION)
        if self._is_custom:
            if all(entry.domain != _DOMAIN for entry in self._model.opset_import):
                self._model.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
            self._model.ir_version = max(self._model.ir_version, _INT4_IR_VERSION)

    def _store_body(self, weight: Weight, encoding: str, values: np.ndarray) -> None:
        """Store the values; nodes in front turn them back into the tensor that everyone reads."""
        whole = self._fresh(f"{weight.name}/float")
        if encoding == "fp16":
            body = self._add(f"{weight.name}/half", values.astype(np.float16))
            self._first.append(_cast(body, whole))
        else:
            codes, scales = packing.pack_slices(values, weight.axis)
            body = self._add(f"{weight.name}/codes", codes)
            cast = self._fresh(f"{weight.name}/cast")
            self._first.append(_cast(body, cast))
            factors = self._add_scales(f"{weight.name}/scales", scales)
            self._first.append(helper.make_node("Mul", [cast, factors], [whole]))
        self._read_instead(weight.name, whole)

    def _store_palette(self, weight: Weight, size: int, values: np.ndarray) -> None:
        packed = pack_palette(values, weight.axis, size)
        places, picked, whole = (self._fresh(f"{weight.name}/{part}") for part in ("places", "picked", "float"))
        codes = self._add(f"{weight.name}/codes", packed.codes)
        colors = self._add(f"{weight.name}/colors", packed.colors)
        self._first.append(helper.make_node("Cast", [codes], [places], to=int(onnx.TensorProto.INT32)))
        self._first.append(helper.make_node("Gather", [colors, places], [picked]))
        self._first.append(
            helper.make_node("Mul", [picked, self._add_scales(f"{weight.name}/scales", packed.scales)], [whole])
        )
        self._read_instead(weight.name, whole)

    def _store_filter(self, weight: Weight, values: np.ndarray) -> None:
        self._has_blocks = True
        rows = weight.as_rows(values)
        packed = packing.pack_blocks(rows)
        whole, flat = self._fresh(f"{weight.name}/float"), self._fresh(f"{weight.name}/flat")
        codes = self._add_int4(f"{weight.name}/codes", packed.codes)
        scales = self._add_scales(f"{weight.name}/scales", packed.scales)
        shape = self._add(f"{weight.name}/shape", np.array(values.shape, np.int64))
        self._first.append(
            helper.make_node("DequantizeLinear", [codes, scales], [flat], axis=1, block_size=packing.BLOCK)
        )
        self._first.append(helper.make_node("Reshape", [flat, shape], [whole]))
        self._read_instead(weight.name, whole)

    def _read_instead(self, name: str, other: str) -> None:
        replacing = (node for nodes in self._replaced.values() for node in nodes)
        for node in (*self._graph.node, *replacing):
            for place, read in enumerate(node.input):
                if read == name:
                    node.input[place] = other

    def _store_table(self, weight: Weight, encoding: str, values: np.ndarray) -> None:
        if encoding == "int4":
            self._is_custom, is_half = True, False
            packed = packing.pack_blocks(values)
            codes = self._add_int4(f"{weight.name}/codes", packed.codes[:, : values.shape[1]])
            scales = self._add_scales(f"{weight.name}/scales", packed.scales)
        elif encoding == "int8":
            slices = packing.pack_slices(values, 0)
            codes = self._add(f"{weight.name}/codes", slices.codes)
            is_half = packing.is_half(slices.scales)
            scales = self._add(f"{weight.name}/scales", slices.scales.astype(np.float16 if is_half else np.float32))
        else:
            codes = self._add(f"{weight.name}/half", values.astype(np.float16))
            scales, is_half = "", False
        for index, node in self._readers(weight.name):
            rows, out = node.input[1], node.output[0]
            if encoding == "int4":
                new = [
                    helper.make_node(
                        "GatherBlockQuantized",
                        [codes, rows, scales],
                        [out],
                        domain=_DOMAIN,
                        gather_axis=0,
                        quantize_axis=1,
                        block_size=packing.BLOCK,
                    )
                ]
            else:
                picked, cast = self._fresh(f"{out}/codes"), self._fresh(f"{out}/cast")
                new = [helper.make_node("Gather", [codes, rows], [picked]), _cast(picked, cast if scales else out)]
                if scales:
                    factors = self._fresh(f"{out}/scales")
                    new.append(helper.make_node("Gather", [scales, rows], [factors]))
                    if is_half:
                        new.append(_cast(factors, as_float := self._fresh(f"{factors}/float")))
                        factors = as_float
                    new.append(helper.make_node("Mul", [cast, factors], [out]))
            self._replaced[index] = new

    def _store_blocks(self, weight: Weight, values: np.ndarray) -> None:
        self._is_custom = True
        rows = weight.as_rows(values)  # [outputs, inputs]
        packed = self._fitted.get(weight.name) or packing.pack_blocks(rows)
        count, columns = rows.shape
        blocks = packed.scales.shape[1]
        codes = self._add(f"{weight.name}/codes", packing.nibbles(packed.codes).reshape(count, blocks, -1))
        scales = self._add_scales(f"{weight.name}/scales", packed.scales.reshape(-1))
        for index, node in self._readers(weight.name):
            bias = node.input[2] if len(node.input) > 2 else ""
            product = self._fresh(f"{node.output[0]}/product") if bias else node.output[0]
            new = [
                helper.make_node(
                    "MatMulNBits",
                    [node.input[0], codes, scales],
                    [product],
                    domain=_DOMAIN,
                    K=columns,
                    N=count,
                    bits=4,
                    block_size=packing.BLOCK,
                )
            ]
            if bias:
                new.append(helper.make_node("Add", [product, bias], [node.output[0]]))
            self._replaced[index] = new

    def _readers(self, name: str) -> list[tuple[int, onnx.NodeProto]]:
        return [(i, node) for i, node in enumerate(self._graph.node) if name in node.input]

    def _add(self, base: str, values: np.ndarray) -> str:
        name = self._fresh(base)
        self._graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def _add_scales(self, name: str, scales: np.ndarray) -> str:
        """Store scales, in half precision where that is exact and saves bytes; returns the name of the float32 ones."""
        if scales.size < _MIN_HALF_SCALES or not packing.is_half(scales):
            return self._add(name, scales)
        whole = self._fresh(name)
        self._first.append(_cast(self._add(f"{name}/half", scales.astype(np.float16)), whole))
        return whole

    def _add_int4(self, base: str, codes: np.ndarray) -> str:
        name = self._fresh(base)
        flat = codes.reshape(-1).view(np.uint8) & 15
        flat = np.concatenate([flat, np.zeros(len(flat) % 2, np.uint8)])
        data = (flat[::2] | (flat[1::2] << 4)).tobytes()
        tensor = helper.make_tensor(name, onnx.TensorProto.INT4, codes.shape, data, raw=True)
        self._graph.initializer.append(tensor)
        return name


def _describe(name: str, shape: tuple[int, ...], readers: list[tuple[onnx.NodeProto, int]], has_blocks: bool) -> Weight:
    first = readers[0][0]
    label = first.name or name
    options = [attributes_of(node) for node, _ in readers]
    if len(shape) == 2 and all(
        node.op_type == "Gather" and place == 0 and not option.get("axis", 0)
        for (node, place), option in zip(readers, options, strict=True)
    ):
        encodings = ENCODINGS if shape[1] % packing.BLOCK == 0 else ENCODINGS[:3]
        return Weight(name, label, "table", shape, 0, False, encodings)
    if len(shape) == 2 and all(_is_product(node, place) for node, place in readers):
        sides = {bool(option.get("transB", 0)) for option in options}
        if len(sides) == 1:
            is_transposed = sides.pop()
            return Weight(name, label, "matrix", shape, 0 if is_transposed else 1, is_transposed, ENCODINGS)
    if len(shape) < 2:
        return Weight(name, label, "other", shape, 0, False, ENCODINGS[:2])
    if has_blocks and all(node.op_type == "Conv" and place == 1 for node, place in readers):
        is_even = int(np.prod(shape[1:])) % packing.BLOCK == 0
        return Weight(name, label, "filter", shape, 0, False, ENCODINGS if is_even else ENCODINGS[:3])
    transposing = first.op_type in ("ConvTranspose", "MatMul")
    axis = (1 if first.op_type == "ConvTranspose" else len(shape) - 1) if transposing else 0
    return Weight(name, label, "other", shape, axis, False, ENCODINGS[:3])


def _has_blocks(model: onnx.ModelProto) -> bool:
    """Tell whether the model is of operator set 21, or can be called so without another change."""
    opset = opset_of(model)
    if opset >= _BLOCK_OPSET:
        return True
    names = {node.op_type for part in graphs_of(model.graph) for node in part.node}
    return opset == _NEAR_BLOCK_OPSET and "GroupNormalization" not in names and not model.functions


def _is_product(node: onnx.NodeProto, place: int) -> bool:
    if place != 1 or node.domain not in ("", "ai.onnx"):
        return False
    if node.op_type == "MatMul":
        return True
    options = attributes_of(node)
    is_plain = not options.get("transA", 0) and options.get("alpha", 1.0) == 1 and options.get("beta", 1.0) == 1
    return node.op_type == "Gemm" and is_plain


def _cast(name: str, output: str) -> onnx.NodeProto:
    return helper.make_node("Cast", [name], [output], to=int(onnx.TensorProto.FLOAT))
