"""The kernels that a program calls, and the arguments of each.

A program computes inside one block of memory, the *image*: constants first, then the arena of tensors. A kernel takes
the image and a row of 32-bit arguments: places of tensors (bytes from the start of the image, -1 for an absent one),
then integers, then floats. `kernels/build.py` writes the same rows as C structs.

Layouts, with `round_up(n, m)` for the next multiple of `m`:

- Tensors are dense, the last dimension first in memory; images are batch, height, width, channels.
- Channels of outputs come in groups of 8: `padded = round_up(output_channels, 8)`; the rest is zero. `bias` is int32 or
  float32 `[padded]`, `multipliers` float32 (or int32 in fixed point) `[padded]`, `shifts` int32 `[padded]`, positive
  to the left.
- A convolution's int8 weights are `[padded/8, pairs, 8, 2]`, where `pairs = (kernel_height * kernel_width *
  input_channels + 1) // 2`; its float weights are `[padded/8, kernel_height * kernel_width * input_channels, 8]`.
- A depthwise convolution's int8 weights are `[padded/8, (taps + 1) // 2, 8, 2]` with `taps = kernel_height *
  kernel_width`; its float weights are `[taps, channels]`. Its output has as many channels as its input.
- `weights_zero` is the zero point of int8 weights. A depthwise convolution's odd last tap is filled with it.
- A fully connected layer is a convolution of 1x1 over an image of `rows` by 1.

`scratch` is memory that only the kernel uses, `scratch_bytes` says how much.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class Kernel:
    """The arguments of a kernel by kind, in their order: tensors, integers, floats.

    Attributes:
        words: The number of 32-bit words of a call's arguments.
    """

    __slots__ = ("floats", "integers", "tensors", "words")

    def __init__(self, tensors: str, integers: str, floats: str = "") -> None:
        self.tensors = (*tensors.split(),)
        self.integers = (*integers.split(),)
        self.floats = (*floats.split(),)
        self.words = len(self.tensors) + len(self.integers) + len(self.floats)


_WINDOW = """batch input_height input_width input_channels output_height output_width output_channels
kernel_height kernel_width stride_height stride_width dilation_height dilation_width pad_top pad_left """
#: Two operands against one output of four dimensions: strides in elements, 0 where an operand is repeated.
_BROADCAST = """size_0 size_1 size_2 size_3 first_0 first_1 first_2 first_3 second_0 second_1 second_2 second_3 """
_RESIZE = "batch input_height input_width channels output_height output_width align_corners half_pixel_centers"

_GATES = ("input", "forget", "cell", "output")
_GATE_SCALES = " ".join(f"{g}_multiplier {g}_shift {g}_recurrent_multiplier {g}_recurrent_shift" for g in _GATES)

#: Operations of `unary_float`, by their number.
UNARY = (
    *("clamp", "logistic", "tanh", "exp", "hard_swish", "leaky_relu", "abs", "neg", "sqrt", "rsqrt", "square", "elu"),
    "log",
)
#: Operations of `binary_float`, by their number.
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "prelu", "squared_difference")

#: Every kernel by its name. Without a suffix the rounding is XNNPACK's (float multiplier, half to even); `_fixed` is
#: TFLite's fixed point: twice rounded, or once where `single` is 1 (LiteRT's reference FULLY_CONNECTED).
KERNELS: dict[str, Kernel] = {
    "convolution_int8": Kernel(
        "input weights bias multipliers output scratch", _WINDOW + "input_zero output_zero low high weights_zero"
    ),
    "convolution_int8_fixed": Kernel(
        "input weights bias multipliers shifts output scratch",
        _WINDOW + "input_zero output_zero low high weights_zero single",
    ),
    "depthwise_int8": Kernel(
        "input weights bias multipliers output scratch", _WINDOW + "input_zero output_zero low high weights_zero"
    ),
    "depthwise_int8_fixed": Kernel(
        "input weights bias multipliers shifts output scratch", _WINDOW + "input_zero output_zero low high weights_zero"
    ),
    # Of int8 that `quantize_rows` made of floats: `parameters` are a scale and a zero point for each sample.
    "convolution_hybrid": Kernel("input weights bias multipliers parameters output scratch", _WINDOW, "low high"),
    "convolution_float": Kernel("input weights bias output scratch", _WINDOW, "low high"),
    "depthwise_float": Kernel("input weights bias output", _WINDOW, "low high"),
    "average_pool_int8": Kernel("input output", _WINDOW + "low high"),
    "average_pool_uint8": Kernel("input output", _WINDOW + "low high"),
    "max_pool_int8": Kernel("input output", _WINDOW + "low high"),
    "average_pool_float": Kernel("input output", _WINDOW, "low high"),
    "max_pool_float": Kernel("input output", _WINDOW, "low high"),
    "mean_int8": Kernel("input output", "outer reduced inner input_zero output_zero", "multiplier"),
    "mean_int8_fixed": Kernel("input output", "outer reduced inner input_zero output_zero multiplier shift"),
    "mean_float": Kernel("input output", "outer reduced inner"),
    "add_int8": Kernel(
        "first second output",
        _BROADCAST + "first_multiplier second_multiplier bias shift output_zero low high",
    ),
    "add_int8_fixed": Kernel(
        "first second output",
        _BROADCAST
        + """first_zero second_zero output_zero first_multiplier first_shift second_multiplier second_shift
        output_multiplier output_shift subtract low high""",
    ),
    "multiply_int8": Kernel(
        "first second output", _BROADCAST + "first_zero second_zero output_zero low high", "multiplier"
    ),
    "multiply_int8_fixed": Kernel(
        "first second output", _BROADCAST + "first_zero second_zero output_zero multiplier shift low high"
    ),
    "binary_float": Kernel("first second output", _BROADCAST + "operation", "low high"),
    "unary_float": Kernel("input output", "count operation", "alpha low high"),
    "table_int8": Kernel("input output table", "count"),
    "softmax_int8": Kernel("input output table", "rows columns output_zero output_bytes", "output_scale"),
    "softmax_int8_fixed": Kernel("input output table", "rows columns output_bytes"),
    "softmax_float": Kernel("input output", "rows columns is_log", "beta"),
    "copy": Kernel(
        "input output",
        """size_0 size_1 size_2 size_3 size_4 input_0 input_1 input_2 input_3 input_4
        output_0 output_1 output_2 output_3 output_4 block""",
    ),
    "fill": Kernel("output", "count value bytes"),
    "flip_sign": Kernel("input output", "count"),
    "quantize_float": Kernel("input output", "count zero low high", "scale"),
    "quantize_float_fixed": Kernel("input output", "count zero low high", "scale"),
    "requantize": Kernel(
        "input output", "count input_bytes output_bytes input_zero output_zero multiplier shift low high"
    ),
    # Kind 0 as XNNPACK does, 1 and 2 as TFLite: symmetric, and with a zero point. 1 byte is int8, 4 are floats.
    "quantize_rows": Kernel("input output parameters", "rows columns kind output_bytes"),
    "dequantize_int8": Kernel("input output", "count zero", "scale"),
    "resize_nearest": Kernel("input output", _RESIZE + " element_bytes"),
    "resize_bilinear_float": Kernel("input output", _RESIZE),
    "resize_bilinear_int8": Kernel("input output", _RESIZE),
    "resize_bilinear_int8_fixed": Kernel("input output", _RESIZE),
    # Over a sequence [batch, steps, inputs]. Weights are [4, cells, inputs] and [4, cells, cells], the gates in the
    # order of `_GATES`; `hidden` [batch, cells] and `cell` (int16 or float) are kept from run to run.
    "lstm_int8": Kernel(
        "input output hidden cell weights recurrent bias recurrent_bias scratch",
        f"batch steps inputs cells {_GATE_SCALES} hidden_multiplier hidden_shift hidden_zero cell_bits clip",
    ),
    "lstm_float": Kernel("input output hidden cell weights recurrent bias scratch", "batch steps inputs cells", "clip"),
    # `state` [batch, filters, memory] is kept from run to run, and of as many bytes as `times` [filters, memory].
    "svdf_int8": Kernel(
        "input output state features times bias",
        """batch inputs filters rank memory input_zero output_zero state_zero state_bytes
        feature_multiplier feature_shift time_multiplier time_shift""",
    ),
    # `nodes` are three words each, `votes` two, as trees.c says; `roots` are the first nodes of the trees.
    "trees": Kernel("input output nodes votes roots base scratch", "rows columns targets node_count vote_count trees"),
    "arg_max": Kernel("input output", "rows columns is_lowest"),
    # Kind 0 by the sum of sizes, 1 by the length, 2 by the largest size.
    "normalize_rows": Kernel("input output", "rows columns kind"),
    "distances": Kernel("input points output", "rows columns count"),
    "pair_votes": Kernel("input sigmoids output scratch", "rows classes has_probabilities"),
    "gather": Kernel("input positions output", "outer rows count block"),
}

#: Raised where a kernel's arguments or layouts change: a program and a library of other numbers do not fit.
ABI = 3


def scratch_bytes(kernel: str, arguments: Mapping[str, int]) -> int:
    """Return how much scratch memory a call needs, in bytes.

    Args:
        kernel: The kernel's name.
        arguments: Its integers by name.
    """
    if "scratch" not in KERNELS[kernel].tensors:
        return 0
    if kernel.startswith("lstm"):
        return 4 * arguments["cells"] * (4 if kernel == "lstm_float" else 2)  # the gates of a step
    if kernel == "pair_votes":
        return 8 * arguments["classes"] * (arguments["classes"] + 2)
    if kernel == "trees":
        return 8 * arguments["targets"]  # a double for each sum
    height, width = arguments["kernel_height"], arguments["kernel_width"]
    padded = -(-arguments["output_channels"] // 8) * 8
    taps = height * width * arguments["input_channels"]
    if kernel == "convolution_float":
        return 4 * taps * 4  # four rows of a matrix
    if kernel.startswith("convolution"):
        return 4 * 2 * ((taps + 1) // 2) * 2  # four rows of int16
    rows = (height - 1) * arguments["dilation_height"] + 1
    columns = (arguments["output_width"] - 1) * arguments["stride_width"]
    columns += (width - 1) * arguments["dilation_width"] + 1
    places = 4 * 2 * ((height * width + 1) // 2)  # where each tap lies
    return places + rows * columns * padded * 2  # and a ring of rows of int16
