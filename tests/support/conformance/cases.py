"""What every ONNX engine must compute: one list, run on each of them, natively and in the page."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import edge_infer
from tests.support import zoo

Feeds = dict[str, Any]


class Case(NamedTuple):
    """A model, its inputs as nested lists, and the outputs that are right."""

    name: str
    model: bytes
    inputs: Feeds
    expected: Feeds


def _identity(dtype: str, values: Any) -> Case:
    shape = ("n", len(values[0]))
    return Case(f"identity_{dtype}", zoo.identity(dtype, shape), {"x": values}, {"y": values})


_FLOATS = [[1.5, -2.0, 0.0]]
_X = np.random.default_rng(7).normal(size=(3, 64)).round(3)

CASES = [
    *(_identity(dtype, _FLOATS) for dtype in ("float32", "float64", "float16", "bfloat16")),
    *(_identity(dtype, [[1, -100, 0]]) for dtype in ("int8", "int16", "int32", "int64")),
    *(_identity(dtype, [[1, 200, 0]]) for dtype in ("uint8", "uint16", "uint32", "uint64")),
    _identity("bool", [[True, False, True]]),
    _identity("string", [["a", "", "é日本"]]),
    Case("int64_extremes", zoo.identity("int64"), {"x": [[2**62, -(2**63), 7]]}, {"y": [[2**62, -(2**63), 7]]}),
    Case("int4", zoo.dequantize("int4"), {"x": [[-8, 7, 1], [2, 3, -1]]}, {"y": [[-4, 3.5, 0.5], [1, 1.5, -0.5]]}),
    Case("uint4", zoo.dequantize("uint4"), {"x": [[0, 15, 1], [2, 3, 4]]}, {"y": [[0, 7.5, 0.5], [1, 1.5, 2]]}),
    Case("empty_batch", zoo.add(), {"left": [], "right": []}, {"sum": []}),
    Case("free_size", zoo.add(), {"left": [1.0, 2.0], "right": [3.0, 4.0]}, {"sum": [4.0, 6.0]}),
    Case("scalar_input", zoo.identity("float32", ()), {"x": 2.5}, {"y": 2.5}),
    Case("scalar_output", zoo.scalar_sum(), {"x": [1.0, 2.0, 4.0]}, {"total": 7.0}),
    Case("data_dependent_shape", zoo.nonzero(), {"x": [0.0, 3.0, 0.0, 1.0]}, {"where": [[1, 3]]}),
    Case("passing_through", zoo.passing_through(), {"x": _FLOATS}, {"x": _FLOATS, "c": [5, 7], "y": [[1.5, 0, 0]]}),
    Case("empty_data_dependent_shape", zoo.nonzero(), {"x": [0.0] * 4}, {"where": [[]]}),
]


EXCUSED = tomllib.loads((Path(__file__).parents[2] / "conformance/excused.toml").read_text("utf-8"))


def agrees(case: Case, backend: str, path: Path) -> bool:
    with edge_infer.load(path, backend=backend, arrays="tensor") as session:
        results = session.run(case.inputs)
    return {name: value.tolist() for name, value in results.items()} == case.expected
