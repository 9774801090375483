"""A registry of three versions, a routing table and a batch worker: what a server is made of, each by its own numbers.

    python examples/05_route_and_batch.py

Three bundles of the digits model are three versions in a registry. A table routes requests by model, version and tenant
to pools of workers. Then the evaluation set is sent row by row over HTTP from 32 threads; a worker runs together what
waits.

Needs: pip install 'edge-infer[onnxruntime,server]'
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from threading import local

import numpy as np

import edge_infer
from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import Variant
from edge_infer.server.app import Limits, create_app
from edge_infer.server.execution.repository import ModelRepository
from edge_infer.server.execution.routing import Pool, Route, RoutingTable
from edge_infer.server.http.in_thread import ServerThread

DIGITS = Path(__file__).parent / "digits"


def write_version(folder: Path, version: str) -> Path:
    """Write the model as a bundle of a version."""
    data = (DIGITS / "digits.onnx").read_bytes()
    session = edge_infer.load(DIGITS / "digits.onnx")
    manifest = Manifest(
        "digits",
        version,
        session.inputs,
        session.outputs,
        [Variant("onnx/fp32", "onnx", "fp32", "onnx/model.onnx")],
        [FileEntry("onnx/model.onnx", len(data), hashlib.sha256(data).hexdigest())],
    )
    place = folder / f"digits-{version}"
    (place / "onnx").mkdir(parents=True)
    (place / "onnx" / "model.onnx").write_bytes(data)
    (place / "manifest.json").write_bytes(manifest.to_bytes())
    return place


def registry(bundles: list[Path]) -> None:
    """Find versions by name; the highest answers where none is named, and 10 is above 9."""
    models = ModelRepository({"digits": bundles})
    found = [models.find("digits", version).bundle().manifest.version for version in (None, "2", "9")]
    print(f"registry: {len(models.versions('digits'))} versions; newest {found[0]}; asked for 2 and 9: {found[1:]}")
    models.close()


def routes() -> None:
    """Send the shop's requests to workers of its own, and those for versions from 9 on to another pool."""
    table = RoutingTable(
        {"gold": Pool(workers=2), "canary": Pool(workers=1)},
        [Route("gold", tenant="shop"), Route("canary", model="digits", version=">=9")],
    )
    asked = [("digits", None, "shop"), ("digits", "10", ""), ("digits", "2", ""), ("other", "10", "")]
    print(f"routes: {[table.pool_of(*request) for request in asked]}")


def batches(bundles: list[Path]) -> None:
    """Send every row alone, and count the batches that ran."""
    samples = np.load(DIGITS / "eval.npz")
    images, labels = (samples[name] for name in ("image", "labels"))
    own = local()
    app = create_app({"digits": bundles}, limits=Limits(workers=1))
    with ServerThread(app) as server:

        def ask(image: np.ndarray) -> int:
            if not hasattr(own, "connection"):
                own.connection = HTTPConnection(server.url.removeprefix("http://"))
            headers = {"Content-Type": "application/octet-stream"}
            own.connection.request("POST", "/v2/models/digits/infer", image.tobytes(), headers)
            return int(np.frombuffer(own.connection.getresponse().read(), np.float32).argmax())

        with ThreadPoolExecutor(32) as threads:
            answers = list(threads.map(ask, images))
        rows = app.engine.active()[0].statistics.batch_rows
        right = sum(int(found == label) for found, label in zip(answers, labels, strict=True))
        print(f"batches: {int(rows.sum)} rows, {right / len(answers):.1%} right; {rows.count} batches")


def main() -> None:
    """Run the three parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        bundles = [write_version(Path(name), version) for version in ("2", "9", "10")]
        registry(bundles)
        routes()
        batches(bundles)


if __name__ == "__main__":
    main()
