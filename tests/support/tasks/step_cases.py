"""Chains of steps over sounds, as JSON that CPython, Pyodide and `run_steps.mjs` read. It needs edge_infer alone."""

from __future__ import annotations

import base64
import random
from array import array
from typing import Any

from edge_infer.tasks.audio.sound import Sound
from edge_infer.tasks.item import Item
from edge_infer.tasks.place import Place
from edge_infer.tasks.steps import prepare_chain, read_step
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

_KALDI = {"frame": 400, "fft": 512, "mels": 23, "scale": "htk", "slopes": "mel", "window": "povey", "low_hz": 20.0}
_TENSORFLOW = {"frame": 480, "fft": 512, "hop": 320, "mels": 40, "scale": "htk", "slopes": "mel", "area_norm": False}
#: What is of whole numbers or of additions alone: equal in every bit.
EXACT: dict[str, list[dict[str, Any]]] = {
    "scale": [{"step": "audio.scale", "factor": 32768.0, "clip": 9000.0}],
    "loudest": [{"step": "audio.scale", "by": "loudest"}],
    "highest": [{"step": "audio.scale", "by": "highest", "clip": 1.0}],
    "fit": [{"step": "audio.fit", "samples": 1500}, {"step": "audio.normalize"}],
    "micro": [{"step": "audio.micro_features", "hop": 320, "unit": "int8"}],
    "micro, real": [{"step": "audio.micro_features"}],
}
#: What takes logarithms and cosines, which hosts round differently in the last bit.
NEAR: dict[str, list[dict[str, Any]]] = {
    "kaldi": [
        {"step": "audio.scale", "factor": 32768.0},
        {"step": "audio.log_mel", **_KALDI, "remove_mean": True, "preemphasis": 0.97, "log": "ln", "center": False},
    ],
    "tensorflow": [
        {"step": "audio.log_mel", **_TENSORFLOW, "power": 1, "center": False, "log": "ln_plus_floor", "floor": 1e-6},
        {"step": "audio.mfcc", "coefficients": 10, "norm": "tensorflow"},
        {"step": "tensor.reshape", "shape": [70, 1]},
    ],
    "ortho": [
        {"step": "audio.log_mel", "mels": 30, "log": "ln"},
        {"step": "audio.mfcc", "coefficients": 12},
        {"step": "tensor.fit", "rows": 16, "value": -1.5},
        {"step": "tensor.normalize", "mean": 0.25, "std": 4.5},
    ],
    "cut": [{"step": "audio.log_mel"}, {"step": "tensor.fit", "rows": 3}, {"step": "tensor.normalize", "std": 3.0}],
}


def documents() -> list[dict[str, Any]]:
    """Return every chain with a sound, and with one of silence."""
    chance = random.Random(21)
    noise = [chance.uniform(-1, 1) * (i % 500) / 500 for i in range(2400)]
    sounds = [base64.b64encode(array("f", samples).tobytes()).decode() for samples in (noise, [0.0] * 2400)]
    return [
        {"name": name, "steps": steps, "value": {"kind": "sound", "rate": 16_000, "data": data}}
        for name, steps in {**EXACT, **NEAR}.items()
        for data in sounds
    ]


def answer(document: dict[str, Any]) -> dict[str, Any]:
    """Return what a chain makes of its sound, as `run_steps.mjs` prints it."""
    value = document["value"]
    made: Any = Sound(array("f", base64.b64decode(value["data"])), value["rate"])
    item = Item()
    for step in prepare_chain([read_step(one, "steps") for one in document["steps"]], Place(_nothing, [], [], [])):
        made = step(made, item)
    if isinstance(made, Sound):
        data = base64.b64encode(made.samples.tobytes()).decode()
        return {"kind": "sound", "rate": made.rate, "data": data}
    assert isinstance(made, Tensor)
    data = base64.b64encode(bytes(made.data())).decode()
    return {"kind": "tensor", "dtype": str(made.dtype), "shape": list(made.shape), "data": data}


def numbers(given: dict[str, Any]) -> list[float]:
    """Return the numbers of an answer, all of float32."""
    assert given.get("dtype", "float32") == DType.FLOAT32, given
    return array("f", base64.b64decode(given["data"])).tolist()


def _nothing(path: str) -> bytes:
    raise AssertionError(path)
