"""Golden examples of large tensors: random inputs are drawn again, outputs are compared on evenly spread elements."""

from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256

import numpy as np
import pytest

from edge_infer.errors import BundleError
from edge_infer.formats.safetensors import read_examples, read_tensors, write_examples, write_tensors
from edge_infer.parity.comparison import Verdict, compare_outputs
from edge_infer.parity.verdict import Limits
from edge_infer.tensors.drawn import CYCLE, can_draw, draw
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.picked import PickedTensor, indices, pick, shape_of_part
from edge_infer.tensors.tensor import Tensor

# The same stand in web/test/golden.test.js.
DIGESTS = {
    "float32": "97a01c59d6691e83508bd4dd89d6796f16ab22df5265fa585e71996174194001",
    "float16": "5dab533f5f1902ad4295e562170aac78ba4fa009b26aa61a55d1db24125633eb",
    "float64": "f9b3f93ccd61fe5af6f92698871e6344085aa59319ea8d6388abb9077053ad14",
    "int8": "732b4dd5c3bcc2ce2f42e02efe1f77e4ed0be75c9529144b325b9bfc7bcc3490",
    "uint8": "732b4dd5c3bcc2ce2f42e02efe1f77e4ed0be75c9529144b325b9bfc7bcc3490",
    "int64": "ba5f93291b5672bf1672f8df30367280af82711edc6447feb50e1a21f7cdc322",
    "bool": "06021f9ead3552dc149e9b5a82375572c8f837088de165e6bf7f298643f218da",
}


@pytest.mark.parametrize("dtype", DIGESTS)
def test_drawn_values_are_the_same_in_every_place(dtype: str) -> None:
    tensor = draw(DType(dtype), (3, 7001), 12)

    assert sha256(tensor.data()).hexdigest() == DIGESTS[dtype]


def test_drawn_floats_are_normal_and_go_around() -> None:
    values = np.asarray(draw(DType.FLOAT32, (2 * CYCLE,), 5))

    assert abs(values.mean()) < 0.02
    assert abs(values.std() - 1) < 0.02
    np.testing.assert_array_equal(values[:CYCLE], values[CYCLE:])
    np.testing.assert_array_equal(np.asarray(draw(DType.FLOAT32, (1,), CYCLE + 5)), values[:1])


def test_drawing_without_numpy_gives_the_same() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from hashlib import sha256\nfrom edge_infer.tensors.drawn import draw\n"
        "from edge_infer.tensors.dtypes import DType\n"
        "print(sha256(draw(DType.FLOAT32, (3, 7001), 12).data()).hexdigest())"
    )

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert said.strip() == DIGESTS["float32"]


def test_no_file_can_ask_for_all_memory() -> None:
    assert not can_draw(DType.STRING)
    with pytest.raises(BundleError, match="are not drawn"):
        draw(DType.FLOAT32, (2**40,), 0)


def test_an_example_of_large_tensors_takes_few_bytes_and_comes_back() -> None:
    whole = np.arange(60_000, dtype=np.float32).reshape(1, 3, 100, 200)
    given = draw(DType.FLOAT32, (1, 3, 100, 200), 99)

    data = write_examples([({"x": given}, {"y": pick(whole, (1, 3, 10, 10)), "z": Tensor.from_list([1.0], "float32")})])
    ((inputs, outputs),) = read_examples(data)

    assert len(data) < 2000
    assert bytes(inputs["x"].data()) == bytes(given.data())
    picked = outputs["y"]
    assert isinstance(picked, PickedTensor)
    assert (picked.shape, picked.whole) == ((1, 3, 10, 10), (1, 3, 100, 200))
    assert picked[0, 2, 9, 9] == whole[0, 2, 99, 199], "the last of each axis is in it"
    assert write_examples([(inputs, outputs)]) == data


def test_other_files_cannot_be_drawn() -> None:
    golden = write_examples([({"x": draw(DType.FLOAT32, (8,), 0)}, {})])

    with pytest.raises(BundleError):
        read_tensors(golden)
    assert read_tensors(write_tensors({"x": draw(DType.FLOAT32, (8,), 0)}))["x"].shape == (8,)


@pytest.mark.parametrize(
    "note", ["picked:4", "picked:1,1", "drawn:0:float32:99999999999", "drawn:-1:int8:2", "drawn:x"]
)
def test_a_note_that_does_not_fit_is_refused(note: str) -> None:
    header = {
        "__metadata__": {"outputs/000/y": note},
        "outputs/000/y": {"dtype": "U8", "shape": [2, 2], "data_offsets": [0, 4]},
    }
    text = json.dumps(header).encode()

    with pytest.raises(BundleError):
        read_examples(len(text).to_bytes(8, "little") + text + bytes(4))


def test_results_are_compared_where_the_reference_has_elements() -> None:
    rng = np.random.default_rng(0)
    whole = rng.normal(0, 1, (1, 84, 900)).astype(np.float32)
    reference = {"y": pick(whole, shape_of_part(whole.shape, 4000))}
    noisy = whole + rng.normal(0, 1e-2, whole.shape).astype(np.float32)
    wrong = whole.copy()
    wrong[:, 7] = 0

    exact, near, lost = (compare_outputs([reference], [{"y": one}])["y"] for one in (whole, noisy, wrong))
    as_tensors = compare_outputs([reference], [{"y": Tensor(noisy.tobytes(), "float32", noisy.shape)}])["y"]

    assert exact.sqnr_db == np.inf
    assert exact.values == reference["y"].size < 4000
    assert abs(near.sqnr_db - 40) < 1
    assert as_tensors == near
    assert lost.max_err > 1
    assert Limits(atol=0.2).judge({"y": near}, [reference], [{"y": noisy}], Verdict("ok", "")).word == "ok"
    assert Limits(atol=0.2).judge({"y": lost}, [reference], [{"y": wrong}], Verdict("ok", "")).word == "fail"


def test_a_result_of_another_shape_is_all_wrong() -> None:
    whole = np.ones((1, 100, 100), np.float32)
    reference = {"y": pick(whole, (1, 10, 10))}

    for other in (whole[:, :99], np.ones((1, 10, 10), np.float32), whole[0]):
        assert compare_outputs([reference], [{"y": other}])["y"].sqnr_db == -np.inf


@pytest.mark.parametrize(
    ("whole", "most", "part"),
    [
        ((1, 257, 257, 21), 16_000, (1, 27, 27, 21)),
        ((1, 84, 900), 4000, (1, 84, 47)),
        ((1, 3, 100, 150), 1000, (1, 3, 18, 18)),
        ((9, 9, 9, 9), 4096, (8, 8, 8, 8)),
        ((10,), 16_000, (10,)),
        ((), 5, ()),
        ((0, 3), 5, (0, 3)),
        ((100, 100), 1, (1, 1)),
    ],
)
def test_the_longest_axes_are_cut_first(whole: tuple[int, ...], most: int, part: tuple[int, ...]) -> None:
    assert shape_of_part(whole, most) == part


def test_indices_are_spread_over_the_axis() -> None:
    assert indices(10, 4) == [0, 3, 6, 9]
    assert indices(5, 5) == [0, 1, 2, 3, 4]
    assert indices(5, 1) == [0]
    assert indices(0, 0) == []
