"""Tests on a CUDA device: they skip where there is none, and say why."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import pytest

from edge_infer.platform import cuda

WHY_NOT = cuda.why_not(Path(onnxruntime.__file__).parent / "capi")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, and skip it without a device."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if WHY_NOT is not None:
                item.add_marker(pytest.mark.skip(reason=WHY_NOT.message))
