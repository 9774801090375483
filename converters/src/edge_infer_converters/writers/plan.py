"""The variants that can be written: format, precision, file name and default targets of each, in bundle order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What a backend must be told so that an int8 variant gives the same numbers everywhere.
ENGINE_OPTIONS = {"onnxruntime": {"session.x64quantprecision": "1"}}


@dataclass(frozen=True, slots=True)
class VariantPlan:
    """One variant to make.

    Attributes:
        format: `onnx`, `tflite` or `compiled`.
        precision: What its weights are stored in.
        file: Its path in the bundle; ONNX files are named as transformers.js names them.
        targets: The targets that it is for.
        options: Per backend, the engine settings that parity needs.
        word: What it is asked for as, where that is not its precision.
        integer_interface: Whether its float inputs and outputs become int8 too.
    """

    format: str
    precision: str
    file: str
    targets: tuple[str, ...]
    options: Mapping[str, Mapping[str, str]]
    word: str = ""
    integer_interface: bool = False

    @property
    def id(self) -> str:
        """Its name in the bundle: `onnx/int8`."""
        return f"{self.format}/{self.word or self.precision}"


#: Every variant, in the order of the manifest.
PLANS = (
    VariantPlan("onnx", "fp32", "onnx/model.onnx", ("any",), {}),
    # CPUs convert half precision back and forth: it saves bytes there, not time.
    VariantPlan("onnx", "fp16", "onnx/model_fp16.onnx", ("cuda", "web"), {}),
    VariantPlan("onnx", "int8", "onnx/model_int8.onnx", ("any",), ENGINE_OPTIONS),
    VariantPlan("onnx", "int8", "onnx/model_quantized.onnx", ("any",), ENGINE_OPTIONS, "int8-dynamic"),
    # Pages, ARM and x86 with VNNI lose 1 to 5 dB by it and gain nothing: taken by name only.
    VariantPlan("onnx", "int8", "onnx/model_int8_reduced.onnx", (), {}, "int8-reduced"),
    VariantPlan("onnx", "int4", "onnx/model_q4.onnx", ("any",), {}),
    VariantPlan("onnx", "mixed", "onnx/model_mixed.onnx", ("any",), {}),
    VariantPlan("tflite", "fp32", "tflite/model.tflite", ("any",), {}),
    VariantPlan("tflite", "fp16", "tflite/model_fp16.tflite", ("any",), {}),
    VariantPlan("tflite", "int8", "tflite/model_int8.tflite", ("any",), {}),
    VariantPlan("tflite", "int8", "tflite/model_int8_dynamic.tflite", ("any",), {}, "int8-dynamic"),
    # For DSPs and microcontrollers: CPUs have no fast kernels for it.
    VariantPlan("tflite", "int8", "tflite/model_int8x16.tflite", ("mcu",), {}, "int8x16"),
    VariantPlan("tflite", "int4", "tflite/model_int4.tflite", ("any",), {}),
    VariantPlan("tflite", "mixed", "tflite/model_mixed.tflite", ("any",), {}),
    # Made of the TFLite file of the same precision. A large float model is for devices: engines of pages are faster.
    VariantPlan("compiled", "fp32", "compiled/model.wasm", ("any",), {}),
    VariantPlan("compiled", "int8", "compiled/model_int8.wasm", ("any",), {}),
)
