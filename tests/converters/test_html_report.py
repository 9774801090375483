"""The page about a conversion: complete, self-contained, and right about what beats what."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from edge_infer.errors import BundleError
from edge_infer_converters import Budget, Recipe, convert
from edge_infer_converters.html_report import _Point, front
from tests.converters.test_cli import edge_infer
from tests.converters.test_search import data, net

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import WriteModel


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
        _Point(10, 20.0, "small", "int4"),
        _Point(30, 15.0, "beaten", "int8"),
        _Point(40, 50.0, "good", "fp16"),
        _Point(40, 40.0, "worse", "fp16"),
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
