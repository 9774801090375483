"""The page about a conversion: complete, self-contained, and right about what beats what."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from edge_infer.bundle.bundle import Bundle
from edge_infer.errors import BundleError
from edge_infer.runtime.options import LoadOptions
from edge_infer.runtime.selection import choices
from edge_infer_converters import Budget, Recipe, convert
from edge_infer_converters.data.thumbnails import data_url
from edge_infer_converters.report.charts import Point, front
from tests.support.converters.conversions import edge_infer
from tests.support.converters.search import data, net

if TYPE_CHECKING:
    from tests.support.model_files import WriteModel


def test_the_page_names_every_variant_and_layer_and_fetches_nothing(write_model: WriteModel, tmp_path: Path) -> None:
    model = net((100.0, 0.1, 0.1))
    recipe = Recipe(formats=("onnx",), precisions=("auto", "int4"), budget=Budget(min_sqnr_db=45))

    result = convert(
        write_model(model),
        tmp_path / "m.bundle",
        name="net",
        evaluation=data(tmp_path / "d.npz", model),
        recipe=recipe,
        report=tmp_path / "report.html",
    )

    page = (tmp_path / "report.html").read_text("utf-8")
    assert all(f"<td>{one.variant.id}</td>" in page for one in result.variants)
    assert "Kept in float: layer_w0." in page
    assert all(f">layer_w{i}</text>" in page for i in range(3))
    assert "left out: SQNR" in page, "int4 is beyond the budget"
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "<script" not in page
    graphics = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(graphics) == 2
    for graphic in graphics:
        ElementTree.fromstring(graphic)
    bars = ElementTree.fromstring(graphics[1]).findall("rect")
    lengths = [float(bar.attrib["width"]) for bar in bars]
    assert lengths[0] == min(lengths[::2]), "the loud layer has the shortest int8 bar"


def test_names_are_escaped(write_model: WriteModel, tmp_path: Path) -> None:
    evaluation = data(tmp_path / "a<b>.npz", net())

    convert(write_model(net()), tmp_path / "m.bundle", evaluation=evaluation, report=tmp_path / "r.html")

    page = (tmp_path / "r.html").read_text("utf-8")
    assert "a&lt;b&gt;.npz" in page
    assert "<b>" not in page


def test_the_front_holds_what_nothing_beats() -> None:
    small, beaten, good, worse = (
        Point(10, 20.0, "small", "int4"),
        Point(30, 15.0, "beaten", "int8"),
        Point(40, 50.0, "good", "fp16"),
        Point(40, 40.0, "worse", "fp16"),
    )

    assert front([good, worse, beaten, small]) == [small, good]


def test_a_report_that_cannot_be_written_is_told_and_the_bundle_stays(write_model: WriteModel, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"The report `.*missing/r\.html` cannot be written"):
        convert(write_model(net()), tmp_path / "m.bundle", report=tmp_path / "missing/r.html")

    assert (tmp_path / "m.bundle/manifest.json").exists()


def test_the_command_writes_it(write_model: WriteModel, tmp_path: Path) -> None:
    write_model(net(), "net.onnx")

    done = edge_infer("net.onnx", "-o", "net.bundle", "--precision", "fp32", "--report", "r.html", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.html").read_text("utf-8").startswith("<!doctype html>")


def test_the_page_says_what_each_place_will_take(write_model: WriteModel, tmp_path: Path) -> None:
    evaluation = data(tmp_path / "d.npz", net())
    recipe = Recipe(("onnx", "tflite"), ("fp32", "fp16", "int8"), keep_all=True)

    result = convert(
        write_model(net()), tmp_path / "m.bundle", evaluation=evaluation, report=tmp_path / "r.html", recipe=recipe
    )

    page = (tmp_path / "r.html").read_text("utf-8")
    assert "<td>Browser, wasm</td><td>onnx/int8</td><td>rule: int8 stands first on wasm</td>" in page
    assert "<td>CUDA, onnxruntime</td><td>onnx/fp16</td>" in page
    assert "<td>CPU or Raspberry Pi, LiteRT</td><td>tflite/int8</td>" in page
    manifest = Bundle.open(result.path).manifest
    assert next(choices(manifest, LoadOptions("cpu", "onnxruntime"))).variant.id == "onnx/int8", "as the page says"
    assert "prefers-color-scheme: dark" in page
    assert "int8 in precise mode / on plain kernels: onnx/int8 " in page


def test_a_place_that_gets_nothing_is_named(write_model: WriteModel, tmp_path: Path) -> None:
    convert(
        write_model(net()),
        tmp_path / "m.bundle",
        evaluation=data(tmp_path / "d.npz", net()),
        report=tmp_path / "r.html",
        recipe=Recipe(("onnx",), ("fp32",)),
    )

    assert "<td>nothing</td><td>no tflite variant is in the bundle</td>" in (tmp_path / "r.html").read_text("utf-8")


def test_the_worst_samples_are_named_and_shown_where_they_are_images(tmp_path: Path) -> None:
    digits = Path(__file__).parents[2] / "examples/digits"
    images = np.load(digits / "eval.npz")["image"][:40]
    np.savez(tmp_path / "d.npz", image=images)

    result = convert(
        digits / "digits.onnx",
        tmp_path / "m.bundle",
        evaluation=tmp_path / "d.npz",
        report=tmp_path / "r.html",
        recipe=Recipe(("onnx",), ("int8",), keep_all=True),
    )

    (one,) = [variant for variant in result.variants if variant.variant.id == "onnx/int8"]
    page = (tmp_path / "r.html").read_text("utf-8")
    shown = re.findall(r'<img alt="sample (\d+)" src="data:image/png;base64,([^"]+)">', page)
    assert [int(index) for index, _ in shown] == [call for call, _ in one.quality.worst]
    picture = Image.open(io.BytesIO(base64.b64decode(shown[0][1])))
    wanted = images[one.quality.worst[0][0]][0]
    assert picture.size == (8, 8)
    np.testing.assert_allclose(np.asarray(picture), (wanted - wanted.min()) / np.ptp(wanted) * 255, atol=1)
    noises = [sqnr_db for _, sqnr_db in one.quality.worst]
    assert noises == sorted(noises)


@pytest.mark.parametrize(
    ("array", "is_image"),
    [
        (np.zeros((1, 3, 8, 9), np.float32), True),
        (np.zeros((1, 8, 9, 4), np.uint8), True),
        (np.zeros((1, 300, 200, 1), np.float32), True),
        (np.zeros((1, 64), np.float32), False),
        (np.zeros((1, 5, 8, 9), np.float32), False),
        (np.zeros((2, 3, 8, 9), np.float32), False),
        (np.full((1, 3, 8, 9), np.nan, np.float32), False),
        (np.zeros((1, 8, 9, 3), np.int64), False),
    ],
)
def test_only_images_have_thumbnails(array: np.ndarray, is_image: bool) -> None:
    assert (data_url(array) is not None) == is_image
