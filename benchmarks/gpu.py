"""edge-infer on CUDA against raw onnxruntime-gpu and torch.compile, and its server against a naive one.

    python benchmarks/gpu.py [--quick] [--json] [--device cuda:0]

A prepared call is measured against a raw session with IO binding over device tensors, captured in a CUDA graph on both
sides; `run` from host arrays against a raw `run`. Both compute float32 without TensorFloat-32 (a row states what that
costs). With `--device cpu` the script itself is tried on a machine without a GPU, on small networks in half a minute:
its figures then mean nothing.

On a GPU machine with nothing but Python, a driver and this checkout: bring the wheels from where there is a network, in
parts if need be; `[cuda,cudnn]` may be left out where torch or the system has those of the same versions.

    pip download -d wheels 'onnxruntime-gpu[cuda,cudnn]' onnx numpy pytest pytest-timeout click rich
    pip download -d wheels fastapi uvicorn starlette msgspec prometheus-client ml-dtypes
    tar c wheels | split -b 60M - wheels.part-

There put them together once, and run everything that wants a GPU by one command:

    cat wheels.part-* | tar x && python -m venv gpu && gpu/bin/pip install --no-index wheels/*.whl
    gpu/bin/python benchmarks/gpu.py --json > gpu.json && gpu/bin/python -m pytest tests/gpu
"""

from __future__ import annotations

import argparse
import http.client
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
import onnxruntime

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "converters/src")]

from networks import encoder, mobilenet_v2  # noqa: E402  beside this file
from table import publish  # noqa: E402  beside this file

import edge_infer  # noqa: E402
from edge_infer import OnnxRuntimeOptions  # noqa: E402
from edge_infer_converters.passes.fp16 import to_fp16  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CLIENTS, MAX_BATCH, MAX_DELAY_MS = 40, 50, 100
NAIVE = """
import sys, socket
import numpy as np, onnxruntime, uvicorn
from fastapi import FastAPI, Request, Response
onnxruntime.preload_dlls()
model = onnxruntime.InferenceSession(sys.argv[1], providers=[sys.argv[2]])
app = FastAPI()
@app.post("/predict")
async def predict(request: Request):
    x = np.frombuffer(await request.body(), np.float32).reshape(1, 128, -1)
    return Response(model.run(None, {"embeddings": x})[0].tobytes())
sock = socket.create_server(("127.0.0.1", 0))
print(f"http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[sock])
"""


