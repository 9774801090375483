"""The servers of `serve.py`: ours and its peers, each a process of its own on a free port.

    uv venv .bench/fastapi && uv pip install --python .bench/fastapi fastapi 'uvicorn[standard]' onnxruntime numpy
    uv venv .bench/mosec && uv pip install --python .bench/mosec mosec onnxruntime numpy
    uv venv .bench/litserve && uv pip install --python .bench/litserve litserve onnxruntime numpy
    uv venv .bench/mlserver && uv pip install --python .bench/mlserver mlserver onnxruntime numpy
    uv venv .bench/pytriton && uv pip install --python .bench/pytriton nvidia-pytriton onnxruntime numpy

pytriton is Triton's own core with its Python backend, whose stub must find the interpreter's own libpython: it is
started with `LD_LIBRARY_PATH` at it. `null` is a handler that answers nothing, on the same uvicorn as we: the floor.

Each peer batches up to 32 rows and waits at most 5 ms for them, as its own documentation says how; onnxruntime has one
thread, as with us.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager, ExitStack

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples/digits/digits.onnx"
_START_S = 60.0

_MODEL = """
import sys
import numpy as np, onnxruntime as ort
options = ort.SessionOptions()
options.intra_op_num_threads = 1
def load():
    return ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
"""
_FASTAPI = """
import socket, sys
import numpy as np, onnxruntime as ort, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
model = ort.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
class Body(BaseModel):
    data: list[float]
app = FastAPI()
@app.post("/predict")
def predict(body: Body):
    image = np.array(body.data, np.float32).reshape(1, 1, 8, 8)
    return {"logits": model.run(None, {"image": image})[0].tolist()}
uvicorn.run(app, port=int(sys.argv[2]), log_level="error")
"""
_MOSEC = (
    _MODEL
    + """
from mosec import Server, Worker
class Digits(Worker):
    def __init__(self):
        self.model = ort.InferenceSession(PATH, options, providers=["CPUExecutionProvider"])
    def deserialize(self, data):
        return np.frombuffer(data, np.float32).reshape(1, 8, 8)
    def serialize(self, data):
        return data.tobytes()
    def forward(self, data):
        return list(self.model.run(None, {"image": np.stack(data)})[0])
if __name__ == "__main__":
    server = Server()
    server.append_worker(Digits, num=1, max_batch_size=32, max_wait_time=5)
    server.run()
"""
)
_LITSERVE = (
    _MODEL
    + """
import litserve as ls
class Digits(ls.LitAPI):
    def setup(self, device):
        self.model = load()
    def decode_request(self, request):
        return np.array(request["data"], np.float32).reshape(1, 8, 8)
    def batch(self, inputs):
        return np.stack(inputs)
    def predict(self, images):
        return self.model.run(None, {"image": images})[0]
    def unbatch(self, outputs):
        return list(outputs)
    def encode_response(self, output):
        return {"logits": output.tolist()}
if __name__ == "__main__":
    api = Digits(max_batch_size=32, batch_timeout=0.005)
    server = ls.LitServer(api, accelerator="cpu", fast_queue=True)
    server.run(port=int(sys.argv[2]), num_api_servers=1, generate_client_file=False, log_level="error")
"""
)
_MLSERVER = """
import numpy as np, onnxruntime as ort
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse
class Digits(MLModel):
    async def load(self):
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        self.model = ort.InferenceSession(PATH, options, providers=["CPUExecutionProvider"])
        return True
    async def predict(self, payload):
        image = NumpyCodec.decode_input(payload.inputs[0]).astype(np.float32, copy=False)
        logits = self.model.run(None, {"image": image})[0]
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("logits", logits)])
"""
_PYTRITON = """
import sys, threading, signal
import numpy as np, onnxruntime as ort
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig
options = ort.SessionOptions()
options.intra_op_num_threads = 1
model = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
@batch
def infer(image):
    return {"logits": model.run(None, {"image": image})[0]}
ports = dict(zip(("http_port", "grpc_port", "metrics_port"), map(int, sys.argv[2:5])))
with Triton(config=TritonConfig(http_address="127.0.0.1", log_verbose=0, **ports)) as triton:
    triton.bind(
        model_name="digits",
        infer_func=infer,
        inputs=[Tensor(name="image", dtype=np.float32, shape=(1, 8, 8))],
        outputs=[Tensor(name="logits", dtype=np.float32, shape=(10,))],
        config=ModelConfig(max_batch_size=32, batcher=DynamicBatcher(max_queue_delay_microseconds=5000)),
    )
    triton.run()
    print("ready", flush=True)
    signal.sigwait({signal.SIGTERM})
"""
_NULL = """
import sys
import uvicorn
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"OK"})
uvicorn.run(app, port=int(sys.argv[2]), log_level="error", access_log=False, server_header=False, lifespan="off",
            proxy_headers=False)
