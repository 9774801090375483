"""The models that a page keeps: resumed, checked, shared by tabs, given up when there is no room, there offline."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer.errors import BackendUnavailable, EdgeInferError, FetchError
from tests.support.browser.fault_server import PART, FaultServer, make_manifest, make_model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Page, Route

    from tests.support.browser.pages import BrowserPage

    Open = Callable[..., BrowserPage]

_LOAD = """async ([name, options]) => {
    const { load } = await import("/src/index.js");
    const last = [];
    const onProgress = (news) => { if (news.phase === "model" && news.file.endsWith("onnx")) last.push(news); };
    const session = await load(`/models/${name}`, { ...options, onProgress });
    const { y } = await session.run({ x: new Float32Array(1) });
    const report = session.report();
    await session.dispose();
    const { cached, loaded, total } = last.at(-1);
    return { y: y.data[0], report, cached, loaded, total };
}"""
_KEPT = """async () => (await (await import("/src/index.js")).keptModels()).map(({ model }) => model)"""
_CLEAR = """async () => { await (await import("/src/index.js")).clearModels(); }"""


@pytest.fixture(scope="module")
def faults() -> Iterator[FaultServer]:
    models = {"one": make_model(3, 1), "two": make_model(3, 2), "three": make_model(3, 3)}
    with FaultServer(models) as server:
        yield server


@pytest.fixture
def page(faults: FaultServer, open_page: Open) -> BrowserPage:
    """A page with an empty storage."""
    faults.reset()
    return open_page(f"{faults.url}/blank.html")


def load(page: BrowserPage, name: str = "one", **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(_LOAD, [name, options])
    return found


def test_the_second_visit_downloads_no_model(page: BrowserPage, faults: FaultServer) -> None:
    first, second = load(page), load(page)

    assert (first["report"]["storage"], first["report"]["fromStorage"], first["cached"]) == ("opfs", False, False)
    assert (second["report"]["fromStorage"], second["cached"], second["loaded"]) == (True, True, second["total"])
    assert second["y"] == first["y"]
    assert faults.asked == [0]


def test_what_is_not_to_be_kept_is_not(page: BrowserPage, faults: FaultServer) -> None:
    found = load(page, keep=False)

    assert found["report"]["storage"] == "none"
    assert page.evaluate(_KEPT) == []
    assert load(page)["report"]["fromStorage"] is False


def test_a_cut_download_goes_on(page: BrowserPage, faults: FaultServer) -> None:
    faults.cuts = [PART + 1000]

    assert load(page)["loaded"] > 3 * PART
    assert faults.asked == [0, PART]


def _change(page: BrowserPage, module: str, old: str, new: str) -> None:
    """Give the page another text of a module."""

    def change(route: Route) -> None:
        response = route.fetch()
        text = response.text()
        assert old in text
        route.fulfill(response=response, body=text.replace(old, new))

    page.do(lambda page: page.route(f"**/src/{module}", change))


def _hurry(page: BrowserPage) -> None:
    """Cut the page's patience with a server that sends nothing, 30 s, short."""
    _change(page, "fetch/download.js", "STALL_MS = 30_000", "STALL_MS = 3_000")


@pytest.mark.long
def test_a_stalled_download_is_asked_for_again(page: BrowserPage, faults: FaultServer) -> None:
    _hurry(page)
    faults.stalls = [PART + 1000]

    assert load(page)["loaded"] > 3 * PART
    assert faults.asked == [0, PART]

    faults.stalls = [0, 0, 0, 0]
    with pytest.raises(FetchError, match=r"was cut after 0 of \d+ bytes: nothing came for 3 s"):
        load(page, "two")


@pytest.mark.long
def test_a_server_that_stands_still_in_an_engine_or_a_manifest_is_left(page: BrowserPage, faults: FaultServer) -> None:
    """The next attempt of the same page starts anew; a manifest that was kept is as good as one that comes."""
    _hurry(page)
    faults.halted = ".wasm"
    with pytest.raises(BackendUnavailable, match=r"\.wasm was cut after \d+ bytes: nothing came for 3 s"):
        load(page)

    faults.halted = "manifest.json"
    with pytest.raises(FetchError, match=r"manifest\.json was cut after \d+ bytes: nothing came for 3 s"):
        load(page, "two")

    faults.halted = ""
    first = load(page, "two")
    faults.halted = "manifest.json"
    assert load(page, "two")["y"] == first["y"]


@pytest.mark.long
def test_a_server_that_stands_still_in_a_file_of_python_is_left(page: BrowserPage, faults: FaultServer) -> None:
    _hurry(page)
    faults.halted = "pyodide.asm.wasm"
    with pytest.raises(FetchError, match=r"pyodide\.asm\.wasm was cut after \d+ bytes"):
        page.evaluate("""async () => {
            const { loadPython } = await import("/src/index.js");
            await loadPython({ wheel: null, keepImage: false });
        }""")


