"""The models of `serve.py` and the requests that ask them: digits, and two that compute for milliseconds.

The encoder (12 layers of 384 and a table of words, 90 MB, 64 tokens) and MobileNetV2 (14 MB, 224 x 224) have random
weights: what they compute means nothing, what it costs is what the real ones cost.
"""

from __future__ import annotations

import json
import os
import time
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
import onnxruntime
from networks import mobilenet_v2, token_encoder
from serve_wrk import Post

if TYPE_CHECKING:
    from pathlib import Path

OCTETS = "application/octet-stream"
DATATYPES = {"float32": "FP32", "int64": "INT64"}


class Model(NamedTuple):
    """A model in a file, and one row of input for it."""

    name: str
    path: Path
    feeds: dict[str, np.ndarray]

    @property
    def place(self) -> str:
        """The path of its requests."""
        return f"/v2/models/{self.name}/infer"

    def binary(self, **parameters: object) -> Post:
        """Ask with binary tensors of the v2 protocol, for binary tensors."""
        entries = [
            {**_entry(name, value), "parameters": {"binary_data_size": value.nbytes}}
            for name, value in self.feeds.items()
        ]
        head = json.dumps({"inputs": entries, "parameters": {"binary_data_output": True, **parameters}}).encode()
        body = b"".join((head, *(value.tobytes() for value in self.feeds.values())))
        return Post(self.place, body, {"Content-Type": OCTETS, "Inference-Header-Content-Length": str(len(head))})

    def json(self) -> Post:
        """Ask with JSON of the v2 protocol."""
        entries = [{**_entry(name, value), "data": value.reshape(-1).tolist()} for name, value in self.feeds.items()]
        return Post(self.place, json.dumps({"inputs": entries}).encode(), {"Content-Type": "application/json"})

    def raw(self) -> Post:
        """Ask with the bytes of the only input."""
        (value,) = self.feeds.values()
        return Post(self.place, value.tobytes(), {"Content-Type": OCTETS})

    def alone(self, seconds: float) -> float:
        """Return the runs a second of onnxruntime alone, one thread a core: what a server can reach at most."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(self.path), options, providers=["CPUExecutionProvider"])
        session.run(None, self.feeds)
        counts, start = [], time.perf_counter()

        def work() -> None:
            count = 0
            while time.perf_counter() < start + seconds:
                session.run(None, self.feeds)
                count += 1
            counts.append(count)

        threads = [Thread(target=work) for _ in range(len(os.sched_getaffinity(0)))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(counts) / (time.perf_counter() - start)


def _entry(name: str, value: np.ndarray) -> dict[str, object]:
    return {"name": name, "shape": list(value.shape), "datatype": DATATYPES[str(value.dtype)]}


def digits(path: Path) -> Model:
    """Return the example's model: some 50 us a row alone, 10 in a batch."""
    return Model("digits", path, {"image": np.full((1, 1, 8, 8), 0.5, np.float32)})


def encoder(folder: Path) -> Model:
    """Write the encoder: some 20 ms a row."""
    path = folder / "encoder.onnx"
    onnx.save(token_encoder(words=30522, width=384, depth=6, heads=12, length=64), str(path))
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 30522, (1, 64)).astype(np.int64)
    return Model("encoder", path, {"input_ids": ids, "attention_mask": np.ones((1, 64), np.int64)})


def mobilenet(folder: Path) -> Model:
    """Write MobileNetV2: some 12 ms a row."""
    path = folder / "mobilenet_v2.onnx"
    onnx.save(mobilenet_v2("batch"), str(path))
    image = np.random.default_rng(0).normal(size=(1, 3, 224, 224)).astype(np.float32)
    return Model("mobilenet_v2", path, {"image": image})
