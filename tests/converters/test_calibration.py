"""Calibration data: read by input name, cut into calls, refused with the reason, or drawn at random."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from edge_infer import Tensor, TensorSpec
from edge_infer.errors import ConversionError, InputError
from edge_infer.formats import safetensors
from edge_infer.tensors.picked import PickedTensor
from edge_infer_converters.data import golden
from edge_infer_converters.data.calibration import CalibrationSet, read_set
from edge_infer_converters.data.random_inputs import RANDOM_CALLS, random_set, random_set_that_runs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

IMAGE = TensorSpec("image", "float32", ("batch", 1, 4))
MASK = TensorSpec("mask", "int64", ("batch", 4))


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def test_each_sample_of_an_npz_is_a_call(tmp_path: Path) -> None:
    path = tmp_path / "data.npz"
    np.savez(path, image=floats(3, 1, 4), mask=np.ones((3, 4), np.int64), labels=np.array([2, 0, 1]))

    found = read_set(path, [IMAGE, MASK])

    assert [call["image"].shape for call in found.calls] == [(1, 1, 4)] * 3
    np.testing.assert_array_equal(found.calls[1]["image"], floats(3, 1, 4)[1:2])
    assert found.classes is not None
    assert found.classes.tolist() == [2, 0, 1]
    assert (found.origin, found.is_made_up, len(found.sha256)) == ("data.npz", False, 64)


def test_an_npy_is_the_only_input(tmp_path: Path) -> None:
    np.save(tmp_path / "data.npy", floats(2, 1, 4))

    assert len(read_set(tmp_path / "data.npy", [IMAGE]).calls) == 2
    with pytest.raises(InputError, match="the model takes `image`, `mask`"):
        read_set(tmp_path / "data.npy", [IMAGE, MASK])


def test_safetensors_are_read(tmp_path: Path) -> None:
    path = tmp_path / "data.safetensors"
    path.write_bytes(safetensors.write_tensors({"image": Tensor(floats(2, 1, 4).tobytes(), "float32", (2, 1, 4))}))

    found = read_set(path, [IMAGE])

    np.testing.assert_array_equal(found.calls[1]["image"], floats(2, 1, 4)[1:])


def test_a_fixed_first_dimension_takes_that_many_rows(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=floats(6, 4))

    found = read_set(tmp_path / "data.npz", [TensorSpec("x", "float32", (2, 4))])

    assert [call["x"].shape for call in found.calls] == [(2, 4)] * 3


def test_one_more_axis_counts_calls(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", x=floats(5, 2, 4))

    found = read_set(tmp_path / "data.npz", [TensorSpec("x", "float32", (2, 4))])

    assert [call["x"].shape for call in found.calls] == [(2, 4)] * 5


def test_the_first_calls_keep_their_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", image=floats(3, 1, 4), labels=np.array([2, 0, 1]))

    found = read_set(tmp_path / "data.npz", [IMAGE]).first(2)

    assert len(found.calls) == 2
    assert found.classes is not None
    assert found.classes.tolist() == [2, 0]


def test_some_calls_are_spread_over_all(tmp_path: Path) -> None:
    images = np.arange(10, dtype=np.float32).repeat(4).reshape(10, 1, 4)
    np.savez(tmp_path / "data.npz", image=images, labels=np.arange(10))

    found = read_set(tmp_path / "data.npz", [IMAGE])

    assert [call["image"].flat[0] for call in found.spread(4).calls] == [0, 2, 5, 7]
    assert found.spread(4).classes is None
    assert found.spread(10) is found


@pytest.mark.parametrize(
    ("arrays", "message", "hint"),
    [
        ({"imag": floats(3, 1, 4)}, "no array `image`; it has `imag`", "did you mean `imag`?"),
        ({"image": floats(3, 1, 4).astype(np.float64)}, "dtype float64, expected float32", 'astype("float32")'),
        ({"image": floats(3, 4)}, "shape (3, 4), expected (samples, 1, 4)", ""),
        ({"image": floats(3, 1, 4), "extra": floats(3)}, "array `extra`, which is not an input", ""),
        ({"image": floats(0, 1, 4)}, "holds no sample", ""),
        ({"image": floats(3, 1, 4), "labels": floats(3)}, "`labels`", "",),
        ({"image": floats(3, 1, 4), "labels": np.arange(4)}, "expected 3 integers", "",),
    ],
)  # fmt: skip
def test_data_that_do_not_fit_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str, hint: str) -> None:
    np.savez(tmp_path / "data.npz", **arrays)

    with pytest.raises(InputError) as caught:
        read_set(tmp_path / "data.npz", [IMAGE])

    assert message in caught.value.message
    assert hint in caught.value.hint


def test_arrays_of_different_lengths_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", image=floats(3, 1, 4), mask=np.ones((2, 4), np.int64))

    with pytest.raises(InputError, match="different numbers of samples: `image` 3, `mask` 2"):
        read_set(tmp_path / "data.npz", [IMAGE, MASK])


@pytest.mark.parametrize("name", ["data.npz", "data.npy", "data.safetensors", "data.csv"])
def test_a_file_of_something_else_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"not what its name says")

    with pytest.raises(InputError, match=r"cannot be read|suffix"):
        read_set(tmp_path / name, [IMAGE])


def test_a_pickle_is_refused_unread(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", image=np.array([{"a": 1}], dtype=object))

    with pytest.raises(InputError, match="cannot be read"):
        read_set(tmp_path / "data.npz", [IMAGE])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no file .*data\.npz"):
        read_set(tmp_path / "data.npz", [IMAGE])


def test_random_inputs_are_the_same_each_time_and_fit_the_specs() -> None:
    specs = [IMAGE, MASK, TensorSpec("byte", "uint8", ("batch", "width")), TensorSpec("flag", "bool", (2,))]

    first, second = random_set(specs), random_set(specs)

    assert len(first.calls) == RANDOM_CALLS
    assert first.is_made_up
    for one, other in zip(first.calls, second.calls, strict=True):
        for spec in specs:
            np.testing.assert_array_equal(one[spec.name], other[spec.name])
            assert str(one[spec.name].dtype) == spec.dtype
            assert spec.accepts(one[spec.name].shape)
    assert {int(value) for call in first.calls for value in call["mask"].reshape(-1)} == {0, 1}


def test_an_input_that_is_a_length_by_its_name_holds_that_of_the_free_dimension() -> None:
    sound = TensorSpec("waveforms", "float32", ("batch", 80, "N"))
    lengths = [TensorSpec(name, "int64", ("batch",)) for name in ("waveforms_lens", "audioLength", "input_length")]
    others = [TensorSpec("min_length", "int64", (1,)), TensorSpec("lens", "float32", (1,))]

    drawn = random_set([sound, *lengths, *others], 64)

    assert all(call[one.name].tolist() == [64] for call in drawn.calls for one in lengths)
    assert all(start[one.name] == -1 for start in drawn.starts for one in lengths)  # goldens keep the value
    assert {int(call["min_length"][0]) for call in drawn.calls} == {0, 1}
    assert drawn.starts[1]["lens"] >= 0


def test_a_model_that_generates_may_write_as_much_as_it_is_given() -> None:
    text = TensorSpec("input_ids", "int32", ("batch_size", "sequence_length"))
    settings = [
        *(TensorSpec(name, "int32", (1,)) for name in ("max_length", "min_length", "num_beams")),
        *(TensorSpec(name, "float32", (1,)) for name in ("length_penalty", "repetition_penalty")),
    ]

    drawn = random_set([text, *settings], 16)

    assert {one.name: drawn.calls[5][one.name].tolist() for one in settings} == {
        **{one.name: [1] for one in settings},
        "max_length": [32],
    }
    assert drawn.starts[5] == {
        one.name: -1 if one in settings else drawn.starts[5]["input_ids"] for one in (text, *settings)
    }


def test_sizes_that_show_nothing_of_an_output_are_passed_over() -> None:
    specs = [TensorSpec("waveforms", "float32", (1, "N")), TensorSpec("lens", "int64", (1,))]

    def frames(feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        found = feeds["waveforms"][:, 100::160]
        scale = np.array([np.nan if found.shape[1] < 4 else 1.0])  # a deviation of too few frames
        return {"features": found, "count": feeds["lens"] // 100, "scale": scale}

    assert random_set_that_runs(specs, frames).calls[0]["waveforms"].shape == (1, 8000)
    nothing = random_set_that_runs(specs, lambda feeds: {"y": feeds["lens"][:0]})
    assert nothing.calls[0]["waveforms"].shape == (1, 16)


def test_golden_examples_are_few_where_they_are_large_beside_the_model() -> None:
    calls = [{"x": np.zeros((1, 3, 100, 100), np.float32)}] * 40  # 120 kB each
    outputs = [{"y": np.zeros((1, 10), np.float32)}] * 40

    assert golden.count(calls, outputs, 10_000) == 1
    assert golden.count(calls, outputs, 10_000_000) == 12
    assert golden.count(calls, outputs, 10**9) == golden.EXAMPLES
    assert golden.count(calls, outputs, 10_000, asked=5) == 5
    assert golden.count(calls[:2], outputs[:2], 10**9, asked=5) == 2


def test_golden_examples_keep_little_of_large_tensors() -> None:
    data = random_set([TensorSpec("x", "float32", (1, 3, 200, 200)), TensorSpec("n", "int64", (1,))]).first(2)
    rng = np.random.default_rng(0)
    outputs = [
        {"masks": rng.normal(size=(1, 21, 200, 200)), "scores": rng.normal(size=(1, 100)), "name": np.array(["a"])}
    ] * 2

    proofs = golden.examples(data, outputs, 100_000)

    assert len(safetensors.write_examples(proofs)) < 66_000
    for (inputs, kept), call in zip(proofs, data.calls, strict=True):
        np.testing.assert_array_equal(np.asarray(inputs["x"]), call["x"])
        assert kept["scores"].shape == (1, 100)
        assert kept["name"].tolist() == ["a"]
        assert isinstance(kept["masks"], PickedTensor)
        assert kept["masks"].shape == (1, 21, 13, 13)


def test_golden_inputs_that_are_given_are_kept_whole() -> None:
    given = CalibrationSet(({"x": np.ones((1, 3, 200, 200), np.float32)},), None, "data.npz", "0" * 64)

    ((inputs, outputs),) = golden.examples(given, [{"y": np.ones((1, 200, 200), np.float32)}], 100_000)

    assert inputs["x"].shape == (1, 3, 200, 200)
    assert 10_000 < outputs["y"].nbytes <= 16_000


def test_the_least_size_of_variants_depends_on_what_is_made() -> None:
    assert golden.least_bytes(1000, "fp32", ["fp32", "int8"]) == 1000
    assert golden.least_bytes(1000, "fp32", ["int8"]) == 250
    assert golden.least_bytes(1000, "fp16", ["int8", "int4"]) == 300


def test_the_refusal_of_random_inputs_names_the_inputs_to_give() -> None:
    def beams(feeds: Mapping[str, np.ndarray]) -> None:
        raise ConversionError("max_length has to exceed the sequence length", hint="")

    specs = [TensorSpec("input_ids", "int32", ("batch", "sequence")), TensorSpec("max_length", "int32", (1,))]
    with pytest.raises(ConversionError, match="max_length has to exceed") as refusal:
        random_set_that_runs(specs, beams)
    assert "--calibration FILE.npz, with an array for each of input_ids" in refusal.value.hint
    assert "max_length" in refusal.value.hint
