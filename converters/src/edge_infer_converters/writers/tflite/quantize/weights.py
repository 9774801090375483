"""Weights in fewer bits, the values between operators in float.

What the kernels of LiteRT 2.3 and of tflite-runtime 2.14 do with such weights was measured for each operator:

- FULLY_CONNECTED, CONV_2D and DEPTHWISE_CONV_2D quantize what they read to int8, each row by itself, and multiply
  integers ("dynamic range"); LiteRT has FULLY_CONNECTED with a scale for each row since its version 12 of the
  operator, 2.14 would give wrong numbers and so must not be offered an older version number.
- EMBEDDING_LOOKUP turns the rows that it reads into float; 4 bits in blocks since version 4. In 8 bits a second lookup
  reads each row's scale: it knows rows with scales of their own since version 4 too, but then the file has 8 bytes for
  the zero point of each row, and 2.14 gives zeros.
- Everything else reads floats: a DEQUANTIZE in front makes them, once, when the model is loaded.
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.graph import Graph, Operator, Quantization, Tensor
from edge_infer_converters.writers.tflite.quantize import encodings

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Which operand holds the weights of an operator, and the axis of which each slice has a scale.
WEIGHTS = {
    "CONV_2D": (1, 0),
    "DEPTHWISE_CONV_2D": (1, 3),
    "EMBEDDING_LOOKUP": (1, 0),
    "FULLY_CONNECTED": (1, 0),
    "TRANSPOSE_CONV": (1, 0),
}
#: What each kind of weights becomes under the words of a recipe.
CHOICES: Mapping[str, Mapping[str, str]] = {
    "fp16": {"table": "fp16", "matrix": "fp16", "filter": "fp16"},
    "int8-dynamic": {"table": "int8", "matrix": "int8", "filter": "int8"},
    "int4": {"table": "int4", "matrix": "int4", "filter": "int8"},
    "mixed": {"table": "int4", "matrix": "int8", "filter": "int8"},
}
# Below this many elements a weight saves less than its scales and the work of quantizing what it is multiplied with
# (TensorFlow's own converter draws the same line).
_MIN_ELEMENTS = 1024
_LARGEST_HALF = 65504.0
_KINDS = {"EMBEDDING_LOOKUP": "table", "FULLY_CONNECTED": "matrix"}
# The first version of each operator that reads such weights. Blocks came later, see `_version`.
_VERSIONS = {
    ("CONV_2D", "int8"): 5,
    ("DEPTHWISE_CONV_2D", "int8"): 6,
    ("EMBEDDING_LOOKUP", "int4"): 4,
    ("FULLY_CONNECTED", "int4"): 12,
    ("FULLY_CONNECTED", "int8"): 12,
}
_BLOCKWISE_VERSION = 13
_DEQUANTIZE_VERSIONS = {"fp16": 3, "int8": 5}


def weights_of(graph: Graph) -> list[tuple[Tensor, Operator, tuple[str, ...]]]:
    """List the constants that can be stored in fewer bits, the operator that reads each first, and in which encodings.

    From the most bytes to the fewest: `fp16`, `int8`, `int4`.
    """
    found: dict[int, tuple[Tensor, Operator, tuple[str, ...]]] = {}
    for operator in graph.operators:
        place, _ = WEIGHTS.get(operator.code, (-1, 0))
        tensor = operator.inputs[place] if place >= 0 else None
        if tensor is None or not _is_stored(tensor) or id(tensor) in found or tensor.data is None:
            continue
        has_blocks = (operator.code, "int4") in _VERSIONS and encodings.has_blocks(tensor.data)
        fits = bool(np.abs(tensor.data).max() < _LARGEST_HALF)
        found[id(tensor)] = tensor, operator, (*(("fp16",) if fits else ()), "int8", *(("int4",) if has_blocks else ()))
    return list(found.values())


def store_weights(
    graph: Graph, choice: Mapping[str, str], each: Mapping[int, str] | None = None
) -> tuple[Graph, Counter[str]]:
    """Return a copy of a graph with its weights in fewer bits.

    Args:
        graph: A float graph; it is not changed.
        choice: The encoding (`int8`, `int4`, `fp16`, `fp32`) of each kind of weights: `table`, `matrix`, `filter`.
        each: The encoding of single constants, by their `id`, where it is another.

    Returns:
        The copy, and how many weights it has in each encoding.
    """
    job = _Storing(choice, each or {})
    made = Graph(list(graph.inputs), list(graph.outputs))
    operators = [made for operator in graph.operators for made in job.rewritten(operator)]
    made.operators = [*job.dequantized, *operators]
    return made, job.counts


class _Storing:
    def __init__(self, choice: Mapping[str, str], each: Mapping[int, str]) -> None:
        self.counts: Counter[str] = Counter()
        self.dequantized: list[Operator] = []
        self._choice = choice
        self._each = each
        self._packed: dict[tuple[int, int, str], Tensor] = {}
        self._floats: dict[tuple[int, int, str], Tensor] = {}
        self._rows: dict[tuple[int, str], Tensor] = {}

    def rewritten(self, operator: Operator) -> list[Operator]:
        table = operator.inputs[1] if operator.code == "EMBEDDING_LOOKUP" else None
        if table is not None and _is_stored(table) and self._encoding(operator.code, table) == "int8":
            return self._lookups(operator, table)
        place, axis = WEIGHTS.get(operator.code, (-1, 0))
        inputs = list(operator.inputs)
        version, options = operator.version, operator.options
        for i, tensor in enumerate(inputs):
            if tensor is None or not _is_stored(tensor):
                continue
            if i != place:
                # A bias has to be a constant.
                inputs[i] = tensor if place >= 0 else self._float(tensor, 0, "fp16")
                continue
            encoding = self._encoding(operator.code, tensor)
            if encoding == "fp32":
                continue
            if (operator.code, encoding) in _VERSIONS:
                inputs[i] = self._stored(tensor, axis, encoding)
                version = max(version, _version(operator.code, encoding, inputs[i]))
                options = _asymmetric(options)
            else:
                inputs[i] = self._float(tensor, axis, encoding)
        return [replace(operator, inputs=inputs, version=version, options=options)]

    def _lookups(self, operator: Operator, table: Tensor) -> list[Operator]:
        """Look rows of integers up, and their scales, and multiply."""
        numbers, (target,) = operator.inputs[0], operator.outputs
        if (id(table), "rows") not in self._rows:
            stored = packed(table, 0, "int8")
            scales = np.zeros(0) if stored.quantization is None else stored.quantization.scales
            column = scales.astype(np.float32).reshape(-1, 1)
            stored.quantization = Quantization(np.ones(1, np.float32))
            self._rows[id(table), "rows"] = stored
            self._rows[id(table), "scales"] = Tensor(
                f"{table.name}/scales", column.shape, column.shape, column.dtype, column
            )
            self.counts["int8"] += 1
        signature = (target.signature[0], 1)
        integers = Tensor(f"{target.name}/integers", target.shape, target.signature, target.dtype)
        scale = Tensor(f"{target.name}/scale", (target.shape[0], 1), signature, target.dtype)
        return [
            replace(operator, inputs=[numbers, self._rows[id(table), "rows"]], outputs=[integers], version=3),
            replace(operator, inputs=[numbers, self._rows[id(table), "scales"]], outputs=[scale]),
            Operator("MUL", [integers, scale], [target], schema.MulOptionsT()),
        ]

    def _encoding(self, code: str, tensor: Tensor) -> str:
        wanted = self._each.get(id(tensor), self._choice[_KINDS.get(code, "filter")])
        if wanted == "int4" and tensor.data is not None and not encodings.has_blocks(tensor.data):
            return "int8"
        return wanted

    def _stored(self, tensor: Tensor, axis: int, encoding: str) -> Tensor:
        """Return a constant in fewer bits; the same for every reader."""
        key = (id(tensor), axis, encoding)
        if key not in self._packed:
            self._packed[key] = packed(tensor, axis, encoding)
            self.counts[encoding] += 1
        return self._packed[key]

    def _float(self, tensor: Tensor, axis: int, encoding: str) -> Tensor:
        """Return a constant that is stored in fewer bits and turned into float when the model is loaded."""
        if tensor.data is None or not np.abs(tensor.data).max() < _LARGEST_HALF:
            return tensor
        key = (id(tensor), axis, encoding)
        if key not in self._floats:
            stored = self._stored(tensor, axis, encoding)
            target = Tensor(f"{tensor.name}/float", tensor.shape, tensor.signature, tensor.dtype)
            version = _DEQUANTIZE_VERSIONS[encoding]
            options = schema.DequantizeOptionsT()
            self.dequantized.append(Operator("DEQUANTIZE", [stored], [target], options, version))
            self._floats[key] = target
        return self._floats[key]


def _is_stored(tensor: Tensor) -> bool:
    return tensor.data is not None and tensor.dtype == np.float32 and tensor.data.size >= _MIN_ELEMENTS


def packed(tensor: Tensor, axis: int, encoding: str) -> Tensor:
    """Return a float constant as a constant of fewer bits.

    Args:
        tensor: The constant.
        axis: The axis of which each slice gets a scale.
        encoding: `fp16`, `int8`, or `int4` with blocks along the last axis.
    """
    if tensor.data is None:
        raise ValueError(f"{tensor.name} is not constant")
    name, shape = f"{tensor.name}/{encoding}", tensor.shape
    if encoding == "fp16":
        half = tensor.data.astype(np.float16)
        return Tensor(name, shape, shape, half.dtype, half)
    if encoding == "int4":
        integers = encodings.int4_blocks(tensor.data)
        scales = Tensor(
            f"{name}/scales",
            integers.scales.shape,
            integers.scales.shape,
            integers.scales.dtype,
            integers.scales,
        )
        none = np.zeros(0, np.float32)
        meaning = Quantization(none, bits=4, blocks=scales, block_size=encodings.BLOCK)
    else:
        integers = encodings.int8(tensor.data, axis)
        meaning = Quantization(integers.scales, axis=axis)
    return Tensor(name, shape, shape, integers.values.dtype, integers.values, meaning)


def _version(code: str, encoding: str, weights: Tensor | None) -> int:
    if code == "FULLY_CONNECTED" and weights is not None and weights.quantization and weights.quantization.blocks:
        return _BLOCKWISE_VERSION
    return _VERSIONS[code, encoding]


def _asymmetric(options: object | None) -> object | None:
    """Let a kernel quantize what it reads with a zero point: activations behind ReLU and GELU are not symmetric."""
    if not hasattr(options, "asymmetricQuantizeInputs"):
        return options
    changed = copy(options)
    changed.asymmetricQuantizeInputs = True
    return changed