def call_ms(function: Callable[[], Any], seconds: float) -> float:
    """Return the median time of a call in milliseconds."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def interleaved(sides: dict[str, Callable[[], Any]], rounds: int, seconds: float) -> dict[str, list[float]]:
    """Time each side in turn, round after round, in milliseconds a call."""
    for function in sides.values():
        call_ms(function, seconds / 2)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, function in sides.items():
            times[name].append(call_ms(function, seconds))
    return times


def row(
    name: str, times: dict[str, list[float]], ours: str, peer: str, peer_name: str, target: float | None
) -> dict[str, Any]:
    ratios = [mine / other for mine, other in zip(times[ours], times[peer], strict=True)]
    ratio = statistics.median(ratios)
    return {
        "name": name,
        "metric": "ms a call",
        "ours": round(statistics.median(times[ours]), 4),
        "peer_name": peer_name,
        "peer": round(statistics.median(times[peer]), 4),
        "ratio": round(ratio, 3),
        "target": f"<= {target}" if target is not None else None,
        "met": None if target is None else ratio <= target,
        "spread": f"{min(ratios):.3f} to {max(ratios):.3f}",
    }


def raw_session(path: Path, device: str, **settings: str) -> Any:
    index = device.partition(":")[2] or "0"
    providers: list[Any] = ["CPUExecutionProvider"]
    if device != "cpu":
        onnxruntime.preload_dlls()
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": index, "use_tf32": "0"} | settings))
    return onnxruntime.InferenceSession(str(path), providers=providers)


def raw_bound(path: Path, device: str, feed: dict[str, np.ndarray], *, has_graph: bool) -> Callable[[], Any]:
    """Return a call as a careful user of onnxruntime writes it: device tensors, bound once."""
    place = (device.partition(":")[0], int(device.partition(":")[2] or 0))
    session = raw_session(path, device, **({"enable_cuda_graph": "1"} if has_graph else {}))
    make = onnxruntime.OrtValue
    binding = session.io_binding()
    inputs = {name: make.ortvalue_from_numpy(value.copy(), *place) for name, value in feed.items()}
    for name, value in inputs.items():
        binding.bind_ortvalue_input(name, value)
    shapes = [array.shape for array in raw_session(path, device).run(None, feed)]
    outputs = []
    for node, shape in zip(session.get_outputs(), shapes, strict=True):
        outputs.append(make.ortvalue_from_shape_and_type(list(shape), np.float32, *place))
        binding.bind_ortvalue_output(node.name, outputs[-1])

    def call() -> list[np.ndarray]:
        for name, value in inputs.items():
            value.update_inplace(feed[name])
        session.run_with_iobinding(binding)
        return [value.numpy() for value in outputs]

    return call


def model_rows(
    name: str, path: Path, feed: dict[str, np.ndarray], device: str, rounds: int, seconds: float
) -> list[dict[str, Any]]:
    """Measure one model at one batch: the prepared call and `run`, each against its peer."""
    on_gpu = device != "cpu"
    graph = OnnxRuntimeOptions(provider="cuda", cuda_graph=True) if on_gpu else None
    raw = raw_session(path, device)
    wanted = raw.run(None, feed)[0]
    with (
        edge_infer.load(path, device=device, strict=on_gpu) as session,
        edge_infer.load(path, device=device, options=graph) as captured,
    ):
        call = captured.prepare({key: value.shape for key, value in feed.items()})
        bound = raw_bound(path, device, feed, has_graph=on_gpu)
        np.testing.assert_allclose(next(iter(call(feed).values())), wanted, rtol=1e-3, atol=1e-3)
        times = interleaved(
            {
                "prepared": lambda: call(feed),
                "bound": bound,
                "run": lambda: session.run(feed),
                "raw": lambda: raw.run(None, feed),
            },
            rounds,
            seconds,
        )
    return [
        row(f"{name}: prepared call", times, "prepared", "bound", "raw, IO binding, CUDA graph", 1.03),
        row(f"{name}: run from host arrays", times, "run", "raw", "raw run", 1.10),
    ]


def torch_row(name: str, path: Path, feed: dict[str, np.ndarray], device: str, rounds: int, seconds: float) -> Any:
    """Measure a float16 prepared call against torch.compile of the same encoder; None where torch sees no GPU."""
    import torch

    if not torch.cuda.is_available():
        return None
    batch, length, width = feed["embeddings"].shape
    layer = torch.nn.TransformerEncoderLayer(width, width // 64, 4 * width, batch_first=True, activation="gelu")
    net = torch.nn.TransformerEncoder(layer, 12).half().cuda().eval()
    compiled = torch.compile(net, mode="max-autotune-no-cudagraphs")
    host = torch.from_numpy(feed["embeddings"]).half()

    def theirs() -> Any:
        with torch.inference_mode():
            return compiled(host.cuda()).cpu()

    options = OnnxRuntimeOptions(provider="cuda", cuda_graph=True)
    with edge_infer.load(path, device=device, options=options) as session:
        call = session.prepare({"embeddings": (batch, length, width)})
        times = interleaved({"ours": lambda: call(feed), "torch": theirs}, rounds, seconds)
    return row(name, times, "ours", "torch", "torch.compile, fp16", None)


# -- the server --


@contextmanager
def started(command: list[str]) -> Iterator[int]:
    """Run a server that prints its URL once it listens; give its port."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            said = ""
            while not (found := re.search(r"http://127\.0\.0\.1:(\d+)", said)):
                if not (line := process.stdout.readline()):
                    raise SystemExit(f"{' '.join(command[:4])} did not start: {said[-2000:]}")
                said += line
            yield int(found[1])
        finally:
            process.terminate()
            process.wait(30)


