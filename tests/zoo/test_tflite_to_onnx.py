"""Each real TFLite file becomes ONNX that computes what LiteRT does, or is refused for what it holds."""

from __future__ import annotations

import pytest

from edge_infer.errors import EdgeInferError
from edge_infer_converters.data.random_inputs import random_set_that_runs
from edge_infer_converters.sources.tflite import load
from tests.support import real_models
from tests.support.converters.engines import near, run_onnx

ZOO = real_models.folder()
NAMES = [] if ZOO is None else [path.name for path in real_models.paths(ZOO) if path.suffix == ".tflite"]
REFUSED = {
    "keyword_scr8.tflite": "LiteRT crashes",
    "keyword_scrambled.tflite": "SVDF",
    "mbv1_edgetpu.tflite": "edgetpu-custom-op",
    "mww_alexa_v1.tflite": "CALL_ONCE.*READ_VARIABLE",
    "planestrike_agents.tflite": "FlexMultinomial",
    "posenet_decoder.tflite": "PosenetDecoderOp",
    "vad_stream.tflite": "CALL_ONCE.*READ_VARIABLE",
}
#: Its LSTM rounds what it keeps from step to step; ONNX keeps floats.
ROUNDS_STATE = ("tflm_dtln.tflite",)

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(ZOO is None, reason="EDGE_INFER_ZOO names no folder of real models"),
]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_it_is_as_near_as_litert_is_to_itself(name: str) -> None:
    assert ZOO is not None
    source = load(ZOO / name)
    made = source.release(("onnx",))[1].SerializeToString()
    plain, usual = source.reference(), source.reference(optimised=True)

    for call in random_set_that_runs(source.inputs, plain.run).calls[:4]:
        wanted = plain.run(call)
        found, own = near(wanted, run_onnx(made, call, optimize=True)), near(wanted, usual.run(call))
        for output, figure in found.items():
            is_float = wanted[output].dtype.kind == "f"
            least = min(90.0, own[output] - 3) if is_float else min(0.999, own[output] - 0.003)
            assert figure >= (0.6 if name in ROUNDS_STATE else least), (output, figure, own[output])


@pytest.mark.parametrize(("name", "said"), REFUSED.items())
def test_what_has_no_form_in_onnx_is_named(name: str, said: str) -> None:
    assert ZOO is not None
    with pytest.raises(EdgeInferError, match=said):
        source = load(ZOO / name)
        found = source.support(("any",), ("onnx",)).onnx
        assert found is not None
        raise found
