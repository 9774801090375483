"""Reader of a TFLite file: its operators, tensors and constants, without an engine.

`tflite_check` first checks that everything lies inside the file. The field numbers, types and operators are those of
tensorflow/lite/schema/schema.fbs, version 3.
"""

from __future__ import annotations

from math import prod
from struct import error as struct_error
from struct import pack_into
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import UnsupportedModel
from edge_infer.formats.tflite_check import is_whole
from edge_infer.formats.tflite_sparsity import densify
from edge_infer.formats.tflite_tables import TYPES, Table, end_names

if TYPE_CHECKING:
    from collections.abc import Sequence

# The order is that of the schema: the place is the number in the file.
_OPERATOR_NAMES = """
ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION
LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH
CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER
BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM
ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE TILE
EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK LOGICAL_OR
ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD RANGE
RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N GATHER_ND
COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL
PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE
HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE ASSIGN_VARIABLE
BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU DYNAMIC_UPDATE_SLICE RELU_0_TO_1
UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2 UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR
RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE
STABLEHLO_CLAMP STABLEHLO_CONCATENATE STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE
STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL
STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER
STABLEHLO_RSQRT STABLEHLO_SELECT STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE
STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA
STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE
DILATE STABLEHLO_RNG_BIT_GENERATOR REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT
STABLEHLO_CASE
"""
#: The names of all operators; the place of each is its number.
OPERATORS = tuple(_OPERATOR_NAMES.split())
_BITS = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 8),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 16),
    **dict.fromkeys(("float32", "int32", "uint32"), 32),
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 64),
    "complex128": 128,
    "int4": 4,
    "uint4": 4,
    "int2": 2,
}
# Codes above this stand in a field of their own, which came later.
_LAST_OLD_CODE = 127
_BLOCKWISE = 2
# LiteRT places each tensor at a multiple of this (kDefaultTensorAlignment).
_ALIGNMENT = 64
_MAX_RANK = 32
_MOST_DENSE_BYTES = 2**29


class Scales(NamedTuple):
    """The meaning of a tensor's integers.

    Attributes:
        scales: One for the tensor, or one for each index of the axis; empty where there are blocks.
        zero_points: As many.
        axis: The axis that they run along.
        blocks: The tensor that holds the scales of blocks, or -1.
        block_size: The elements of a block.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int
    blocks: int = -1
    block_size: int = 0


class TFLiteTensor(NamedTuple):
    """A tensor of the file.

    Attributes:
        name: Its name.
        dtype: Its type as numpy spells it, or TFLite where numpy has none.
        shape: Its dimensions, a free one being 1.
        signature: The same with -1 for a free one.
        data: The bytes of a constant, with its zeros; None of a value that is computed.
        scales: What its integers stand for, or None.
        is_variable: Whether it keeps its value from run to run.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    data: memoryview | None
    scales: Scales | None
    is_variable: bool

    @property
    def nbytes(self) -> int:
        """The bytes that its elements take; 0 of a type without a size."""
        return (prod(self.shape) * _BITS.get(self.dtype, 0) + 7) // 8


class TFLiteOperator(NamedTuple):
    """An operator of the file: its name, the version that it asks for, and the numbers of its tensors, -1 for none."""

    code: str
    version: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


