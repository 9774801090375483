"""The files that a model's inputs are read from, and what is said of those that do not fit."""

from __future__ import annotations

import wave
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_infer.errors import EdgeInferError, InputError
from edge_infer.formats.input_files import read_input, read_inputs
from edge_infer.tensors.tensor import TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

IMAGE = np.arange(5 * 6 * 3, dtype=np.uint8).reshape(5, 6, 3)
#: What the formats begin with, so that more than the first check sees random bytes.
HEADS = {
    ".wav": b"RIFF\xff\0\0\0WAVEfmt ",
    ".png": b"\x89PNG\r\n\x1a\n",
    ".npz": b"PK\x03\x04",
    ".npy": b"\x93NUMPY",
}


def spec(dtype: str, *shape: int | str) -> TensorSpec:
    return TensorSpec("x", dtype, shape)


def write_wav(path: Path, samples: list[int], width: int, channels: int = 1) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(16000)
        shift = 128 if width == 1 else 0
        file.writeframes(b"".join((one + shift).to_bytes(width, "little", signed=width > 1) for one in samples))


def write_image(path: Path) -> None:
    pytest.importorskip("PIL.Image").fromarray(IMAGE).save(path)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (spec("uint8", 1, 5, 6, 3), IMAGE[None]),
        (spec("uint8", "n", 3, 5, 6), IMAGE.transpose(2, 0, 1)[None]),
        (spec("float32", 1, 5, 6, 3), (IMAGE[None] / 255).astype(np.float32)),
    ],
    ids=["last", "first", "float"],
)
def test_an_image_is_laid_out_as_the_input_is(tmp_path: Path, wanted: TensorSpec, expected: np.ndarray) -> None:
    write_image(tmp_path / "x.png")

    found = read_input(tmp_path / "x.png", wanted)

    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_an_image_of_another_size_is_not_resized(tmp_path: Path) -> None:
    write_image(tmp_path / "x.png")

    with pytest.raises(InputError, match=r"has shape \[1, 5, 6, 3\].*does not take") as raised:
        read_input(tmp_path / "x.png", spec("uint8", 1, 8, 8, 3))

    assert "nothing is resized" in raised.value.hint


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_sound_becomes_floats_from_minus_one_to_one(tmp_path: Path, width: int) -> None:
    top = 1 << (8 * width - 1)
    write_wav(tmp_path / "x.wav", [0, -top, top // 2, -top // 4], width)

    found = read_input(tmp_path / "x.wav", spec("float32", 1, "n"))

    assert found.tolist() == [[0, -1, 0.5, -0.25]]


def test_sound_keeps_its_integers(tmp_path: Path) -> None:
    write_wav(tmp_path / "x.wav", [0, -32768, 32767], 2)

    assert read_input(tmp_path / "x.wav", spec("int16", "n")).tolist() == [0, -32768, 32767]
    assert read_input(tmp_path / "x.wav", spec("int16", "b", 3, 1)).shape == (1, 3, 1)
    with pytest.raises(InputError, match=r"holds 16-bit sound, and input .* takes uint8"):
        read_input(tmp_path / "x.wav", spec("uint8", "n"))


def test_channels_of_sound_go_before_its_time(tmp_path: Path) -> None:
    write_wav(tmp_path / "x.wav", [1, 2, 3, 4], 2, channels=2)

    assert read_input(tmp_path / "x.wav", spec("int16", 2, "n")).tolist() == [[1, 3], [2, 4]]
    with pytest.raises(InputError, match="does not take"):
        read_input(tmp_path / "x.wav", spec("int16", 1, "n"))


@pytest.mark.parametrize(
    ("text", "wanted", "expected"),
    [
        ("1,2\n3,4\n", spec("float32", "n", 2), [[1, 2], [3, 4]]),
        ("a,b\n1,2\n3,4\n", spec("int64", "n", 2), [[1, 2], [3, 4]]),
        ("y,x\n1,2\n3,4\n", spec("float32", "n"), [2, 4]),
        ("x,y\nred,2\nblue,4\n", spec("string", "n", 1), [["red"], ["blue"]]),
        ("1,2,3,4\n5,6,7,8\n", spec("uint8", "n", 1, 2, 2), [[[[1, 2], [3, 4]]], [[[5, 6], [7, 8]]]]),
        ("1\n2\n3\n", spec("float32", 1, 3), [[1, 2, 3]]),
        ("0,1\n", spec("bool", 2), [False, True]),
        ("nan,-inf\n", spec("float64", 2), [np.nan, -np.inf]),
    ],
    ids=["table", "names", "column", "texts", "samples", "column as row", "bool", "special"],
)
def test_a_table_takes_the_shape_of_the_input(tmp_path: Path, text: str, wanted: TensorSpec, expected: Any) -> None:
    (tmp_path / "x.csv").write_text(text)

    found = read_input(tmp_path / "x.csv", wanted)

    np.testing.assert_array_equal(found, expected)
    assert wanted.accepts(found.shape)


@pytest.mark.parametrize(
    ("text", "wanted", "message"),
    [
        ("1,2\n3\n", spec("float32", "n", 2), "rows of 1, 2 values"),
        ("", spec("float32", "n"), "rows of no values"),
        ("1,two\n", spec("float32", "n"), "holds 'two'"),
        ("1.5\n", spec("int64", "n"), "holds a value that is not of dtype int64"),
        ("300\n", spec("uint8", "n"), "holds a value that is not of dtype uint8"),
        ("-1\n", spec("uint64", "n"), "holds a value that is not of dtype uint64"),
        ("99999999999999999999\n", spec("int64", "n"), "holds a value that is not of dtype int64"),
        ("1,2,3\n", spec("float32", 1, 4), r"x\.csv` has shape \[1, 3\], which input .* does not take"),
        ("1\n", spec("bfloat16", "n"), "cannot be read as bfloat16"),
    ],
    ids=["ragged", "empty", "word", "fraction", "large", "negative", "huge", "size", "bfloat16"],
)
def test_a_table_that_does_not_fit_is_refused(tmp_path: Path, text: str, wanted: TensorSpec, message: str) -> None:
    (tmp_path / "x.csv").write_text(text)

    with pytest.raises(InputError, match=message):
        read_input(tmp_path / "x.csv", wanted)


def test_a_text_is_one_string_or_numbers(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("one two\nthree\n")

    assert read_input(tmp_path / "x.txt", spec("string", 1)).tolist() == ["one two\nthree"]
    with pytest.raises(InputError, match="holds 'one'") as raised:
        read_input(tmp_path / "x.txt", spec("int64", 1, "n"))
    assert "tokens" in raised.value.hint


def test_a_file_alone_is_for_a_model_of_one_input(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("1\n")
    one, other = spec("float32", "n"), TensorSpec("y", "float32", ("n",))

    assert read_inputs([str(tmp_path / "x.csv")], [one])["x"].tolist() == [1.0]
    with pytest.raises(InputError, match="expected NAME=FILE") as raised:
        read_inputs([str(tmp_path / "x.csv")], [one, other])
    assert "`x`, `y`" in raised.value.hint
    with pytest.raises(InputError, match="Input `y` is missing"):
        read_inputs([f"x={tmp_path / 'x.csv'}"], [one, other])


@pytest.mark.parametrize("suffix", [".csv", ".txt", ".wav", ".png", ".npy", ".npz", ".json", ".safetensors", ".bin"])
@given(data=st.binary(max_size=200))
def test_any_bytes_are_an_input_or_an_error(tmp_path_factory: pytest.TempPathFactory, suffix: str, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / f"any{suffix}"
    for content in (data, HEADS.get(suffix, b"") + data):
        path.write_bytes(content)
        try:
            read_inputs([str(path)], [spec("float32", 1, "h", "w", 3)])
        except EdgeInferError as error:
            assert error.message
