"""Settings of ONNX Runtime, typed, and what of them a bundle may not say."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import edge_infer
from edge_infer import OnnxRuntimeOptions
from edge_infer.backends.base import Placement
from edge_infer.backends.onnxruntime import backend, entries
from edge_infer.backends.registry import get_backend
from edge_infer.bundle.variant import Variant
from edge_infer.errors import CudaUnavailable, InputError, ManifestError, UnsupportedModel
from edge_infer.platform.cpu import Processor
from tests.support import zoo

if TYPE_CHECKING:
    from tests.support.model_files import WriteBundle, WriteModel

DIGITS = "examples/digits/digits.onnx"


def test_typed_settings_become_the_engine_s_own_words() -> None:
    options = OnnxRuntimeOptions(
        provider="cuda", memory_limit_mb=512, tf32=True, cudnn_search="heuristic", cuda_graph=True, stream=1234
    )

    assert options.device == "cuda"
    assert options.settings() == {
        "provider": "cuda",
        "provider.gpu_mem_limit": str(512 * 2**20),
        "provider.use_tf32": "1",
        "provider.cudnn_conv_algo_search": "HEURISTIC",
        "provider.enable_cuda_graph": "1",
        "provider.has_user_compute_stream": "1",
        "provider.user_compute_stream": "1234",
    }


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"provider": "cudda"}, "choose from"),
        ({"cudnn_search": "fast", "provider": "cuda"}, "choose from `exhaustive`"),
        ({"intra_op_threads": 0}, "expected 1 or more"),
        ({"memory_limit_mb": -1, "provider": "cuda"}, "expected 1 or more"),
        ({"engine_cache": "engines", "provider": "cuda"}, "a setting of the provider `tensorrt`"),
        ({"cuda_graph": True}, "a setting of the provider `cuda`"),
        ({"memory_limit_mb": 64, "provider": "cpu"}, "a setting of the provider `cuda`"),
        ({"shared_arena": True}, "a setting of the provider `cuda` or `cpu`"),
        ({"shared_arena": True, "provider": "tensorrt"}, "a setting of the provider `cuda` or `cpu`"),
        ({"stream": 1, "provider": "cpu"}, "a setting of the provider `cuda` or `tensorrt`"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_when_it_is_written(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        OnnxRuntimeOptions(**settings)


def test_threads_reach_the_engine_and_the_report() -> None:
    with edge_infer.load(DIGITS, options=OnnxRuntimeOptions(intra_op_threads=1)) as session:
        assert (session.report().engine, session.report().threads) == ("onnxruntime", 1)


def test_options_of_one_engine_and_another_backend_contradict() -> None:
    with pytest.raises(InputError, match="options are for `onnxruntime`"):
        edge_infer.load(DIGITS, backend="reference", options=OnnxRuntimeOptions())


def test_cuda_options_ask_for_cuda_and_say_why_it_cannot_be() -> None:
    with pytest.raises(edge_infer.BackendUnavailable, match="onnxruntime"):
        edge_infer.load(DIGITS, options=OnnxRuntimeOptions(provider="cuda", memory_limit_mb=64), device="cuda:7")


def test_a_provider_of_another_device_is_refused() -> None:
    with pytest.raises(InputError, match="runs on device `cuda`"):
        edge_infer.load(DIGITS, device="cpu", options=OnnxRuntimeOptions(provider="cuda"))


def test_a_provider_that_the_wheel_lacks_names_those_that_it_has() -> None:
    with pytest.raises(edge_infer.BackendUnavailable, match="`CPUExecutionProvider`"):
        edge_infer.load(DIGITS, options=OnnxRuntimeOptions(provider="openvino"))


@pytest.mark.parametrize(
    "key", ["session.model_external_initializers_file_folder_path", "ep.context_file_path", "strict", "provider.x"]
)
def test_a_bundle_may_set_no_path_and_no_provider(key: str, write_bundle: WriteBundle) -> None:
    folder = write_bundle({"onnx/fp32": zoo.identity()})
    document = json.loads((folder / "manifest.json").read_text("utf-8"))
    document["variants"][0]["options"] = {"onnxruntime": {key: "/etc"}}
    (folder / "manifest.json").write_text(json.dumps(document), "utf-8")

    with pytest.raises(ManifestError, match=key):
        edge_infer.load(folder)


def test_a_provider_that_does_not_start_is_an_error_and_no_silent_run_on_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from edge_infer.backends.onnxruntime.session import open_session
    from edge_infer.platform import cuda

    monkeypatch.setattr(cuda, "check", lambda *_, **__: None)  # as where all looks well, and it fails all the same

    with pytest.warns(UserWarning, match="not in available provider names"), pytest.raises(CudaUnavailable) as caught:
        open_session(str(DIGITS), "digits.onnx", device="cuda", options={})

    assert caught.value.fault == "provider-refused"


STREAM = {"has_user_compute_stream": "1", "user_compute_stream": "1234"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            OnnxRuntimeOptions(provider="tensorrt", engine_cache="engines", fp16=True, stream=1234),
            [
                (
                    "TensorrtExecutionProvider",
                    {
                        "device_id": "1",
                        "trt_engine_cache_enable": "1",
                        "trt_engine_cache_path": "engines",
                        "trt_fp16_enable": "1",
                        **STREAM,
                    },
                ),
                ("CUDAExecutionProvider", {"device_id": "1", "use_tf32": "0", **STREAM}),
            ],
        ),
        (
            OnnxRuntimeOptions(provider="tensorrt", provider_settings={"trt_timing_cache_enable": "1"}),
            [
                ("TensorrtExecutionProvider", {"device_id": "1", "trt_timing_cache_enable": "1"}),
                ("CUDAExecutionProvider", {"device_id": "1", "use_tf32": "0"}),
            ],
        ),
        (
            OnnxRuntimeOptions(provider="cuda", stream=1234, tf32=True),
            [("CUDAExecutionProvider", {"device_id": "1", "use_tf32": "1", **STREAM})],
        ),
    ],
    ids=["tensorrt", "tensorrt-own-words", "cuda"],
)
def test_settings_of_the_gpu_s_providers_reach_the_engine(
    options: OnnxRuntimeOptions, expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine here has no such provider and starts on the CPU, which is an error as anywhere."""
    import onnxruntime

    from edge_infer.backends.onnxruntime.session import open_session
    from edge_infer.platform import cuda

    given: list[Any] = []
    real = onnxruntime.InferenceSession

    def recorded(model: Any, **settings: Any) -> Any:
        given.extend(settings["providers"])
        return real(model, **settings | {"providers": ["CPUExecutionProvider"]})

    monkeypatch.setattr(cuda, "check", lambda *_, **__: None)
    monkeypatch.setattr(onnxruntime, "InferenceSession", recorded)

    with pytest.raises(CudaUnavailable) as caught:
        open_session(str(DIGITS), "digits.onnx", device="cuda:1", options=options.settings())

    assert caught.value.fault == "provider-refused"
    assert given == [*expected, "CPUExecutionProvider"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {"session.x64quantprecision": "1"}),
        ({"session.disable_prepacking": "1"}, {"session.disable_prepacking": "1", "session.x64quantprecision": "1"}),
        ({"user.session.x64quantprecision": "0"}, None),
        ({"session.x64quantprecision": "1"}, None),
    ],
)
def test_a_bare_file_is_given_the_precise_mode_where_kernels_saturate(
    options: dict[str, str], expected: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for features, wanted in ((("avx2",), expected), (("avx2", "avx_vnni"), None), (("asimd",), None)):
        processor = Processor("", features, 2)
        monkeypatch.setattr(entries, "read_processor", lambda found=processor: found)

        assert entries.with_precise(options) == wanted


def test_a_bare_quantized_file_gives_what_integers_give_on_every_cpu(write_model: WriteModel) -> None:
    """Two products of 255 and 127 are more than 16 bits hold: x86 without VNNI gives 32,767 for them by itself."""
    rows, columns = 64, 32
    weights = np.full((rows, columns), 127, np.int8)
    tensors = {"scale": np.float32(1), "zero": np.uint8(0), "weights": weights, "none": np.int8(0)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["codes"]),
        helper.make_node("DequantizeLinear", ["codes", "scale", "zero"], ["input"]),
        helper.make_node("DequantizeLinear", ["weights", "scale", "none"], ["matrix"]),
        helper.make_node("MatMul", ["input", "matrix"], ["y"]),
    ]
    ends = [
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, size])]
        for name, size in (("x", rows), ("y", columns))
    ]
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in tensors.items()]
    graph = helper.make_graph(nodes, "products", ends[0], ends[1], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)

    with edge_infer.load(write_model(model.SerializeToString()), backend="onnxruntime") as session:
        found = session.run({"x": np.full((1, rows), 255, np.float32)})["y"]

    np.testing.assert_array_equal(found, np.full((1, columns), 255 * 127 * rows, np.float32))


def test_a_file_that_the_precise_mode_refuses_is_loaded_and_said_to_saturate(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def loaded(model: Any, variant: Any, device: str, options: dict[str, str]) -> Any:
        asked.append(dict(options))
        if "session.x64quantprecision" in options:
            raise UnsupportedModel("Attempt to replace the existing tensor")
        return SimpleNamespace(placement=Placement("cpu"))

    monkeypatch.setattr(entries, "read_processor", lambda: Processor("", ("avx2",), 2))
    monkeypatch.setattr(backend, "_loaded", loaded)
    variant = Variant("onnx/int8", "onnx", "int8", "model.onnx")

    found = get_backend("onnxruntime").prepare(b"", variant, device="cpu", options={})

    assert [one.get("session.x64quantprecision") for one in asked] == ["1", None]
    assert "saturate" in found.placement.fallbacks[0]
