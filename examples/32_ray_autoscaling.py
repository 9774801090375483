"""The server on Ray Serve: replicas come while many ask, and go when they stop; no request fails.

    python examples/32_ray_autoscaling.py [--most 3] [--clients 16]

Each replica is a whole server with its own queue and batches. Ray counts the requests that each has under way, and
starts replicas until it is `target_ongoing_requests`; one that is to go gets no new requests and finishes those that it
has. On one machine more replicas than processors gain little: on a cluster each is given processors, or a GPU, of its
own by `ray_actor_options`. The last line tells the answers and how many replicas there were, as JSON.

Needs: pip install 'edge-infer[server,onnxruntime]' 'ray[serve]'
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from socket import socket
from threading import Event, Lock, Thread

from edge_infer.server.ray_app import make_deployment

MODEL = Path(__file__).parent / "digits/digits.onnx"
BODY = json.dumps({"inputs": [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0.5] * 64}]})
#: Quick to react, for an example: Ray looks at 30 s by default, and waits ten minutes before a replica goes.
AUTOSCALING = {
    "min_replicas": 1,
    "target_ongoing_requests": 2,
    "metrics_interval_s": 0.5,
    "look_back_period_s": 2,
    "upscale_delay_s": 1,
    "downscale_delay_s": 5,
}


class Clients:
    """Threads that ask without a pause."""

    def __init__(self, port: int, count: int) -> None:
        self.answers, self.failures = 0, list[str]()
        self._port, self._stop, self._lock = port, Event(), Lock()
        self._threads = [Thread(target=self._run) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        while not self._stop.is_set():
            try:
                connection.request("POST", "/v2/models/digits/infer", BODY, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                text = answer.read().decode()
                failure = "" if answer.status == 200 else f"{answer.status}: {text}"
            except (OSError, HTTPException) as error:
                failure = repr(error)
                connection.close()
            with self._lock:
                self.answers += not failure
                self.failures += [failure] if failure else []
        connection.close()

    def stop(self) -> None:
        """End them."""
        self._stop.set()
        for thread in self._threads:
            thread.join()


def running() -> int:
    """Count the replicas that take requests."""
    from ray import serve

    deployments = serve.status().applications["default"].deployments
    return sum(found.replica_states.get("RUNNING", 0) for found in deployments.values())


def wait_for(wanted: range, timeout_s: float) -> int:
    """Wait until there are so many replicas; return how many there are."""
    end = time.monotonic() + timeout_s
    while (count := running()) not in wanted and time.monotonic() < end:
        time.sleep(0.5)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=3, help="the most replicas")
    parser.add_argument("--clients", type=int, default=16, help="how many ask at once")
    parser.add_argument("--timeout-s", type=float, default=200, help="how long replicas may take to come, and to go")
    arguments = parser.parse_args()

    import ray
    from ray import serve

    with tempfile.TemporaryDirectory() as name:
        bundle = Path(name) / "digits.onnx"  # a place that each replica sees
        bundle.write_bytes(MODEL.read_bytes())
        os.environ["EDGE_INFER_BUNDLES"] = str(bundle)
        ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80 * 2**20, log_to_driver=False)
        try:
            with socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            serve.start(http_options={"host": "127.0.0.1", "port": port})
            scaling = {**AUTOSCALING, "max_replicas": arguments.most}
            serve.run(make_deployment(autoscaling_config=scaling, ray_actor_options={"num_cpus": 0.25}))
            counts = [running()]
            clients = Clients(port, arguments.clients)
            try:
                counts.append(wait_for(range(2, arguments.most + 1), arguments.timeout_s))
            finally:
                clients.stop()
            counts.append(wait_for(range(1, 2), arguments.timeout_s))
        finally:
            serve.shutdown()
            ray.shutdown()
    print(json.dumps({"answers": clients.answers, "failures": clients.failures[:3], "replicas": counts}))


if __name__ == "__main__":
    main()
