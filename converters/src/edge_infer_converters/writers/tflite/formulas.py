"""Write a formula as TFLite operators, one call for each, shapes and types following from the operands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.graph import Tensor
from edge_infer_converters.writers.tflite.node import reshape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer_converters.writers.tflite.node import Node

    Operand = Tensor | float

_OPTIONS = {
    "ABS": schema.AbsOptionsT,
    "ADD": schema.AddOptionsT,
    "COS": schema.CosOptionsT,
    "DIV": schema.DivOptionsT,
    "EQUAL": schema.EqualOptionsT,
    "EXP": schema.ExpOptionsT,
    "FLOOR_MOD": schema.FloorModOptionsT,
    "GREATER": schema.GreaterOptionsT,
    "GREATER_EQUAL": schema.GreaterEqualOptionsT,
    "HARD_SWISH": schema.HardSwishOptionsT,
    "LESS": schema.LessOptionsT,
    "LESS_EQUAL": schema.LessEqualOptionsT,
    "LOGICAL_AND": schema.LogicalAndOptionsT,
    "LOGICAL_NOT": schema.LogicalNotOptionsT,
    "LOGICAL_OR": schema.LogicalOrOptionsT,
    "MAXIMUM": schema.MaximumMinimumOptionsT,
    "MINIMUM": schema.MaximumMinimumOptionsT,
    "MUL": schema.MulOptionsT,
    "NEG": schema.NegOptionsT,
    "NOT_EQUAL": schema.NotEqualOptionsT,
    "POW": schema.PowOptionsT,
    "SUB": schema.SubOptionsT,
}
_GIVES_BOOL = frozenset({"EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "NOT_EQUAL"})


def options_of(code: str) -> object | None:
    """Return fresh options of an operator that works on each element, or None where it has none."""
    make = _OPTIONS.get(code)
    return make() if make else None


def broadcast(*signatures: Sequence[int]) -> tuple[int, ...]:
    """Return the shape that shapes broadcast to; -1 is a free dimension."""
    rank = max(len(one) for one in signatures)
    full = [(1,) * (rank - len(one)) + tuple(one) for one in signatures]
    return tuple(next((dim for dim in dims if dim != 1), 1) for dims in zip(*full, strict=True))


class Formula:
    """Makes a node's intermediate values. Numbers among the operands become constants of the other operand's type."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def unary(self, code: str, value: Tensor) -> Tensor:
        """One operand, a result of its shape."""
        return self.operator(code, [value], value.signature, options=options_of(code))

    def binary(self, code: str, left: Operand, right: Operand) -> Tensor:
        """Two operands, broadcast as numpy does."""
        like = left if isinstance(left, Tensor) else right
        if not isinstance(like, Tensor):
            raise TypeError("one operand has to be a tensor")
        one, other = self._tensor(left, like), self._tensor(right, like)
        dtype = np.dtype(bool) if code in _GIVES_BOOL else one.dtype
        return self.operator(code, [one, other], broadcast(one.signature, other.signature), dtype, options_of(code))

    def add(self, left: Operand, right: Operand) -> Tensor:
        """Give left + right."""
        return self.binary("ADD", left, right)

    def subtract(self, left: Operand, right: Operand) -> Tensor:
        """Give left - right."""
        return self.binary("SUB", left, right)

    def multiply(self, left: Operand, right: Operand) -> Tensor:
        """Give left * right."""
        return self.binary("MUL", left, right)

    def divide(self, left: Operand, right: Operand) -> Tensor:
        """Give left / right."""
        return self.binary("DIV", left, right)

    def select(self, condition: Tensor, yes: Operand, no: Operand) -> Tensor:
        """Give yes where the condition holds, else no."""
        like = yes if isinstance(yes, Tensor) else no
        if not isinstance(like, Tensor):
            raise TypeError("one operand has to be a tensor")
        one, other = self._tensor(yes, like), self._tensor(no, like)
        signature = broadcast(condition.signature, one.signature, other.signature)
        return self.operator("SELECT_V2", [condition, one, other], signature, one.dtype, schema.SelectV2OptionsT())

    def reduce(self, code: str, value: Tensor, axes: Sequence[int], *, keep: bool = True) -> Tensor:
        """Reduce over some axes, by MEAN, SUM, REDUCE_MAX ..."""
        axes = sorted(axis % value.rank for axis in axes)
        kept = [1 if i in axes else dim for i, dim in enumerate(value.signature)]
        signature = kept if keep else [dim for i, dim in enumerate(value.signature) if i not in axes]
        options = schema.ReducerOptionsT()
        options.keepDims = keep
        return self.operator(code, [value, self.integers(axes)], signature, options=options)

    def cast(self, value: Tensor, dtype: np.dtype | type) -> Tensor:
        """Give the value in another type; itself where it has that type."""
        if value.dtype == dtype:
            return value
        if value.data is not None:
            return self.constant(value.data.astype(dtype))
        return self.operator("CAST", [value], value.signature, np.dtype(dtype), schema.CastOptionsT())

    def reshape(self, value: Tensor, signature: Sequence[int]) -> Tensor:
        """Give the value in another shape; itself where it has that shape."""
        if tuple(signature) == value.signature:
            return value
        target = self._node.scratch("reshape", signature, value.dtype)
        reshape(self._node.graph, value, target)
        return target

    def transpose(self, value: Tensor, order: Sequence[int]) -> Tensor:
        """Give the value with its axes in another order."""
        if list(order) == list(range(value.rank)):
            return value
        signature = [value.signature[axis] for axis in order]
        return self.operator("TRANSPOSE", [value, self.integers(order)], signature, options=schema.TransposeOptionsT())

    def slice(self, value: Tensor, axis: int, start: int, stop: int) -> Tensor:
        """Give a part along one axis that is not the free one."""
        if (start, stop) == (0, value.signature[axis]):
            return value
        begin, size = [0] * value.rank, list(value.signature)
        begin[axis], size[axis] = start, stop - start
        inputs = [value, self.integers(begin), self.integers(size)]
        return self.operator("SLICE", inputs, size, options=schema.SliceOptionsT())

    def concatenate(self, values: Sequence[Tensor], axis: int) -> Tensor:
        """Join values along one axis."""
        if len(values) == 1:
            return values[0]
        signature = list(values[0].signature)
        signature[axis] = sum(value.signature[axis] for value in values)
        options = schema.ConcatenationOptionsT()
        options.axis = axis
        return self.operator("CONCATENATION", values, signature, options=options)

    def gather(self, value: Tensor, indices: Tensor, axis: int) -> Tensor:
        """Take elements along one axis by number."""
        options = schema.GatherOptionsT()
        options.axis = axis
        signature = [*value.signature[:axis], *indices.signature, *value.signature[axis + 1 :]]
        return self.operator("GATHER", [value, indices], signature, options=options)

    def dense(self, rows: Tensor, matrix: Tensor, bias: Tensor | None = None) -> Tensor:
        """Give rows @ matrix.T + bias; the matrix is [out, in]."""
        options = schema.FullyConnectedOptionsT()
        options.keepNumDims = rows.rank > 2
        signature = [*rows.signature[:-1], matrix.signature[0]]
        version = 5 if options.keepNumDims else 1
        return self.operator("FULLY_CONNECTED", [rows, matrix, bias], signature, options=options, version=version)

    def integers(self, values: Sequence[int]) -> Tensor:
        """Store a list of 32-bit integers."""
        return self.constant(np.array(values, np.int32))

    def constant(self, value: np.ndarray) -> Tensor:
        """Store an array."""
        return self._node.stored("constant", value)

    def operator(
        self,
        code: str,
        inputs: Sequence[Tensor | None],
        signature: Sequence[int],
        dtype: np.dtype | None = None,
        options: object | None = None,
        version: int = 1,
    ) -> Tensor:
        """Add an operator of one output, which has the first input's type unless said otherwise."""
        first = next(one for one in inputs if one is not None)
        target = self._node.scratch(code.lower(), signature, first.dtype if dtype is None else dtype)
        self._node.graph.add(code, inputs, [target], options, version)
        return target

    def _tensor(self, operand: Operand, like: Tensor) -> Tensor:
        return operand if isinstance(operand, Tensor) else self.constant(np.array(operand, like.dtype))
