"""Einsum: each pair of operands becomes one product of matrices, between transposes and reshapes."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_infer_converters.writers.tflite.node import Unsupported, reshape, transpose
from edge_infer_converters.writers.tflite.rules.dense import batch_matmul, fully_connected

if TYPE_CHECKING:
    from collections.abc import Collection

    from edge_infer_converters.writers.tflite.graph import Tensor
    from edge_infer_converters.writers.tflite.node import Node, Rule


class _Term(NamedTuple):
    """An operand, or a product of some.

    Attributes:
        letters: The letter of each axis.
        value: Its tensor; None of a constant.
        constant: The numbers of a constant.
    """

    letters: str
    value: Tensor | None
    constant: np.ndarray | None = None


def einsum(node: Node) -> None:
    """Multiply the operands from the left, summing over a letter as soon as nothing else has it."""
    terms, wanted = _parsed(node)
    if node.dtype() != np.float32:
        raise Unsupported(f"elements of {node.dtype()}")
    work = _Einsum(node)
    first, *rest = terms
    for i, other in enumerate(rest):
        later = {*wanted, *(letter for term in rest[i + 1 :] for letter in term.letters)}
        first = work.product(first, other, later)
    value = work.computed(work.summed(first, set(wanted)))
    transpose(node.graph, value.tensor, node.output(), [value.letters.index(letter) for letter in wanted])


def _parsed(node: Node) -> tuple[list[_Term], str]:
    """Return the operands with their letters, and the letters of the result."""
    equation = node.text("equation", "").replace(" ", "")
    given, arrow, wanted = equation.partition("->")
    if not arrow:  # what stands once, in the order of the alphabet
        wanted = "".join(sorted(letter for letter in {*given} - {","} if given.count(letter) == 1))
    parts = given.split(",")
    if "." in equation or any(len({*part}) != len(part) for part in parts):
        raise Unsupported(f"the equation `{equation}`: an ellipsis, or a letter twice in one operand")
    terms = []
    for i, letters in enumerate(parts):
        constant = node.constant(i)
        terms.append(_Term(letters, None if constant is not None else node.input(i), constant))
    return terms, wanted


class _Computed(NamedTuple):
    letters: str
    tensor: Tensor


class _Einsum:
    """Writes the products of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._made = 0

    def product(self, left: _Term, right: _Term, later: Collection[str]) -> _Term:
        """Multiply two operands; `later` are the letters that are still needed."""
        left = self.summed(left, {*later, *right.letters})
        right = self.summed(right, {*later, *left.letters})
        if left.value is None and right.value is not None:
            left, right = right, left
        both = [letter for letter in left.letters if letter in right.letters]
        batch = "".join(letter for letter in both if letter in later)
        inner = "".join(letter for letter in both if letter not in later)
        rows = "".join(letter for letter in left.letters if letter not in both)
        columns = "".join(letter for letter in right.letters if letter not in both)
        sizes = {**self._sizes(right), **self._sizes(left)}
        sizes |= {letter: size for letter, size in self._sizes(right).items() if sizes[letter] == 1}

        def shape(*groups: str) -> list[int]:
            return [_size([sizes[letter] for letter in group]) for group in groups]

        ahead = [batch] if batch else []
        value = self._ordered(left, batch + rows + inner, shape(*ahead, rows, inner))
        product = self._scratch(shape(*ahead, rows, columns))
        if right.constant is not None and not batch:
            matrix = right.constant.transpose([right.letters.index(letter) for letter in columns + inner])
            matrix = matrix.reshape(-1, prod(sizes[letter] for letter in inner))
            fully_connected(self._node, value, matrix, product, None)
        else:
            other = self._ordered(right, batch + inner + columns, shape(*ahead, inner, columns))
            batch_matmul(self._node, value, other, product, transposed=False)
        letters = batch + rows + columns
        return _Term(letters, self._reshaped(product, [sizes[letter] for letter in letters]))

    def summed(self, term: _Term, needed: Collection[str]) -> _Term:
        """Sum over the letters that nothing else has."""
        axes = [axis for axis, letter in enumerate(term.letters) if letter not in needed]
        if not axes:
            return term
        letters = "".join(letter for letter in term.letters if letter in needed)
        if term.constant is not None:
            return _Term(letters, None, term.constant.sum(tuple(axes)))
        given = self.computed(term).tensor
        target = self._scratch([size for axis, size in enumerate(given.signature) if axis not in axes])
        stored = self._node.stored(f"axes_{self._made}", np.array(axes, np.int32))
        self._node.graph.add("SUM", [given, stored], [target], schema.ReducerOptionsT())
        return _Term(letters, target)

    def computed(self, term: _Term) -> _Computed:
        """Return a term as a tensor, stored where it is constant."""
        if term.value is not None:
            return _Computed(term.letters, term.value)
        self._made += 1
        return _Computed(term.letters, self._node.stored(f"operand_{self._made}", np.asarray(term.constant)))

    def _sizes(self, term: _Term) -> dict[str, int]:
        shape = term.value.signature if term.value is not None else np.asarray(term.constant).shape
        return dict(zip(term.letters, shape, strict=True))

    def _ordered(self, term: _Term, letters: str, shape: list[int]) -> Tensor:
        """Return a term with its axes in this order, joined to this shape."""
        order = [term.letters.index(letter) for letter in letters]
        if term.constant is not None:
            return self.computed(_Term("", None, term.constant.transpose(order).reshape(shape))).tensor
        given = self.computed(term).tensor
        if order != sorted(order):
            turned = self._scratch([given.signature[axis] for axis in order])
            transpose(self._node.graph, given, turned, order)
            given = turned
        return self._reshaped(given, shape)

    def _reshaped(self, tensor: Tensor, shape: list[int]) -> Tensor:
        if list(tensor.signature) == shape:
            return tensor
        target = self._scratch(shape)
        reshape(self._node.graph, tensor, target)
        return target

    def _scratch(self, shape: list[int]) -> Tensor:
        self._made += 1
        return self._node.scratch(f"part_{self._made}", shape)


def _size(sizes: list[int]) -> int:
    """Return the size of joined axes, -1 where one of them is free."""
    return -1 if -1 in sizes else prod(sizes)


RULES: dict[str, Rule] = {"Einsum": einsum}
