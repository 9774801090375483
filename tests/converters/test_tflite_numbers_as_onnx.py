"""Operators of TFLite files that ONNX defines otherwise: the ONNX that is written gives LiteRT's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from edge_infer.errors import EdgeInferError
from tests.support.converters.tflite_files import File, Value, by_litert, by_onnx, constant, options

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

RNG = np.random.default_rng(3)
AREA = RNG.normal(0, 5, (4, 5, 6)).astype(np.float32)
INTEGERS = np.array([[-9, -7, 5, 9, 8], [2, -3, 4, -1, 7]], np.int32)
REALS = np.array([[2.1, -2.1, -3, 0.3, 1e5], [1.4, 1.4, 6, -0.3, -1e5]], np.float32)
FLAGS = REALS > 0


def of(
    code: str,
    feed: Array,
    more: list[Value],
    shape: tuple[int, ...],
    kind: Any = None,
    dtype: str = "",
    version: int = 1,
) -> tuple[bytes, Array]:
    """Return a file with one operator, and what is fed to it."""
    x, y = Value("x", feed.shape, feed.dtype.name), Value("y", shape, dtype or feed.dtype.name)
    return File([x], [y]).add(code, [x, *more], [y], kind, version).data(), feed


def sliced(**masks: int) -> tuple[bytes, Array]:
    places = [constant(one) for one in ([2, 1, 0], [3, 4, 6], [1, 1, 2])]
    return of("STRIDED_SLICE", AREA, places, (3, 3), options("StridedSlice", **masks))


def one_hot(dtype: str, axis: int = -1) -> tuple[bytes, Array]:
    more = [constant(3), constant(1, dtype), constant(0, dtype)]
    shape = (2, 4, 3) if axis == -1 else (2, 3, 4)
    places = np.array([[0, -1, 2, 5], [1, 1, -3, 0]], np.int32)
    return of("ONE_HOT", places, more, shape, options("OneHot", axis=axis), dtype)


def resized(code: str, extent: int, size: int, corners: bool, centers: bool) -> tuple[bytes, Array]:
    kind = options(code.title().replace("_", ""), alignCorners=corners, halfPixelCenters=centers)
    image = np.arange(extent * size * 2, dtype=np.float32).reshape(1, extent, size, 2)
    return of(code, image, [constant([size, extent])], (1, size, extent, 2), kind, version=3)


def chosen(dtype: str) -> tuple[bytes, Array]:
    sides = [constant(INTEGERS + i, dtype) for i in range(2)]
    return of("SELECT_V2", FLAGS, sides, (2, 5), options("SelectV2"), dtype)


def blocks(code: str, dtype: str) -> tuple[bytes, Array]:
    """Blocks of 2 x 2 pixels, of a type for which ONNX Runtime has no such operator."""
    shapes = [(1, 2, 3, 8), (1, 4, 6, 2)] if code == "DEPTH_TO_SPACE" else [(1, 4, 6, 2), (1, 2, 3, 8)]
    kind = options("DepthToSpace" if code == "DEPTH_TO_SPACE" else "SpaceToDepth", blockSize=2)
    return of(code, np.arange(48, dtype=dtype).reshape(shapes[0]), [], shapes[1], kind)


def widened() -> tuple[bytes, Array]:
    x, y = Value("x", (2, 5), "int16"), Value("y", (2, 5), "int32")
    x.scale, y.scale = 0.1, 0.003
    return File([x], [y]).add("QUANTIZE", [x], [y]).data(), (INTEGERS * 3001).astype(np.int16)


def in_blocks(code: str, shapes: list[tuple[int, ...]], widths: Any, size: Any = (2, 3)) -> tuple[bytes, Array]:
    """Images cut into places of blocks, or put together again."""
    feed = RNG.normal(0, 1, shapes[0]).astype(np.float32)
    return of(code, feed, [constant(size), constant(widths)], shapes[1])


def spectrum(rows: int, columns: int, code: str) -> tuple[bytes, Array]:
    """Floats, their Fourier transform, and a part of it."""
    x, y = Value("x", (2, rows, columns)), Value("y", (2, rows * (columns // 2 + 1)))
    complex_, flat = Value("f", (2, rows, columns // 2 + 1), "complex64"), Value("r", y.shape, "complex64")
    file = File([x], [y]).add("RFFT2D", [x, constant([rows, columns])], [complex_])
    file.add("RESHAPE", [complex_, constant(y.shape)], [flat]).add(code, [flat], [y])
    return file.data(), RNG.normal(0, 1, x.shape).astype(np.float32)


CASES = {
    "blocks become images": in_blocks("SPACE_TO_BATCH_ND", [(2, 3, 4, 5), (12, 2, 2, 5)], [[0, 1], [1, 1]]),
    "images become blocks": in_blocks("BATCH_TO_SPACE_ND", [(12, 2, 2, 5), (2, 3, 4, 5)], [[0, 1], [1, 1]]),
    "rows become images": in_blocks("SPACE_TO_BATCH_ND", [(1, 7, 3), (2, 4, 3)], [[1, 0]], [2]),
    "pixels of whole numbers": blocks("DEPTH_TO_SPACE", "int32"),
    "blocks of long whole numbers": blocks("SPACE_TO_DEPTH", "int64"),
    "16 bits become 32": widened(),
    "an index shrunk and masked is the first": sliced(beginMask=1, shrinkAxisMask=1),
    "an index from the end": sliced(shrinkAxisMask=1),
    "negative indices are off": one_hot("float32"),
    "integers, along a middle axis": one_hot("int32", 1),
    "flags": one_hot("bool"),
    "flags are chosen": chosen("bool"),
    "16 bits are chosen": chosen("int16"),
    "a sum over no axes": of("SUM", AREA, [constant([])], (4, 5, 6), options("Reducer")),
    "any over no axes": of("REDUCE_ANY", FLAGS, [constant([])], (2, 5), options("Reducer")),
    "integers cut off at 6": of(
        "ADD", INTEGERS, [constant([2, -3, 3, 4, 7])], (2, 5), options("Add", fusedActivationFunction=3)
    ),
    "quotients of floats": of(
        "FLOOR_DIV", REALS, [constant([0.7, -0.7, 3, -0.1, 1], "float32")], (2, 5), options("FloorDiv")
    ),
    "quotients of integers": of("FLOOR_DIV", INTEGERS, [constant([2, -3, -3, 4, 7])], (2, 5), options("FloorDiv")),
    "remainders of floats": of(
        "FLOOR_MOD", REALS, [constant([0.7, -0.7, 3, -0.1, 0.3], "float32")], (2, 5), options("FloorMod")
    ),
    "the place of a flag": of("ARG_MAX", FLAGS, [constant(-1)], (2,), options("ArgMax", outputType=2), "int32"),
    "axes from the last": of("TRANSPOSE", AREA, [constant([-1, 0, 1])], (6, 4, 5), options("Transpose")),
}
POINTS = np.array([[2, 0], [5, 3], [2, 0]], np.int32)
VOLUME = RNG.normal(0, 1, (1, 5, 4, 6, 2)).astype(np.float32)
CASES |= {
    "a sum of three": of("ADD_N", REALS, [constant(REALS * 2, "float32"), constant(REALS, "float32")], (2, 5)),
    "zeros": of("ZEROS_LIKE", REALS, [], (2, 5), options("ZerosLike")),
    "how many axes": of("RANK", AREA, [], (), options("Rank"), "int32"),
    "angles": of(
        "ATAN2",
        np.array([[0, 0, 0, 1, 1], [-1, -1, 0, 2, -3]], np.float32),
        [constant([[1, -1, 0, -1, 1], [-1, 1, -2, 0, 0]], "float32")],
        (2, 5),
    ),
    "parts for one place are added": of(
        "SCATTER_ND",
        POINTS,
        [constant([1, 2, 4], "float32"), constant([6, 4])],
        (6, 4),
        options("ScatterNd"),
        "float32",
    ),
    "a part that moves inside": of(
        "DYNAMIC_UPDATE_SLICE",
        AREA,
        [constant(RNG.normal(0, 1, (2, 3, 6)), "float32"), constant([1, 4, -1])],
        AREA.shape,
        options("DynamicUpdateSlice"),
    ),
    "what lies beside in the channels": of(
        "LOCAL_RESPONSE_NORMALIZATION",
        RNG.normal(0, 3, (1, 3, 4, 9)).astype(np.float32),
        [],
        (1, 3, 4, 9),
        options("LocalResponseNormalization", radius=2, bias=1.5, alpha=0.3, beta=0.6),
    ),
    "windows over volumes": of(
        "CONV_3D",
        VOLUME,
        [constant(RNG.normal(0, 0.2, (3, 2, 3, 2, 4)), "float32"), constant([0.1, 0, 0.3, -1], "float32")],
        (1, 3, 2, 3, 4),
        options("Conv3D", strideD=2, strideH=2, strideW=2, dilationDFactor=1, dilationHFactor=1, dilationWFactor=1),
    ),
}
SPECTRA = [(1, 16, "COMPLEX_ABS"), (4, 8, "REAL"), (1, 8, "IMAG"), (2, 16, "COMPLEX_ABS")]
SIDES = [(2, 14), (3, 5), (7, 3), (14, 2), (56, 2), (31, 49)]
RESIZES = [("RESIZE_NEAREST_NEIGHBOR", *one) for one in ((False, False), (True, False), (False, True), (True, True))]
RESIZES += [("RESIZE_BILINEAR", *one) for one in ((False, False), (True, False), (False, True))]


@pytest.mark.parametrize("name", CASES)
def test_the_numbers_are_those_of_litert(name: str) -> None:
    data, feed = CASES[name]
    ((wanted,), (got,)) = by_litert(data, feed), by_onnx(data, feed)

    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(got, wanted, atol=1e-6)


@pytest.mark.parametrize(("rows", "columns", "code"), SPECTRA)
def test_parts_of_a_spectrum_are_those_of_litert(rows: int, columns: int, code: str) -> None:
    data, feed = spectrum(rows, columns, code)

    np.testing.assert_allclose(by_onnx(data, feed)[0], by_litert(data, feed)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("code", "corners", "centers"), RESIZES)
def test_images_of_any_size_are_resized_as_litert_does(code: str, corners: bool, centers: bool) -> None:
    for extent, size in SIDES:
        data, feed = resized(code, extent, size, corners, centers)
        np.testing.assert_allclose(by_onnx(data, feed)[0], by_litert(data, feed)[0], rtol=1e-5, atol=1e-3)


def test_integers_that_onnx_does_not_give_are_refused_by_name() -> None:
    x, y = Value("x", (2, 3)), Value("y", (2, 3), "int32")
    y.scale = 0.1
    data = File([x], [y]).add("QUANTIZE", [x], [y]).data()

    with pytest.raises(EdgeInferError, match="from float32 to int32"):
        by_onnx(data, np.zeros((2, 3), np.float32))


def test_rows_of_two_free_axes_keep_both() -> None:
    weights = constant(RNG.normal(0, 1, (5, 4)), "float32")
    x, y = Value("x", (1, 1, 4), free=(0, 1)), Value("y", (1, 1, 5), free=(0, 1))
    kind = options("FullyConnected", keepNumDims=True)
    data = File([x], [y]).add("FULLY_CONNECTED", [x, weights], [y], kind).data()
    feed = RNG.normal(0, 1, (2, 3, 4)).astype(np.float32)

    ((wanted,), (got,)) = by_litert(data, feed), by_onnx(data, feed)

    assert got.shape == wanted.shape == (2, 3, 5)
    np.testing.assert_allclose(got, wanted, atol=1e-5)


@pytest.mark.parametrize("is_turned", [False, True])
def test_floats_beside_a_matrix_of_integers_are_rounded_by_rows(is_turned: bool) -> None:
    weights = constant(RNG.integers(-127, 128, (5, 64) if is_turned else (64, 5)), "int8")
    weights.scale = 0.02
    x, y = Value("x", (2, 3, 64)), Value("y", (2, 3, 5))
    data = File([x], [y]).add("BATCH_MATMUL", [x, weights], [y], options("BatchMatMul", adjY=is_turned)).data()
    feed = RNG.normal(0, 1, (2, 3, 64)).astype(np.float32)

    np.testing.assert_allclose(by_onnx(data, feed, optimize=True)[0], by_litert(data, feed)[0], atol=1e-4)


@pytest.mark.parametrize("is_turned", [False, True])
def test_a_stored_matrix_of_integers_is_floats_where_the_file_says_so(is_turned: bool) -> None:
    """ONNX Runtime makes `MatMulNBits` of DequantizeLinear and MatMul, and rounds the floats beside it to 8 bits."""
    weights = constant(RNG.integers(-127, 128, (64, 64)), "int8")
    weights.scale = 0.02
    x, y = Value("x", (2, 3, 64), free=(0, 1)), Value("y", (2, 3, 64), free=(0, 1))
    real, turned = Value("real", (64, 64)), Value("turned", (64, 64))
    file = File([x], [y]).add("DEQUANTIZE", [weights], [real])
    if is_turned:
        file.add("TRANSPOSE", [real, constant([1, 0])], [turned])
    data = file.add("BATCH_MATMUL", [x, turned if is_turned else real], [y], options("BatchMatMul")).data()
    feed = RNG.normal(0, 1, (2, 3, 64)).astype(np.float32)

    np.testing.assert_allclose(by_onnx(data, feed, optimize=True)[0], by_litert(data, feed)[0], atol=1e-4)


@pytest.mark.parametrize(("size", "said"), [(1, ""), (2, "gaps between them")])
def test_windows_with_gaps_over_a_free_size(size: int, said: str) -> None:
    x, y = Value("x", (1, 9, 9, 2), free=(1, 2)), Value("y", (1, 3, 3, 2), free=(1, 2))
    kind = options("Pool2D", strideH=3, strideW=3, filterHeight=size, filterWidth=size)
    data = File([x], [y]).add("MAX_POOL_2D", [x], [y], kind).data()
    feed = RNG.normal(0, 1, (1, 11, 10, 2)).astype(np.float32)

    if said:
        with pytest.raises(EdgeInferError, match=said):
            by_onnx(data, feed)
    else:
        np.testing.assert_array_equal(by_onnx(data, feed)[0], by_litert(data, feed)[0])


def test_outputs_may_be_inputs_and_constants_and_have_the_names_of_others() -> None:
    x, a, b = (Value(name, (2, 5)) for name in ("x", "a;b", "b"))
    held = constant(REALS + 1, "float32", "held")
    twin = constant(REALS, "float32", "b")
    file = (
        File([x], [b, x, a, held]).add("ADD", [x, twin], [a], options("Add")).add("MUL", [a, held], [b], options("Mul"))
    )

    wanted, got = by_litert(file.data(), REALS), by_onnx(file.data(), REALS)

    for one, other in zip(wanted, got, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-6)


def test_an_output_with_the_name_of_an_input_is_refused() -> None:
    x, other = Value("x", (2, 5)), Value("x", (2, 5))

    with pytest.raises(EdgeInferError, match="both called `x`"):
        by_onnx(File([x], [other]).add("ABS", [x], [other], options("Abs")).data(), REALS)


def boxes() -> list[Array]:
    corners = np.sort(RNG.random((12, 2, 2)).astype(np.float32), axis=1).reshape(12, 4)
    return [corners, RNG.random(12).astype(np.float32)]


@pytest.mark.parametrize("version", [4, 5])
def test_boxes_that_overlap_are_left_out_as_litert_does(version: int) -> None:
    x, scores = Value("x", (12, 4)), Value("scores", (12,))
    places, kept, count = Value("places", (6,), "int32"), Value("kept", (6,)), Value("count", (), "int32")
    limits = [constant(6), constant(0.3, "float32"), constant(0.2, "float32"), constant(0.0, "float32")]
    made = [places, kept, count] if version == 5 else [places, count]
    code = f"NON_MAX_SUPPRESSION_V{version}"
    data = File([x, scores], made).add(code, [x, scores, *limits[: version - 1]], made).data()
    feeds = boxes()

    wanted, got = by_litert(data, *feeds), by_onnx(data, *feeds)

    assert 0 < int(wanted[-1]) <= 6
    for one, other in zip(wanted, got, strict=True):
        np.testing.assert_array_equal(other, one)


def test_scores_that_fall_with_the_overlap_are_refused() -> None:
    x, scores, places, kept, count = (Value(name, (1,)) for name in ("x", "scores", "places", "kept", "count"))
    limits = [constant(6), *(constant(one, "float32") for one in (0.3, 0.2, 0.5))]
    made = [places, kept, count]
    data = File([x, scores], made).add("NON_MAX_SUPPRESSION_V5", [x, scores, *limits], made).data()

    with pytest.raises(EdgeInferError, match="soft_nms_sigma"):
        by_onnx(data, *boxes())


def loop(most: int) -> File:
    """Double x while the round is below a number, and take the other of two bodies where its sum is above 10."""
    x, y, z = (Value(name, (2, 5)) for name in "xyz")
    number, total, is_large = Value("i", (), "int32"), Value("total", ()), Value("large", (), "bool")
    start, end = constant(0), Value("end", (), "int32")
    file = File([x], [z]).add("WHILE", [x, start], [y, end], options("While", condSubgraphIndex=1, bodySubgraphIndex=2))
    file.add("SUM", [y, constant([0, 1])], [total], options("Reducer"))
    file.add("GREATER", [total, constant(10, "float32")], [is_large], options("Greater"))
    file.add("IF", [is_large, y], [z], options("If", thenSubgraphIndex=3, elseSubgraphIndex=4))
    a, b, more, goes_on = Value("a", (2, 5)), Value("b", (2, 5)), Value("more", (), "int32"), Value("on", (), "bool")
    asks = File([a, number], [goes_on]).add("LESS", [number, constant(most)], [goes_on], options("Less"))
    body = File([a, number], [b, more]).add("ADD", [a, a], [b], options("Add"))
    body.add("ADD", [number, constant(1)], [more], options("Add"))
    halved = File([a], [b]).add("MUL", [a, constant(0.5, "float32")], [b], options("Mul"))
    file.bodies = [asks, body, halved, File([a], [a])]
    return file


@pytest.mark.parametrize("most", [0, 1, 3])
def test_loops_and_branches_are_those_of_litert(most: int) -> None:
    data = loop(most).data()

    for feed in (np.full((2, 5), 0.3, np.float32), np.full((2, 5), 2, np.float32)):
        np.testing.assert_array_equal(by_onnx(data, feed)[0], by_litert(data, feed)[0])


def test_a_body_that_is_not_there_or_holds_itself_is_refused() -> None:
    missing, circle = loop(1), loop(1)
    missing.bodies.pop()
    circle.bodies[3] = _itself()

    for file in (missing, circle):
        with pytest.raises(EdgeInferError, match=r"IF \(subgraph"):
            by_onnx(file.data(), REALS)


def _itself() -> File:
    """Return a body that runs itself."""
    a, b = Value("a", (2, 5)), Value("b", (2, 5))
    kind = options("If", thenSubgraphIndex=4, elseSubgraphIndex=4)
    return File([a], [b]).add("IF", [constant(True, "bool"), a], [b], kind)


def test_numbers_that_go_out_as_complex_are_refused() -> None:
    x, y = Value("x", (1, 8)), Value("y", (1, 5), "complex64")
    data = File([x], [y]).add("RFFT2D", [x, constant([1, 8])], [y]).data()

    with pytest.raises(EdgeInferError, match="complex numbers of `y`"):
        by_onnx(data, np.ones((1, 8), np.float32))


@pytest.mark.parametrize("is_free", [False, True])
def test_the_size_of_a_transposed_convolution_may_be_computed(is_free: bool) -> None:
    free = (0,) if is_free else ()
    x, y = Value("x", (1, 3, 3, 2), free=free), Value("y", (1, 6, 6, 2), free=free)
    shape, batch, size = Value("shape", (4,), "int32"), Value("batch", (), "int32"), Value("size", (4,), "int32")
    places = [constant(one) for one in ([0], [1], [1])]
    file = File([x], [y]).add("SHAPE", [x], [shape], options("Shape", outType=2))
    file.add("STRIDED_SLICE", [shape, *places], [batch], options("StridedSlice", shrinkAxisMask=1))
    file.add("PACK", [batch, constant(6), constant(6), constant(2)], [size], options("Pack", valuesCount=4))
    weights = constant(RNG.normal(0, 1, (2, 3, 3, 2)), "float32")
    data = file.add("TRANSPOSE_CONV", [size, weights, x], [y], options("TransposeConv", strideH=2, strideW=2)).data()
    feed = RNG.normal(0, 1, (2 if is_free else 1, 3, 3, 2)).astype(np.float32)

    np.testing.assert_allclose(by_onnx(data, feed)[0], by_litert(data, feed)[0], atol=1e-5)


def cut_by(code: str) -> tuple[bytes, list[Array]]:
    """A file that cuts x by a place that is an input too."""
    x, i, y = Value("x", (4, 5, 6)), Value("i", (3,), "int32"), Value("y", (5, 2), free=(0, 1))
    if code == "SLICE":
        y = Value("y", (1, 2, 6), free=(0, 1, 2))
        more, kind = [constant([1, 2, -1])], options("Slice")
    else:
        more = [constant([0, 9, 5]), constant([1, 1, 2])]
        kind = options("StridedSlice", shrinkAxisMask=1, beginMask=2)
    return File([x, i], [y]).add(code, [x, i, *more], [y], kind).data(), [AREA, np.array([-1, 3, 2], np.int32)]


@pytest.mark.parametrize("code", ["SLICE", "STRIDED_SLICE"])
def test_places_of_a_cut_may_be_computed(code: str) -> None:
    data, feeds = cut_by(code)
    feeds[1] = np.maximum(feeds[1], 0) if code == "SLICE" else feeds[1]

    ((wanted,), (got,)) = by_litert(data, *feeds), by_onnx(data, *feeds)

    assert wanted.size > 0
    np.testing.assert_array_equal(got, wanted)


def test_places_of_true_elements_and_ranges_that_are_computed() -> None:
    flags, most = Value("flags", (2, 5), "bool"), Value("most", (), "int32")
    found, numbers = Value("found", (1, 2), "int64", free=(0,)), Value("numbers", (1,), "int32", free=(0,))
    file = File([flags, most], [found, numbers]).add("WHERE", [flags], [found], options("Where"))
    data = file.add("RANGE", [constant(3), most, constant(2)], [numbers], options("Range")).data()
    feeds = [FLAGS, np.array(12, np.int32)]

    for one, other in zip(by_litert(data, *feeds), by_onnx(data, *feeds), strict=True):
        np.testing.assert_array_equal(other, one)
