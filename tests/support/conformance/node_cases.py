"""ONNX's node tests for the reference engine: made by the package onnx, or read from a file of another machine."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tests.support.conformance.node_values import as_given

if TYPE_CHECKING:
    from pathlib import Path


class NodeCase(NamedTuple):
    """A model of mostly one node, with the values that the engine takes and those that it has to give."""

    name: str
    model: bytes
    inputs: list[Any]
    outputs: list[Any]
    rtol: float
    atol: float


def collect() -> list[NodeCase]:
    """Make all tests."""
    np.random.seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # numpy's overflows, which the tests are about
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    cases = []
    for case in found:
        assert case.model is not None
        assert case.data_sets is not None
        ((inputs, outputs),) = case.data_sets
        given, wanted = list(map(as_given, inputs)), list(map(as_given, outputs))
        cases.append(NodeCase(case.name, case.model.SerializeToString(), given, wanted, case.rtol, case.atol))
    return cases


def write(cases: list[NodeCase], path: Path) -> None:
    """Write the tests whose values are all arrays of numbers: an emulator would take eight minutes to make them."""
    arrays: dict[str, Any] = {}
    for case in cases:
        if all(isinstance(value, np.ndarray) and value.dtype.kind != "O" for value in (*case.inputs, *case.outputs)):
            arrays[f"{case.name}/model"] = np.frombuffer(case.model, np.uint8)
            arrays[f"{case.name}/bounds"] = np.array([len(case.inputs), len(case.outputs), case.rtol, case.atol])
            for index, value in enumerate((*case.inputs, *case.outputs)):
                arrays[f"{case.name}/{index}"] = value
    np.savez(path, **arrays)


def read(path: Path) -> list[NodeCase]:
    """Read what `write` has written."""
    cases = []
    with np.load(path) as arrays:
        for name in [name.removesuffix("/model") for name in arrays if name.endswith("/model")]:
            inputs, outputs, rtol, atol = arrays[f"{name}/bounds"].tolist()
            values = [arrays[f"{name}/{index}"] for index in range(int(inputs + outputs))]
            model = arrays[f"{name}/model"].tobytes()
            cases.append(NodeCase(name, model, values[: int(inputs)], values[int(inputs) :], rtol, atol))
    return cases
