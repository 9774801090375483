"""LiteRT.js on WebGPU, on Chromium's software adapter: the right numbers, and wasm where the GPU fails."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import helper

import edge_infer
from edge_infer.errors import BackendUnavailable
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tools.browser.chromium import SOFTWARE_WEBGPU
from tests.support import zoo
from tests.support.browser.pages import BrowserPage, BrowserThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Open = Callable[[str], BrowserPage]

# In the page itself, where a test can reach the GPU: `opener` and `session`.
_OPEN_HERE = """async (path) => {
    const { startEngine } = await import("/src/engines/open.js");
    const variant = { id: "tflite/fp32", format: "tflite", precision: "fp32", file: "" };
    globalThis.opener = await startEngine(variant, "webgpu", { root: new URL("/", location.href).href });
    const model = new Uint8Array(await (await fetch(path)).arrayBuffer());
    globalThis.session = await opener.open(model, variant);
    globalThis.row = (k) => Float32Array.from({ length: 64 }, (_, i) => ((i + k) % 7) / 7);
    return opener.placement();
}"""
_RUN_HERE = """async (rows) => {
    const data = Float32Array.from(Array.from({ length: rows }, (_, k) => [...row(k)]).flat());
    const { logits } = await session.run({ x: { data, shape: [rows, 64] } }, {});
    return { logits: [...logits.data], shape: logits.shape, ...opener.placement() };
}"""


@pytest.fixture(scope="module")
def gpu_browser() -> Iterator[BrowserThread]:
    with BrowserThread(*SOFTWARE_WEBGPU) as thread:
        yield thread


@pytest.fixture
def open_gpu_page(gpu_browser: BrowserThread) -> Iterator[Open]:
    pages: list[BrowserPage] = []

    def opened(url: str) -> BrowserPage:
        pages.append(BrowserPage(gpu_browser, url))
        return pages[-1]

    yield opened
    for page in pages:
        page.close()


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A net of free batch, and one with an operator that LiteRT's GPU lacks."""
    folder = tmp_path_factory.mktemp("litert-gpu")
    weights = {"w1": np.random.default_rng(1).normal(0, 0.2, (64, 32)).astype(np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Mod", ["h", "divisor"], ["logits"], fmod=1),
    ]
    divisor = {"divisor": np.array([0.3], np.float32)}
    partly = zoo.model(nodes, [zoo.value("x", [1, 64])], [zoo.value("logits", [1, 32])], {**weights, **divisor})
    made = {}
    for name, model in (("mlp", zoo.mlp()), ("partly", partly)):
        (folder / f"{name}.onnx").write_bytes(model)
        made[name] = folder / f"{name}.bundle"
        options = ["--precision", "fp32", "--format", "tflite", "--name", name]
        command = [sys.executable, "-m", "edge_infer", "convert", str(folder / f"{name}.onnx"), "-o", str(made[name])]
        subprocess.run([*command, *options], check=True, capture_output=True, text=True)
    return made


@pytest.fixture(scope="module")
def server(bundles: dict[str, Path]) -> Iterator[str]:
    with ServerThread(create_app(bundles, find_web_root())) as running:
        yield running.url


def _expected(bundle: Path, rows: int) -> list[float]:
    image = np.array([[(i + k) % 7 / 7 for i in range(64)] for k in range(rows)], np.float32)
    with edge_infer.load(bundle, backend="litert") as session:
        answer: list[float] = np.asarray(session.run({"x": image})["logits"]).ravel().tolist()
    return answer


def _file(bundle: Path) -> str:
    (model,) = bundle.rglob("*.tflite")
    return f"/models/{bundle.stem}/{model.relative_to(bundle).as_posix()}"


def test_a_net_runs_on_the_gpu_for_every_batch(open_gpu_page: Open, server: str, bundles: dict[str, Path]) -> None:
    page = open_gpu_page(f"{server}/blank.html")
    placed: Any = page.evaluate(_OPEN_HERE, _file(bundles["mlp"]))

    assert (placed["device"], placed["name"], placed["fallbacks"]) == ("webgpu", "litert-web", [])
    for rows in (1, 3, 1):
        found: Any = page.evaluate(_RUN_HERE, rows)
        assert (found["device"], found["shape"]) == ("webgpu", [rows, 10])
        assert found["logits"] == pytest.approx(_expected(bundles["mlp"], rows), abs=1e-5)

    both: Any = page.evaluate(f"async (rows) => Promise.all(rows.map({_RUN_HERE}))", [3, 2])
    assert [one["device"] for one in both] == ["webgpu", "webgpu"]
    assert both[1]["logits"] == pytest.approx(_expected(bundles["mlp"], 2), abs=1e-5)


def test_a_gpu_that_is_lost_is_replaced_by_wasm_once(
    open_gpu_page: Open, server: str, bundles: dict[str, Path]
) -> None:
    page = open_gpu_page(f"{server}/blank.html")
    page.evaluate(_OPEN_HERE, _file(bundles["mlp"]))
    page.evaluate(_RUN_HERE, 1)

    page.evaluate("() => session.gpu.destroy()")
    found: Any = page.evaluate(_RUN_HERE, 1)
    again: Any = page.evaluate(_RUN_HERE, 1)

    assert found["device"] == again["device"] == "wasm"
    assert len(again["fallbacks"]) == 1
    assert again["fallbacks"][0].startswith("webgpu: the GPU was lost")
    assert again["logits"] == pytest.approx(_expected(bundles["mlp"], 1), abs=1e-5)


def test_what_the_gpu_would_run_in_part_runs_on_wasm(
    open_gpu_page: Open, server: str, bundles: dict[str, Path]
) -> None:
    page = open_gpu_page(f"{server}/blank.html")
    placed: Any = page.evaluate(_OPEN_HERE, _file(bundles["partly"]))

    assert placed["device"] == "wasm"
    assert len(placed["fallbacks"]) == 1
    assert placed["fallbacks"][0].startswith("webgpu: ")
    found: Any = page.evaluate(_RUN_HERE, 1)
    assert found["logits"] == pytest.approx(_expected(bundles["partly"], 1), abs=1e-4)


def test_an_engine_of_the_gpu_that_is_not_there_is_replaced_by_wasm(
    open_gpu_page: Open, bundles: dict[str, Path], tmp_path: Path
) -> None:
    web = tmp_path / "web"
    shutil.copytree(find_web_root(), web, ignore=shutil.ignore_patterns("node_modules", "*jspi*"))
    with ServerThread(create_app(bundles, web)) as running:
        page = open_gpu_page(f"{running.url}/blank.html")
        placed: Any = page.evaluate(_OPEN_HERE, _file(bundles["mlp"]))
        found: Any = page.evaluate(_RUN_HERE, 1)

    assert placed["device"] == "wasm"
    assert "litert_wasm_jspi_internal" in placed["fallbacks"][0]
    assert found["logits"] == pytest.approx(_expected(bundles["mlp"], 1), abs=1e-5)


def test_a_session_in_its_worker_tells_where_it_runs(
    open_gpu_page: Open, open_page: Callable[..., BrowserPage], server: str
) -> None:
    load = """async (options) => {
        const { load } = await import("/src/index.js");
        const session = await load("/models/mlp", { device: "webgpu", ...options });
        await session.run({ x: { data: new Float32Array(64), shape: [1, 64] } });
        const report = session.report();
        await session.dispose();
        return report;
    }"""
    report: Any = open_gpu_page(f"{server}/blank.html").evaluate(load, {"strict": True})
    assert (report["device"], report["engine"], report["variant"]) == ("webgpu", "litert-web", "tflite/fp32")

    without = open_page(f"{server}/blank.html")
    there: Any = without.evaluate(load, {})
    assert there["device"] == "wasm"
    assert there["fallbacks"][0].startswith("webgpu: ")
    with pytest.raises(BackendUnavailable, match="Device `webgpu` is not used"):
        without.evaluate(load, {"strict": True})
