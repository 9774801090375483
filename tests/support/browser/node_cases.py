"""The ONNX backend node tests (`onnx.backend.test.case.node`), as data that a page can be handed."""

from __future__ import annotations

import base64
import tomllib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from edge_infer.errors import InputError
from edge_infer.tensors.arrays import to_numpy, to_tensor
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onnx.backend.test.case.test_case import TestCase

EXCUSED = Path(__file__).parents[2] / "browser/excused_nodes.toml"


class NodeCase(NamedTuple):
    """One test: a model of one operator, inputs, and the outputs that ONNX's reference gives."""

    name: str
    model: bytes
    inputs: dict[str, Tensor]
    expected: list[Any]
    rtol: float
    atol: float

    def to_json(self) -> dict[str, Any]:
        """Describe it for the page."""
        inputs = {name: tensor_to_json(tensor) for name, tensor in self.inputs.items()}
        return {"name": self.name, "model": base64.b64encode(self.model).decode(), "inputs": inputs}


def collect() -> Iterator[NodeCase | tuple[str, str]]:
    """Generate all tests, those that cannot be handed to any session of tensors as (name, reason)."""
    np.random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's overflows, which the tests are about
        from onnx.backend.test.case.node import collect_testcases

        found = sorted(collect_testcases(None), key=lambda case: str(case.name))
    for case in found:
        try:
            yield _node_case(case)
        except InputError as error:
            yield case.name, error.message


def _node_case(case: TestCase) -> NodeCase:
    assert case.model is not None
    assert case.data_sets is not None
    ((inputs, outputs),) = case.data_sets
    names = [value.name for value in case.model.graph.input]
    feeds = {name: _tensor(value) for name, value in zip(names, inputs, strict=False)}
    for value in outputs:
        _tensor(value)
    return NodeCase(case.name, case.model.SerializeToString(), feeds, list(outputs), case.rtol, case.atol)


def _tensor(value: Any) -> Tensor:
    return to_tensor(_array(value))


def _array(value: Any) -> Any:
    """Return a value of a test as an array; what numpy has no type for comes as a TensorProto."""
    import onnx

    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if not isinstance(value, (np.ndarray, np.generic)):
        raise InputError(f"a {type(value).__name__} is not a tensor")
    return np.asarray(value)


def tensor_to_json(tensor: Tensor) -> list[Any]:
    """Describe a tensor: dtype, shape, and texts or base64."""
    is_text = tensor.dtype is DType.STRING
    data = tensor.reshape(-1).tolist() if is_text else base64.b64encode(tensor.data()).decode()
    return [str(tensor.dtype), list(tensor.shape), data]


def tensor_from_json(described: list[Any]) -> Tensor:
    """Rebuild a tensor."""
    dtype, shape, data = described
    return Tensor(data if dtype == "string" else base64.b64decode(data), dtype, shape)


def difference(case: NodeCase, results: list[list[Any]]) -> str:
    """Tell how a page's results differ from the expected ones; empty where they do not."""
    if len(results) != len(case.expected):
        return f"{len(results)} outputs, expected {len(case.expected)}"
    for described, expected in zip(results, case.expected, strict=True):
        found = to_numpy(tensor_from_json(described))
        wanted = _array(expected)
        if wanted.dtype.kind in "OUS":
            texts = [str(text) for text in wanted.reshape(-1)]
            if found.shape != wanted.shape or found.reshape(-1).tolist() != texts:
                return f"texts {found.tolist()}, expected {wanted.tolist()}"
            continue
        if (found.dtype, found.shape) != (wanted.dtype, wanted.shape):
            return f"{found.dtype}{found.shape}, expected {wanted.dtype}{wanted.shape}"
        if wanted.dtype.kind == "V" or wanted.dtype.itemsize == 1:
            found, wanted = found.astype("float32"), wanted.astype("float32")
        try:
            np.testing.assert_allclose(found, wanted, rtol=case.rtol, atol=case.atol)
        except AssertionError as error:
            return " ".join(str(error).split())[:160]
    return ""


def excused() -> dict[str, str]:
    """Return the excused cases, each with its reason."""
    groups = tomllib.loads(EXCUSED.read_text("utf-8"))["excuse"]
    return {name: group["reason"] for group in groups for name in group["cases"]}
