"""The ONNX standard's own test of every operator, for the types that TFLite computes with."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper

from edge_infer.errors import EdgeInferError
from edge_infer_converters.writers import tflite
from tests.support.converters.engines import run_tflite

_TYPES = {int(one) for one in (TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL)}
# ONNX's own limit of 1e-7 is below the rounding of a float32 near 1, and below the error of an erf in float32.
_ABSOLUTE = 1e-6

Arrays = dict[str, np.ndarray[Any, Any]]


class NodeCase(NamedTuple):
    """A model of mostly one node, with its inputs and outputs."""

    name: str
    model: bytes
    feeds: Arrays
    wanted: Arrays
    rtol: float


def cases() -> list[NodeCase]:
    """List the cases of float32, integers and bool, those of functions written out apart, that ONNX Runtime passes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        found = collect_testcases(None)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return [
        case
        for one in found
        if not one.name.endswith("_expanded") and "_expanded_" not in one.name
        for case in _of(one)
        if _native_passes(case, options)
    ]


def _of(one: Any) -> list[NodeCase]:
    graph = one.model.graph
    kinds = {value.type.WhichOneof("value") for value in (*graph.input, *graph.output)}
    if kinds != {"tensor_type"}:
        return []
    if not {value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)} <= _TYPES:
        return []
    inputs, outputs = one.data_sets[0]
    feeds = {value.name: _array(given) for value, given in zip(graph.input, inputs, strict=False)}
    wanted = {value.name: _array(given) for value, given in zip(graph.output, outputs, strict=True)}
    return [NodeCase(one.name, one.model.SerializeToString(), feeds, wanted, one.rtol)]


def _array(given: Any) -> np.ndarray[Any, Any]:
    return numpy_helper.to_array(given) if isinstance(given, TensorProto) else np.asarray(given)


def _native_passes(case: NodeCase, options: onnxruntime.SessionOptions) -> bool:
    try:
        session = onnxruntime.InferenceSession(case.model, options, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        got = dict(zip(names, session.run(names, case.feeds), strict=True))
    except Exception:
        return False
    return difference(case, got) == ""


def difference(case: NodeCase, got: Arrays) -> str:
    """Say in what the results are not those that ONNX wants; empty where they are."""
    for name, wanted in case.wanted.items():
        result = got[name]
        if (result.shape, result.dtype) != (wanted.shape, wanted.dtype):
            return f"{name}: {result.dtype}{result.shape}, expected {wanted.dtype}{wanted.shape}"
        if wanted.dtype.kind != "f":
            if not np.array_equal(result, wanted):
                return f"{name}: other values"
        elif not np.allclose(result, wanted, rtol=case.rtol, atol=_ABSOLUTE, equal_nan=True):
            return f"{name}: other values, by up to {np.nanmax(np.abs(result - wanted))}"
    return ""


def judge(case: NodeCase) -> str:
    """Write a case as TFLite and run it: `` where it is right, `refused: ...`, or what is wrong.

    All inputs are computed ones at first. Where the writer refuses that, all but the first are stored in the model, as
    weights, shapes and axes are in real ones.
    """
    said = _judge(case.model, case, case.feeds)
    if not said.startswith("refused") or len(case.feeds) < 2:
        return said
    model = onnx.load_from_string(case.model)
    first = model.graph.input[0]
    stored = {name: value for name, value in case.feeds.items() if name != first.name}
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in stored.items())
    del model.graph.input[:]
    model.graph.input.append(first)
    return _judge(model.SerializeToString(), case, {first.name: case.feeds[first.name]})


def _judge(model: bytes, case: NodeCase, feeds: Arrays) -> str:
    try:
        data = tflite.write(onnx.load_from_string(model)).data
    except EdgeInferError as error:
        return f"refused: {error.message}"
    try:
        return difference(case, run_tflite(data, feeds))
    except (RuntimeError, ValueError) as error:
        return f"LiteRT: {error}"
