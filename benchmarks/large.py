"""The memory that large models take in convert, verify and serve, against 1.5 times the file and 500 MB.

    python benchmarks/large.py [--quick] [--json]

The weights are random: what the models compute means nothing, what they cost is what real ones cost. `bert` has the
shape of BERT-base (arXiv:1810.04805), 128 tokens long, 434 MB; `detector` is a backbone of 3x3 convolutions with boxes
and scores at its end, 50 MB; `tower` is a chain of 34 products with their weights in a file beside them, 2,282 MB.
`--quick` takes the detector only.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import networks
from table import publish

from tests.support import limited, real_models

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SECONDS = 900
_START_S = 120
_MB = 1e6


def bert() -> onnx.ModelProto:
    """Build the shape of BERT-base: 12 layers of width 768, 30,522 words."""
    return networks.token_encoder(30522, 768, 12, 12, 128)


def detector() -> onnx.ModelProto:
    """Build convolutions down to 20 x 20, and boxes and scores of 80 classes from there: 640 x 640 images."""
    graph = networks.Graph()
    x, into = "image", 3
    for out, repeats in ((32, 1), (64, 1), (128, 2), (256, 3), (512, 5)):
        for i in range(repeats):
            x = graph.add("Relu", graph.conv(x, into, out, kernel=3, stride=1 if i else 2, relu=False))
            into = out
    for name, channels in (("boxes", 4), ("scores", 80)):
        graph.nodes.append(helper.make_node("Identity", [graph.conv(x, into, channels, kernel=1, relu=False)], [name]))
    whole = helper.make_graph(
        graph.nodes,
        "detector",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, 640, 640])],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, 20, 20])
            for name, channels in (("boxes", 4), ("scores", 80))
        ],
        graph.weights,
    )
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


_WIDTH, _FLOORS = 4096, 34


def save_tower(file: Path, data: Path) -> None:
    """Write a chain of products whose weights lie beside it, one after the other, and two samples."""
    rng = np.random.default_rng(0)
    nbytes = 4 * _WIDTH * _WIDTH
    weights, nodes = [], []
    with file.with_suffix(".bin").open("wb") as stream:
        for i in range(_FLOORS):
            stream.write((rng.standard_normal((_WIDTH, _WIDTH), np.float32) * np.float32(_WIDTH**-0.5)).tobytes())
            tensor = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[_WIDTH, _WIDTH])
            tensor.data_location = TensorProto.EXTERNAL
            for key, said in (("location", stream.name.rpartition("/")[2]), ("offset", i * nbytes), ("length", nbytes)):
                tensor.external_data.add(key=key, value=str(said))
            weights.append(tensor)
            nodes.append(helper.make_node("MatMul", [f"a{i}" if i else "x", f"w{i}"], [f"m{i}"]))
            nodes.append(helper.make_node("Tanh", [f"m{i}"], [f"a{i + 1}" if i + 1 < _FLOORS else "y"]))
    first, last = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", _WIDTH])] for name in "xy")
    graph = helper.make_graph(nodes, "tower", first, last, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file.write_bytes(model.SerializeToString())
    np.savez(data, x=rng.normal(0, 1, (2, _WIDTH)).astype(np.float32))


def samples(model: onnx.ModelProto) -> dict[str, np.ndarray[Any, Any]]:
    """Draw four samples of a model's inputs."""
    rng = np.random.default_rng(0)
    arrays = {}
    for value in model.graph.input:
        shape = (4, *(dim.dim_value for dim in value.type.tensor_type.shape.dim[1:]))
        is_float = value.type.tensor_type.elem_type == TensorProto.FLOAT
        arrays[value.name] = rng.normal(0, 1, shape).astype(np.float32) if is_float else rng.integers(0, 2, shape)
    return arrays


