"""The server on a local Ray: what `test_ray` runs in Ray's environment, `python -m tests.support.server.on_ray`."""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from struct import pack
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from edge_infer.errors import DeviceLost
from edge_infer.formats.safetensors import FRAME

#: A value whose request loses the replica's device.
FATAL = 666.0
#: How long replicas may take to come, in seconds.
PATIENCE_S = 200.0


def lose_device_when_told() -> None:
    """Change the engine of this process: Ray calls it in each of its workers."""
    from edge_infer.server.execution import job
    from edge_infer.server.execution.run_batch import run_batch

    def run_or_fail(session: Any, batch: Any) -> Any:
        if any(float(request.inputs["x"][0, 0]) == FATAL for request in batch.requests):
            return [DeviceLost("the device is lost")] * len(batch.requests)
        return run_batch(session, batch)

    vars(job)["run_batch"] = run_or_fail


def start() -> str:
    """Start Ray and two replicas; return their URL, or end with the reason in Ray's own words."""
    import ray
    from ray import serve

    from edge_infer.server.ray_app import make_deployment

    hook = {"worker_process_setup_hook": "tests.support.server.on_ray.lose_device_when_told"}
    try:
        ray.init(
            num_cpus=1, include_dashboard=False, object_store_memory=80 * 2**20, log_to_driver=False, runtime_env=hook
        )
    except Exception as error:
        print("NO RAY:", error, *ray_said(), sep="\n")
        sys.exit()
    with socket.create_server(("127.0.0.1", 0)) as free:  # not before: Ray itself takes ports while it starts
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    replicas = make_deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.25}, health_check_period_s=1)
    serve.run(replicas, route_prefix="/")
    return f"http://127.0.0.1:{port}"


def ray_said() -> list[str]:
    """Return the last lines of the logs of what did not start."""
    said = []
    for path in sorted(Path(os.environ["RAY_TMPDIR"]).rglob("session_2*/logs/*")):
        if path.name.partition(".")[0] in ("gcs_server", "raylet", "dashboard_agent") and path.is_file():
            said += [f"{path.name}: {line}" for line in path.read_text(errors="replace").splitlines()[-5:]]
    return said


def post(url: str, document: dict[str, Any]) -> tuple[int, str]:
    request = Request(url, json.dumps(document).encode(), {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=60) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def asked(value: float, **parameters: object) -> dict[str, Any]:
    entry = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [value] * 3}
    return {"inputs": [entry], "parameters": parameters}


def replicas_at(url: str) -> set[str]:
    """Ask until two replicas answered; return when their processes started."""
    found: set[str] = set()
    end = time.monotonic() + PATIENCE_S
    while len(found) < 2 and time.monotonic() < end:
        with urlopen(f"{url}/metrics", timeout=60) as response:
            lines = response.read().decode().splitlines()
        found |= {line for line in lines if line.startswith("process_start_time_seconds")}
    return found


def main() -> None:
    """Ask the replicas in each way, then let one of them lose its device."""
    from ray import serve
    from websockets.sync.client import connect

    url = start()
    model = f"{url}/v2/models/tiny"
    with urlopen(model, timeout=60) as response:
        assert json.load(response)["name"] == "tiny"
    status, text = post(f"{model}/infer", asked(1.0))
    assert (status, json.loads(text)["outputs"][0]["data"]) == (200, [1.0] * 3), text
    status, text = post(f"{model}/infer_stream", asked(2.0, steps=2))
    assert (status, text.count("event: step"), text.count("event: end")) == (200, 2, 1), text
    with connect(f"{model.replace('http', 'ws')}/stream", compression=None) as opened:
        frame = FRAME.pack(7, 0, 12) + pack("<3f", 1, 2, 3)
        opened.send(frame)
        assert opened.recv(60) == frame
    before = replicas_at(url)
    assert len(before) == 2, before

    status, text = post(f"{model}/infer", asked(FATAL))
    assert (status, json.loads(text)["code"]) == (503, "device_lost"), text
    end = time.monotonic() + PATIENCE_S
    while not (after := replicas_at(url)) - before:
        assert time.monotonic() < end, "the replica that lost its device was not replaced"
    codes = [post(f"{model}/infer", asked(1.0))[0] for _ in range(20)]
    assert codes == [200] * 20, (codes, before, after)
    serve.shutdown()


if __name__ == "__main__":
    main()
    print("DONE")
