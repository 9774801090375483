"""A page that follows a signed store: checked, by delta, tried before it counts, there offline, shared by tabs."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

import edge_infer
from edge_infer.errors import EdgeInferError
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.server.store.routes import HostedStore
from edge_infer.sync.publish import publish
from edge_infer.sync.repository import Repository
from edge_infer.sync.stage import WHOLE
from edge_infer.vectors.published import contents_of
from edge_infer_converters.writers import tflite
from tests.support.sync.publisher import Publisher, write_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import Page

    from tests.support.browser.pages import BrowserPage

    Open = Callable[..., BrowserPage]

_OPEN = """async (options) => {
    const { load } = await import("/src/index.js");
    globalThis.session?.close();
    globalThis.session = await load("edge+/store/linear", options);
    globalThis.predict = async () => (await session.run({ x: new Float32Array(96).fill(1) })).y.data[0];
    return { y: await predict(), report: session.report() };
}"""
_UPDATE = "async () => ({ update: await session.update(), y: await predict(), report: session.report() })"


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    made = Publisher(tmp_path / "store", tmp_path / "keys", tmp_path / "bundles")
    Repository(made.folder).create(made.keys)
    made.publish(1)
    return made


@pytest.fixture
def host(publisher: Publisher) -> Iterator[str]:
    app = create_app({"linear": publisher.bundles / "1"}, find_web_root(), store=HostedStore(publisher.folder))
    with ServerThread(app) as server:
        yield server.url


@pytest.fixture
def page(host: str, open_page: Open) -> BrowserPage:
    return open_page(f"{host}/blank.html")


def opened(page: BrowserPage, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(_OPEN, options)
    return found


def updated(page: BrowserPage) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate(_UPDATE)
    return found


def sum_of_weights(publisher: Publisher, version: int) -> float:
    from tests.support.sync.publisher import weights

    return float(weights(version)[:, 0].sum())


def test_a_page_installs_whole_and_updates_by_delta(page: BrowserPage, publisher: Publisher) -> None:
    first = opened(page)
    publisher.publish(2)
    second = updated(page)

    assert first["report"]["update"] | {"bytesMoved": 0} == {
        "version": "1",
        "changed": True,
        "method": "full",
        "bytesMoved": 0,
        "bytesFull": first["report"]["update"]["bytesMoved"],
        "note": "",
    }
    assert first["y"] == pytest.approx(sum_of_weights(publisher, 1), rel=1e-5)
    assert (second["update"]["version"], second["update"]["method"]) == ("2", "delta")
    assert second["update"]["bytesMoved"] < 0.6 * second["update"]["bytesFull"]
    assert second["y"] == pytest.approx(sum_of_weights(publisher, 2), rel=1e-5)
    assert updated(page)["update"]["changed"] is False


def test_a_page_of_another_origin_follows_a_store(host: str, publisher: Publisher, open_page: Open) -> None:
    with ServerThread(create_app({}, find_web_root())) as other:
        page = open_page(f"{other.url}/blank.html")
        page.evaluate(_OPEN.replace("edge+/store", f"edge+{host}/store"), {})
        publisher.publish(2)
        second = updated(page)

    assert (second["update"]["version"], second["update"]["method"]) == ("2", "delta")


def test_predictions_go_on_while_weights_are_swapped(page: BrowserPage, publisher: Publisher) -> None:
    opened(page)
    publisher.publish(2)

    answers = page.evaluate("""async () => {
        const answers = [];
        let isDone = false;
        const update = session.update().finally(() => { isDone = true; });
        while (!isDone) answers.push(await predict());
        answers.push(await predict());
        return { answers, update: await update };
    }""")

    first, last = sum_of_weights(publisher, 1), sum_of_weights(publisher, 2)
    assert answers["answers"][0] == pytest.approx(first, rel=1e-6, abs=1e-6)
    assert answers["answers"][-1] == pytest.approx(last, rel=1e-6, abs=1e-6)
    assert {round(answer, 4) for answer in answers["answers"]} <= {
        round(answers["answers"][0], 4),
        round(answers["answers"][-1], 4),
    }


def test_a_version_that_fails_its_golden_examples_is_refused_for_good(page: BrowserPage, publisher: Publisher) -> None:
    first = opened(page, report=True)
    publisher.publish(2, wrong=True)

    for message in ("failed its trial and is not taken", "failed its trial here before"):
        with pytest.raises(EdgeInferError, match=message):
            updated(page)
    assert page.evaluate("() => predict()") == first["y"]
    failed = page.evaluate("""async () => {
        for (;;) {
            const [seen] = (await (await fetch("/sync/v1/fleet")).json()).failing;
            if (seen) return [seen.result, seen.version, seen.wanted];
        }
    }""")
    assert failed == ["trial_failed", "1", 2]
    page.do(lambda page: page.reload())
    again = opened(page)
    assert (again["y"], again["report"]["update"]["version"]) == (first["y"], "1")
    publisher.publish(3)
    assert updated(page)["update"]["version"] == "3"


def test_visits_that_end_before_the_engine_is_there_are_not_held_against_a_version(page: BrowserPage) -> None:
    def visit(page: Page) -> None:
        page.route("**/onnxruntime-web/*.wasm", lambda _route: None)
        with page.expect_request("**/onnxruntime-web/*.wasm"):
            page.evaluate(f"() => {{ ({_OPEN})({{}}).catch(() => {{}}); }}")
        page.unroute("**/onnxruntime-web/*.wasm")
        page.reload()

    for _ in range(3):
        page.do(visit)

    assert opened(page)["report"]["update"]["version"] == "1"


def test_a_page_whose_storage_was_cleared_takes_what_it_runs_as_its_own(page: BrowserPage) -> None:
    opened(page)
    page.evaluate("async () => { await (await import('/src/index.js')).clearModels(); }")

    assert [updated(page)["update"]["changed"] for _ in range(2)] == [False, False]
    page.do(lambda page: page.reload())
    page.do(lambda page: page.route("**/store/**", lambda route: route.abort()))
    assert opened(page)["report"]["offline"]


def test_a_page_runs_the_tflite_variant_of_a_version(page: BrowserPage, publisher: Publisher) -> None:
    bundle = write_version(publisher.bundles / "2", 2)
    data = tflite.write(onnx.load(bundle / "onnx/model.onnx"), "linear").data
    (bundle / "model.tflite").write_bytes(data)
    manifest = json.loads((bundle / "manifest.json").read_bytes())
    entry = {"path": "model.tflite", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest["files"].append(entry)
    manifest["variants"].append({"id": "tflite/fp32", "format": "tflite", "precision": "fp32", "file": "model.tflite"})
    (bundle / "manifest.json").write_text(json.dumps(manifest))
    publish(bundle, Repository(publisher.folder), publisher.keys)

    found = opened(page, backend="litert")

    assert (found["report"]["engine"], found["report"]["variant"]) == ("litert-web", "tflite/fp32")
    assert found["y"] == pytest.approx(sum_of_weights(publisher, 2), rel=1e-5)


def test_the_next_visit_needs_no_server(page: BrowserPage, publisher: Publisher) -> None:
    first = opened(page)
    page.do(lambda page: page.reload())
    page.do(lambda page: page.route("**/store/**", lambda route: route.abort()))

    offline = opened(page)

    assert (offline["y"], offline["report"]["offline"]) == (first["y"], True)
    with pytest.raises(EdgeInferError, match="cannot be reached"):
        updated(page)


def test_an_expired_store_blocks_updates_and_not_the_running_model(
    page: BrowserPage, publisher: Publisher, tmp_path: Path
) -> None:
    first = opened(page)
    before_worker(page, "const now = Date.now; Date.now = () => now() + 40 * 86400e3")
    page.do(lambda page: page.reload())

    again = opened(page)

    assert again["y"] == first["y"]
    assert any("has expired" in notice for notice in again["report"]["notices"])
    with pytest.raises(EdgeInferError, match="has expired"):
        updated(page)


def test_an_old_copy_of_the_store_is_refused(page: BrowserPage, publisher: Publisher, tmp_path: Path) -> None:
    opened(page)
    shutil.copytree(publisher.folder, tmp_path / "old")
    publisher.publish(2)
    second = updated(page)
    shutil.rmtree(publisher.folder)
    shutil.copytree(tmp_path / "old", publisher.folder)

    with pytest.raises(EdgeInferError, match="expected at least"):
        updated(page)
    assert page.evaluate("() => predict()") == second["y"]


def test_a_page_that_could_not_take_a_version_goes_by_the_halt(page: BrowserPage, publisher: Publisher) -> None:
    opened(page)
    bundle = write_version(publisher.bundles / "2", 2)
    publish(bundle, Repository(publisher.folder), publisher.keys, share=WHOLE - 1)
    packs = publisher.folder / "packs"
    packs.rename(packs.with_name("away"))
    with pytest.raises(EdgeInferError, match="packs/"):
        updated(page)
    packs.with_name("away").rename(packs)
    Repository(publisher.folder).stage("linear", 0, publisher.keys)

    assert updated(page)["update"]["version"] == "1"


def test_a_damaged_delta_costs_a_full_download_and_not_the_model(page: BrowserPage, publisher: Publisher) -> None:
    opened(page)
    published = publisher.publish(2)
    delta = publisher.folder / published.revision.deltas[0].path
    data = bytearray(delta.read_bytes())
    data[len(data) // 2] ^= 1
    delta.write_bytes(bytes(data))

    second = updated(page)

    assert (second["update"]["method"], second["update"]["version"]) == ("full", "2")
    assert "delta given up" in second["update"]["note"]


def test_without_any_pack_the_files_of_a_plain_bundle_serve(page: BrowserPage, publisher: Publisher) -> None:
    for path in (publisher.folder / "packs").glob("*/*"):
        path.unlink()

    with pytest.raises(EdgeInferError, match="status 404"):
        opened(page)
    found = opened(page, fallback="/models/linear")

    assert found["report"]["update"]["method"] == "files"
    assert found["y"] == pytest.approx(sum_of_weights(publisher, 1), rel=1e-5)


def test_files_that_were_not_signed_do_not_serve(page: BrowserPage, publisher: Publisher) -> None:
    publisher.publish(2)
    for path in (publisher.folder / "packs").glob("*/*"):
        path.unlink()

    with pytest.raises(EdgeInferError, match=r"sha256|bytes"):  # the plain bundle is version 1
        opened(page, fallback="/models/linear")


def test_lost_storage_is_filled_again(page: BrowserPage, publisher: Publisher) -> None:
    first = opened(page)
    page.evaluate("""async () => {
        const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("edge-infer");
        for await (const name of folder.keys()) if (/^[0-9a-f]{64}$/.test(name)) await folder.removeEntry(name);
    }""")
    page.do(lambda page: page.reload())

    again = opened(page)

    assert (again["y"], again["report"]["update"]["method"]) == (first["y"], "repair")


def test_a_record_that_was_cut_leaves_the_one_before(page: BrowserPage, publisher: Publisher) -> None:
    first = opened(page)
    cut = page.evaluate("""async () => {
        const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle("edge-infer");
        let newest;
        for await (const [name, handle] of folder) {
            if (!name.startsWith("record-")) continue;
            const { body } = JSON.parse(await (await handle.getFile()).text());
            const { count } = JSON.parse(body);
            if (!newest || count > newest.count) newest = { count, handle };
        }
        const stream = await newest.handle.createWritable({ keepExistingData: true });
        await stream.truncate(100);
        await stream.close();
        return newest.count;
    }""")
    page.do(lambda page: page.reload())

    again = opened(page)

    assert cut >= 3
    assert again["y"] == first["y"]


def test_two_tabs_update_at_once(page: BrowserPage, publisher: Publisher) -> None:
    opened(page)
    other = page.do(lambda page: page.context.new_page())
    publisher.publish(2)

    def both(first: Any) -> list[Any]:
        other.goto(first.url)
        other.evaluate(f"({_OPEN})({{}})")
        publisher.publish(3)
        for one in (first, other):
            one.evaluate("() => { globalThis.updating = session.update(); globalThis.updating.catch(() => {}); }")
        return [one.evaluate("async () => [(await updating).version, await predict()]") for one in (first, other)]

    found = page.do(both)

    assert [version for version, _ in found] == ["3", "3"]
    assert found[0][1] == found[1][1]


def test_without_room_the_new_version_runs_from_memory(page: BrowserPage, publisher: Publisher, host: str) -> None:
    opened(page)
    publisher.publish(2)

    def limit(page: Any) -> None:
        session = page.context.new_cdp_session(page)
        session.send("Storage.overrideQuotaForOrigin", {"origin": host, "quotaSize": 1000})

    page.do(limit)
    second = updated(page)

    assert second["update"]["version"] == "2"
    assert "in memory only" in second["update"]["note"]
    assert second["y"] == pytest.approx(sum_of_weights(publisher, 2), rel=1e-5)


def test_another_publisher_is_not_trusted(page: BrowserPage, publisher: Publisher, tmp_path: Path) -> None:
    Repository(tmp_path / "other").create(tmp_path / "other keys")
    root = (tmp_path / "other/tuf/1.root.json").read_text()

    with pytest.raises(EdgeInferError, match="signed by 0 of the keys"):
        opened(page, trust=root)
    assert opened(page, trust=(publisher.folder / "tuf/1.root.json").read_text())["report"]["update"]["version"] == "1"


def before_worker(page: BrowserPage, code: str) -> None:
    def change(route: Any) -> None:
        response = route.fetch()
        route.fulfill(response=response, body=f"{code};\n{response.text()}")

    page.do(lambda page: page.route("**/src/page/worker.js", change))


def test_without_ed25519_it_is_refused_or_plain_as_the_page_says(page: BrowserPage, publisher: Publisher) -> None:
    before_worker(page, "crypto.subtle.importKey = () => Promise.reject(new DOMException('no', 'NotSupportedError'))")

    with pytest.raises(EdgeInferError, match="has no Ed25519") as caught:
        opened(page)
    found = opened(page, fallback="/models/linear")

    assert "fallback" in caught.value.hint
    assert any("unsigned" in notice for notice in found["report"]["notices"])
    assert "update" not in found["report"]


def test_watching_takes_what_is_published_and_reports_it(page: BrowserPage, publisher: Publisher, host: str) -> None:
    opened(page, report=True)
    page.evaluate("""() => {
        globalThis.news = Promise.withResolvers();
        session.watch({ intervalS: 3600, onUpdate: news.resolve, onError: news.reject });
    }""")
    publisher.publish(2)

    assert page.evaluate("async () => (await news.promise).version") == "2"
    fleet = page.evaluate("""async () => {
        for (;;) {
            const fleet = await (await fetch("/sync/v1/fleet")).json();
            if (fleet.latest[0]?.version === "2") return fleet;
        }
    }""")
    [device] = fleet["latest"]
    assert (device["kind"], device["result"], device["method"]) == ("page", "ok", "delta")
    assert fleet["totals"][0]["bytes_moved"] < fleet["totals"][0]["bytes_full"]
    assert json.dumps(fleet).count(device["device"]) == 1


def test_a_session_of_a_plain_bundle_has_no_updates(page: BrowserPage, publisher: Publisher) -> None:
    with pytest.raises(EdgeInferError, match="of no store"):
        page.evaluate("""async () => {
            const { load } = await import("/src/index.js");
            await (await load("/models/linear")).update();
        }""")


def test_a_model_and_an_index_of_a_store_are_not_refused_for_each_other(
    page: BrowserPage, publisher: Publisher, tmp_path: Path
) -> None:
    index = edge_infer.Index.create(tmp_path / "notes.index", 8)
    index.add([[1.0] * 8], texts=["nine"])
    publish(contents_of(index.path), Repository(publisher.folder), publisher.keys)

    found = page.evaluate(
        """async () => {
            const { load, openIndex } = await import("/src/index.js");
            const said = async (task) => task.then(() => "", ({ code, hint }) => `${code} ${hint}`);
            const wrong = [await said(openIndex("edge+/store/linear")), await said(load("edge+/store/notes"))];
            await load("edge+/store/linear");
            return [...wrong, (await openIndex("edge+/store/notes")).update.version !== ""];
        }"""
    )

    assert found == ["input_error load(url), or pipeline(url)", "input_error openIndex(url)", True]


def test_a_damaged_index_of_a_store_leaves_the_old_one(page: BrowserPage, publisher: Publisher, tmp_path: Path) -> None:
    index = edge_infer.Index.create(tmp_path / "notes.index", 8)
    index.add([[1.0] * 8], texts=["nine"])
    store, contents = Repository(publisher.folder), contents_of(index.path)
    publish(contents, store, publisher.keys)
    ask = """async () => {
        const { openIndex } = await import("/src/index.js");
        const index = await openIndex("edge+/store/notes");
        return [index.update.note, (await index.search("nine", { mode: "words" })).length];
    }"""
    assert page.evaluate(ask) == ["", 1]

    files = {path: data + (b" " if path.startswith("segments/") else b"\n") for path, data in contents.files.items()}
    publish(contents._replace(files=files, version="2"), store, publisher.keys)

    note, count = page.evaluate(ask)
    assert "failed its trial here before" in note
    assert count == 1


def test_an_index_of_a_store_moves_by_its_new_segments(page: BrowserPage, publisher: Publisher, tmp_path: Path) -> None:
    def publish_index() -> None:
        publish(contents_of(index.path), Repository(publisher.folder), publisher.keys)

    def opened_index() -> dict[str, Any]:
        found: dict[str, Any] = page.evaluate(
            """async () => {
                const { openIndex } = await import("/src/index.js");
                const notes = await openIndex("edge+/store/notes");
                const hits = await notes.search("nine", { mode: "words" });
                return { ids: hits.map(({ id }) => id), scores: hits.map(({ score }) => score), update: notes.update };
            }"""
        )
        return found

    index = edge_infer.Index.create(tmp_path / "notes.index", 8)
    index.add(np.random.default_rng(1).normal(size=(4000, 8)), texts=[f"note {i}" for i in range(4000)])
    publish_index()
    first = opened_index()
    index.add([[1.0] * 8], texts=["nine"])
    publish_index()
    second = opened_index()

    assert first["ids"] == []
    assert second["ids"] == [4000]
    assert second["scores"] == [hit.score for hit in index.search("nine", mode="words")]
    assert second["update"]["method"] == "delta"
    assert second["update"]["bytesMoved"] < first["update"]["bytesMoved"] / 20
    page.do(lambda page: page.route("**/store/**", lambda route: route.abort()))
    assert opened_index()["ids"] == [4000]