def measure(name: str, save: Callable[[Path, Path], None], precisions: str) -> Iterator[dict[str, Any]]:
    """Take a model, which a function writes with its samples, through the commands; give a row for each."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        data, file = place / "samples.npz", place / f"{name}.onnx"
        # In a process of its own: what a command is said to take at most is never less than what its parent took.
        builder = multiprocessing.get_context("spawn").Process(target=save, args=(file, data))
        builder.start()
        builder.join()
        if builder.exitcode:
            raise SystemExit(f"the model `{name}` was not built")
        with np.load(data) as archive:
            arrays = {key: archive[key] for key in archive.files}
        nbytes = sum(one.stat().st_size for one in place.glob(f"{name}.*"))
        bundle = place / f"{name}.bundle"
        options = ("--precision", precisions, "--format", "onnx", "--calibration", str(data), "--keep-all")
        for command in (("convert", str(file), "-o", str(bundle), *options), ("verify", str(bundle))):
            done = limited.run((*real_models.EDGE_INFER, *command), seconds=_SECONDS, memory_bytes=16 * 10**9)
            failed = "" if done.code == 0 else f": {real_models.said_last(done.err)}"
            yield _row(name, f"{command[0]}{failed}", nbytes, done.peak_bytes, done.seconds)
        began = time.perf_counter()
        peak = served(bundle, name, {key: array[:1] for key, array in arrays.items()})
        yield _row(name, "serve, one request", nbytes, peak, time.perf_counter() - began)


def save_bert(file: Path, data: Path) -> None:
    """Write the shape of BERT-base, and four samples."""
    _save(bert(), file, data)


def save_detector(file: Path, data: Path) -> None:
    """Write the detector, and four samples."""
    _save(detector(), file, data)


def _save(model: onnx.ModelProto, file: Path, data: Path) -> None:
    np.savez(data, **samples(model))  # type: ignore[arg-type]
    onnx.save(model, file)


def _row(name: str, metric: str, nbytes: int, peak: int, seconds: float) -> dict[str, Any]:
    most = (1.5 * nbytes + 500e6) / _MB
    return {
        "name": f"{name}, {nbytes / _MB:.0f} MB, random weights",
        "metric": f"{metric}: peak, MB",
        "ours": peak / _MB,
        "target": round(most),
        "met": peak / _MB <= most and ": " not in metric,
        "seconds": seconds,
    }


def served(bundle: Path, name: str, inputs: dict[str, np.ndarray[Any, Any]]) -> int:
    """Start a server with a bundle, ask it once, and return the most memory that it held."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    # Binary tensors: an image of 640 x 640 as JSON is more than the server takes.
    header = {
        "inputs": [
            {
                "name": key,
                "shape": list(array.shape),
                "datatype": "FP32" if array.dtype.kind == "f" else "INT64",
                "parameters": {"binary_data_size": array.nbytes},
            }
            for key, array in inputs.items()
        ]
    }
    text = json.dumps(header).encode()
    body = b"".join((text, *(array.tobytes() for array in inputs.values())))
    command = (*real_models.EDGE_INFER, "serve", str(bundle), "--port", str(port))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            url = f"http://127.0.0.1:{port}/v2"
            _wait(f"{url}/models/{name}/ready")
            request = urllib.request.Request(
                f"{url}/models/{name}/infer",
                body,
                {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(text))},
            )
            with urllib.request.urlopen(request, timeout=_START_S) as answer:
                answer.read()
            status = Path(f"/proc/{server.pid}/status").read_text()
        finally:
            server.terminate()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def _wait(url: str) -> None:
    end = time.perf_counter() + _START_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            if time.perf_counter() > end:
                raise
            time.sleep(0.2)


def main() -> None:
    """Measure the models and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the detector only")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    asked = parser.parse_args()
    rows = list(measure("detector", save_detector, "fp32,fp16,int8"))
    if not asked.quick:
        rows += measure("bert", save_bert, "fp32,fp16,int8-dynamic")
        rows += measure("tower", save_tower, "fp32,fp16,int8-dynamic")
    publish(rows, ("onnxruntime", "onnx", "numpy"), as_json=asked.json)


if __name__ == "__main__":
    main()
