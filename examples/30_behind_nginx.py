"""Several server processes behind nginx, which bring their weights from a signed store; one dies, then a version comes.

    python examples/30_behind_nginx.py [--processes 3]

The digits model is published into a store. Each process is an `edge-infer serve STORE`, which pulls the newest version,
tries it, and follows the store; all share one copy of the files on this machine. nginx sends each request to the
process that has the fewest, and asks another one where a process is full, is stopping or is gone. Clients ask the
whole time: one process is killed, and a second version is published. No request fails.

Needs: pip install 'edge-infer[server,sync,onnxruntime]' edge-infer-converters, and nginx
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from socket import socket
from threading import Event, Lock, Thread

import numpy as np
import onnx
from onnx import numpy_helper

from edge_infer.sync.publish import publish
from edge_infer.sync.repository import Repository
from edge_infer_converters import convert

DIGITS = Path(__file__).parent / "digits"
BODY = json.dumps({"inputs": [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0.5] * 64}]})

# Without `max_fails=0` a process that answers 503, as a full one does, is asked nothing for some seconds; where all
# are, nginx answers 502. One that is gone costs a refused connection. One that hangs keeps its requests: `least_conn`
# gives it hardly any more; after 10 s each of them is asked elsewhere.
SERVER = "server 127.0.0.1:NUMBER max_fails=0;"
CONFIGURATION = """\
daemon off;
pid FOLDER/nginx.pid;
error_log stderr warn;
events {}
http {
    access_log off;
    client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy; fastcgi_temp_path FOLDER/fastcgi;
    uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
    client_max_body_size 64m;                       # as --max-body-mb
    upstream models {
        least_conn;
        SERVERS
        keepalive 64;
    }
    map $http_upgrade $connection_upgrade { default upgrade; "" ""; }
    server {
        listen 127.0.0.1:PORT;
        location / {
            proxy_pass http://models;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Upgrade $http_upgrade;          # WebSockets
            proxy_set_header Connection $connection_upgrade;
            proxy_buffering off;                             # server-sent events, and large answers
            proxy_connect_timeout 2s;
            proxy_read_timeout 75s;
            proxy_next_upstream error timeout http_503;
            location ~ /infer$ {                             # may be asked twice without harm
                proxy_pass http://models;
                proxy_next_upstream error timeout http_503 non_idempotent;
                proxy_read_timeout 10s;                      # longer than your slowest answer
                proxy_next_upstream_timeout 25s;
            }
        }
    }
}
"""


def free_port() -> int:
    with socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def write_version(folder: Path, version: int) -> Path:
    """Convert the digits model, its last bias moved a little by the version."""
    model = onnx.load(DIGITS / "digits.onnx")
    bias = [one for one in model.graph.initializer if one.data_type == onnx.TensorProto.FLOAT][-1]
    bias.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(bias) * np.float32(version), bias.name))
    onnx.save(model, folder / "digits.onnx")
    target = folder / f"digits-{version}.bundle"
    convert(folder / "digits.onnx", target, name="digits", version=str(version), precision="fp32")
    return target


def ask(port: int) -> str:
    """Ask once; return the version that answered."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", "/v2/models/digits/infer", BODY, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        document = json.loads(answer.read())
        if answer.status != 200:
            raise HTTPException(f"status {answer.status}: {document}")
        return str(document["model_version"])
    finally:
        connection.close()


class Clients:
    """Threads that ask without a pause, and count the versions that answer."""

    def __init__(self, port: int, count: int) -> None:
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []
        self._stop, self._lock, self._port = Event(), Lock(), port
        self._threads = [Thread(target=self._run) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.02):
            try:
                version = ask(self._port)
            except (OSError, HTTPException, ValueError) as error:
                with self._lock:
                    self.failures.append(str(error))
            else:
                with self._lock:
                    self.answers[version] += 1

    def wait_for(self, version: str, count: int, timeout_s: float = 120) -> None:
        """Wait until a version has answered so often in a row."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            before = self.answers.copy()
            time.sleep(0.5)
            new = self.answers - before
            if set(new) == {version} and self.answers[version] >= count:
                return
        raise SystemExit(f"version {version} did not come: {dict(self.answers)}, {self.failures[:3]}")

    def stop(self) -> None:
        """End them."""
        self._stop.set()
        for thread in self._threads:
            thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=3)
    count = parser.parse_args().processes
    nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
    if nginx is None:
        raise SystemExit("nginx is not installed: apt-get install nginx-light")
    running: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store, keys = Repository(folder / "store"), folder / "keys"
        store.create(keys)
        publish(write_version(folder, 1), store, keys)
        environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
        try:
            ports = [free_port() for _ in range(count)]
            for port in ports:
                command = [sys.executable, "-m", "edge_infer", "serve", str(folder / "store"), "--port", str(port)]
                running.append(subprocess.Popen([*command, "--log-format", "none"], env=environment))
            for port in ports:
                wait_until_ready(port)
            door = free_port()
            servers = " ".join(SERVER.replace("NUMBER", str(port)) for port in ports)
            text = CONFIGURATION.replace("FOLDER", name).replace("SERVERS", servers).replace("PORT", str(door))
            (folder / "nginx.conf").write_text(text)
            running.append(subprocess.Popen([nginx, "-e", "stderr", "-p", name, "-c", str(folder / "nginx.conf")]))
            wait_until_ready(door)
            clients = Clients(door, 4)
            try:
                clients.wait_for("1", 50)
                running[0].kill()
                killed_at = sum(clients.answers.values())
                clients.wait_for("1", killed_at + 50)
                publish(write_version(folder, 2), Repository(folder / "store"), keys)
                clients.wait_for("2", 50)
            finally:
                clients.stop()
            print(json.dumps({"answers": dict(clients.answers), "failures": clients.failures, "processes": count}))
        finally:
            for one in running:
                one.terminate()
            for one in running:
                one.wait()


def wait_until_ready(port: int, timeout_s: float = 120) -> None:
    """Wait until what listens at a port says that it is ready."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except (OSError, HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(0.1)
    raise SystemExit(f"port {port} is not ready after {timeout_s:.0f} s")


if __name__ == "__main__":
    main()
