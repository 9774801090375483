"""What a model takes of a Cortex-M4: flash and stack, before anything is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.kernels.declarations import KERNELS
from edge_infer_converters.writers.microcontroller.text import known_calls

if TYPE_CHECKING:
    from edge_infer_converters.writers.microcontroller.layout import Layout

#: Bytes of each kernel with all that it needs, compiled alone by arm-none-eabi-gcc 12.2: `-Os` for size, `-O2` for
#: speed, with DSP instructions. A test compiles them again.
SIZES: dict[str, dict[str, int]] = {
    "size": {
        "convolution_int8": 802, "depthwise_int8": 536, "convolution_hybrid": 738, "convolution_float": 534,
        "depthwise_float": 476, "average_pool_int8": 312, "average_pool_uint8": 318, "max_pool_int8": 266,
        "average_pool_float": 400, "max_pool_float": 378, "mean_int8": 176, "mean_int8_fixed": 174, "mean_float": 134,
        "add_int8": 216, "add_int8_fixed": 332, "multiply_int8": 304, "multiply_int8_fixed": 280, "binary_float": 360,
        "unary_float": 1240, "table_int8": 34, "softmax_int8": 194, "softmax_int8_fixed": 560, "softmax_float": 928,
        "copy": 186, "fill": 38, "flip_sign": 30, "quantize_float": 144, "quantize_float_fixed": 176,
        "requantize": 186, "quantize_rows": 972, "dequantize_int8": 50, "resize_nearest": 408,
        "resize_bilinear_float": 768, "resize_bilinear_int8": 540, "resize_bilinear_int8_fixed": 652,
        "lstm_int8": 1388, "lstm_float": 1300, "svdf_int8": 542, "trees": 398, "arg_max": 120, "normalize_rows": 182,
        "distances": 174, "pair_votes": 1496, "gather": 102,
    },
    "speed": {
        "convolution_int8": 2104, "depthwise_int8": 1572, "convolution_hybrid": 972, "convolution_float": 752,
        "depthwise_float": 676, "average_pool_int8": 416, "average_pool_uint8": 428, "max_pool_int8": 376,
        "average_pool_float": 556, "max_pool_float": 544, "mean_int8": 224, "mean_int8_fixed": 236, "mean_float": 160,
        "add_int8": 256, "add_int8_fixed": 572, "multiply_int8": 332, "multiply_int8_fixed": 364, "binary_float": 588,
        "unary_float": 1628, "table_int8": 56, "softmax_int8": 220, "softmax_int8_fixed": 704, "softmax_float": 1040,
        "copy": 248, "fill": 56, "flip_sign": 52, "quantize_float": 152, "quantize_float_fixed": 200,
        "requantize": 228, "quantize_rows": 1216, "dequantize_int8": 56, "resize_nearest": 660,
        "resize_bilinear_float": 872, "resize_bilinear_int8": 636, "resize_bilinear_int8_fixed": 836,
        "lstm_int8": 1976, "lstm_float": 1476, "svdf_int8": 620, "trees": 496, "arg_max": 144, "normalize_rows": 276,
        "distances": 240, "pair_votes": 1780, "gather": 128, "connected_int8": 892,
    },
}  # fmt: skip
#: The most that a run takes of the stack: its own frame, a kernel's and those of what that calls.
STACK_BYTES = {"size": 400, "speed": 512}
_CALL_BYTES = 6


def flash_bytes(layout: Layout, way: str) -> int:
    """Estimate the bytes of code and constants on a Cortex-M4, from above.

    Args:
        layout: The model.
        way: `size` or `speed`.
    """
    total = sum(one.data.nbytes for one in layout.arrays)
    total += sum(SIZES[way][name] for name in {layer.kernel for layer in layout.layers})
    known = known_calls(layout, way)
    for layer in layout.layers:
        declared, common = KERNELS[layer.call.kernel], known[layer.kernel].common
        total += _CALL_BYTES + 4 * (len(declared.tensors) + len(declared.floats))
        total += 2 * (len(declared.integers) - len(common))
    return total
