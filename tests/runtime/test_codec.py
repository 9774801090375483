"""Tensors as safetensors files."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from edge_infer import BundleError, DType, Tensor
from edge_infer.errors import EdgeInferError
from edge_infer.formats.safetensors import read_examples, read_tensors, write_examples, write_tensors
from edge_infer.tensors.arrays import to_tensor

STORED = [dtype for dtype in DType if dtype.bits >= 8 and dtype != "bfloat16"]


@given(
    st.dictionaries(
        st.text(min_size=1).filter(lambda name: name != "__metadata__"),
        st.sampled_from(STORED).flatmap(
            lambda dtype: npst.arrays(np.dtype(str(dtype)), npst.array_shapes(min_dims=0, max_dims=3, min_side=0))
        ),
        max_size=4,
    )
)
def test_what_was_written_is_read(arrays: dict[str, Any]) -> None:
    data = write_tensors({name: to_tensor(array) for name, array in arrays.items()})

    found = read_tensors(data)

    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype.name, array.shape)
        assert bytes(found[name].data()) == array.tobytes()


@given(st.lists(st.text(), max_size=5))
def test_strings_are_stored_too(texts: list[str]) -> None:
    tensors = {"t": Tensor(texts, "string", (len(texts),))}

    assert read_tensors(write_tensors(tensors))["t"].tolist() == texts


@pytest.mark.parametrize("dtype", ["int4", "uint4", "bfloat16"])
def test_narrow_dtypes_are_stored_too(dtype: str) -> None:
    tensor = Tensor.from_list([[1, 2, 3]], dtype)

    found = read_tensors(write_tensors({"t": tensor}))["t"]

    assert (found.dtype, found.shape, found.tolist()) == (dtype, (1, 3), [[1, 2, 3]])


def test_the_bytes_are_those_of_the_format() -> None:
    data = write_tensors({"a": Tensor.from_list([1.0], "float32")})

    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    assert length % 8 == 0
    assert header == {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    assert data[8 + length :] == b"\x00\x00\x80\x3f"


def test_examples_keep_their_order_and_their_sides() -> None:
    examples = [
        ({"x": Tensor.from_list([float(i)], "float32")}, {"y": Tensor.from_list([i], "int64")}) for i in range(12)
    ]

    found = read_examples(write_examples(examples))

    assert [inputs["x"].tolist() for inputs, _ in found] == [[float(i)] for i in range(12)]
    assert [outputs["y"].tolist() for _, outputs in found] == [[i] for i in range(12)]


@given(st.binary(max_size=200))
def test_bytes_that_are_no_such_file_are_refused(data: bytes) -> None:
    with contextlib.suppress(EdgeInferError):
        read_tensors(data)


def header(**entry: Any) -> bytes:
    text = json.dumps({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **entry}}).encode()
    return len(text).to_bytes(8, "little") + text + bytes(4)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 8,
        (2**40).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        header(data_offsets=[0, 400]),
        header(data_offsets=[-4, 0]),
        header(data_offsets=[4, 0]),
        header(data_offsets=[0]),
        header(shape=[-1]),
        header(shape=[2]),
        header(shape=["a"]),
        header(dtype="F99"),
        (5).to_bytes(8, "little") + b'{"t":',
    ],
    ids=range(13),
)
def test_headers_that_lie_are_refused(data: bytes) -> None:
    with pytest.raises((BundleError, EdgeInferError)):
        read_tensors(data)


def test_a_foreign_tensor_among_the_examples_is_refused() -> None:
    with pytest.raises(BundleError, match="expected `inputs/000/NAME`"):
        read_examples(write_tensors({"weights": Tensor.from_list([1.0], "float32")}))
