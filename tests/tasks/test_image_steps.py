"""Steps of images: the integer ones equal Pillow's bit for bit, with Pillow, numpy and neither."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import PIL
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pillow

from edge_infer.errors import InputError
from edge_infer.tasks.image import decode, resampling
from edge_infer.tasks.image.image import Image
from edge_infer.tasks.item import Item
from edge_infer.tasks.place import Place
from edge_infer.tasks.steps import prepare_chain, read_step
from edge_infer.tensors.tensor import Tensor, TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

ORDER = "horizontal" if tuple(map(int, PIL.__version__.split(".")[:2])) < (12, 2) else "pillow13"
FILTERS = ("box", "bilinear", "hamming", "bicubic", "lanczos")


def picture(width: int, height: int, channels: int = 3, seed: int = 0) -> Image:
    data = np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)
    return Image(data.tobytes(), width, height, channels)


def by_pillow(image: Image, width: int, height: int, name: str) -> bytes:
    mode = "L" if image.channels == 1 else "RGB"
    made = Pillow.frombytes(mode, (image.width, image.height), image.data)
    return made.resize((width, height), Pillow.Resampling[name.upper()]).tobytes()


def step(name: str, spec: TensorSpec | None = None, **parameters: Any) -> Any:
    """The function of a step for a model of one input."""
    spec = spec or TensorSpec("x", "float32", (1, 3, 8, 8))
    place = Place(lambda _: b"", [], [spec], [], "x")
    return read_step({"step": name, **parameters}, "test").prepare(place)


@pytest.fixture(params=["pillow", "numpy", "plain"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Resample with Pillow, with numpy, or with neither."""
    chosen: str = request.param
    if chosen != "pillow":
        monkeypatch.setattr(resampling, "_has_pillow", lambda: False)
    if chosen == "plain":
        monkeypatch.setattr(resampling, "has_numpy", lambda: False)
    return chosen


@pytest.mark.parametrize("name", FILTERS)
def test_resizing_is_pillows_bit_for_bit(way: str, name: str) -> None:
    sizes = np.random.default_rng(len(way)).integers(1, 60 if way == "plain" else 300, (6, 4)).tolist()
    for width, height, to_width, to_height in [
        *sizes,
        (40, 90, 40, 7),
        (90, 40, 7, 40),
        (1, 1, 9, 5),
        (85, 40, 186, 16),
    ]:
        for channels in (1, 3):
            image = picture(width, height, channels)
            found = resampling.resized(image, to_width, to_height, name, ORDER)
            assert found.data == by_pillow(image, to_width, to_height, name), (width, height, to_width, to_height)


def test_the_nearest_pixel_is_pillows() -> None:
    for width, height, to_width, to_height in np.random.default_rng(5).integers(1, 200, (20, 4)).tolist():
        image = picture(width, height)
        found = resampling.resized(image, to_width, to_height, "nearest", "horizontal")
        assert found.data == by_pillow(image, to_width, to_height, "nearest")


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 120), st.integers(1, 120), st.integers(1, 90), st.integers(1, 90), st.sampled_from(FILTERS))
def test_every_order_is_the_same_in_every_way(
    width: int, height: int, to_width: int, to_height: int, name: str
) -> None:
    image = picture(width, height, 1)
    for order in resampling.ORDERS:
        with pytest.MonkeyPatch.context() as patch:
            first = resampling.resized(image, to_width, to_height, name, order)
            patch.setattr(resampling, "_has_pillow", lambda: False)
            assert resampling.resized(image, to_width, to_height, name, order) == first


def test_a_crop_of_the_middle_rounds_as_it_is_told() -> None:
    image = picture(11, 8)
    pixels = np.frombuffer(image.data, np.uint8).reshape(8, 11, 3)
    item = Item()
    found = step("image.center_crop", width=6, height=5)(image, item)
    assert found.data == pixels[1:6, 2:8].tobytes()
    assert (item.geometry[0].left, item.geometry[0].top) == (-2, -1)
    found = step("image.center_crop", width=6, height=5, rule="torchvision")(image, Item())
    assert found.data == pixels[2:7, 2:8].tobytes()  # 1.5 and 2.5 are both rounded to 2
    padded = step("image.center_crop", width=14, height=8)(image, Item())
    assert padded.data == np.pad(pixels, ((0, 0), (2, 1), (0, 0))).tobytes()


def test_a_letterbox_keeps_proportions_and_tells_its_geometry() -> None:
    item = Item()
    found = step("image.letterbox", width=32, height=32, color=7)(picture(40, 20), item)
    pixels = np.frombuffer(found.data, np.uint8).reshape(32, 32, 3)
    assert (pixels[:8] == 7).all()
    assert (pixels[24:] == 7).all()
    assert item.geometry[0] == (0.8, 0.8, 0, 8)
    small = step("image.letterbox", width=32, height=32, upscale=False, anchor="top_left")(picture(4, 3), Item())
    assert np.frombuffer(small.data, np.uint8).reshape(32, 32, 3)[:3, :4].tobytes() == picture(4, 3).data


