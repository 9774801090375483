"""Tensor: the portable subset, which `numpy.ndarray` shares."""

from __future__ import annotations

import copy
import gc
import math
import pickle
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from edge_infer import DType, InputError, Tensor, TensorSpec
from edge_infer.tensors.arrays import to_numpy, to_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

Array = Any
SHARED = [str(dtype) for dtype in DType if dtype not in ("bfloat16", "int4", "uint4", "string")]


def as_ndarray(values: Any, dtype: str) -> Array:
    return np.array(values, dtype)


def as_tensor(values: Any, dtype: str) -> Array:
    array = np.array(values, dtype)
    return Tensor(array.tobytes(), dtype, array.shape)


@pytest.fixture(params=[as_ndarray, as_tensor], ids=["ndarray", "Tensor"])
def make(request: pytest.FixtureRequest) -> Callable[[Any, str], Array]:
    """Both kinds of array: whatever is claimed below holds for either."""
    maker: Callable[[Any, str], Array] = request.param
    return maker


class TestTheSubsetThatBothArraysShare:
    def test_shape_is_a_tuple_and_dtype_reads_as_its_name(self, make: Any) -> None:
        array = make([[1, 2, 3], [4, 5, 6]], "float32")

        assert array.shape == (2, 3)
        assert array.dtype == "float32"
        assert str(array.dtype) == "float32"
        assert (array.ndim, array.size, array.nbytes) == (2, 6, 24)

    @pytest.mark.parametrize("dtype", SHARED)
    def test_tolist_gives_python_values_of_every_dtype(self, make: Any, dtype: str) -> None:
        values = [[True, False], [False, True]] if dtype == "bool" else [[1, 0], [3, 100]]

        assert make(values, dtype).tolist() == values

    def test_an_index_takes_a_row_and_two_take_an_element(self, make: Any) -> None:
        array = make([[1, 2], [3, 4]], "int64")

        assert array[1].tolist() == [3, 4]
        assert array[-1].tolist() == [3, 4]
        assert array[0, 1] == 2
        assert array[1][0] == 3

    def test_an_index_out_of_bounds_is_an_index_error(self, make: Any) -> None:
        with pytest.raises(IndexError):
            make([1, 2], "int64")[2]

    def test_iteration_gives_rows_and_then_elements(self, make: Any) -> None:
        array = make([[1.5, 2], [3, 4]], "float32")

        assert len(array) == 2
        assert [row.tolist() for row in array] == [[1.5, 2], [3, 4]]
        assert [float(element) for element in array[0]] == [1.5, 2]

    def test_argmax_of_all_and_along_each_axis(self, make: Any) -> None:
        array = make([[[1, 9], [3, 4]], [[5, 6], [7, 9]]], "float32")

        assert array.argmax() == 1
        assert array.argmax(axis=0).tolist() == [[1, 0], [1, 1]]
        assert array.argmax(axis=1).tolist() == [[1, 0], [1, 1]]
        assert array.argmax(axis=-1).tolist() == [[1, 1], [1, 1]]
        assert array.argmax(axis=2).shape == (2, 2)

    def test_the_first_of_equal_elements_wins_and_nan_wins_over_all(self, make: Any) -> None:
        assert make([2, 7, 7], "int32").argmax() == 1
        assert make([2, math.nan, 7], "float32").argmax() == 1

    def test_argmax_of_nothing_is_a_value_error(self, make: Any) -> None:
        with pytest.raises(ValueError, match="empty"):
            make([], "float32").argmax()
        assert make(np.zeros((0, 3)), "float32").argmax(axis=1).tolist() == []

    def test_float_of_a_scalar(self, make: Any) -> None:
        assert float(make(2.5, "float32")) == 2.5
        assert int(make(7, "int64")) == 7
        assert make(2.5, "float64").item() == 2.5

    def test_reshape_takes_dimensions_or_a_tuple_and_one_may_be_left_open(self, make: Any) -> None:
        array = make(list(range(6)), "int64")

        assert array.reshape(2, 3).tolist() == [[0, 1, 2], [3, 4, 5]]
        assert array.reshape((3, -1)).shape == (3, 2)
        assert array.reshape(-1).shape == (6,)
        with pytest.raises(ValueError, match="reshape"):
            array.reshape(4, 2)

    @pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2,), (2, 3), (1, 2, 3)])
    @pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "uint8"])
    def test_memoryview_shows_shape_and_bytes(self, make: Any, shape: tuple[int, ...], dtype: str) -> None:
        array = make(np.ones(shape), dtype)

        view = memoryview(array)

        assert view.shape == shape
        assert view.nbytes == array.nbytes
        assert np.asarray(array).tolist() == np.ones(shape, dtype).tolist()


@given(npst.arrays(npst.scalar_dtypes(), npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)))
def test_a_tensor_and_its_array_hold_the_same_values(array: Array) -> None:
    array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.name not in SHARED:
        return

    tensor = to_tensor(array)

    np.testing.assert_array_equal(np.array(tensor.tolist(), array.dtype).reshape(array.shape), array)
    np.testing.assert_array_equal(to_numpy(tensor), array)


@pytest.mark.parametrize("values", [[b"hi"], np.array([b"hi"], object), np.array([None], object)], ids=repr)
def test_what_is_no_text_becomes_none(values: Any) -> None:
    with pytest.raises(InputError, match="it is not a text"):
        to_tensor(np.asarray(values))


