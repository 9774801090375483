"""Every case on every native engine; `tests/browser` runs the same cases in the page."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

import edge_infer
from edge_infer.backends.registry import backend_names, get_backend
from edge_infer_converters import convert
from tests.support.conformance.cases import CASES, EXCUSED, Case, agrees

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel

#: The formats that a case can be written in; engines of other formats are not native. The converters, which write
#: TFLite, are not installed on an emulated Pi: there `tests/device` compares files that were written elsewhere.
FORMATS = {"onnx"} if "PI_MACHINE" in os.environ else {"onnx", "tflite"}
ENGINES = [
    name for name in backend_names() if not get_backend(name).page_devices and FORMATS & {*get_backend(name).formats}
]


def written(case: Case, backend: str, write_model: WriteModel) -> Path:
    """Write a case in a format that the engine reads.

    Raises:
        ConversionError, UnsupportedModel: The format cannot hold it.
    """
    path = write_model(case.model)
    if "onnx" in get_backend(backend).formats:
        return path
    bundle = path.parent / f"{case.name}.bundle"
    convert(path, bundle, format="tflite", precision="fp32")
    return bundle


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("backend", ENGINES)
def test_an_engine_computes_what_is_right(case: Case, backend: str, write_model: WriteModel) -> None:
    reason = EXCUSED[backend].get(case.name)

    if reason is None:
        assert agrees(case, backend, written(case, backend, write_model))
        return
    try:
        passes = agrees(case, backend, written(case, backend, write_model))
    except edge_infer.EdgeInferError:
        passes = False
    assert not passes, f"{case.name} passes on {backend}: take it out of excused.toml ({reason})"


@pytest.mark.parametrize("backend", ENGINES)
def test_the_engine_is_here(backend: str) -> None:
    """Without this a missing engine would leave the suite green."""
    assert get_backend(backend).availability().ready
