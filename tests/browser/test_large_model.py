"""A large model goes part by part into the page's storage, and from there tensor by tensor into the engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper, load_from_string, numpy_helper

from edge_infer.tools.browser.chromium import SOFTWARE_WEBGPU
from edge_infer_converters.writers import tflite
from tests.support.browser.fault_server import PART, WEB, FaultServer, make_model
from tests.support.browser.pages import BrowserPage, BrowserThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page, Route

    Open = Callable[..., BrowserPage]

_SIDE = 1024
_LOAD = """async ([name, options]) => {
    const { load } = await import("/src/index.js");
    const session = await load(`/models/${name}`, options);
    const { y } = await session.run({ x: Float32Array.from({ length: 1024 }, (_, i) => i / 1024) });
    const { fromStorage, notices, storage } = session.report();
    if (!options.open) await session.dispose();
    return { y: [...y.data.slice(0, 8)], fromStorage, notices, storage };
}"""
_DAMAGE = """async (at) => {
    const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("edge-infer");
    for await (const [name, handle] of folder.entries()) {
        const size = (await handle.getFile()).size;
        if (size < 2 ** 20) continue;
        const stream = await handle.createWritable({ keepExistingData: true });
        await stream.write({ type: "write", position: at, data: new Uint8Array([1, 2, 3]) });
        await stream.close();
    }
}"""


def _chain(count: int) -> bytes:
    """Make a model of so many matrices of 4 MiB, one after the other."""
    random = np.random.default_rng(count)
    weights = [random.standard_normal((_SIDE, _SIDE), np.float32) / np.float32(32) for _ in range(count)]
    names = [f"s{i}" for i in range(count)]
    nodes = [
        helper.make_node("MatMul", [names[i - 1] if i else "x", f"w{i}"], [names[i] if i < count - 1 else "y"])
        for i in range(count)
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, _SIDE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, _SIDE])],
        [numpy_helper.from_array(weight, f"w{i}") for i, weight in enumerate(weights)],
    )
    data: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    ).SerializeToString()
    return data


@pytest.fixture(scope="module")
def faults() -> Iterator[FaultServer]:
    model = _chain(5)
    lite = tflite.write(load_from_string(model), "large").data
    with FaultServer({"large": model, "large-lite": lite}) as server:
        yield server


@pytest.fixture
def page(faults: FaultServer, open_page: Open) -> BrowserPage:
    """A page with an empty storage."""
    faults.reset()
    return open_page(f"{faults.url}/blank.html")


def _load(page: BrowserPage, name: str = "large", **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(_LOAD, [name, options])
    return found


@pytest.mark.parametrize("name", ["large", "large-lite"])
def test_it_is_read_from_the_storage_and_answers_as_from_memory(
    page: BrowserPage, faults: FaultServer, name: str
) -> None:
    from_memory = _load(page, name, keep=False)
    first, second = _load(page, name), _load(page, name)

    assert first["y"] == second["y"] == from_memory["y"]
    assert (first["fromStorage"], second["fromStorage"], second["storage"]) == (False, True, "opfs")
    assert faults.asked == [0, 0]


def test_a_cut_goes_on_and_a_damaged_part_is_loaded_again(page: BrowserPage, faults: FaultServer) -> None:
    expected = _load(page, keep=False)["y"]
    faults.asked.clear()
    faults.cuts = [9 * PART + 1000]

    assert _load(page)["y"] == expected
    page.evaluate(_DAMAGE, 12 * PART + 5)
    assert _load(page)["y"] == expected
    assert faults.asked == [0, 9 * PART, 12 * PART]


def test_two_pages_may_read_it_at_once(page: BrowserPage, faults: FaultServer) -> None:
    both = """async ([source, argument]) => Promise.all([1, 2].map(async () => {
        const frame = document.body.appendChild(document.createElement("iframe"));
        frame.src = "/blank.html";
        await new Promise((loaded) => (frame.onload = loaded));
        return frame.contentWindow.eval(source)(argument);
    }))"""
    expected = _load(page)["y"]

    found = page.evaluate(both, [f"({_LOAD})", ["large", {}]])

    assert [one["y"] for one in found] == [expected, expected]
    assert faults.asked == [0]


@pytest.mark.parametrize("quota", [12 * PART, 1000])
def test_where_there_is_no_room_it_is_in_memory(page: BrowserPage, faults: FaultServer, quota: int) -> None:
    expected = _load(page, keep=False)["y"]
    page.do(lambda page: _limit(page, faults.url, quota))

    found = _load(page)

    assert found["y"] == expected
    assert any("in memory only" in notice for notice in found["notices"])


@pytest.mark.parametrize("call", ["write", "flush"])
def test_a_storage_that_fails_costs_no_more_than_the_next_visit(
    page: BrowserPage, faults: FaultServer, call: str
) -> None:
    expected = _load(page, keep=False)["y"]
    fails = f"FileSystemSyncAccessHandle.prototype.{call} = () => {{ throw new DOMException('io', 'UnknownError'); }};"
    code = fails + (WEB / "src/cache/place.js").read_text()
    page.do(lambda page: page.route("**/cache/place.js", lambda route: _answer(route, code)))
    page.do(lambda page: page.reload())

    found = _load(page)

    assert found["y"] == expected
    assert any("UnknownError" in notice for notice in found["notices"])


def _answer(route: Route, code: str) -> None:
    route.fulfill(body=code, content_type="text/javascript")


def _limit(page: Page, origin: str, quota: int) -> None:
    session = page.context.new_cdp_session(page)
    session.send("Storage.overrideQuotaForOrigin", {"origin": origin, "quotaSize": quota})


def test_on_the_gpu_it_answers_as_on_wasm() -> None:
    with FaultServer({"large": _chain(2)}) as faults, BrowserThread(*SOFTWARE_WEBGPU) as thread:
        page = BrowserPage(thread, f"{faults.url}/blank.html")
        expected = _load(page)["y"]
        found = _load(page, device="webgpu", strict=True)["y"]
        page.close()
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.long
def test_the_whole_peak_of_a_model_of_104_mb_is_at_most_1_3_times_its_size() -> None:
    """The memory of the page's process, over what it has with the engine and a model of 1 MB."""
    model = _chain(26)
    with FaultServer({"large": model, "small": make_model(1, 1)}) as faults, BrowserThread() as thread:
        page = BrowserPage(thread, f"{faults.url}/blank.html")
        _start(page)
        peaks = []
        for _ in ("first visit", "second visit"):
            before = _renderer_memory(thread, clear=True)
            _load(page, open=True)
            after = _renderer_memory(thread)
            peaks.append(max(after[pid][1] - before[pid][0] for pid in before) / len(model))
            page.do(lambda page: page.reload())
            _start(page)
        page.close()
    print("peak by the model's size:", [f"{peak:.2f}" for peak in peaks])
    assert max(peaks) <= 1.3


def _start(page: BrowserPage) -> None:
    page.evaluate(
        """async () => {
            const { load } = await import("/src/index.js");
            globalThis.small = await load("/models/small");
            await small.run({ x: new Float32Array(1) });
        }"""
    )


def _renderer_memory(thread: BrowserThread, *, clear: bool = False) -> dict[int, tuple[int, int]]:
    """Return the bytes that each renderer has now, and the most since they were cleared."""

    def processes() -> list[int]:
        session = thread.browser.new_browser_cdp_session()
        found = session.send("SystemInfo.getProcessInfo")["processInfo"]
        return [int(one["id"]) for one in found if one["type"] == "renderer"]

    memory = {}
    for pid in thread.do(processes):
        if clear:
            Path(f"/proc/{pid}/clear_refs").write_text("5")
        status = Path(f"/proc/{pid}/status").read_text()
        fields = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if line.startswith("Vm")}
        memory[pid] = (int(fields["VmRSS"]) * 1024, int(fields["VmHWM"]) * 1024)
    return memory