@pytest.mark.parametrize("shape", [(), (2, 1), (0, 2)])
def test_texts_keep_their_shape(shape: tuple[int, ...]) -> None:
    texts = np.full(shape, "hi", object)

    assert to_tensor(texts).shape == shape
    assert to_tensor(texts).tolist() == to_tensor(texts.astype(str)).tolist() == texts.tolist()


@given(st.lists(st.integers(-8, 7), max_size=9))
def test_int4_values_survive_packing(values: list[int]) -> None:
    tensor = Tensor.from_list(values, "int4")

    assert tensor.tolist() == values
    assert tensor.nbytes == (len(values) + 1) // 2


@given(st.floats(width=32, allow_nan=False))
def test_bfloat16_rounds_as_ml_dtypes_does(value: float) -> None:
    import ml_dtypes

    expected = float(np.float32(value).astype(ml_dtypes.bfloat16))

    assert float(Tensor.from_list(value, "bfloat16")) == expected


def test_bfloat16_keeps_nan() -> None:
    assert math.isnan(float(Tensor.from_list(math.nan, "bfloat16")))


def test_the_low_half_of_a_byte_is_the_first_4_bit_value() -> None:
    assert bytes(Tensor.from_list([1, -2, 3], "int4").data()) == bytes([0xE1, 0x03])


def test_strings_nest_like_numbers() -> None:
    tensor = Tensor.from_list([["a", "é"], ["", "d"]], "string")

    assert tensor.shape == (2, 2)
    assert tensor[0].tolist() == ["a", "é"]
    assert tensor[1, 1] == "d"
    with pytest.raises((BufferError, TypeError)):
        memoryview(tensor)


def test_a_tensor_shares_the_bytes_that_it_was_given() -> None:
    data = bytearray(struct.pack("<2f", 1, 2))
    tensor = Tensor(data, "float32", (2,))

    struct.pack_into("<f", data, 4, 5.0)

    assert tensor.tolist() == [1.0, 5.0]
    assert list(memoryview(tensor).cast("B").cast("f")) == [1.0, 5.0]


def test_a_memoryview_gives_the_elements_once_it_is_cast() -> None:
    tensor = Tensor.from_list([[1.0, 2.0], [3.0, 4.0]], "float32")

    assert memoryview(tensor).cast("B").cast("f").tolist() == [1.0, 2.0, 3.0, 4.0]


def test_a_tensor_cannot_be_written_through_its_index() -> None:
    with pytest.raises(TypeError, match="read-only"):
        Tensor.from_list([1.0], "float32")[0] = 2.0


def test_a_tensor_survives_pickling() -> None:
    for tensor in (Tensor.from_list([[1, 2]], "int64"), Tensor.from_list(["a"], "string")):
        again = pickle.loads(pickle.dumps(tensor))

        assert (again.tolist(), again.dtype, again.shape) == (tensor.tolist(), tensor.dtype, tensor.shape)


def test_many_shapes_leave_no_classes_behind() -> None:
    for size in range(500):
        Tensor(bytes(4 * size), "float32", (size,))
    gc.collect()

    assert len(Tensor.__subclasses__()) < 200


@pytest.mark.parametrize(
    ("data", "shape"),
    [(bytes(4), (-1, -1)), (np.zeros((4, 2), np.float32)[:, 0].data, (4,))],
    ids=["negative", "strided"],
)
def test_data_that_make_no_tensor_are_refused(data: Any, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"negative|contiguous"):
        Tensor(data, "float32", shape)


def test_too_few_bytes_are_refused_with_both_counts() -> None:
    with pytest.raises(InputError, match="takes 12 bytes, got 8") as caught:
        Tensor(bytes(8), "float32", (3,))

    assert (caught.value.expected, caught.value.got) == (12, 8)


@pytest.mark.parametrize(
    ("values", "dtype", "message"),
    [
        ([[1, 2], [3]], "float32", "ragged"),
        ([300], "uint8", "does not fit uint8"),
        ([9], "int4", "does not fit int4"),
        (["a"], "float32", "does not fit float32"),
        ([1], "complex64", "`complex64` is not known"),
    ],
)
def test_lists_that_make_no_tensor_say_why(values: Any, dtype: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Tensor.from_list(values, dtype)


def test_a_spec_accepts_its_rank_and_fixed_dimensions() -> None:
    spec = TensorSpec("x", "float32", ["batch", 3])

    assert spec.accepts((0, 3))
    assert spec.accepts((7, 3))
    assert not spec.accepts((7, 4))
    assert not spec.accepts((3,))
    assert str(spec) == "x: float32[batch, 3]"


def test_there_is_one_object_of_each_dtype() -> None:
    for dtype in DType:
        assert DType(str(dtype)) is DType.parse(dtype) is copy.deepcopy(dtype) is pickle.loads(pickle.dumps(dtype))
        assert dtype == str(dtype)
        assert hash(dtype) == hash(str(dtype))
    assert len(DType) == len(set(DType)) == 16
    assert f"{DType.FLOAT32} {DType.FLOAT32!r}" == "float32 DType.FLOAT32"
    with pytest.raises(ValueError, match="float31"):
        DType("float31")
