"""Values drawn by chance that every place draws alike, so that random golden inputs are kept as a number.

There is one cycle of values for each kind of dtype; a tensor takes the values from its start on, around and around. The
cycle is as long as a prime, so that no two rows of an image are the same. Its words are those of xorshift32 (Marsaglia,
"Xorshift RNGs", 2003: shifts of 13, 17 and 5). A float is the sum of twelve bytes less their mean, over 256: nearly
normal, with deviation 1, and exact in half precision, so that nothing is rounded anywhere. An 8-bit integer is a byte,
another integer or truth value a bit. `web/src/bundle/drawn.js` does the same.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from edge_infer.errors import BundleError
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.elements import pack
from edge_infer.tensors.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: How many values a cycle has.
CYCLE = 16_381
#: A tensor of more bytes is not drawn: a few words of a file could ask for all memory.
MAX_BYTES = 2**29
_SEED = 2_463_534_242  # Marsaglia's own
_FLOATS = (DType.FLOAT16, DType.FLOAT32, DType.FLOAT64)
_BYTES = (DType.INT8, DType.UINT8)
_NEVER = (DType.STRING, DType.BFLOAT16, DType.INT4, DType.UINT4)
_LOW_BYTES = 0x00FF00FF


class DrawnTensor(Tensor):
    """A tensor whose values `draw` makes.

    Attributes:
        start: Where in the cycle it starts.
    """

    start = 0


def can_draw(dtype: DType) -> bool:
    """Tell whether values of this dtype are drawn."""
    return dtype not in _NEVER


def draw(dtype: DType, shape: Sequence[int], start: int) -> DrawnTensor:
    """Draw a tensor.

    Args:
        dtype: Its element type, one that `can_draw` names.
        shape: Its dimensions.
        start: Where in the cycle it starts, from 0.

    Raises:
        BundleError: It is of a dtype that is not drawn, or of more than `MAX_BYTES`.

    >>> from edge_infer.tensors.dtypes import DType
    >>> draw(DType.FLOAT32, (2, 2), 0).tolist()
    [[-0.81640625, 0.75390625], [-1.83203125, -0.70703125]]
    """
    if not can_draw(dtype) or dtype.nbytes(shape) > MAX_BYTES or start < 0:
        raise BundleError(f"Values of {dtype}{list(shape)} from {start} on are not drawn", got=list(shape))
    width = dtype.bits // 8
    cycle = _cycle(dtype)
    first = start % CYCLE * width
    count = prod(shape) * width
    once = cycle[first:] + cycle[:first]
    tensor = DrawnTensor((once * (count // len(once) + 1))[:count], dtype, shape)
    tensor.start = start
    return tensor


@lru_cache(maxsize=4)
def _cycle(dtype: DType) -> bytes:
    words = _words()
    if dtype in _BYTES:
        return bytes(next(words) >> 24 for _ in range(CYCLE))
    if dtype not in _FLOATS:
        bits = [next(words) >> 31 for _ in range(CYCLE)]
        return bytes(bits) if dtype is DType.BOOL else pack(bits, dtype)
    return pack([_normal(next(words), next(words), next(words)) for _ in range(CYCLE)], dtype)


def _normal(one: int, two: int, three: int) -> float:
    pairs = sum((word & _LOW_BYTES) + (word >> 8 & _LOW_BYTES) for word in (one, two, three))
    return ((pairs & 0xFFFF) + (pairs >> 16) - 1530) / 256


def _words() -> Iterator[int]:
    word = _SEED
    while True:
        word ^= word << 13 & 0xFFFFFFFF
        word ^= word >> 17
        word ^= word << 5 & 0xFFFFFFFF
        yield word
