"""What the interpreter of the page reads from a `.tflite` file, against what the native one says of it."""

from __future__ import annotations

import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter

from edge_infer.formats.tflite_tables import read_tables
from edge_infer_converters.writers.tflite import write
from tests.support import zoo


def tflite(model: bytes) -> bytes:
    return write(onnx.load_from_string(model), "test").data


@pytest.mark.parametrize("model", [zoo.mlp(), zoo.add(), zoo.identity("int8")], ids=["mlp", "add", "int8"])
def test_the_tables_are_what_the_native_interpreter_tells(model: bytes) -> None:
    content = tflite(model)
    native = Interpreter(model_content=content, num_threads=1)

    tables = read_tables(content)

    for side, details in ((tables.inputs, native.get_input_details()), (tables.outputs, native.get_output_details())):
        assert side == [one["index"] for one in details]
        for number, detail in zip(side, details, strict=True):
            tensor = tables.tensors[number]
            assert (tensor.name, tensor.dtype) == (detail["name"], detail["dtype"].__name__)
            assert tensor.shape == tuple(detail["shape"])
            assert tensor.signature == tuple(detail["shape_signature"])
            assert len(tensor.scales) == len(detail["quantization_parameters"]["scales"])
    listed = {one.key: {"inputs": list(one.inputs), "outputs": list(one.outputs)} for one in tables.signatures}
    assert listed == native.get_signature_list()


def test_bytes_that_lie_are_refused_or_read_and_never_anything_else() -> None:
    content = tflite(zoo.add())
    read = 0
    for place in range(len(content)):
        for value in (0xFF, 0x7F, 0x00):
            changed = bytearray(content)
            changed[place] = value
            try:
                read_tables(bytes(changed))
                read += 1
            except ValueError as error:
                assert "not a valid Flatbuffer" in str(error)
    assert read > 0


@pytest.mark.parametrize("length", [0, 4, 8, 100, 300])
def test_a_file_that_is_cut_short_is_refused_as_natively(length: int) -> None:
    content = tflite(zoo.mlp())[:length]

    with pytest.raises(ValueError, match="not a valid Flatbuffer"):
        read_tables(content)
