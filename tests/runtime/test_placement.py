"""Where the nodes of a model really run: read from the engine's own record and from the profile of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import pytest

import edge_infer
from edge_infer import OnnxRuntimeOptions
from edge_infer.backends.onnxruntime import options
from edge_infer.backends.onnxruntime.placement import executed_nodes, named, strays
from edge_infer.errors import BackendUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

DIGITS = Path("examples/digits/digits.onnx")
# A provider that every wheel registers and that takes no node of these models: the planted fallback.
IDLE = "AzureExecutionProvider"


@pytest.fixture
def idle_provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[OnnxRuntimeOptions]:
    monkeypatch.setitem(options.PROVIDERS, "idle", (IDLE, "cpu", "onnxruntime"))
    yield OnnxRuntimeOptions(provider="idle")


def test_strictly_each_node_that_the_provider_left_to_the_cpu_is_named(idle_provider: OnnxRuntimeOptions) -> None:
    with pytest.raises(BackendUnavailable) as caught:
        edge_infer.load(DIGITS, options=idle_provider, strict=True)

    assert "nodes run on the CPU: " in caught.value.message
    assert "node_linear" in " ".join(caught.value.nodes)
    assert "strict" in caught.value.hint


def test_otherwise_the_fallback_warns_once_and_is_in_the_report(idle_provider: OnnxRuntimeOptions) -> None:
    with pytest.warns(RuntimeWarning, match="nodes run on the CPU") as caught:
        session = edge_infer.load(DIGITS, options=idle_provider)

    with session:
        report = session.report()
        session.run({"image": np.zeros((1, 1, 8, 8), np.float32)})
    assert len(caught) == 1
    assert dict(report.nodes)["CPUExecutionProvider"] >= 10
    assert any("nodes run on the CPU" in line for line in report.fallbacks)


def test_the_profile_that_proves_it_is_not_left_behind(
    idle_provider: OnnxRuntimeOptions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    with pytest.raises(BackendUnavailable):
        edge_infer.load(DIGITS, options=idle_provider, strict=True)

    assert list(tmp_path.iterdir()) == []


def test_a_model_that_cannot_run_on_zeros_says_that_nothing_was_proven(
    idle_provider: OnnxRuntimeOptions, tmp_path: Path
) -> None:
    from onnx import TensorProto, helper, save

    reshape = helper.make_node("Reshape", ["x", "shape"], ["y"])  # a shape of zeros fits no data
    graph = helper.make_graph(
        [reshape],
        "reshape",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
            helper.make_tensor_value_info("shape", TensorProto.INT64, [3]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None, None])],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")

    with pytest.raises(BackendUnavailable, match="could not be proven"):
        edge_infer.load(tmp_path / "m.onnx", options=idle_provider, strict=True)


def test_a_real_profile_names_every_kernel_that_ran(tmp_path: Path) -> None:
    settings = onnxruntime.SessionOptions()
    settings.enable_profiling = True
    settings.profile_file_prefix = str(tmp_path / "run")
    session = onnxruntime.InferenceSession(str(DIGITS), settings, providers=["CPUExecutionProvider"])
    session.run(None, {"image": np.zeros((1, 1, 8, 8), np.float32)})

    nodes = executed_nodes(Path(session.end_profiling()).read_bytes())

    assert {"Conv", "MaxPool", "Gemm"} <= {node.operator for node in nodes}
    assert {node.provider for node in nodes} == {"CPUExecutionProvider"}
    assert strays(nodes) == nodes


def event(name: str, operator: str, provider: str, outputs: list[dict[str, list[int]]]) -> dict[str, object]:
    facts = {"op_name": operator, "provider": provider, "output_type_shape": outputs}
    return {"cat": "Node", "name": f"{name}_kernel_time", "args": facts}


def test_shapes_that_the_cpu_computes_for_the_gpu_are_no_fallback() -> None:
    profile = json.dumps(
        [
            event("shape", "Shape", "CPUExecutionProvider", [{"int64": [4]}]),
            event("pick", "Gather", "CPUExecutionProvider", [{"int64": []}]),
            event("look_up", "Gather", "CPUExecutionProvider", [{"float": [1, 32, 384]}]),
            event("ids", "Cast", "CPUExecutionProvider", [{"int64": [1, 512]}]),
            event("conv", "Conv", "CUDAExecutionProvider", [{"float": [1, 8, 8, 8]}]),
        ]
    )

    assert [node.name for node in strays(executed_nodes(profile))] == ["look_up", "ids"]


def test_many_nodes_are_named_by_the_first_few() -> None:
    profile = json.dumps([event(f"n{i}", "TopK", "CPUExecutionProvider", [{"float": [9]}]) for i in range(8)])

    assert named(executed_nodes(profile)).endswith("`TopK` n4 and 3 more")
