"""The elements of a tensor in JSON: the names of datatypes, lists to bytes, and how errors speak of values."""

from __future__ import annotations

import json
import re
from itertools import chain
from math import inf, nan, prod
from struct import error as struct_error
from struct import pack
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError, listed
from edge_infer.tensors.datatypes import DATATYPES
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from edge_infer.tensors.tensor import TensorSpec

_FLOATS = (DType.FLOAT32, DType.FLOAT64, DType.FLOAT16, DType.BFLOAT16)
#: JSON can write half of a pair (`"\ud800"`), which no encoding can.
_SURROGATE = re.compile("[\ud800-\udfff]")
_NOT_NUMBERS = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}
_KINDS = {dict: "an object", list: "a list", str: "text", bool: "a truth value", int: "a number", float: "a number"}


def flatten(data: list[Any], shape: list[int], spec: TensorSpec) -> list[Any]:
    """Return the elements of `data`, which is flat or nested as the shape says."""
    count = prod(shape)
    if not any(isinstance(item, list) for item in data):
        if len(data) == count:
            return data
        raise _wrong_length(spec, shape, f"{len(data)} numbers", count)
    level: list[Any] = [data]
    for axis, dim in enumerate(shape):
        for item in level:
            if not isinstance(item, list) or len(item) != dim:
                got = f"a list of {len(item)}" if isinstance(item, list) else kind_of(item)
                raise _wrong_length(spec, shape, f"{got} at depth {axis + 1}", dim)
        level = list(chain.from_iterable(level))
    return level


def _wrong_length(spec: TensorSpec, shape: list[int], got: str, expected: int) -> InputError:
    return InputError(
        f"Input `{spec.name}` of shape {shape} has {got}, expected {expected}",
        hint="give `data` flat in row-major order, or nested as `shape` says",
        input=spec.name,
        expected=expected,
    )


def pack_elements(flat: list[Any], shape: list[int], spec: TensorSpec) -> Tensor:
    """Pack checked elements as a tensor.

    Raises:
        InputError: One is of another kind, or does not fit the dtype.
    """
    dtype = spec.dtype
    allowed: set[type] = {bool} if dtype is DType.BOOL else {str} if dtype is DType.STRING else {int}
    allowed |= {float, str} if dtype in _FLOATS else set()
    strange = set(map(type, flat)) - allowed
    if strange:
        raise InputError(
            f"Input `{spec.name}` has {kind_of(next(v for v in flat if type(v) in strange))} in its data, "
            f"expected {_element(dtype)}",
            hint=expected(spec),
            input=spec.name,
        )
    if dtype is DType.STRING:
        if any(map(_SURROGATE.search, flat)):
            raise InputError(
                f"Input `{spec.name}` has half a surrogate pair in a text", hint="send valid Unicode", input=spec.name
            )
        return Tensor(flat, dtype, shape)
    if dtype in _FLOATS:
        flat = _finite_or_spelt(flat, spec)
    if dtype in (DType.BFLOAT16, DType.INT4, DType.UINT4):
        return Tensor.from_list(flat, dtype).reshape(*shape) if flat else Tensor(b"", dtype, shape)
    try:
        return Tensor(pack(f"<{len(flat)}{dtype.buffer_format}", *flat), dtype, shape)
    except (struct_error, OverflowError) as error:
        raise InputError(
            f"Input `{spec.name}` has a value that does not fit {DATATYPES[dtype]}: {error}",
            hint=expected(spec),
            input=spec.name,
        ) from error


def _finite_or_spelt(flat: list[Any], spec: TensorSpec) -> list[Any]:
    """Put the numbers that JSON cannot write in the place of their names; refuse literals that overflowed, as 1e999."""
    if inf in flat or -inf in flat:
        raise InputError(
            f"Input `{spec.name}` has a number that no float can hold", hint='write "Infinity"', input=spec.name
        )
    if not any(type(value) is str for value in flat):
        return flat
    try:
        return [_NOT_NUMBERS[value] if type(value) is str else value for value in flat]
    except KeyError as error:
        raise InputError(
            f"Input `{spec.name}` has the text {shown(error.args[0])} in its data, expected numbers",
            hint=f"the only texts are {listed(list(_NOT_NUMBERS))}",
            input=spec.name,
        ) from None


# -- what errors say --


def expected(spec: TensorSpec) -> str:
    """Show an input that would fit."""
    shape = json.dumps([dim if isinstance(dim, int) else 1 for dim in spec.shape])
    return (
        f'{{"name": {json.dumps(spec.name)}, "shape": {shape}, "datatype": "{DATATYPES[spec.dtype]}", "data": [...]}}'
    )


def _element(dtype: DType) -> str:
    if dtype is DType.BOOL:
        return "`true` and `false`"
    return "texts" if dtype is DType.STRING else "numbers" if dtype in _FLOATS else "whole numbers"


def kind_of(value: Any) -> str:
    """Name the kind of a JSON value."""
    return _KINDS.get(type(value), "nothing")


def shown(value: Any) -> str:
    """Show a JSON value, cut where it is long."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."
