"""The targets of a bundle, with the formats and precisions that each takes."""

from __future__ import annotations

from typing import NamedTuple


class Target(NamedTuple):
    """The formats and precisions that one target takes.

    Attributes:
        formats: The formats that an engine there reads; all of them are made unless formats are asked for.
        precisions: What is made unless precisions are asked for.
        others: What else can be asked for.
        searches: Whether `mixed` is made when there is a budget.
    """

    formats: tuple[str, ...]
    precisions: tuple[str, ...]
    others: tuple[str, ...] = ()
    searches: bool = True

    def takes(self, format_: str, word: str) -> bool:
        """Tell whether a variant can be of use there."""
        return format_ in self.formats and word in (*self.precisions, *self.others)


#: In the page, the wasm engine takes int8 or fp32 and WebGPU fp16, all of them ONNX; a compiled model needs no engine,
#: there and on devices. A Raspberry Pi computes half precision by way of float32: fp16 only saves bytes there. A GPU
#: gains nothing by the int8 of CPUs. A microcontroller has no float unit worth the name, and reads TFLite.
TARGETS = {
    "any": Target(
        ("onnx", "tflite", "compiled"),
        ("fp32", "fp16", "int8"),
        ("int8-dynamic", "int8-reduced", "int8x16", "int4", "mixed"),
    ),
    "web": Target(("onnx", "compiled"), ("fp32", "fp16", "int8"), ("int8-dynamic", "int4", "mixed")),
    "pi": Target(
        ("onnx", "tflite", "compiled"), ("fp32", "int8"), ("fp16", "int8-dynamic", "int8x16", "int4", "mixed")
    ),
    "cuda": Target(("onnx",), ("fp32", "fp16"), ("int8", "int8-dynamic", "int4", "mixed")),
    "mcu": Target(("tflite",), ("int8",), ("int8x16",), searches=False),
}
