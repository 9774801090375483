"""Publish a new version of the digits model: a device and a page take it by delta, while both go on predicting.

    python examples/04_update_everywhere.py

The last layer is tuned on drawings of the evaluation set, and the bundle published into a signed store that a server
hosts. A `LiveSession` here and a session in a headless Chromium follow the store. Each predicts without a pause the
whole time, hears of the new version, fetches what changed, tries it on its golden examples, and swaps the weights.

Needs: pip install 'edge-infer[onnxruntime,browser,sync]' edge-infer-converters, and Chromium
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from edge_infer.runtime.live import LiveSession
from edge_infer.runtime.loader import trial
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.server.store.routes import HostedStore
from edge_infer.sync.client import pull
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.publish import publish
from edge_infer.sync.repository import Repository
from edge_infer.tools.browser.chromium import chromium
from edge_infer_converters import convert

DIGITS = Path(__file__).parent / "digits"

# Run in the page: predict again and again, until a while after the update.
IN_PAGE = """async (image) => {
    const { load } = await import("/src/index.js");
    const session = await load("edge+/store/digits");
    const found = { first: session.report().update, calls: 0, failures: 0, gap_ms: 0 };
    let [last, isDone] = [performance.now(), false];
    session.watch({
        onUpdate: (update) => { found.update = update; },
        onError: (error) => { found.error = String(error); isDone = true; },
    });
    globalThis.found = found;
    globalThis.ended = (async () => {
        for (let after = 0; after < 20 && !isDone; after += found.update ? 1 : 0) {
            try {
                found.logits = [...(await session.run({ image: Float32Array.from(image) })).logits.data];
                found.calls++;
            } catch { found.failures++; }
            found.gap_ms = Math.max(found.gap_ms, performance.now() - last);
            last = performance.now();
        }
        await session.dispose();
        return found;
    })();
}"""


class Predicting(Thread):
    """Predicts in a thread of its own until told to stop, and counts."""

    def __init__(self, session: LiveSession, image: np.ndarray) -> None:
        super().__init__()
        self._session, self._image = session, image
        self.stop = Event()
        self.calls = self.failures = 0
        self.gap_s = 0.0

    def run(self) -> None:
        """Predict."""
        last = time.perf_counter()
        while not self.stop.is_set():
            try:
                self.logits = self._session.run({"image": self._image})["logits"]
                self.calls += 1
            except Exception:
                self.failures += 1
            self.gap_s = max(self.gap_s, time.perf_counter() - last)
            last = time.perf_counter()


def tuned(source: Path, target: Path) -> None:
    """Tune the last layer by a few steps of gradient descent on labelled drawings; write the new model."""
    model = onnx.load(source)
    last = next(node for node in reversed(model.graph.node) if node.op_type == "Gemm")
    weights, bias = (next(one for one in model.graph.initializer if one.name == name) for name in last.input[1:3])
    w, b = numpy_helper.to_array(weights).copy(), numpy_helper.to_array(bias).copy()
    is_transposed = any(one.name == "transB" and one.i for one in last.attribute)
    probe = onnx.ModelProto.FromString(model.SerializeToString())
    probe.graph.output.append(onnx.helper.make_empty_tensor_value_info(last.input[0]))
    data = np.load(DIGITS / "eval.npz")
    session = onnxruntime.InferenceSession(probe.SerializeToString(), providers=["CPUExecutionProvider"])
    (features,) = session.run([last.input[0]], {"image": data["image"]})
    wanted = np.eye(10, dtype=np.float32)[data["labels"]]
    matrix = w.T if is_transposed else w
    for _ in range(10):
        scores = features @ matrix + b
        chances = np.exp(scores - scores.max(1, keepdims=True))
        step = (chances / chances.sum(1, keepdims=True) - wanted) / len(wanted)
        matrix, b = (matrix - 0.01 * features.T @ step).astype(np.float32), (b - 0.01 * step.sum(0)).astype(np.float32)
    weights.CopyFrom(numpy_helper.from_array(matrix.T if is_transposed else matrix, weights.name))
    bias.CopyFrom(numpy_helper.from_array(b, bias.name))
    onnx.save(model, target)


def converted(model: Path, folder: Path, version: str) -> Path:
    bundle = folder / f"{version}.bundle"
    calibration = DIGITS / "calibration.npz"
    convert(model, bundle, format="onnx", precision="fp32", calibration=calibration, name="digits", version=version)
    return bundle


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    logging.basicConfig(level=logging.ERROR)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        store, keys = Repository(folder / "store"), folder / "keys"
        store.create(keys)
        publish(converted(DIGITS / "digits.onnx", folder, "1"), store, keys)
        tuned(DIGITS / "digits.onnx", folder / "tuned.onnx")
        second = converted(folder / "tuned.onnx", folder, "2")

        image = np.load(DIGITS / "eval.npz")["image"][:1]
        app = create_app({}, find_web_root(), store=HostedStore(store.folder))
        with ServerThread(app) as server, chromium() as browser:
            device = DeviceStore(folder / "device")
            pull(f"{server.url}/store", "digits", device, trial)
            page = browser.new_page()
            page.goto(f"{server.url}/blank.html")
            page.evaluate(IN_PAGE, image.ravel().tolist())
            updates: list[object] = []
            with LiveSession(device.folder) as live:
                live.follow(f"{server.url}/store/digits", interval_s=2, on_update=updates.append)
                native = Predicting(live, image)
                native.start()
                publish(second, store, keys)
                found = page.evaluate("() => globalThis.ended")
                while not updates:
                    native.stop.wait(0.05)
                native.stop.wait(0.2)
                native.stop.set()
                native.join()
            if "error" in found:
                raise SystemExit(found["error"])

    pulled, update = updates[0], found["update"]
    rows = [
        ("natively", pulled.method, pulled.bytes_moved, pulled.bytes_full, native.failures, native.gap_s * 1000),
        (
            "in the page",
            update["method"],
            update["bytesMoved"],
            update["bytesFull"],
            found["failures"],
            found["gap_ms"],
        ),
    ]
    for name, method, moved, full, failures, gap_ms in rows:
        print(
            f"{name:12} 1 -> 2 by {method}: {moved:,} of {full:,} bytes, {failures} calls failed, "
            f"longest wait {gap_ms:.0f} ms"
        )
    same = np.allclose(native.logits.ravel(), found["logits"], atol=1e-4)
    whole = native.failures == found["failures"] == 0 and min(native.calls, found["calls"]) > 20
    print("Both run version 2, say the same, and dropped no call." if same and whole else "Something went wrong.")
    return 0 if same and whole else 1


if __name__ == "__main__":
    sys.exit(main())
