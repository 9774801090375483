"""A pool with a bound of memory: a model that does not fit is refused, with the reason."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

from edge_infer.errors import InputError
from edge_infer.server.config import read_settings
from edge_infer.server.execution.routing import Pool
from tests.support import zoo

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel


def settings_of(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "serve.toml"
    path.write_text(text)
    return path


def test_a_pool_names_its_bound(tmp_path: Path) -> None:
    path = settings_of(tmp_path, '[pools.gpu]\ndevice = "cuda:1"\nmemory_limit_mb = 512\n')

    assert read_settings(path).table.pools["gpu"] == Pool(0, "cuda:1", 512)


@pytest.mark.parametrize("device", ["", 'device = "auto"\n'], ids=["none", "auto"])
def test_a_bound_is_of_a_device(tmp_path: Path, device: str) -> None:
    path = settings_of(tmp_path, f"[pools.gpu]\n{device}memory_limit_mb = 512\n")

    with pytest.raises(InputError, match="bounds the memory of a device"):
        read_settings(path)


def test_pools_of_one_device_have_one_bound(tmp_path: Path) -> None:
    text = '[pools.a]\ndevice = "cuda"\nmemory_limit_mb = 512\n[pools.b]\ndevice = "cuda:0"\nmemory_limit_mb = 256\n'

    with pytest.raises(InputError, match=r"`pools.b.memory_limit_mb` is 256, that of `pools.a` on the same device 512"):
        read_settings(settings_of(tmp_path, text))


def load_bounded(model: Path, *limits_mb: int) -> list[str]:
    """Load a model within each of these bounds, in processes of their own: what came of it."""
    code = """
import sys
from edge_infer import Bundle, OutOfMemory
from edge_infer.server.execution.loaded_model import load_model
from edge_infer.server.scheduling.batcher import BatchLimits
try:
    model = load_model("wide", Bundle.open(sys.argv[1]), "cpu", BatchLimits(), memory_limit_mb=int(sys.argv[2]))
    print("batch", model.probe.batch_size)
except OutOfMemory as error:
    print(error.message, "|", error.hint)
"""
    runs = [
        subprocess.run([sys.executable, "-c", code, str(model), str(limit)], check=True, capture_output=True, text=True)
        for limit in limits_mb
    ]
    return [run.stdout.strip() for run in runs]


def test_a_model_that_does_not_fit_is_refused_and_larger_batches_are_not_tried(write_model: WriteModel) -> None:
    """One row takes 16 MiB beside 16 MiB of weights."""
    weights = {"w": np.zeros((1, 2**22), np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = write_model(zoo.model(nodes, [zoo.value("x", ["n", 1])], [zoo.value("y", ["n", 2**22])], weights))

    refused, fits = load_bounded(model, 24, 128)

    assert refused.startswith("Model `wide` does not fit into the 24 MiB that models on `cpu` share: ")
    assert refused.endswith("a larger `memory_limit_mb` of the pool, a smaller variant, or fewer models")
    batch = int(fits.removeprefix("batch "))
    assert 1 <= batch <= 8
