"""WebNN by an imitation of its interface: Debian's Chromium says that it is not supported on this platform."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper

import edge_infer
from edge_infer.errors import BackendUnavailable, InputError
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from tests.support import zoo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.browser.pages import BrowserPage

    Open = Callable[..., BrowserPage]

_FAKE = (Path(__file__).parents[1] / "support/browser/fake_webnn.js").read_text()
# In the page itself, where a test can reach the context.
_OPEN = """async ([fake, url]) => {
    if (fake) eval(fake);
    const { startEngine } = await import("/src/engines/open.js");
    const variant = { id: "onnx/fp32", format: "onnx", precision: "fp32", file: "" };
    globalThis.opener = await startEngine(variant, "webnn", { root: new URL("/", location.href).href });
    const model = new Uint8Array(await (await fetch(url)).arrayBuffer());
    globalThis.session = await opener.open(model, variant);
    globalThis.x = { data: Float32Array.from({ length: 64 }, (_, i) => (i % 7) / 7), shape: [1, 64] };
    return opener.placement();
}"""
_RUN = """async () => {
    const { logits } = await session.run({ x }, {});
    const { built, dispatched } = globalThis;
    return { logits: [...logits.data], built, dispatched, ...opener.placement() };
}"""
_INPUT = {"x": [[i % 7 / 7 for i in range(64)]]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Hold a net of fixed shapes, and one with an operator that the imitation lacks."""
    folder = tmp_path_factory.mktemp("webnn")
    weights = {
        "w1": np.random.default_rng(1).normal(0, 0.2, (64, 32)).astype(np.float32),
        "b1": np.random.default_rng(2).normal(0, 0.1, 32).astype(np.float32),
    }
    gemm = helper.make_node("Gemm", ["x", "w1", "b1"], ["h"])
    for name, last in (("known", "Relu"), ("partly", "Sin")):
        nodes = [gemm, helper.make_node(last, ["h"], ["logits"])]
        model = zoo.model(nodes, [zoo.value("x", [1, 64])], [zoo.value("logits", [1, 32])], weights)
        (folder / f"{name}.onnx").write_bytes(model)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path, digits_bundle: Path) -> Iterator[str]:
    with ServerThread(create_app({"digits": digits_bundle}, find_web_root(), page=folder)) as running:
        yield running.url


def _expected(folder: Path, name: str) -> list[float]:
    with edge_infer.load(folder / f"{name}.onnx", backend="onnxruntime", arrays="tensor") as session:
        row: list[float] = session.run(_INPUT)["logits"].tolist()[0]
        return row


def _run(page: BrowserPage) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(_RUN)
    return found


def test_a_net_runs_on_webnn_by_onnx_runtimes_own_provider(open_page: Open, server: str, folder: Path) -> None:
    page = open_page(f"{server}/blank.html")
    placed: Any = page.evaluate(_OPEN, [_FAKE, "/known.onnx"])

    found = _run(page)

    assert (placed["device"], found["device"], found["fallbacks"]) == ("webnn", "webnn", []), str(found["fallbacks"])
    assert found["built"] == ["gemm", "relu"]
    assert found["dispatched"] == 1
    assert found["logits"] == pytest.approx(_expected(folder, "known"), abs=1e-5)


def test_a_context_that_is_lost_is_replaced_by_wasm_once(open_page: Open, server: str, folder: Path) -> None:
    page = open_page(f"{server}/blank.html")
    page.evaluate(_OPEN, [_FAKE, "/known.onnx"])
    _run(page)

    page.evaluate("() => lose()")
    found, again = _run(page), _run(page)

    assert found["device"] == again["device"] == "wasm"
    assert again["fallbacks"] == ["webnn: its context was lost (context): the device was unplugged"]
    assert again["dispatched"] == 1
    assert again["logits"] == pytest.approx(_expected(folder, "known"), abs=1e-5)


def test_a_model_that_webnn_runs_in_part_runs_on_wasm(open_page: Open, server: str, folder: Path) -> None:
    page = open_page(f"{server}/blank.html")
    placed: Any = page.evaluate(_OPEN, [_FAKE, "/partly.onnx"])

    assert placed["device"] == "wasm"
    assert placed["fallbacks"][0].startswith("webnn: ")
    assert _run(page)["logits"] == pytest.approx(_expected(folder, "partly"), abs=1e-5)


def test_a_browser_without_webnn_goes_on_with_wasm_or_strictly_rejects(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/blank.html")
    load = """async (options) => {
        const { load } = await import("/src/index.js");
        const session = await load("/models/digits", { device: "webnn", ...options });
        const report = session.report();
        await session.dispose();
        return report;
    }"""

    report: Any = page.evaluate(load, {})
    assert report["device"] == "wasm"
    assert report["fallbacks"][0].startswith("webnn: ")
    with pytest.raises(BackendUnavailable, match="Device `webnn` is not used"):
        page.evaluate(load, {"strict": True})
    with pytest.raises(InputError, match="choose from `auto`, `wasm`, `webgpu`, `webnn`"):
        page.evaluate(load, {"device": "npu"})
    checked: Any = page.evaluate(
        'async () => (await import("/src/index.js")).check("/models/digits", { device: "webnn" })'
    )
    assert checked["device"] in ("wasm", "webnn"), json.dumps(checked)