"""
#: How each peer tells that it can answer; a peer that is not named here listens only then.
_READY = {"pytriton": "/v2/models/digits/ready", "mlserver": "/v2/models/digits/ready"}


class Server(NamedTuple):
    """A process that listens."""

    port: int
    pid: int

    def cpu_s(self) -> float:
        """Return the CPU seconds that it and its children have used."""
        ticks = 0
        for process in (self.pid, *_children(self.pid)):
            try:
                ticks += _ticks(Path(f"/proc/{process}/stat"))
            except OSError:
                continue
        return ticks / os.sysconf("SC_CLK_TCK")

    def loop_s(self) -> float:
        """Return the CPU seconds of its first thread: the event loop's, without those that run models."""
        schedstat = Path(f"/proc/{self.pid}/task/{self.pid}/schedstat")
        return int(schedstat.read_text().split()[0]) / 1e9

    def resident_bytes(self) -> int:
        """Return the bytes of memory that it occupies."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def peak_bytes(self) -> int:
        """Return the most bytes of memory that it occupied since the last call."""
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")
        return int(found[1]) * 1024 if found else 0


def _ticks(stat: Path) -> int:
    fields = stat.read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            found += [int(child), *_children(int(child))]
    return found


@contextmanager
def started(command: list[str]) -> Iterator[Server]:
    """Run our server, which prints its URL once it listens."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
            if not found:
                raise SystemExit(f"{command[0]} did not start: {line}{process.stdout.read()}")
            yield Server(int(found[1]), process.pid)
        finally:
            process.terminate()
            process.wait(30)


def ours(path: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "edge_infer", "serve", str(path), "--port", "0", "--log-format", "none", *options]


def together(stack: ExitStack, contexts: Sequence[AbstractContextManager[Server]]) -> list[Server]:
    """Start several servers at once: some take ten seconds."""
    with ThreadPoolExecutor(len(contexts)) as threads:
        starting = [threads.submit(context.__enter__) for context in contexts]
    for context, future in zip(contexts, starting, strict=True):
        if future.exception() is None:
            stack.push(context)
    return [future.result() for future in starting]


def store_of(model: Path, folder: Path) -> Path:
    """Publish a model in a new store, as its user does."""
    store, keys, bundle = folder / "store", folder / "keys", folder / "model.bundle"
    for arguments in (
        ("convert", model, "-o", bundle),
        ("store", "keys", "init", store, "--keys", keys),
        ("publish", bundle, store, "--keys", keys),
    ):
        command = [sys.executable, "-m", "edge_infer", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return store


def peer_python(name: str) -> Path:
    return Path(sys.executable) if name == "null" else ROOT / f".bench/{name}/bin/python"


@contextmanager
def peer(name: str, folder: Path) -> Iterator[Server]:
    """Run a peer on a free port, and wait until it answers."""
    port, more, others = _free_ports(3)
    script = folder / f"{name}_server.py"
    python = str(peer_python(name))
    command = [python, str(script), str(DIGITS), str(port), str(more), str(others)]
    environment = dict(os.environ)
    if name == "mlserver":
        (folder / "model.py").write_text(_MLSERVER.replace("PATH", repr(str(DIGITS))))
        ports = {"http_port": port, "grpc_port": more, "metrics_port": others}
        (folder / "settings.json").write_text(json.dumps({**ports, "parallel_workers": 0, "host": "127.0.0.1"}))
        model = {"name": "digits", "implementation": "model.Digits", "max_batch_size": 32, "max_batch_time": 0.005}
        (folder / "model-settings.json").write_text(json.dumps(model))
        command = [str(Path(python).parent / "mlserver"), "start", str(folder)]
    elif name == "mosec":
        # Its workers import the script again, so that nothing may depend on the arguments.
        script.write_text(_MOSEC.replace("PATH", repr(str(DIGITS))))
        command = [python, str(script), "--port", str(port), "--address", "127.0.0.1"]
    else:
        texts = {"fastapi": _FASTAPI, "litserve": _LITSERVE, "pytriton": _PYTRITON, "null": _NULL}
        script.write_text(texts[name])
    if name == "pytriton":
        code = "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"
        library = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        environment |= {"LD_LIBRARY_PATH": library, "PATH": f"{Path(python).parent}:{os.environ['PATH']}"}
    log = folder / f"{name}.log"
    with (
        log.open("wb") as file,
        subprocess.Popen(
            command, stdout=file, stderr=file, cwd=folder, start_new_session=True, env=environment
        ) as process,
    ):
        try:
            end = time.monotonic() + _START_S
            while not _answers(port, _READY.get(name, "")):
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{name} did not start: {log.read_text()[-2000:]}")
                time.sleep(0.1)
            yield Server(port, process.pid)
        finally:
            for child in _children(process.pid):
                _end(child)
            process.terminate()
            process.wait(30)


@contextmanager
def behind_nginx(server: Server, folder: Path) -> Iterator[Server]:
    """Run Debian's nginx in front of a server of mosec; as usual, it takes a request whole before it asks."""
    (port,) = _free_ports(1)
    folder = Path(tempfile.mkdtemp(dir=folder))
    settings = folder / "nginx.conf"
    settings.write_text(f"""
daemon off; master_process off; pid {folder}/pid; error_log {folder}/log;
events {{ worker_connections 4096; }}
http {{
  access_log off; client_max_body_size 64m; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream mosec {{ server 127.0.0.1:{server.port}; keepalive 16; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      rewrite ^ /inference break;
      proxy_pass http://mosec; proxy_http_version 1.1; proxy_set_header Connection "";
    }}
  }}
}}
""")
    with subprocess.Popen(["nginx", "-c", str(settings), "-e", str(folder / "log")]) as process:
        try:
            while not _answers(port, ""):
                if process.poll() is not None:
                    raise SystemExit(f"nginx did not start: {(folder / 'log').read_text()}")
                time.sleep(0.1)
            yield Server(port, process.pid)
        finally:
            process.terminate()
            process.wait(30)


def _answers(port: int, path: str) -> bool:
    """Tell whether a server listens and, where there is a path, answers it with 200."""
    try:
        if not path:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        connection = HTTPConnection("127.0.0.1", port, timeout=1)
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
