"""Tensors of devices: prepared calls with fixed places, DLPack in and out. Here the device is the host; tests/gpu has
the same on CUDA."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import edge_infer
from edge_infer.backends.onnxruntime.device_call import DeviceCall
from edge_infer.backends.onnxruntime.errors import translate
from edge_infer.errors import DeviceLost, ExecutionError, OutOfMemory, UnsupportedError

DIGITS = Path("examples/digits/digits.onnx")


@pytest.fixture
def session() -> edge_infer.Session:
    return edge_infer.load(DIGITS, backend="onnxruntime", arrays="numpy")


def image(seed: int, batch: int = 2) -> Any:
    return np.random.default_rng(seed).random((batch, 1, 8, 8), np.float32)


def call_on_host(session: edge_infer.Session, *, has_graph: bool = False, batch: int = 2) -> DeviceCall:
    engine = onnxruntime.InferenceSession(str(DIGITS), providers=["CPUExecutionProvider"])
    shapes = {"image": (batch, 1, 8, 8)}
    return DeviceCall(engine, session.inputs, session.outputs, shapes, place=("cpu", 0), has_graph=has_graph)


def test_a_call_with_fixed_places_gives_what_a_run_gives(session: edge_infer.Session) -> None:
    call = call_on_host(session)
    for seed in range(3):
        call.write("image", image(seed))
        call.run()

        np.testing.assert_array_equal(call.outputs["logits"], session.run({"image": image(seed)})["logits"])


def test_what_is_written_into_the_host_buffer_is_what_runs(session: edge_infer.Session) -> None:
    call = call_on_host(session)
    call.inputs["image"][...] = image(7)
    call.run()

    np.testing.assert_array_equal(call.outputs["logits"], session.run({"image": image(7)})["logits"])


def test_a_cuda_graph_of_free_shapes_is_refused_by_the_output_s_name(session: edge_infer.Session) -> None:
    engine = onnxruntime.InferenceSession(str(DIGITS), providers=["CPUExecutionProvider"])
    free = (edge_infer.TensorSpec("logits", edge_infer.DType.FLOAT32, ("unknown", 10)),)

    with pytest.raises(UnsupportedError, match="`logits` is known after the run only"):
        DeviceCall(engine, session.inputs, free, {"image": (1, 1, 8, 8)}, place=("cpu", 0), has_graph=True)


class OnADevice:
    """Another library's tensor that says it lies on a device, and shares its memory by DLPack."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.dtype = array.dtype

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0  # kDLCUDA

    def __dlpack__(self, **_: Any) -> Any:
        return self._array.__dlpack__()


def test_a_tensor_of_another_library_is_taken_without_a_copy(session: edge_infer.Session) -> None:
    given = image(3)

    result = session.run({"image": OnADevice(given)})

    np.testing.assert_array_equal(result["logits"], session.run({"image": given})["logits"])


def test_a_device_tensor_is_checked_like_any_other(session: edge_infer.Session) -> None:
    with pytest.raises(edge_infer.InputError, match="dtype float64, expected float32"):
        session.run({"image": OnADevice(image(3).astype(np.float64))})
    with pytest.raises(edge_infer.InputError, match="expected \\(batch, 1, 8, 8\\)"):
        session.run({"image": OnADevice(image(3).reshape(2, 64))})


def test_a_kept_output_is_handed_on_by_dlpack_without_a_copy(session: edge_infer.Session) -> None:
    kept = session.run({"image": image(1)}, keep=["logits"])["logits"]

    shared = np.from_dlpack(kept)

    np.testing.assert_array_equal(shared, session.run({"image": image(1)})["logits"])
    assert shared.ctypes.data == kept.value().data_ptr()


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("Failed to allocate memory for requested buffer of size 4294967296", OutOfMemory),
        ("CUDA failure 2: out of memory ; GPU=0 ; hostname=h ; file=x.cc ; line=1 ; expr=cudaMalloc", OutOfMemory),
        ("CUDA failure 700: an illegal memory access was encountered ; GPU=0", DeviceLost),
        ("CUDA failure 719: unspecified launch failure ; GPU=0", DeviceLost),
        ("Non-zero status code returned while running Gemm node", ExecutionError),
    ],
)
def test_memory_that_is_short_and_a_lost_device_have_their_own_errors(said: str, kind: type[Exception]) -> None:
    error = translate(RuntimeError(f"[ONNXRuntimeError] : 1 : FAIL : {said}"), "run the model", ExecutionError)

    assert type(error) is kind
    assert said in str(error)