class TFLiteFile(NamedTuple):
    """A subgraph of a TFLite file.

    Attributes:
        tensors: All tensors.
        operators: In the order in which they run.
        inputs: The numbers of the tensors that come in, by the signature's names where there is one.
        outputs: Likewise of those that go out.
        subgraphs: How many the file has; all but the first are bodies of control flow.
        description: Who made it.
        metadata: The bytes of each entry.
    """

    tensors: tuple[TFLiteTensor, ...]
    operators: tuple[TFLiteOperator, ...]
    inputs: dict[str, int]
    outputs: dict[str, int]
    subgraphs: int
    description: str
    metadata: dict[str, bytes]

    def value_names(self) -> list[str]:
        """Name each tensor by itself: inputs and outputs as the file does, the others with their number if need be."""
        ends = {i: name for side in (self.outputs, self.inputs) for name, i in side.items()}
        taken = {*self.inputs, *self.outputs}
        names = []
        for i, tensor in enumerate(self.tensors):
            name = ends.get(i, "") or tensor.name or f"tensor {i}"
            if i not in ends and name in taken:
                name = f"{name} (tensor {i})"
            taken.add(name)
            names.append(name)
        return names

    def arena_bytes(self) -> int:
        """Estimate the memory for values between operators, as LiteRT plans it.

        The largest is placed first, into the first gap that it fits (Pisarchyk and Lee 2020, arXiv:2001.03288, greedy
        by size). Inputs are kept to the end. It is for a batch of 1 and counts no scratch memory of kernels.
        """
        last = len(self.operators)
        lives: dict[int, tuple[int, int]] = {}
        for i in self.inputs.values():
            lives[i] = (0, last)
        for place, operator in enumerate(self.operators):
            for i in (*operator.inputs, *operator.outputs):
                if i >= 0 and self.tensors[i].data is None:
                    first, until = lives.get(i, (place, place))
                    lives[i] = (first, max(until, place))
        for i in self.outputs.values():
            if self.tensors[i].data is None:
                lives[i] = (lives.get(i, (0, 0))[0], last)
        placed: list[tuple[int, int, int]] = []  # offset, end, tensor
        for i in sorted(lives, key=lambda i: (-self.tensors[i].nbytes, lives[i][0])):
            first, until = lives[i]
            size = -(-self.tensors[i].nbytes // _ALIGNMENT) * _ALIGNMENT
            offset = 0
            for start, end, other in sorted(placed):
                begin, stop = lives[other]
                if begin <= until and first <= stop:
                    if start - offset >= size:
                        break
                    offset = max(offset, end)
            placed.append((offset, offset + size, i))
        return max((end for _, end, _ in placed), default=0)


def read(content: bytes, name: str = "model.tflite", subgraph: int = 0) -> TFLiteFile:
    """Read a file.

    Args:
        content: Its bytes.
        name: What to call it in an error.
        subgraph: Which of its subgraphs; all but the first are bodies of control flow.

    Raises:
        UnsupportedModel: It is not a TFLite file, is cut short, or contradicts itself.
    """
    if not is_whole(content):
        raise UnsupportedModel(
            f"`{name}` is not a TFLite model, or is cut short: {len(content)} bytes",
            hint="fetch or convert it again",
        )
    try:
        return _read(content, subgraph)
    except (_ContradictionError, UnicodeDecodeError, struct_error, IndexError) as error:
        raise UnsupportedModel(f"`{name}` contradicts itself: {error}", hint="fetch or convert it again") from error


def mended(content: bytes) -> bytes:
    """Return a whole file with the axis of the scales of each vector set to its only one: LiteRT 2 refuses another.

    TensorFlow wrote the axis of the weights beside the scales of biases until 2021.
    """
    changed = bytearray(content)
    for graph in Table.root(content).tables(2):
        for tensor in graph.tables(0):
            scales = tensor.table(4)
            if scales is not None and tensor.vector(0, 4)[1] == 1 and scales.number(6, "i") > 0:
                pack_into("<i", changed, scales.place(6), 0)
    return content if changed == content else bytes(changed)


class _ContradictionError(ValueError):
    """What a file says of itself cannot be true."""


def _read(content: bytes, number: int) -> TFLiteFile:
    model = Table.root(content)
    subgraphs = list(model.tables(2, number + 1))
    if len(subgraphs) <= number:
        raise _ContradictionError(f"it has {len(subgraphs) or 'no'} subgraphs")
    graph = subgraphs[number]
    codes = [_code(table) for table in model.tables(1)]
    buffers = [_data(content, table) for table in model.tables(4)]
    _check_dense_bytes(graph)
    tensors = tuple(_tensor(table, buffers) for table in graph.tables(0))
    operators = tuple(_operator(table, codes) for table in graph.tables(3))
    for operator in operators:
        _check_places((*operator.inputs, *operator.outputs), len(tensors), operator.code, least=-1)
    made = {i for operator in operators for i in operator.outputs}
    tensors = tuple(  # a value of no elements may have a buffer of its own, as a constant of none has
        one._replace(data=None) if one.data is not None and not one.data and i in made else one
        for i, one in enumerate(tensors)
    )
    ends = [graph.numbers(1, "i"), graph.numbers(2, "i")]
    for places in ends:
        _check_places(places, len(tensors), "the interface")
    _check_order(tensors, operators, ends)
    inputs, outputs = (
        dict(zip(end_names((tensors[i].name for i in places), side), places, strict=True))
        for side, places in zip(("input", "output"), ends, strict=True)
    )
    signatures = list(model.tables(7, 1))
    if signatures and number == 0:
        named = [{one.text(0): one.number(1, "I") for one in signatures[0].tables(field)} for field in (0, 1)]
        if sorted(named[0].values()) == sorted(ends[0]) and set(named[1].values()) == set(ends[1]):
            inputs, outputs = named
    if len(inputs) < len(ends[0]):
        raise _ContradictionError("two inputs have one name")
    metadata = {
        table.text(0): bytes(data)
        for table in model.tables(6)
        if table.number(1, "I") < len(buffers) and (data := buffers[table.number(1, "I")]) is not None
    }
    return TFLiteFile(tensors, operators, inputs, outputs, model.vector(2)[1], model.text(3), metadata)


def _code(table: Table) -> tuple[str, int]:
    old, new = table.number(0, "b"), table.number(3, "i")
    number = max(old, new)
    custom = table.text(1)
    if not 0 <= number < len(OPERATORS):
        raise _ContradictionError(f"operator {number} is not known")
    name = OPERATORS[number]
    return (f"CUSTOM {custom}" if name == "CUSTOM" else name), table.number(2, "i", 1)


def _data(content: bytes, table: Table) -> memoryview | None:
    place, size = table.number(1, "Q"), table.number(2, "Q")
    if place > 1:  # behind the tables, where a file has more than 2 GB
        if place + size > len(content):
            raise _ContradictionError("a constant lies behind its end")
        return memoryview(content)[place : place + size]
    return table.bytes(0)


def _tensor(table: Table, buffers: Sequence[memoryview | None]) -> TFLiteTensor:
    number, buffer = table.number(1, "B"), table.number(2, "I")
    if number >= len(TYPES) or buffer >= max(len(buffers), 1):
        raise _ContradictionError("a tensor has a type or a buffer that does not exist")
    dtype, name, shape = TYPES[number], table.text(3), table.numbers(0, "i")
    signature = table.numbers(7, "i") or shape
    if len(shape) > _MAX_RANK or any(dim < 0 for dim in shape) or len(signature) != len(shape):
        raise _ContradictionError(f"`{name}` has shape {shape[:_MAX_RANK]}")
    data = buffers[buffer] if buffer else None
    if buffer and data is None and 0 in shape:
        data = memoryview(b"")  # a constant of no elements
    sparsity, bits = table.table(6), _BITS.get(dtype, 0)
    if sparsity is not None and data is not None and bits and bits % 8 == 0:
        try:
            data = densify(data, sparsity, shape, bits // 8)
        except ValueError as error:
            raise _ContradictionError(f"`{name}` is stored without its zeros, but {error}") from error
    tensor = TFLiteTensor(
        name, dtype, shape, signature, data, _scales(table.table(4), shape), table.number(5, "B") != 0
    )
    if data is not None and dtype in _BITS and len(data) != tensor.nbytes:
        raise _ContradictionError(f"`{name}` of shape {shape} has {len(data)} bytes, expected {tensor.nbytes}")
    return tensor


def _check_dense_bytes(graph: Table) -> None:
    """Bound the memory of constants whose zeros are not in the file."""
    sparse = [table for table in graph.tables(0) if table.table(6) is not None]
    if sum(prod(max(dim, 0) for dim in table.numbers(0, "i")) for table in sparse) * 4 > _MOST_DENSE_BYTES:
        raise _ContradictionError(f"its sparse constants take more than {_MOST_DENSE_BYTES >> 20} MiB")


def _scales(table: Table | None, shape: tuple[int, ...]) -> Scales | None:
    if table is None:
        return None
    axis = table.number(6, "i")
    if len(shape) == 1 and axis > 0:
        axis = 0  # what TensorFlow wrote for biases until 2021: the axis of the weights
    details = table.table(5) if table.number(4, "B") == _BLOCKWISE else None
    if details is not None:
        return Scales((), (), axis, details.number(0, "i"), details.number(2, "i"))
    scales, zero_points = table.numbers(2, "f"), table.numbers(3, "q")
    if not scales:
        return None
    if len(scales) not in (1, shape[axis] if 0 <= axis < len(shape) else 1) or len(zero_points) not in (0, len(scales)):
        raise _ContradictionError(f"{len(scales)} scales and {len(zero_points)} zero points for shape {shape}")
    return Scales(scales, zero_points or (0,) * len(scales), axis)


def _operator(table: Table, codes: Sequence[tuple[str, int]]) -> TFLiteOperator:
    number = table.number(0, "I")
    if number >= len(codes):
        raise _ContradictionError("an operator has a code that does not exist")
    return TFLiteOperator(*codes[number], table.numbers(1, "i"), table.numbers(2, "i"))


def _check_places(places: Sequence[int], count: int, where: str, least: int = 0) -> None:
    for place in places:
        if not least <= place < count:
            raise _ContradictionError(f"{where} names tensor {place} of {count}")


def _check_order(
    tensors: Sequence[TFLiteTensor], operators: Sequence[TFLiteOperator], ends: Sequence[Sequence[int]]
) -> None:
    """Every value is made before it is read, and once: so there is no circle."""
    ready = {i for i, tensor in enumerate(tensors) if tensor.data is not None or tensor.is_variable} | set(ends[0])
    for operator in operators:
        for i in operator.inputs:
            if i >= 0 and i not in ready:
                raise _ContradictionError(f"{operator.code} reads tensor {i}, which nothing has made")
        for i in operator.outputs:
            if i in ready and not tensors[i].is_variable:
                raise _ContradictionError(f"{operator.code} makes tensor {i}, which is there already")
            ready.add(i)
    for i in ends[1]:
        if i not in ready:
            raise _ContradictionError(f"nothing makes output {i}")