def test_the_next_visit_goes_on_where_the_last_one_was_cut(page: BrowserPage, faults: FaultServer) -> None:
    """Every attempt of the first visit dies; nothing of it passes for the whole file."""
    faults.cuts = [2 * PART + 1000, 0, 0, 0]
    with pytest.raises(FetchError, match="was cut after 2097152 of"):
        load(page)
    faults.asked.clear()

    page.do(lambda page: page.reload())
    found = load(page)

    assert faults.asked == [2 * PART]
    assert found["report"]["fromStorage"] is False
    assert load(page)["report"]["fromStorage"] is True


def test_a_tab_closed_in_the_middle_leaves_what_it_had(page: BrowserPage, faults: FaultServer, open_page: Open) -> None:
    page.evaluate("""async () => {
        const { load } = await import("/src/index.js");
        const { promise, resolve } = Promise.withResolvers();
        globalThis.lost = load("/models/one", {
            onProgress: ({ phase, loaded }) => { if (phase === "model" && loaded > 2 ** 20 + 9) resolve(); },
        });
        await promise;
    }""")
    page.do(lambda page: page.reload())

    assert load(page)["loaded"] > 3 * PART
    assert load(page)["report"]["fromStorage"] is True


def test_a_server_without_ranges_sends_it_again(page: BrowserPage, faults: FaultServer) -> None:
    faults.has_ranges = False
    faults.cuts = [PART + 1000]

    assert load(page)["loaded"] > 3 * PART
    assert faults.asked == [0, PART]


def test_an_html_page_is_no_model(page: BrowserPage, faults: FaultServer) -> None:
    faults.as_page = True

    with pytest.raises(FetchError, match="HTML page where a model file was expected") as caught:
        load(page)

    assert "login" in caught.value.hint


def test_a_damaged_file_is_loaded_again(page: BrowserPage, faults: FaultServer) -> None:
    first = load(page)
    page.evaluate("""async () => {
        const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("edge-infer");
        for await (const [name, handle] of folder) {
            if (!/^[0-9a-f]{64}$/.test(name)) continue;
            const stream = await handle.createWritable({ keepExistingData: true });
            await stream.write({ type: "write", position: 2 ** 20 + 7, data: new Uint8Array([1, 2, 3]) });
            await stream.close();
        }
    }""")

    again = load(page)

    assert faults.asked == [0, PART], "the first part was still right"
    assert again["report"]["fromStorage"] is False
    assert again["y"] == first["y"]


def test_two_tabs_download_once(page: BrowserPage, faults: FaultServer) -> None:
    other = page.do(lambda page: page.context.new_page())
    start = """async () => {
        const { load } = await import("/src/index.js");
        globalThis.opened = load("/models/one");
        globalThis.opened.catch(() => {});
    }"""
    end = "async () => (await globalThis.opened).report().fromStorage"

    def both(first: Page) -> list[bool]:
        other.goto(first.url)
        first.evaluate(start)
        other.evaluate(start)
        return sorted([first.evaluate(end), other.evaluate(end)])

    assert page.do(both) == [False, True]
    assert faults.asked == [0]


def _stand_still(page: BrowserPage) -> None:
    """Hold the locks of the list of models, and of a model, for ever."""
    file = json.loads(make_manifest("one", make_model(3, 1)))["files"][0]
    for name in ("edge-infer", f"edge-infer/{file['sha256']}"):
        page.evaluate("async (name) => void navigator.locks.request(name, () => new Promise(() => {}))", name)


def test_a_page_that_stands_still_with_a_model_is_not_waited_for(page: BrowserPage, faults: FaultServer) -> None:
    """WebKit keeps a page that was left in the middle of a download, and the locks of its worker with it."""
    _stand_still(page)
    _change(page, "cache/lock.js", "PATIENCE_MS = 5000", "PATIENCE_MS = 200")

    first, second = load(page), load(page)

    assert [first["report"]["fromStorage"], second["report"]["fromStorage"]] == [False, True]
    assert faults.asked == [0]


def test_a_signal_gives_up_the_wait_for_another_page(page: BrowserPage, faults: FaultServer) -> None:
    _stand_still(page)

    with pytest.raises(Exception, match="enough"):
        page.evaluate("""async () => {
            const { load } = await import("/src/index.js");
            const controller = new AbortController();
            setTimeout(() => controller.abort(new Error("enough")), 1000);
            await load("/models/one", { signal: controller.signal });
        }""")

    assert faults.asked == []


def test_the_server_may_be_gone_at_the_next_visit(page: BrowserPage, faults: FaultServer) -> None:
    first = load(page)
    page.do(lambda page: page.route("**/models/**", lambda route: route.abort()))

    offline = load(page)

    assert (offline["report"]["offline"], offline["report"]["fromStorage"]) == (True, True)
    assert offline["y"] == first["y"]
    with pytest.raises(FetchError, match="cannot be reached"):
        load(page, "two")


