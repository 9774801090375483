"""A new engine is one file and one line of the registry: load, tune, backends and verify find it there."""

from __future__ import annotations

import json
import struct
import sys
from typing import TYPE_CHECKING, Any

import pytest

import edge_infer
from edge_infer.backends import registry
from edge_infer.cli import main_here
from edge_infer.formats.safetensors import write_examples
from edge_infer.tensors.tensor import Tensor
from tests.support import zoo

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteBundle

ENGINE = '''
"""An engine for models that return their input."""

from edge_infer.backends.base import Availability, Backend, Placement, Runnable
from edge_infer.tensors.tensor import TensorSpec


class MirrorBackend(Backend):
    name = "mirror"
    formats = ("onnx",)

    def availability(self):
        return Availability(True, ("cpu",))

    def version(self):
        return "1.0"

    def prepare(self, model, variant, *, device, options):
        return MirrorModel()


class MirrorModel(Runnable):
    inputs = (TensorSpec("x", "float32", ("n", 2)),)
    outputs = (TensorSpec("y", "float32", ("n", 2)),)
    placement = Placement("cpu", 1, ("Mirror",))

    def run(self, feeds, outputs, into, keep):
        return {"y": feeds["x"]}

    def close(self):
        pass
'''
LINE = ("native", "mirror_engine:MirrorBackend")
GOLDEN = "examples/golden.safetensors"


@pytest.fixture
def mirrored(tmp_path: Path, write_bundle: WriteBundle, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Add the engine; return a bundle that it can run."""
    (tmp_path / "mirror_engine.py").write_text(ENGINE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(registry._BUILT_IN, "mirror", LINE)
    monkeypatch.setattr(registry, "_MADE", {})
    value = Tensor(struct.pack("<2f", 1.0, -2.0), "float32", (1, 2))
    examples = write_examples([({"x": value}, {"y": value})])
    return write_bundle({"onnx/fp32": zoo.identity("float32", ("n", 2))}, extra={GOLDEN: examples}, examples=GOLDEN)


def printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    monkeypatch.setattr(sys, "argv", ["edge-infer", *map(str, arguments), "--json"])
    with pytest.raises(SystemExit) as ended:
        main_here()
    assert not ended.value.code
    return json.loads(capsys.readouterr().out)


def test_load_runs_it_in_every_way_that_a_session_has(mirrored: Path) -> None:
    import asyncio

    with edge_infer.load(mirrored, backend="mirror", self_test=True, arrays="tensor") as session:
        assert session.run({"x": [[3.0, 4.0]]})["y"].tolist() == [[3.0, 4.0]]
        assert asyncio.run(session.run_async({"x": [[5.0, 6.0]]}))["y"].tolist() == [[5.0, 6.0]]
        report = session.report()
    assert (report.engine, report.engine_version, report.providers) == ("mirror", "1.0", ("Mirror",))


def test_tune_measures_it_beside_the_others(mirrored: Path) -> None:
    tuning = edge_infer.tune(mirrored, max_time_s=0.05, threads=[1], save=False)

    assert "mirror" not in {row.backend for row in tuning.rows}, "it takes no number of threads"
    tuning = edge_infer.tune(mirrored, max_time_s=0.05, save=False)
    assert {"mirror", "onnxruntime"} <= {row.backend for row in tuning.rows}


def test_the_commands_find_it(
    mirrored: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = printed(monkeypatch, capsys, "backends")["backends"]
    verified = printed(monkeypatch, capsys, "verify", mirrored)["rows"]

    (row,) = [row for row in listed if row["backend"] == "mirror"]
    assert (row["ready"], row["version"], row["devices"]) == (True, "1.0", ["cpu"])
    assert {row["backend"]: row["verdict"] for row in verified} == {
        "onnxruntime": "ok",
        "mirror": "ok",
    }


def test_an_engine_that_takes_no_threads_and_no_device_says_so(mirrored: Path) -> None:
    with pytest.raises(edge_infer.InputError, match="takes no number of threads"):
        edge_infer.load(mirrored, backend="mirror", threads=2)
    with pytest.raises(edge_infer.BackendUnavailable, match="mirror: runs on cpu only"):
        edge_infer.load(mirrored, backend="mirror", device="cuda")
