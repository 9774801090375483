"""Depth maps and images that a model gives: as transformers' pipelines make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from onnx import helper

import edge_infer
from edge_infer.errors import ExecutionError, InputError, ManifestError
from edge_infer.tasks.image.image import Image
from edge_infer.tasks.item import Geometry, Item
from edge_infer.tasks.place import Place
from edge_infer.tasks.steps import read_step
from edge_infer.tensors.arrays import to_tensor
from edge_infer.tensors.tensor import Tensor, TensorSpec
from edge_infer_converters import convert
from tests.support import zoo
from tests.support.tasks import hub_folders

if TYPE_CHECKING:
    from pathlib import Path


def step(name: str, **parameters: Any) -> Any:
    place = Place(lambda _: b"", [], [], [TensorSpec("out", "float32", ())])
    return read_step({"step": name, **parameters}, "test").prepare(place)


def item(width: int, height: int) -> Item:
    made = Item()
    made.width = made.input_width = width
    made.height = made.input_height = height
    return made


def floats(values: Any) -> Tensor:
    return to_tensor(np.asarray(values, "float32"))


@pytest.mark.parametrize("shape", [(24, 24), (1, 18, 31)])
@pytest.mark.parametrize(("width", "height"), [(64, 48), (10, 7), (24, 24)])
def test_depths_are_resized_as_pytorch_does(shape: tuple[int, ...], width: int, height: int) -> None:
    depths = np.random.default_rng(0).uniform(-3, 9, shape).astype(np.float32)

    answer = step("post.depth")({"out": floats(depths)}, item(width, height))

    wanted = torch.nn.functional.interpolate(
        torch.from_numpy(depths.reshape(1, 1, *shape[-2:])), size=(height, width), mode="bicubic", align_corners=False
    )[0, 0].numpy()
    got = np.asarray(answer["predicted_depth"].tolist(), np.float32)
    np.testing.assert_allclose(got, wanted, atol=2e-5)
    grey = (got.astype(np.float64) - got.min()) / (float(got.max()) - float(got.min())) * 255
    np.testing.assert_array_equal(
        np.frombuffer(answer["depth"].data, np.uint8).reshape(height, width), grey.astype(np.uint8)
    )


def test_depths_are_the_same_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    depths = floats(np.random.default_rng(0).uniform(-3, 9, (17, 11)))
    pixels = floats(np.random.default_rng(0).uniform(-0.2, 1.2, (3, 5, 7)))

    def both() -> tuple[Any, Any]:
        depth = step("post.depth")({"out": depths}, item(40, 23))
        return (bytes(depth["predicted_depth"].data()), depth["depth"]), step("post.image")({"out": pixels}, item(7, 5))

    wanted = both()
    for name in ("cubic", "depth", "image"):
        monkeypatch.setattr(f"edge_infer.tasks.post.{name}.has_numpy", lambda: False)
    assert both() == wanted


def test_a_letterbox_is_cut_from_depths() -> None:
    made = item(8, 4)
    made.input_width = made.input_height = 8
    made.geometry = [Geometry(1, 1, 0, 2)]
    depths = np.full((8, 8), 100.0, np.float32)
    depths[2:6] = np.arange(8)

    answer = step("post.depth")({"out": floats(depths)}, made)

    np.testing.assert_array_equal(answer["predicted_depth"].tolist(), depths[2:6])


def test_a_map_that_is_flat_or_broken_is_black() -> None:
    for value in (2.0, np.nan, np.inf):
        depths = np.full((2, 2), 2.0, np.float32)
        depths[0, 1] = value
        answer = step("post.depth")({"out": floats(depths)}, item(3, 3))
        assert answer["depth"] == Image(bytes(9), 3, 3, 1)


def test_an_image_is_rounded_and_limited_as_transformers_does() -> None:
    values = np.array([[[-1.0, 0.5 / 255, 1.5 / 255], [0.5, 1.0, 7.0]]] * 3, np.float32)
    values[1, 0, 0] = np.nan

    answer = step("post.image")({"out": floats(values)}, item(1, 1))

    assert (answer.width, answer.height, answer.channels) == (3, 2, 3)
    wanted = np.nan_to_num((np.clip(values, 0, 1) * np.float32(255)).round()).astype(np.uint8)
    np.testing.assert_array_equal(np.frombuffer(answer.data, np.uint8).reshape(2, 3, 3), wanted.transpose(1, 2, 0))
    grey = step("post.image", layout="HWC", scale=127.5, offset=127.5)({"out": floats(values[0])}, item(1, 1))
    assert list(grey.data) == [0, 128, 128, 191, 255, 255]


@pytest.mark.parametrize("shape", [(2, 4, 4), (4, 4, 3), (4,), (1, 3, 4, 4)])
def test_what_is_no_image_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ExecutionError, match="expected an image of 1 or 3 channels as `CHW`"):
        step("post.image")({"out": floats(np.zeros(shape))}, item(4, 4))


def test_what_is_no_map_and_a_map_that_is_too_large_are_refused() -> None:
    with pytest.raises(ExecutionError, match=r"shape \[3, 4, 4\], expected \[height, width\]"):
        step("post.depth")({"out": floats(np.zeros((3, 4, 4)))}, item(4, 4))
    with pytest.raises(InputError, match="25000000 pixels"):
        step("post.depth")({"out": floats(np.zeros((4, 4)))}, item(10_000, 10_000))
    with pytest.raises(ManifestError, match="scale"):
        step("post.image", scale="a")
    with pytest.raises(ManifestError, match="has `multiple` without `width` and `height`"):
        step("image.resize", shortest=8, multiple=4)


@pytest.mark.parametrize(
    ("size", "wanted"),
    [((640, 480), (686, 518)), ((100, 333), (154, 518)), ((518, 518), (518, 518)), ((3, 1), (518, 168))],
)
def test_both_sides_are_multiples_where_dpt_keeps_proportions(size: tuple[int, int], wanted: tuple[int, int]) -> None:
    image = Image(bytes(size[0] * size[1]), *size, 1)

    resized = step("image.resize", width=518, height=518, multiple=14)(image, item(*size))

    assert (resized.width, resized.height) == wanted


def depth_model(side: int | str = "side") -> bytes:
    """The first channel of what it is given, as `predicted_depth`."""
    nodes = [
        helper.make_node("Slice", ["pixel_values", "start", "end", "axis"], ["red"]),
        helper.make_node("Squeeze", ["red", "axis"], ["predicted_depth"]),
    ]
    return zoo.model(
        nodes,
        [zoo.value("pixel_values", ["batch", 3, side, side])],
        [zoo.value("predicted_depth", ["batch", side, side])],
        {"start": np.array([0]), "end": np.array([1]), "axis": np.array([1])},
    )


def test_a_folder_for_depth_answers_with_a_map_and_a_picture(tmp_path: Path) -> None:
    files = {
        "config.json": {"architectures": ["DepthAnythingForDepthEstimation"], "model_type": "depth_anything"},
        "preprocessor_config.json": {
            "image_processor_type": "DPTImageProcessor",
            "size": {"height": 28, "width": 28},
            "keep_aspect_ratio": True,
            "ensure_multiple_of": 14,
        },
    }
    folder = hub_folders.write(tmp_path / "depth", depth_model(), files)
    photo = np.zeros((20, 40, 3), np.uint8)
    photo[:, 20:, 0] = 255

    convert(folder, tmp_path / "m.bundle", precision="fp32", format="onnx")
    with edge_infer.pipeline(tmp_path / "m.bundle", self_test=True) as estimate:
        answer = estimate(photo)

    assert set(answer) == {"predicted_depth", "depth"}
    assert tuple(answer["predicted_depth"].shape) == (20, 40)
    picture = np.frombuffer(answer["depth"].data, np.uint8).reshape(20, 40)
    assert picture[:, :15].max() < 20
    assert picture[:, 25:].min() > 235


def test_the_task_image_to_image_needs_no_file(tmp_path: Path) -> None:
    model = zoo.model(
        [helper.make_node("Resize", ["image", "", "twice"], ["y"], mode="nearest")],
        [zoo.value("image", [1, 3, 8, 8])],
        [zoo.value("y", [1, 3, 16, 16])],
        {"twice": np.array([1, 1, 2, 2], np.float32)},
    )
    (tmp_path / "twice.onnx").write_bytes(model)
    (tmp_path / "steps.json").write_text(
        '{"inputs": {"image": [{"step": "image.decode"}, {"step": "image.resize", "width": 8, "height": 8}, '
        '{"step": "image.rescale_normalize", "mean": [0, 0, 0], "std": [1, 1, 1]}]}}'
    )

    convert(
        tmp_path / "twice.onnx", tmp_path / "m.bundle", precision="fp32", format="onnx", task="image-to-image",
        preprocess=str(tmp_path / "steps.json"),
    )  # fmt: skip
    photo = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
    with edge_infer.pipeline(tmp_path / "m.bundle") as enlarge:
        answer = enlarge(photo)

    assert (answer.width, answer.height) == (16, 16)
    wanted = photo.repeat(2, 0).repeat(2, 1)
    np.testing.assert_array_equal(np.frombuffer(answer.data, np.uint8).reshape(16, 16, 3), wanted)
