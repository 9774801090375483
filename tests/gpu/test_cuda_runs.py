"""On a CUDA device: the same numbers, all on the GPU, nothing copied that need not be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import edge_infer
from edge_infer import OnnxRuntimeOptions
from edge_infer.backends.onnxruntime.placement import executed_nodes
from edge_infer.parity.comparison import compare, judge

DIGITS = Path("examples/digits/digits.onnx")
GRAPH = OnnxRuntimeOptions(provider="cuda", cuda_graph=True)


def image(seed: int, batch: int = 4) -> Any:
    return np.random.default_rng(seed).random((batch, 1, 8, 8), np.float32)


def save(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any]) -> Path:
    graph = helper.make_graph(nodes, "planted", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def floats(name: str, *shape: int | str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))


def test_float32_gives_the_cpu_s_numbers() -> None:
    feed = {"image": image(0, 64)}
    with edge_infer.load(DIGITS, device="cuda", strict=True) as gpu, edge_infer.load(DIGITS, device="cpu") as cpu:
        verdict = judge(compare([cpu.run(feed)], [gpu.run(feed)]), "fp32")

    assert verdict.word == "ok", verdict.reason


def test_tensorfloat_is_used_only_where_it_is_asked_for() -> None:
    """Its 10 bits of mantissa cost about 50 dB: float32 parity then does not hold."""
    feed = {"image": image(1, 256)}
    with edge_infer.load(DIGITS, device="cpu") as cpu:
        wanted = cpu.run(feed)
    with edge_infer.load(DIGITS, device="cuda", options=OnnxRuntimeOptions(provider="cuda", tf32=True)) as fast:
        assert judge(compare([wanted], [fast.run(feed)]), "fp16").word == "ok"


def test_all_of_the_model_runs_on_the_gpu_and_the_record_agrees_with_a_profile(tmp_path: Path) -> None:
    with edge_infer.load(DIGITS, device="cuda", strict=True) as session:
        assert dict(session.report().nodes).get("CPUExecutionProvider", 0) == 0

    settings = onnxruntime.SessionOptions()
    settings.enable_profiling = True
    settings.profile_file_prefix = str(tmp_path / "run")
    raw = onnxruntime.InferenceSession(str(DIGITS), settings, providers=["CUDAExecutionProvider"])
    raw.run(None, {"image": image(0)})
    nodes = executed_nodes(Path(raw.end_profiling()).read_bytes())
    assert {node.provider for node in nodes} == {"CUDAExecutionProvider"}


def test_a_planted_operator_without_a_cuda_kernel_is_named(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Det", ["y"], ["z"], name="planted_det")]
    path = save(tmp_path / "det.onnx", nodes, [floats("x", 8, 3, 3)], [floats("z", 8)], [])

    with pytest.raises(edge_infer.CudaUnavailable, match="`Det` planted_det"):
        edge_infer.load(path, device="cuda", strict=True)
    with pytest.warns(RuntimeWarning, match="planted_det"):
        session = edge_infer.load(path, device="cuda")
    assert dict(session.report().nodes)["CPUExecutionProvider"] >= 1


@pytest.mark.parametrize("options", [None, GRAPH], ids=["plain", "cuda-graph"])
def test_a_prepared_call_gives_what_a_run_gives_each_time(options: OnnxRuntimeOptions | None) -> None:
    session = edge_infer.load(DIGITS, device="cuda", options=options)
    with session, session.prepare({"image": (4, 1, 8, 8)}) as call, session.prepare({"image": (2, 1, 8, 8)}) as other:
        for seed in range(5):
            wanted = session.run({"image": image(seed)})["logits"]
            np.testing.assert_allclose(call({"image": image(seed)})["logits"], wanted, rtol=1e-4, atol=1e-5)
            small = session.run({"image": image(seed, 2)})["logits"]
            np.testing.assert_allclose(other({"image": image(seed, 2)})["logits"], small, rtol=1e-4, atol=1e-5)


def test_a_kept_output_stays_on_the_device_and_is_fed_back_without_a_copy(tmp_path: Path) -> None:
    step = helper.make_node("Add", ["state", "x"], ["next"])
    path = save(tmp_path / "sum.onnx", [step], [floats("state", 4), floats("x", 4)], [floats("next", 4)], [])
    ones = np.ones(4, np.float32)
    with edge_infer.load(path, device="cuda") as session:
        kept = session.run({"state": ones, "x": ones}, keep=["next"])["next"]
        assert kept.location == "device"
        result = session.run({"state": kept, "x": ones})["next"]

    np.testing.assert_array_equal(np.asarray(result), 3 * ones)


def test_tensors_of_torch_go_in_and_out_by_dlpack() -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this torch sees no CUDA device")
    given = torch.from_numpy(image(3)).cuda()
    with edge_infer.load(DIGITS, device="cuda") as session:
        kept = session.run({"image": given}, keep=["logits"])["logits"]
        shared = torch.from_dlpack(kept)
        wanted = session.run({"image": image(3)})["logits"]

        assert shared.is_cuda
        np.testing.assert_allclose(shared.cpu().numpy(), wanted, rtol=1e-5, atol=1e-6)
        with session.prepare({"image": (4, 1, 8, 8)}) as call:
            np.testing.assert_allclose(call({"image": given})["logits"], wanted, rtol=1e-5, atol=1e-6)


def test_memory_that_a_session_may_not_take_is_an_error_of_its_own(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.zeros((4096, 4096), np.float32), "w")  # 64 MiB
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    path = save(tmp_path / "wide.onnx", nodes, [floats("x", "n", 4096)], [floats("y", "n", 4096)], [weight])

    with pytest.raises((edge_infer.OutOfMemory, edge_infer.UnsupportedModel), match="memory"):
        edge_infer.load(path, device="cuda", options=OnnxRuntimeOptions(provider="cuda", memory_limit_mb=16)).run(
            {"x": np.zeros((1, 4096), np.float32)}
        )


def test_a_device_that_is_not_there_lists_those_that_are() -> None:
    with pytest.raises(edge_infer.CudaUnavailable, match="There is no device `cuda:99`: cuda:0 is "):
        edge_infer.load(DIGITS, device="cuda:99")


def test_auto_takes_the_gpu() -> None:
    with edge_infer.load(DIGITS) as session:
        assert session.report().device == "cuda"
