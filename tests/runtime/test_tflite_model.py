"""Reading a TFLite file without an engine, and what `edge-infer info` says of one."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter

from edge_infer.formats import tflite as tflite_model
from edge_infer_converters.writers import tflite
from tests.support import zoo
from tests.support.converters.tflite_quantized import feeds_of, graph_of, image_net, language_net

if TYPE_CHECKING:
    from pathlib import Path

MLP = tflite.write(onnx.load_from_string(zoo.mlp())).data


def info(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "edge_infer", "info", str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_it_reads_what_litert_reads() -> None:
    data = graph_of(image_net()).write("int8", feeds_of(image_net(), 2)).data

    file = tflite_model.read(data)

    interpreter = Interpreter(model_content=data)
    details = {detail["index"]: detail for detail in interpreter.get_tensor_details()}
    assert {i: (one.name, one.shape) for i, one in enumerate(file.tensors)} == {
        i: (detail["name"], tuple(int(dim) for dim in detail["shape"])) for i, detail in details.items()
    }
    for i, tensor in enumerate(file.tensors):
        scales = details[i]["quantization_parameters"]["scales"]
        assert (tensor.scales.scales if tensor.scales else ()) == tuple(scales.tolist())
    assert file.inputs == {"image": interpreter.get_input_details()[0]["index"]}
    assert file.outputs == {"score": interpreter.get_output_details()[0]["index"]}


def test_constants_have_their_bytes() -> None:
    weights = onnx.numpy_helper.to_array(onnx.load_from_string(zoo.mlp()).graph.initializer[0])
    file = tflite_model.read(MLP)

    (dense,) = (one for one in file.operators if file.tensors[one.inputs[1]].shape == (32, 64))
    data = file.tensors[dense.inputs[1]].data

    assert data is not None
    np.testing.assert_array_equal(np.frombuffer(data, np.float32).reshape(32, 64), weights.T)


def test_the_arena_reuses_what_is_no_longer_read() -> None:
    """x (64 floats) to the end, the hidden layer (32), and the output (10): in steps of 64 bytes."""
    assert tflite_model.read(MLP).arena_bytes() == 256 + 128 + 64


@pytest.mark.parametrize("word", ["fp32", "fp16", "int8-dynamic", "int4"])
def test_info_names_the_precision(word: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(graph_of(language_net()).write(word).data)

    document = json.loads(info(path, "--json").stdout)

    wanted = {"fp32": "float32", "fp16": "float16", "int8-dynamic": "int8", "int4": "int4"}[word]
    assert document["precision"] == wanted
    assert document["size"] == path.stat().st_size


def test_info_shows_operators_sizes_arena_and_interface(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    written = graph_of(image_net()).write("int8", feeds_of(image_net(), 2), integer_interface=True)
    path.write_bytes(written.data)

    document = json.loads(info(path, "--json").stdout)
    text = info(path).stdout

    assert sum(one["count"] for one in document["operators"]) == len(written.operators)
    assert {one["operator"] for one in document["operators"]} == set(written.operators)
    assert document["inputs"][0]["dtype"] == "int8"
    assert document["inputs"][0]["scale"] > 0
    constants = sum(one["size"] for one in document["tensors"] if one["kind"] == "constants")
    assert 0.5 * document["size"] < constants < document["size"]
    assert 32 * 12 * 12 <= document["arena"] <= 10 * 32 * 12 * 12
    assert "image: int8[1, 4, 12, 12], steps of" in text
    assert "CONV_2D" in text


def test_info_of_a_file_that_is_no_model_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.tflite").write_bytes(b"TFL3" * 20)

    done = info(tmp_path / "bad.tflite")

    assert done.returncode == 1
    assert "error: `bad.tflite` is not a TFLite model" in done.stderr