def test_clear_removes_everything(page: BrowserPage, faults: FaultServer) -> None:
    load(page)
    load(page, "two")

    assert page.evaluate(_KEPT) == ["two", "one"]
    page.evaluate(_CLEAR)
    assert page.evaluate(_KEPT) == []
    assert load(page)["report"]["fromStorage"] is False


def limit_storage(page: BrowserPage, url: str, size: int) -> None:
    def limit(page: Page) -> None:
        session = page.context.new_cdp_session(page)
        session.send("Storage.overrideQuotaForOrigin", {"origin": url, "quotaSize": size})

    page.do(limit)


def test_the_oldest_model_makes_room_for_a_new_one(page: BrowserPage, faults: FaultServer) -> None:
    load(page)
    load(page, "two")
    load(page)
    limit_storage(page, faults.url, 8 * PART)

    found = load(page, "three")

    assert found["report"]["storage"] == "opfs"
    assert any("`two` was removed" in notice for notice in found["report"]["notices"])
    assert set(page.evaluate(_KEPT)) == {"one", "three"}


def test_the_image_of_python_makes_room_before_any_model(page: BrowserPage, faults: FaultServer) -> None:
    load(page)
    page.evaluate(
        """async (bytes) => {
        const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("edge-infer");
        const stream = await (await folder.getFileHandle("python-1", { create: true })).createWritable();
        await stream.write(new Uint8Array(bytes));
        await stream.close();
    }""",
        4 * PART,
    )
    limit_storage(page, faults.url, 8 * PART)

    found = load(page, "two")

    assert any("image of Python was removed" in notice for notice in found["report"]["notices"])
    assert set(page.evaluate(_KEPT)) == {"one", "two"}


def test_a_model_that_never_fits_stays_in_memory(page: BrowserPage, faults: FaultServer) -> None:
    limit_storage(page, faults.url, PART)

    found = load(page)

    assert found["loaded"] == found["total"]
    assert any("in memory only" in notice for notice in found["report"]["notices"])
    assert load(page)["report"]["fromStorage"] is False


def before_worker(page: BrowserPage, code: str) -> None:
    """Run code first in the workers of a page: a browser that lacks something."""

    def change(route: Route) -> None:
        response = route.fetch()
        route.fulfill(response=response, body=f"{code};\n{response.text()}")

    page.do(lambda page: page.route("**/src/page/worker.js", change))


def test_without_opfs_the_cache_api_keeps_and_resumes(page: BrowserPage, faults: FaultServer) -> None:
    before_worker(page, "delete StorageManager.prototype.getDirectory")
    faults.cuts = [2 * PART + 1000, 0, 0, 0]
    with pytest.raises(FetchError, match="was cut"):
        load(page)
    faults.asked.clear()

    first, second = load(page), load(page)

    assert faults.asked == [2 * PART]
    assert (first["report"]["storage"], second["report"]["fromStorage"]) == ("cache", True)
    page.evaluate(_CLEAR)
    assert page.evaluate(_KEPT) == []


def test_without_any_storage_it_works_and_says_so(page: BrowserPage, faults: FaultServer) -> None:
    before_worker(page, "delete StorageManager.prototype.getDirectory; delete WorkerGlobalScope.prototype.caches")

    found = load(page)

    assert found["report"]["storage"] == "memory"
    assert "memory only" in found["report"]["notices"][0]


def test_an_insecure_page_hashes_by_itself(page: BrowserPage, faults: FaultServer) -> None:
    """As on plain http in a LAN: no crypto.subtle, no storage, no locks."""
    before_worker(
        page,
        "Object.defineProperty(globalThis, 'isSecureContext', { value: false });"
        "for (const name of ['storage', 'locks']) delete WorkerNavigator.prototype[name];"
        "delete Crypto.prototype.subtle; delete WorkerGlobalScope.prototype.caches",
    )

    found = load(page)

    assert found["loaded"] == found["total"]
    assert "not in a secure context" in found["report"]["notices"][0]


def test_a_signal_gives_up_a_load(page: BrowserPage, faults: FaultServer) -> None:
    found = page.evaluate("""async () => {
        const { load } = await import("/src/index.js");
        const controller = new AbortController();
        const onProgress = ({ phase }) => { if (phase === "model") controller.abort(new Error("enough")); };
        try {
            await load("/models/one", { onProgress, signal: controller.signal });
        } catch (error) {
            return error.message;
        }
    }""")

    assert found == "enough"
    assert load(page)["loaded"] > 3 * PART


def test_a_signal_that_was_given_before_loads_nothing(page: BrowserPage, faults: FaultServer) -> None:
    with pytest.raises(Exception, match="AbortError") as caught:
        page.evaluate("""async () => {
            const { load } = await import("/src/index.js");
            await load("/models/one", { signal: AbortSignal.abort() });
        }""")

    assert not isinstance(caught.value, EdgeInferError)
    assert faults.asked == []
