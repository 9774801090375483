"""What the writer writes runs on tflite-runtime 2.14 of 2023, the last for 32-bit ARM, and gives the same numbers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from edge_infer.errors import ConversionError
from edge_infer_converters.writers import tflite
from tests.support.converters.engines import random_feeds, run_tflite
from tests.support.converters.recurrent import SAYABLE, recurrent
from tests.support.converters.small_models import MODELS, calls_of
from tests.support.converters.tflite_cases import CASES
from tests.support.converters.tflite_quantized import feeds_of, graph_of, ids, image_net, language_net

if TYPE_CHECKING:
    from collections.abc import Mapping

OLD_PYTHON = Path(__file__).parents[2] / ".venv-tflite/bin/python"
_SCRIPT = """
import json, sys
import numpy as np
from tflite_runtime.interpreter import Interpreter
errors = {}
folder, names = sys.argv[1], json.loads(sys.argv[2])
for i, name in enumerate(names):
    try:
        runner = Interpreter(model_path=f"{folder}/{i}.tflite", num_threads=1).get_signature_runner("serving_default")
        np.savez(f"{folder}/{i}.out.npz", **runner(**np.load(f"{folder}/{i}.npz")))
    except (RuntimeError, ValueError) as error:
        errors[name] = str(error)
print(json.dumps(errors))
"""


def on_old_runtime(
    models: Mapping[str, tuple[bytes, dict[str, Any]]], folder: Path
) -> tuple[dict[str, dict[str, np.ndarray[Any, Any]]], dict[str, str]]:
    """Run models in a process of the old runtime; return the outputs of each, and the error of those that fail."""
    for i, (data, feeds) in enumerate(models.values()):
        (folder / f"{i}.tflite").write_bytes(data)
        np.savez(folder / f"{i}.npz", **feeds)
    command = [str(OLD_PYTHON), "-c", _SCRIPT, str(folder), json.dumps(list(models))]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    errors: dict[str, str] = json.loads(done.stdout)
    outputs = {name: dict(np.load(folder / f"{i}.out.npz")) for i, name in enumerate(models) if name not in errors}
    return outputs, errors


def test_every_rule_gives_the_same_numbers_on_the_old_runtime(tmp_path: Path) -> None:
    models = {name: (case.model(), random_feeds(case.model())) for name, case in CASES.items()}
    written = {
        name: (tflite.write(onnx.load_from_string(model)).data, feeds) for name, (model, feeds) in models.items()
    }

    outputs, errors = on_old_runtime(written, tmp_path)

    assert errors == {}
    for name, (data, feeds) in written.items():
        for output, wanted in run_tflite(data, feeds).items():
            got = outputs[name][output]
            np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-4, err_msg=f"{name}: {output}")


def test_static_int8_and_fp16_run_on_the_old_runtime(tmp_path: Path) -> None:
    image, language = graph_of(image_net()), graph_of(language_net())
    models = {
        "image fp16": (image.write("fp16").data, feeds_of(image_net(), 1)[0]),
        "image int8x16": (image.write("int8x16", feeds_of(image_net())).data, feeds_of(image_net(), 1)[0]),
        "language int8x16": (language.write("int8x16", ids()).data, ids(1)[0]),
        "image int8": (image.write("int8", feeds_of(image_net())).data, feeds_of(image_net(), 1)[0]),
        "language fp16": (language.write("fp16").data, ids(1)[0]),
        "language int8": (language.write("int8", ids()).data, ids(1)[0]),
    }

    outputs, errors = on_old_runtime(models, tmp_path)

    assert errors == {}
    for name, (data, feeds) in models.items():
        for output, wanted in run_tflite(data, feeds).items():
            noise = np.square(outputs[name][output] - wanted).mean() / np.square(wanted).mean()
            assert noise < (1e-3 if "int8" in name else 1e-9), name


def test_the_lstm_of_tflite_runs_on_the_old_runtime(tmp_path: Path) -> None:
    models = {}
    for name, settings in SAYABLE.items():
        model = recurrent(**settings)
        graph = tflite.FloatGraph.of_onnx(onnx.load_from_string(model), for_page=False)
        models[name] = (graph.write().data, random_feeds(model))

    outputs, errors = on_old_runtime(models, tmp_path)

    assert errors == {}
    for name, (data, feeds) in models.items():
        for output, wanted in run_tflite(data, feeds).items():
            np.testing.assert_allclose(outputs[name][output], wanted, rtol=1e-3, atol=1e-5, err_msg=name)


#: How far apart the two runtimes may be, as noise to signal: other orders of sums, other roundings of integers.
NOISE = {"fp32": 1e-9, "fp16": 1e-9, "int8": 2e-3, "int8x16": 1e-5, "int8-dynamic": 2e-3, "int4": 2e-3, "mixed": 2e-3}


@pytest.mark.parametrize("word", NOISE)
def test_every_network_gives_the_same_numbers_on_the_old_runtime_or_is_refused_by_it(word: str, tmp_path: Path) -> None:
    """What it lacks it must not compute otherwise: GELU, and weights with a scale for each row."""
    models = {}
    for name, make in MODELS.items():
        model = make()
        calls = calls_of(model, 8)
        try:
            written = tflite.FloatGraph.of_onnx(onnx.load_from_string(model)).write(word, calls)
        except ConversionError:
            continue  # nothing of it is worth storing so
        models[name] = (written.data, calls[0])

    outputs, errors = on_old_runtime(models, tmp_path)

    assert len(outputs) >= (0 if word in ("int8-dynamic", "int4", "mixed") else 10)
    assert {name: error for name, error in errors.items() if "version" not in error} == {}
    for name in outputs:
        data, feeds = models[name]
        for output, wanted in run_tflite(data, feeds).items():
            noise = np.square(outputs[name][output] - wanted).mean()
            assert noise <= NOISE[word] * np.square(wanted).mean() + 1e-12, name


def test_what_its_kernels_would_compute_wrongly_is_refused_by_the_old_runtime(tmp_path: Path) -> None:
    graph = graph_of(language_net())
    models = {word: (graph.write(word).data, ids(1)[0]) for word in ("int8-dynamic", "mixed", "int4")}

    outputs, errors = on_old_runtime(models, tmp_path)

    assert outputs == {}
    assert all("version" in error for error in errors.values())
