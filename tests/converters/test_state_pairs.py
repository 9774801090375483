"""Which outputs are state is found from names, or from the recurrent nodes that they come out of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import helper

import edge_infer
from edge_infer_converters import convert
from edge_infer_converters.sources.state_pairs import find_pairs
from tests.support import zoo

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.model_files import WriteModel


def passing(pairs: dict[str, str], shape: tuple[int | str, ...] = (1, 4)) -> onnx.ModelProto:
    """Each input goes to its output, unchanged."""
    nodes = [helper.make_node("Identity", [given], [output]) for given, output in pairs.items()]
    inputs, outputs = ([zoo.value(name, shape) for name in names] for names in (pairs, pairs.values()))
    return onnx.load_from_string(zoo.model(nodes, inputs, outputs))


def lstm() -> bytes:
    """An LSTM over one step; its states are the halves of `a` and `z`, which say nothing, and `x` has their shape."""
    rng = np.random.default_rng(0)
    weights: dict[str, Any] = {
        "W": rng.normal(size=(1, 12, 3)).astype(np.float32),
        "R": rng.normal(size=(1, 12, 3)).astype(np.float32),
        "zero": np.zeros(1, np.int64),
    }
    nodes = [
        helper.make_node("Split", ["a"], ["h0", "c0"], axis=0, num_outputs=2),
        helper.make_node("Slice", ["x", "zero", "one"], ["first"]),
        helper.make_node("LSTM", ["first", "W", "R", "", "", "h0", "c0"], ["steps", "hn", "cn"], hidden_size=3),
        helper.make_node("Concat", ["hn", "cn"], ["z"], axis=0),
        helper.make_node("Relu", ["z"], ["y"]),
    ]
    weights["one"] = np.ones(1, np.int64)
    inputs, outputs = ([zoo.value(name, (2, 1, 3)) for name in names] for names in ("xa", "yz"))
    return zoo.model(nodes, inputs, outputs, weights)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ({"x": "y", "h_in": "h_out", "c_in": "c_out"}, {"h_out": "h_in", "c_out": "c_in"}),
        ({"input": "output", "state": "stateN"}, {"stateN": "state"}),
        ({"x": "y", "h0": "hn", "c0": "cn"}, {"hn": "h0", "cn": "c0"}),
        ({"past_key_values.0.key": "present.0.key"}, {"present.0.key": "past_key_values.0.key"}),
        ({"image_in": "image_out", "input_1": "output_1"}, {}),
        ({"state_a": "state_b"}, {}),
    ],
)
def test_names_tell_state_from_other_tensors(pairs: dict[str, str], expected: dict[str, str]) -> None:
    assert find_pairs(passing(pairs)) == expected


def test_recurrent_nodes_tell_state_without_names() -> None:
    assert find_pairs(onnx.load_from_string(lstm())) == {"z": "a"}


def test_a_stream_of_the_bundle_needs_no_pairs(write_model: WriteModel, tmp_path: Path) -> None:
    bundle = tmp_path / "lstm.bundle"
    convert(write_model(lstm(), "lstm.onnx"), bundle, precision=["fp32"])
    feeds = [{"x": np.full((2, 1, 3), value, np.float32)} for value in (1, 2, 3)]

    with edge_infer.load(bundle) as session, session.stream() as stream, session.stream({"z": "a"}) as told:
        assert [state.to_json() for state in session.bundle.manifest.variants[0].state] == [
            {"kind": "pair", "out": "z", "in": "a"}
        ]
        for feed in feeds:
            np.testing.assert_array_equal(stream.step(feed)["y"], told.step(feed)["y"])
