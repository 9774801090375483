"""Small graphs of the operators that each TFLite rule is tested with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

from tests.support import zoo

if TYPE_CHECKING:
    from collections.abc import Sequence

    Weights = dict[str, np.ndarray[Any, Any]]


IMAGE = ("batch", 4, 9, 7)


INT32, FLOAT = int(onnx.TensorProto.INT32), int(onnx.TensorProto.FLOAT)


class Case(NamedTuple):
    """A graph of a few nodes from `x` to `y`."""

    nodes: Sequence[onnx.NodeProto]
    shape: Sequence[int | str] = IMAGE
    weights: Weights | None = None
    opset: int = zoo.OPSET
    more_inputs: tuple[str, ...] = ()

    def model(self) -> bytes:
        inputs = [zoo.value(name, self.shape) for name in ("x", *self.more_inputs)]
        return zoo.model(self.nodes, inputs, [zoo.value("y", None)], self.weights, self.opset)


def node(op: str, inputs: str = "x", output: str = "y", **attributes: Any) -> onnx.NodeProto:
    """Make a node; names are parted by blanks, and `_` is an optional input left out."""
    read = ["" if name == "_" else name for name in inputs.split()]
    return helper.make_node(op, read, output.split(), name=f"{op}_{output.split()[0]}", **attributes)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape)).normal(0, 0.5, shape).astype(np.float32)


def scalar(value: float) -> np.ndarray[Any, Any]:
    return np.array(value, np.float32)


def integers(*values: int) -> np.ndarray[Any, Any]:
    return np.array(values, np.int64)


def conv(out: int = 6, per_group: int = 4, size: Sequence[int] = (3, 3), **attributes: Any) -> Case:
    weights = {"w": normal(out, per_group, *size), "b": normal(out)}
    shape = IMAGE if len(size) == 2 else ("batch", 4, 9)
    return Case([node("Conv", "x w b", **attributes)], shape, weights)


def conv_transpose(per_group: int = 6, size: Sequence[int] = (3, 3), **attributes: Any) -> Case:
    count = per_group * int(attributes.get("group", 1))
    weights = {"w": normal(4, per_group, *size), "b": normal(count)}
    return Case([node("ConvTranspose", "x w b", **attributes)], (1, 4, 5, 7) if len(size) == 2 else (1, 4, 9), weights)


def recurrent(op: str, direction: str, **attributes: Any) -> Case:
    """A layer of 5 units over 6 steps of 3 numbers, the batch in the middle."""
    count, gates = 2 if direction == "bidirectional" else 1, {"RNN": 1, "GRU": 3, "LSTM": 4}[op]
    weights = {"w": normal(count, gates * 5, 3), "r": normal(count, gates * 5, 5), "b": normal(count, gates * 10)}
    one = node(op, "x w r b", "y h", hidden_size=5, direction=direction, **attributes)
    return Case([one], (6, 2, 3), weights)


def norm(channels: int) -> Weights:
    parts = {name: normal(channels) for name in ("scale", "bias", "mean")}
    return {**parts, "var": normal(channels) ** 2 + 0.1}


DENSE = {"w": normal(5, 3), "b": normal(3)}


CONV = {"w": normal(6, 4, 3, 3)}


CASES = {
    "conv": conv(),
    "conv-same": conv(pads=[1, 1, 1, 1]),
    "conv-without-bias": Case([node("Conv", "x w", pads=[1, 1, 1, 1])], IMAGE, CONV),
    "conv-strided": conv(strides=[2, 2], pads=[1, 1, 1, 1]),
    "conv-uneven-pads": conv(pads=[2, 0, 1, 3]),
    "conv-same-upper": conv(strides=[2, 3], auto_pad="SAME_UPPER"),
    "conv-same-lower": conv(strides=[2, 2], auto_pad="SAME_LOWER", size=(2, 2)),
    "conv-valid": conv(auto_pad="VALID"),
    "conv-dilated": conv(dilations=[2, 2], pads=[2, 2, 2, 2]),
    "conv-pointwise": conv(size=(1, 1)),
    "conv-groups": conv(per_group=2, group=2),
    "conv-depthwise": conv(out=4, per_group=1, group=4, pads=[1, 1, 1, 1]),
    "conv-depthwise-multiplied": conv(out=8, per_group=1, group=4),
    "conv-depthwise-dilated": conv(out=4, per_group=1, group=4, dilations=[2, 1]),
    "conv-1d": conv(size=(3,), pads=[1, 1]),
    "conv-relu": Case([node("Conv", "x w", "c"), node("Relu", "c")], IMAGE, CONV),
    "conv-relu6": Case(
        [node("Conv", "x w", "c"), node("Clip", "c low high")],
        IMAGE,
        {"w": 4 * normal(6, 4, 3, 3), "low": scalar(0), "high": scalar(6)},
    ),
    "conv-batch-norm": Case(
        [node("Conv", "x w", "c"), node("BatchNormalization", "c scale bias mean var")],
        IMAGE,
        {"w": normal(5, 4, 3, 3), **norm(5)},
    ),
    "batch-norm": Case(
        [node("BatchNormalization", "x scale bias mean var", epsilon=1e-3)],
        IMAGE,
        norm(4),
    ),
    "max-pool": Case([node("MaxPool", kernel_shape=[2, 2], strides=[2, 2])]),
    "max-pool-padded": Case([node("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])]),
    "max-pool-uneven": Case([node("MaxPool", kernel_shape=[3, 3], pads=[0, 0, 2, 1])]),
    "max-pool-ceil": Case([node("MaxPool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)]),
    "max-pool-1d": Case([node("MaxPool", kernel_shape=[3], strides=[2])], ("batch", 4, 9)),
    "average-pool": Case([node("AveragePool", kernel_shape=[2, 3], strides=[2, 2])]),
    "average-pool-same": Case([node("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1])]),
    "average-pool-uneven": Case([node("AveragePool", kernel_shape=[3, 3], pads=[2, 1, 0, 1])]),
    "average-pool-counting": Case(
        [node("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1, strides=[2, 2])]
    ),
    "average-pool-ceil": Case([node("AveragePool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)]),
    "global-average-pool": Case([node("GlobalAveragePool", "x", "p"), node("Flatten", "p")]),
    "global-max-pool": Case([node("GlobalMaxPool")]),
    "gemm": Case([node("Gemm", "x w b")], ("batch", 5), DENSE),
    "gemm-transposed": Case([node("Gemm", "x w b", transB=1)], ("batch", 5), {"w": normal(3, 5), "b": normal(1, 3)}),
    "gemm-factors": Case([node("Gemm", "x w b", alpha=0.5, beta=2.0)], ("batch", 5), DENSE),
    "gemm-scalar-bias": Case([node("Gemm", "x w b")], ("batch", 5), {"w": normal(5, 3), "b": normal(1)}),
    "gemm-column-bias": Case([node("Gemm", "x w b")], (2, 5), {"w": normal(5, 3), "b": normal(2, 1)}),
    "gemm-without-bias": Case([node("Gemm", "x w")], ("batch", 5), {"w": normal(5, 3)}),
    "gemm-turned-input": Case([node("Gemm", "x w", transA=1)], (5, 2), {"w": normal(5, 3)}),
    "gemm-computed": Case([node("Gemm", "x z c", transB=1)], (4, 5), {"c": normal(4)}, more_inputs=("z",)),
    "matmul": Case([node("MatMul", "x w")], ("batch", 5), {"w": normal(5, 3)}),
    "matmul-3d": Case(
        [node("MatMul", "x w", "m"), node("Add", "m b")], ("batch", 6, 5), {"w": normal(5, 3), "b": normal(3)}
    ),
    "matmul-computed": Case([node("Transpose", "x", "t", perm=[0, 2, 1]), node("MatMul", "x t")], ("batch", 6, 5)),
    "matmul-left-constant": Case([node("MatMul", "w x")], ("batch", 6, 5), {"w": normal(1, 3, 6)}),
    "add": Case([node("Add", "x z")], more_inputs=("z",)),
    "subtract-constant": Case([node("Sub", "x c")], IMAGE, {"c": normal(4, 1, 1)}),
    "multiply-from-constant": Case([node("Mul", "c x")], IMAGE, {"c": normal(1, 4, 1, 7)}),
    "divide": Case([node("Exp", "z", "e"), node("Div", "x e")], more_inputs=("z",)),
    "power": Case([node("Abs", "x", "a"), node("Pow", "a c")], IMAGE, {"c": scalar(1.5)}),
    "max-of-three": Case([node("Max", "x z q")], more_inputs=("z", "q")),
    "max-of-three-shapes": Case(
        [node("Max", "x row column", "m"), node("Min", "m column x row")],
        IMAGE,
        {"row": normal(7), "column": normal(9, 1)},
    ),
    "dense-with-a-bias-of-more-axes": Case(
        [node("MatMul", "x w", "m"), node("Add", "m b")], ("batch", 5), {"w": normal(5, 3), "b": normal(1, 1, 3)}
    ),
    "min": Case([node("Min", "x c")], IMAGE, {"c": scalar(0.25)}),
    "residual": Case(
        [node("Conv", "x w", "c", pads=[1, 1, 1, 1]), node("Add", "c x", "s"), node("Relu", "s")],
        IMAGE,
        {"w": normal(4, 4, 3, 3)},
    ),
    "residual-of-two-convolutions": Case(
        [node("Conv", "x w", "c"), node("Conv", "x v", "d"), node("Add", "c d", "s"), node("Mul", "s k")],
        IMAGE,
        {"w": normal(6, 4, 3, 3), "v": normal(6, 4, 3, 3), "k": normal(6, 1, 1)},
    ),
    "clip": Case([node("Clip", "x low high")], IMAGE, {"low": scalar(-0.5), "high": scalar(0.25)}),
    "clip-below": Case([node("Clip", "x low")], IMAGE, {"low": scalar(0.1)}),
    "clip-to-one": Case([node("Clip", "x low high")], IMAGE, {"low": scalar(-1), "high": scalar(1)}),
    "clip-by-attributes": Case([node("Clip", min=0.0, max=6.0)], opset=8),
    "leaky-relu": Case([node("LeakyRelu", alpha=0.2)]),
    "prelu": Case([node("PRelu", "x slope")], IMAGE, {"slope": normal(4, 1, 1)}),
    "prelu-behind-conv": Case(
        [node("Conv", "x w", "c"), node("PRelu", "c slope")], IMAGE, {"w": normal(6, 4, 3, 3), "slope": normal(6, 1, 1)}
    ),
    "elu": Case([node("Elu")]),
    "hard-sigmoid": Case([node("HardSigmoid", alpha=0.25, beta=0.4)]),
    "hard-swish": Case([node("HardSwish")]),
    "gelu": Case([node("Gelu")]),
    "gelu-tanh": Case([node("Gelu", approximate="tanh")]),
    "swish": Case([node("Sigmoid", "x", "s"), node("Mul", "x s")]),
    "cast": Case([node("Cast", "x", "i", to=INT32), node("Cast", "i", to=FLOAT)]),
    "dropout": Case([node("Dropout", "x", "d"), node("Relu", "d")]),
    "flatten": Case([node("Flatten")]),
    "flatten-behind-conv": Case([node("Conv", "x w", "c"), node("Flatten", "c")], IMAGE, CONV),
    "reshape": Case([node("Reshape", "x shape")], IMAGE, {"shape": integers(0, 9, -1)}),
    "reshape-by-shape-arithmetic": Case(
        [
            node("Shape", "x", "dims"),
            node("Gather", "dims zero", "count"),
            node("Unsqueeze", "count first", "counts"),
            node("Concat", "counts rest", "shape", axis=0),
            node("Reshape", "x shape"),
        ],
        IMAGE,
        {"zero": np.array(0, np.int64), "first": integers(0), "rest": integers(-1)},
    ),
    "squeeze": Case([node("Squeeze", "x axes")], ("batch", 1, 5), {"axes": integers(1)}),
    "unsqueeze": Case([node("Unsqueeze", "x axes")], ("batch", 5), {"axes": integers(1, 3)}),
    "transpose": Case([node("Transpose", perm=[0, 2, 3, 1])]),
    "transpose-behind-conv": Case([node("Conv", "x w", "c"), node("Transpose", "c", perm=[0, 2, 3, 1])], IMAGE, CONV),
    "transpose-of-channels-last": Case(
        [node("Conv", "x w", "c"), node("Transpose", "c", perm=[0, 3, 1, 2])], IMAGE, CONV
    ),
    "concat": Case([node("Concat", "x z", axis=1)], more_inputs=("z",)),
    "concat-behind-conv": Case(
        [node("Conv", "x w", "c"), node("Conv", "x v", "d"), node("Concat", "c d", axis=1)],
        IMAGE,
        {"w": normal(6, 4, 3, 3), "v": normal(2, 4, 3, 3)},
    ),
    "pad": Case([node("Pad", "x pads")], IMAGE, {"pads": integers(0, 1, 2, 0, 0, 0, 1, 3)}),
    "pad-with-value": Case(
        [node("Pad", "x pads value")],
        IMAGE,
        {"pads": integers(0, 0, 2, 1, 0, 0, 1, 3), "value": scalar(1.5)},
    ),
    "pad-reflect": Case([node("Pad", "x pads", mode="reflect")], IMAGE, {"pads": integers(0, 0, 2, 1, 0, 0, 1, 2)}),
    "pad-some-axes": Case(
        [node("Pad", "x pads _ axes")], IMAGE, {"pads": integers(1, 2, 3, 0), "axes": integers(2, 3)}
    ),
    "slice": Case(
        [node("Slice", "x starts ends axes steps")],
        IMAGE,
        {"starts": integers(1, -6), "ends": integers(3, 2**62), "axes": integers(1, 3), "steps": integers(1, 2)},
    ),
    "slice-behind-conv": Case(
        [node("Conv", "x w", "c"), node("Slice", "c starts ends axes")],
        IMAGE,
        {"w": normal(6, 4, 3, 3), "starts": integers(2), "ends": integers(5), "axes": integers(1)},
    ),
    "split": Case([node("Split", "x", "a b", axis=1, num_outputs=2), node("Sub", "a b")]),
    "gather": Case([node("Gather", "x rows", axis=1)], IMAGE, {"rows": integers(3, 0, -2)}),
    "softmax": Case([node("Softmax")]),
    "softmax-of-channels": Case([node("Softmax", axis=1)]),
    "softmax-behind-conv": Case([node("Conv", "x w", "c"), node("Softmax", "c", axis=1)], IMAGE, CONV),
    "softmax-of-many-axes": Case([node("Softmax", axis=1)], opset=11),
    "log-softmax": Case([node("LogSoftmax", axis=-1)], ("batch", 10)),
    "reduce-mean": Case([node("ReduceMean", "x axes")], IMAGE, {"axes": integers(2, 3)}),
    "reduce-mean-behind-conv": Case(
        [node("Conv", "x w", "c"), node("ReduceMean", "c axes", keepdims=0)],
        IMAGE,
        {"w": normal(6, 4, 3, 3), "axes": integers(-1, -2)},
    ),
    "reduce-channels-behind-conv": Case(
        [node("Conv", "x w", "c"), node("ReduceMax", "c", axes=[1], keepdims=0)], IMAGE, CONV, 13
    ),
    "reduce-height-behind-conv": Case(
        [node("Conv", "x w", "c"), node("ReduceSum", "c axes", keepdims=0)],
        IMAGE,
        {"w": normal(6, 4, 3, 3), "axes": integers(2)},
    ),
    "layer-norm": Case([node("LayerNormalization", "x s b")], ("batch", 5, 8), {"s": normal(8), "b": normal(8)}),
    "layer-norm-of-two-axes": Case([node("LayerNormalization", "x s", axis=1)], ("batch", 5, 8), {"s": normal(5, 8)}),
    "instance-norm": Case([node("InstanceNormalization", "x s b")], IMAGE, {"s": normal(4), "b": normal(4)}),
    "group-norm": Case([node("GroupNormalization", "x s b", num_groups=2)], IMAGE, {"s": normal(4), "b": normal(4)}),
    "attention": Case(
        [
            node("Split", "x", "q k v", axis=-1, num_outputs=3),
            node("Transpose", "k", "t", perm=[0, 2, 1]),
            node("MatMul", "q t", "scores"),
            node("Mul", "scores scale", "scaled"),
            node("Softmax", "scaled", "share"),
            node("MatMul", "share v"),
        ],
        ("batch", 6, 12),
        {"scale": scalar(0.5)},
    ),
    "attention-operator": Case([node("Attention", "x x x")], (2, 2, 6, 4), opset=23),
    "gelu-of-erf": Case(
        [
            node("Div", "x root", "scaled"),
            node("Erf", "scaled", "e"),
            node("Add", "e one", "plus"),
            node("Mul", "x plus", "product"),
            node("Mul", "product half"),
        ],
        IMAGE,
        {"root": scalar(2**0.5), "one": scalar(1), "half": scalar(0.5)},
        17,
    ),
    "gelu-of-half-first": Case(
        [
            node("Div", "x root", "scaled"),
            node("Erf", "scaled", "e"),
            node("Add", "e one", "plus"),
            node("Mul", "x half", "small"),
            node("Mul", "small plus", "gelu"),
            node("Mul", "gelu two"),
        ],
        IMAGE,
        {"root": scalar(2**0.5), "one": scalar(1), "half": scalar(0.5), "two": scalar(2)},
        17,
    ),
    "sum-of-one": Case([node("Relu", "x", "r"), node("Sum", "r", "s"), node("Tanh", "r", "t"), node("Add", "t s")]),
    "pad-by-nothing": Case(
        [node("Relu", "x", "r"), node("Pad", "r p", "s", mode="edge"), node("Tanh", "r", "t"), node("Add", "t s")],
        IMAGE,
        {"p": integers(*[0] * 8)},
    ),
    **{
        f"resize-{policy}-{mode}-{sizes[0]}": Case(
            [node("Resize", "x _ _ s", mode=mode, keep_aspect_ratio_policy=policy, axes=[2, 3])],
            IMAGE,
            {"s": integers(*sizes)},
        )
        for policy in ("not_larger", "not_smaller")
        for mode in ("nearest", "linear", "cubic")
        for sizes in ((6, 14), (18, 9))
    },
    **{
        f"grid-sample-{padding}-{corners}": Case(
            [
                node("Slice", "x a b c", "s"),
                node("Transpose", "s", "t", perm=[0, 2, 3, 1]),
                node("Mul", "t m", "g"),
                node("GridSample", "x g", padding_mode=padding, align_corners=corners),
            ],
            IMAGE,
            {"a": integers(0), "b": integers(2), "c": integers(1), "m": np.array([0.8, 1.1], np.float32)},
            opset=16,
        )
        for padding in ("zeros", "border")
        for corners in (0, 1)
    },
    **{
        f"affine-grid-{corners}": Case(
            [node("AffineGrid", "x s", align_corners=corners)], (2, 2, 3), {"s": integers(2, 1, 4, 5)}, opset=20
        )
        for corners in (0, 1)
    },
    "slice-back-from-before-the-start": Case(
        [node("Slice", "x s e a t")],
        ("batch", 5),
        {"s": integers(-9), "e": integers(-99), "a": integers(1), "t": integers(-2)},
    ),
    "matmul-with-a-batch-of-one": Case([node("MatMul", "x w")], ("batch", 3, 6, 5), {"w": normal(1, 5, 3)}),
    "matmul-with-a-vector": Case([node("MatMul", "x w")], ("batch", 6, 5), {"w": normal(5)}),
    "where": Case(
        [node("Greater", "x z", "larger"), node("Where", "larger x zero")],
        IMAGE,
        {"zero": scalar(0)},
        more_inputs=("z",),
    ),
    "logic-behind-conv": Case(
        [
            node("Conv", "x w", "c"),
            node("Less", "c low", "a"),
            node("Not", "a", "b"),
            node("And", "b b", "d"),
            node("Where", "d c low"),
        ],
        IMAGE,
        {**CONV, "low": scalar(0.1)},
    ),
    "expand": Case([node("Expand", "x shape")], ("batch", 1, 5), {"shape": integers(1, 4, 5)}),
    "tile": Case([node("Tile", "x times")], ("batch", 2, 5), {"times": integers(1, 2, 3)}),
    "slice-backwards": Case(
        [node("Slice", "x starts ends axes steps")],
        IMAGE,
        {"starts": integers(-1), "ends": integers(-(2**62)), "axes": integers(2), "steps": integers(-2)},
    ),
    "pad-edge": Case([node("Pad", "x pads", mode="edge")], IMAGE, {"pads": integers(0, 0, 2, 1, 0, 0, 1, 2)}),
    "top-k": Case([node("TopK", "x k", "y places", axis=2)], IMAGE, {"k": integers(3)}),
    "arg-max-of-channels": Case(
        [node("Conv", "x w", "c"), node("ArgMax", "c", "p", axis=1), node("Cast", "p", to=FLOAT)], IMAGE, CONV
    ),
    "one-hot": Case(
        [node("ArgMin", "x", "p", axis=1, keepdims=0), node("OneHot", "p depth values")],
        ("batch", 4, 5),
        {"depth": np.array(4, np.int64), "values": np.array([0, 1], np.float32)},
    ),
    "depth-to-space": Case([node("DepthToSpace", blocksize=2)]),
    "depth-to-space-of-columns": Case([node("DepthToSpace", blocksize=2, mode="CRD")], ("batch", 12, 3, 2)),
    "space-to-depth": Case([node("SpaceToDepth", blocksize=2)], ("batch", 3, 4, 6)),
    "conv-transpose": conv_transpose(strides=[2, 2]),
    "conv-transpose-padded": conv_transpose(strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
    "conv-transpose-longer": conv_transpose(strides=[3, 2], output_padding=[2, 1]),
    "conv-transpose-groups": conv_transpose(per_group=3, group=2, dilations=[2, 1]),
    "conv-transpose-1d": conv_transpose(size=(3,), strides=[2], pads=[1, 1]),
    **{
        f"resize-{mode}-{coordinates}-{'up' if scale > 1 else 'down'}": Case(
            [node("Resize", "x _ scales", mode=mode, coordinate_transformation_mode=coordinates)],
            IMAGE,
            {"scales": np.array([1, 1, scale, scale], np.float32)},
        )
        for mode in ("nearest", "linear", "cubic")
        for coordinates in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
        for scale in (2.0, 0.6)
    },
    **{
        f"{op.lower()}-{direction}-{kind}": recurrent(op, direction, **settings)
        for op in ("RNN", "GRU", "LSTM")
        for direction in ("forward", "reverse", "bidirectional")
        for kind, settings in (("plain", {}), *((("after", {"linear_before_reset": 1}),) if op == "GRU" else ()))
    },
    **{op.lower(): Case([node(op)]) for op in ("Erf", "Softplus", "Softsign", "Mish", "Selu", "Celu", "Sign")},
    "elu-of-two": Case([node("Elu", alpha=2.0)]),
    "mean-variance-norm": Case([node("MeanVarianceNormalization")]),
    **{
        op.lower(): Case([node(op, "x axes", keepdims=0)], IMAGE, {"axes": integers(-1, 1)}, 18)
        for op in ("ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")
    },
    "reduce-all": Case([node("ReduceMin", keepdims=0)], (2, 3)),
    **{
        op.lower(): Case([node(op)])
        for op in ("Abs", "Ceil", "Cos", "Exp", "Floor", "Neg", "Relu", "Round", "Sigmoid", "Sin", "Tanh")
    },
    **{op.lower(): Case([node("Exp", "x", "e"), node(op, "e")]) for op in ("Log", "Sqrt")},
}