@pytest.mark.parametrize("has_numpy", [True, False])
def test_normalising_is_one_table_in_both_layouts(monkeypatch: pytest.MonkeyPatch, has_numpy: bool) -> None:
    monkeypatch.setattr("edge_infer.tasks.image.rescale_normalize.has_numpy", lambda: has_numpy)
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    image = picture(7, 5)
    pixels = np.frombuffer(image.data, np.uint8).reshape(5, 7, 3)
    expected = ((pixels * (1 / 255) - np.array(mean)) / np.array(std)).astype(np.float32)
    first = step("image.rescale_normalize", TensorSpec("x", "float32", (1, 3, 5, 7)), mean=mean, std=std)(image, Item())
    assert np.array_equal(np.asarray(first), expected.transpose(2, 0, 1))
    last = step("image.rescale_normalize", TensorSpec("x", "float32", (1, 5, 7, 3)), mean=mean, std=std)(image, Item())
    assert np.array_equal(np.asarray(last), expected)


def test_levels_reach_a_quantized_model_as_they_are() -> None:
    image = picture(7, 5)
    pixels = np.frombuffer(image.data, np.uint8).reshape(5, 7, 3)
    unsigned = step("image.to_tensor", TensorSpec("x", "uint8", (1, 5, 7, 3)))(image, Item())
    assert np.array_equal(np.asarray(unsigned), pixels)
    signed = step("image.to_tensor", TensorSpec("x", "int8", (1, 3, 5, 7)))(image, Item())
    assert np.array_equal(np.asarray(signed), (pixels.astype(int) - 128).astype(np.int8).transpose(2, 0, 1))
    flipped = step("image.flip_channels")(image, Item())
    assert flipped.data == pixels[..., ::-1].tobytes()


def test_quantizing_rounds_half_to_even_and_clips() -> None:
    quantize = step("tensor.quantize", TensorSpec("x", "int8", (4,)), scale=0.5, zero_point=3)
    found = quantize(Tensor.from_list([0.25, 0.75, -100.0, 100.0], "float32"), Item())
    assert found.tolist() == [3, 5, -128, 127]


def test_levels_are_normalised_before_they_are_quantized() -> None:
    normalize = {"step": "image.rescale_normalize", "mean": [0.5], "std": [2.0]}
    document = [normalize, {"step": "tensor.quantize", "scale": 0.01}]
    spec = TensorSpec("x", "int8", (1, 2, 2, 1))
    chain = prepare_chain([read_step(one, "") for one in document], Place(lambda _: b"", [], [spec], [], "x"))
    value: Any = Image(bytes([0, 255, 0, 255]), 2, 2, 1)
    for apply in chain:
        value = apply(value, Item())
    assert (value.dtype, value.tolist()) == ("int8", [[[-25], [25]], [[-25], [25]]])


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "YCbCr", "HSV"])
def test_every_kind_of_picture_is_read(tmp_path: Path, mode: str) -> None:
    made = (
        Pillow.new("I;16", (5, 4), 40_000) if mode == "I;16" else Pillow.new("RGB", (5, 4), (9, 99, 200)).convert(mode)
    )
    suffix = "tif" if mode in ("CMYK", "YCbCr") else "png"
    source: Any = made
    if mode != "HSV":
        made.save(tmp_path / f"a.{suffix}")
        source = tmp_path / f"a.{suffix}"
    item = Item()
    found = step("image.decode")(source, item)
    assert (found.width, found.height, found.channels, item.width) == (5, 4, 3, 5)
    if mode == "I;16":
        assert set(found.data) == {40_000 // 256}
    grey = step("image.decode", mode="L")(source, Item())
    assert (grey.channels, len(grey.data)) == (1, 20)


def test_grey_is_pillows_grey() -> None:
    image = picture(31, 17)
    expected = Pillow.frombytes("RGB", (31, 17), image.data).convert("L").tobytes()
    assert step("image.decode", mode="L")(image, Item()).data == expected


def test_what_is_not_an_image_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = step("image.decode")
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\nnonsense")
    for wrong in (tmp_path / "a.png", tmp_path / "none.png", b"", b"<svg/>", 3, np.zeros((4, 4, 2), np.uint8)):
        with pytest.raises(InputError):
            read(wrong, Item())
    with pytest.raises(InputError, match="float32"):
        read(np.zeros((4, 4, 3), np.float32), Item())
    monkeypatch.setattr(decode, "MAX_PIXELS", 15)
    Pillow.new("RGB", (4, 4)).save(tmp_path / "large.png")
    with pytest.raises(InputError, match="4 x 4 pixels"):
        read(tmp_path / "large.png", Item())


def test_a_picture_of_the_caller_may_be_drawn_on_afterwards() -> None:
    drawn = Pillow.new("RGB", (4, 4), (10, 20, 30))
    made = step("image.decode")(drawn, Item())
    drawn.paste((0, 0, 0), (0, 0, 4, 4))
    assert made.data == bytes((10, 20, 30)) * 16