def requests_per_s(port: int, path: str, body: bytes, seconds: float) -> float:
    """Keep `CLIENTS` requests in flight from as many threads."""
    done = [0] * CLIENTS
    end = time.perf_counter() + seconds

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while time.perf_counter() < end:
            connection.request("POST", path, body, {"Content-Type": "application/octet-stream"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200, answer.status
            done[number] += 1
        connection.close()

    threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / seconds


@contextmanager
def utilisation(device: str) -> Iterator[list[float]]:
    """Sample how busy the GPU is, in percent, by NVIDIA's own tool."""
    samples: list[float] = []
    if device == "cpu":
        yield samples
        return
    index = device.partition(":")[2] or "0"
    command = ["nvidia-smi", "-i", index, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "200"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield samples
        finally:
            process.terminate()
            samples += [float(line) for line in process.communicate()[0].split() if line.isdigit()]


def server_rows(path: Path, width: int, device: str, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Measure the server's batches against one request at a time, 40 clients each."""
    missing = [name for name in ("fastapi", "starlette") if find_spec(name) is None]
    if missing:
        print(f"The server is not measured: {' and '.join(missing)} missing here", file=sys.stderr)
        return []
    body = np.random.default_rng(0).normal(size=(1, 128, width)).astype(np.float32).tobytes()
    provider = "CPUExecutionProvider" if device == "cpu" else "CUDAExecutionProvider"
    options = [f"--max-batch-size={MAX_BATCH}", f"--max-delay-ms={MAX_DELAY_MS}", "--log-format=none"]
    serve = [sys.executable, "-m", "edge_infer", "serve", str(path), "--port=0", f"--device={device}", *options]
    rates: dict[str, list[float]] = {"ours": [], "naive": []}
    busy: list[float] = []
    with started(serve) as mine, started([sys.executable, "-c", NAIVE, str(path), provider]) as naive:
        for _ in range(rounds):
            with utilisation(device) as samples:
                rates["ours"].append(requests_per_s(mine, f"/v2/models/{path.stem}/infer", body, seconds))
            busy += samples[1:]
            rates["naive"].append(requests_per_s(naive, "/predict", body, seconds))
    ours, peer = statistics.median(rates["ours"]), statistics.median(rates["naive"])
    rows = [
        {
            "name": f"server, encoder, {CLIENTS} clients",
            "metric": "requests/s",
            "ours": round(ours, 1),
            "peer_name": "naive FastAPI",
            "peer": round(peer, 1),
            "ratio": round(ours / peer, 2),
            "target": ">= 10",
            "met": ours >= 10 * peer,
            "spread": f"{min(rates['ours']):.0f} to {max(rates['ours']):.0f}",
        }
    ]
    if busy:
        level = statistics.median(busy)
        rows.append(
            {
                "name": "server, encoder: GPU utilisation",
                "metric": "%",
                "ours": level,
                "peer_name": "-",
                "peer": None,
                "ratio": None,
                "target": "> 70",
                "met": level > 70,
                "spread": f"{min(busy):.0f} to {max(busy):.0f}",
            }
        )
    return rows


class Plan(NamedTuple):
    """How much is measured.

    Attributes:
        rounds: How often each side has its turn.
        seconds: How long one turn of a call takes at least.
        batches: The batch sizes.
        width: Of the large encoder, a multiple of 64.
        depth: Of the large encoder, in layers.
        small_depth: Of the encoder of MiniLM's width, in layers.
        server_rounds: As `rounds`, for the server.
        server_seconds: As `seconds`, for the server.
    """

    rounds: int
    seconds: float
    batches: tuple[int, ...]
    width: int
    depth: int
    small_depth: int
    server_rounds: int
    server_seconds: float


FULL = Plan(7, 0.5, (1, 8, 32, 128), 1024, 12, 6, 2, 10.0)
QUICK = Plan(3, 0.2, (1, 32), 1024, 12, 6, 2, 3.0)
#: Proves on a machine without a GPU that each row is measured and printed.
REHEARSAL = Plan(2, 0.02, (1, 2), 64, 1, 1, 1, 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, batches 1 and 32")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--device", default="cuda:0")
    chosen = parser.parse_args()
    device: str = chosen.device
    plan = REHEARSAL if device == "cpu" else QUICK if chosen.quick else FULL
    width, depth = plan.width, plan.depth
    models = {
        "MobileNetV2": (mobilenet_v2("batch"), "image", (3, 224, 224)),
        "MiniLM-sized encoder": (encoder(384, plan.small_depth, 12), "embeddings", (128, 384)),
        f"encoder {width} x {depth}": (encoder(width, depth, width // 64), "embeddings", (128, width)),
    }
    rows: list[dict[str, Any]] = []
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for name, (model, tensor, shape) in models.items():
            for precision in ("fp32", "fp16"):
                path = Path(folder) / f"{re.sub('[^a-z0-9]+', '_', name.lower())}_{precision}.onnx"
                onnx.save(model if precision == "fp32" else to_fp16(model), path)
                for batch in plan.batches:
                    feed = {tensor: rng.normal(size=(batch, *shape)).astype(np.float32)}
                    rows += model_rows(f"{name} {precision} x{batch}", path, feed, device, plan.rounds, plan.seconds)
                    if name.startswith("encoder") and precision == "fp16" and find_spec("torch") and device != "cpu":
                        title = f"{name} fp16 x{batch}"
                        measured = torch_row(title, path, feed, device, plan.rounds, plan.seconds)
                        rows += [measured] if measured else []
        path = Path(folder) / f"encoder_{width}_x_{depth}_fp32.onnx"
        rows += server_rows(path, width, device, plan.server_rounds, plan.server_seconds)
    publish(
        rows,
        (),
        as_json=chosen.json,
        versions={"edge-infer": edge_infer.__version__, "onnxruntime": onnxruntime.__version__},
        cpu=f"{platform.machine()}, {os.cpu_count()} cores; {device}",
    )


if __name__ == "__main__":
    main()
