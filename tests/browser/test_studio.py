"""The studio, as a visitor uses it: the gallery, and the page of each kind of model."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shlex
import subprocess
import sys
import urllib.request
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

import edge_infer
from edge_infer.errors import FetchError
from edge_infer.platform.fetch import fetch
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from tests.support.browser.digits import make_digits_bundle
from tests.support.browser.pages import BrowserPage, BrowserThread
from tests.support.tasks.pipelines import colours, loudness, words
from tests.support.tasks.tables import risk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from playwright.sync_api import FloatRect, Page

_POST = [{"step": "post.softmax"}, {"step": "post.top_k"}]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory, digits_bundle: Path) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("studio")
    broken = folder / "broken"
    broken.mkdir()
    (broken / "manifest.json").write_text("{")
    return {
        "digits": digits_bundle,
        "colours": colours(folder / "colours"),
        "mood": words(folder / "mood", "text-classification", _POST, 2, ["bad", "good"], pooled=True),
        "loud": loudness(folder / "loud"),
        "risk": risk(folder / "risk.bundle"),
        "about": words(
            folder / "about.bundle",
            "zero-shot-classification",
            [{"step": "post.tensor"}],
            3,
            ["contradiction", "neutral", "entailment"],
            pooled=True,
        ),
        "broken": broken,
    }


@pytest.fixture(scope="module")
def studio(bundles: dict[str, Path]) -> Iterator[str]:
    with ServerThread(create_app(bundles, find_web_root())) as server:
        yield server.url


@pytest.fixture(scope="module")
def raced(tmp_path_factory: pytest.TempPathFactory, bundles: dict[str, Path]) -> Iterator[str]:
    """Serve the digits in all formats, compiled ones too, beside another model: with a gallery, and a race on it."""
    made = make_digits_bundle(tmp_path_factory.mktemp("raced") / "digits.bundle")
    with ServerThread(create_app({"digits": made, "mood": bundles["mood"]}, find_web_root())) as server:
        yield server.url


def text_of(page: Page, selector: str) -> str:
    page.wait_for_selector(selector)
    return page.inner_text(selector)


def no_overflow(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


@pytest.mark.parametrize("width", [360, 1440])
def test_the_gallery_has_a_card_for_each_model_and_says_what_is_wrong_with_one(
    open_page: Callable[..., BrowserPage], studio: str, width: int
) -> None:
    page = open_page(studio, viewport={"width": width, "height": 800})

    cards = page.do(lambda page: text_of(page, ".cards"))

    assert all(name in cards for name in ("digits", "colours", "mood", "loud", "broken"))
    assert "image-classification" in cards
    assert "manifest.json" in page.do(lambda page: text_of(page, ".card.broken"))
    assert page.do(no_overflow)
    assert page.console == []


def test_a_drawn_digit_is_recognised_and_stays_when_another_engine_is_chosen(
    open_page: Callable[..., BrowserPage], server: str
) -> None:
    page = open_page(server, reduced_motion="reduce")

    page.do(lambda page: page.wait_for_selector(".bars .best"))
    page.do(lambda page: page.click("button[aria-label='Draw a 7']"))
    page.do(lambda page: page.wait_for_function("document.querySelector('.answer .big').textContent.startsWith('7')"))
    page.do(lambda page: page.click("label:has(input[value=litert])"))
    page.do(lambda page: page.wait_for_function("location.hash.includes('engine=litert')"))
    page.do(lambda page: page.wait_for_selector("input[value^='tflite/']:checked", state="attached"))
    page.do(lambda page: page.wait_for_selector(".cost"))
    page.do(lambda page: page.wait_for_function("document.querySelector('.answer .big').textContent.startsWith('7')"))

    assert page.do(no_overflow)
    assert page.console == []


def test_a_picture_gets_the_labels_that_python_gives(
    open_page: Callable[..., BrowserPage], studio: str, bundles: dict[str, Path], tmp_path: Path
) -> None:
    picture = tmp_path / "green.png"
    Image.fromarray(np.full((40, 60, 3), (20, 220, 40), np.uint8)).save(picture)
    best = edge_infer.pipeline(bundles["colours"])(picture)[0]
    page = open_page(f"{studio}/#/models/colours")

    page.do(lambda page: page.set_input_files("input[type=file]", picture, timeout=30_000))
    shown = page.do(lambda page: text_of(page, ".bars .best"))

    assert shown.split() == [best["label"], f"{best['score']:.3f}"]
    assert "curl" in page.do(lambda page: text_of(page, ".code"))
    assert page.console == []


def test_the_server_answers_like_the_page(open_page: Callable[..., BrowserPage], studio: str) -> None:
    page = open_page(f"{studio}/#/models/mood")
    here = page.do(lambda page: text_of(page, ".bars"))

    page.do(lambda page: page.click("label:has(input[value=server])"))
    page.do(lambda page: page.wait_for_selector("text=The server answers"))
    page.do(lambda page: page.wait_for_function("document.querySelector('.cost')?.textContent.endsWith('Fetched–')"))

    assert page.do(lambda page: text_of(page, ".bars")) == here
    assert page.console == []


def test_a_sound_is_read_from_a_file(
    open_page: Callable[..., BrowserPage], studio: str, bundles: dict[str, Path], tmp_path: Path
) -> None:
    page = open_page(f"{studio}/#/models/loud")
    page.do(lambda page: page.wait_for_selector("text=Choose a sound"))
    broken = tmp_path / "broken.wav"
    broken.write_bytes(b"RIFF")

    page.do(lambda page: page.set_input_files("input[type=file]", broken))

    assert "not a sound" in page.do(lambda page: text_of(page, ".notice.bad"))


def test_a_microphone_that_is_not_given_is_said(open_page: Callable[..., BrowserPage], studio: str) -> None:
    page = open_page(f"{studio}/#/models/loud")

    page.do(lambda page: page.click("text=Record 3 seconds"))

    assert re.search("microphone.*choose a sound", page.do(lambda page: text_of(page, ".notice.warn")), re.DOTALL)


@pytest.mark.long
def test_a_camera_and_a_microphone_that_are_denied_are_said(studio: str) -> None:
    with BrowserThread("--use-fake-device-for-media-stream") as thread:  # there are some, and nobody allows them
        page = BrowserPage(thread, f"{studio}/#/models/colours")
        page.do(lambda page: page.click("text=Use the camera"))
        camera = page.do(lambda page: text_of(page, ".notice.warn"))
        page.do(lambda page: page.goto(f"{studio}/#/models/loud"))
        page.do(lambda page: page.click("text=Record 3 seconds"))
        microphone = page.do(lambda page: text_of(page, ".notice.warn"))
        ready = page.do(lambda page: page.is_enabled("text=Record 3 seconds"))
        page.close()

    assert camera.split("\n")[0] == "The browser did not give the camera."
    assert "Allow it by the icon beside the address, or choose a picture." in camera
    assert microphone.split("\n")[0] == "The browser did not give the microphone."
    assert "Allow it by the icon beside the address, or choose a sound." in microphone
    assert ready


def test_a_page_that_grows_shows_its_selectors(open_page: Callable[..., BrowserPage], studio: str) -> None:
    page = open_page(f"{studio}/#/models/mood", viewport={"width": 360, "height": 800})
    page.do(lambda page: page.wait_for_selector(".setup summary"))
    assert not page.do(lambda page: page.is_visible(".picks"))

    page.do(lambda page: page.set_viewport_size({"width": 1024, "height": 800}))

    page.do(lambda page: page.wait_for_selector(".picks"))


def test_a_measurement_ends_with_the_page_that_was_left(open_page: Callable[..., BrowserPage], studio: str) -> None:
    page = open_page(f"{studio}/#/models/mood")
    page.do(lambda page: page.wait_for_selector(".bars"))
    page.do(lambda page: page.locator("text=What it costs here").scroll_into_view_if_needed())
    page.do(lambda page: page.wait_for_selector("text=/Measuring /"))

    page.do(lambda page: page.evaluate("location.hash = '#/'"))
    page.do(lambda page: page.wait_for_selector(".cards"))
    page.do(lambda page: page.wait_for_function("true"))

    assert page.do(lambda page: [one.url for one in page.workers if "measure" in one.url]) == []
    assert page.evaluate("() => location.hash") == "#/"
    assert page.console == []


def test_each_variant_is_measured_and_proven_here(open_page: Callable[..., BrowserPage], studio: str) -> None:
    page = open_page(f"{studio}/#/models/mood")
    page.do(lambda page: page.wait_for_selector(".bars"))

    page.do(lambda page: page.locator("text=What it costs here").scroll_into_view_if_needed())
    page.do(lambda page: page.wait_for_selector("text=the median of 15 answers", timeout=60_000))
    page.do(lambda page: page.click("text=Run the proof"))
    page.do(lambda page: page.wait_for_function("document.querySelector('.proof .big').textContent !== '–'"))

    rows = page.do(lambda page: page.locator("section:has-text('What it costs') tbody tr").all_inner_texts())
    assert all(len(re.findall(r"\d m?s\b", row)) >= 2 for row in rows), rows
    assert "MB" in rows[0].split("\t")[-2], "the engine's memory"
    assert rows[-1].startswith("server")
    assert float(page.do(lambda page: text_of(page, ".proof .big"))) < 1e-5
    assert "no golden examples" in page.do(lambda page: page.inner_text("main"))
    assert page.console == []


def test_engines_race_on_the_first_view_until_it_is_left(open_page: Callable[..., BrowserPage], raced: str) -> None:
    page = open_page(raced, viewport={"width": 360, "height": 800})

    page.do(lambda page: page.wait_for_selector(".won", timeout=90_000))
    lanes = page.do(lambda page: page.locator(".lanes li").all_inner_texts())
    verdict = page.do(lambda page: page.inner_text(".verdict"))
    page.do(lambda page: page.click("text=Race again"))
    page.do(lambda page: page.wait_for_selector("text=starts from nothing"))
    page.do(lambda page: page.click(".cards a >> nth=1"))
    page.do(lambda page: page.wait_for_selector(".bars"))

    assert [lane.split()[0] for lane in lanes] == ["compiled", "onnxruntime-web", "LiteRT.js"]
    said = [text for lane in lanes for text in re.findall("“(.*)”", lane)]
    assert len(said) == len(lanes)
    assert len(set(said)) == 1, "one input has one answer"
    assert re.match(r"(compiled|onnxruntime-web|LiteRT.js) answers first, [\d.]+ times as soon", verdict)
    assert page.do(no_overflow)
    assert page.console == []


def test_a_race_that_is_left_before_it_begins_starts_no_engine(
    open_page: Callable[..., BrowserPage], raced: str
) -> None:
    page = open_page(f"{raced}/#/inspect")
    started: list[str] = []
    page.do(lambda page: page.on("worker", lambda worker: started.append(worker.url)))
    page.evaluate(
        """async () => {
            const { fetch } = globalThis;
            const isHeld = new Promise((go) => (globalThis.go = go));
            globalThis.fetch = async (...given) => {
                if (String(given[0]).includes("manifest.json")) await isHeld;
                return fetch(...given);
            };
            location.hash = "#/";
        }"""
    )
    page.do(lambda page: page.wait_for_selector(".lanes"))
    page.evaluate("() => { location.hash = '#/inspect'; }")
    page.do(lambda page: page.wait_for_selector(".stage.drop"))

    page.evaluate("async () => { go(); await new Promise((done) => setTimeout(done, 1000)); }")

    assert started == []
    assert page.console == []


@pytest.mark.long
def test_memory_stays_flat_over_fifty_switches_of_the_variant(
    open_page: Callable[..., BrowserPage], raced: str
) -> None:
    def switch(page: Page, variant: str) -> None:
        page.evaluate("document.querySelector('.answer .cost')?.remove()")
        page.check(f"input[value='{variant}']", force=True)
        page.wait_for_function(
            "variant => decodeURIComponent(location.hash).includes(`variant=${variant}`)"
            " && document.querySelector('.answer .cost') !== null",
            arg=variant,
        )

    def memory(page: Page) -> tuple[float, float, int]:
        session = page.context.new_cdp_session(page)
        for _ in range(2):
            session.send("HeapProfiler.collectGarbage")
        session.send("Performance.enable")
        found = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
        session.detach()
        return found["JSHeapUsedSize"], found["Nodes"], len(page.workers)

    def work(page: Page) -> tuple[tuple[float, float, int], tuple[float, float, int]]:
        page.wait_for_selector(".answer .cost")
        for i in range(6):  # engines and modules come, once
            switch(page, ("compiled/fp32", "onnx/fp32", "tflite/fp32")[i % 3])
        before = memory(page)
        for i in range(50):
            switch(page, ("compiled/fp32", "onnx/fp32", "tflite/fp32")[i % 3])
        return before, memory(page)

    # Without the table of costs, which fills meanwhile where it is seen.
    page = open_page(f"{raced}/#/models/digits", reduced_motion="reduce", viewport={"width": 1280, "height": 500})
    before, after = page.do(work)

    print(f"heap {before[0] / 1e6:.2f} to {after[0] / 1e6:.2f} MB, nodes {before[1]:.0f} to {after[1]:.0f}")
    assert after[0] - before[0] < 1e6
    assert after[1] - before[1] <= 50
    assert after[2] == before[2]
    assert page.console == []


@pytest.mark.long
def test_every_variant_gives_its_golden_outputs_in_the_page(open_page: Callable[..., BrowserPage], raced: str) -> None:
    page = open_page(f"{raced}/#/models/digits", reduced_motion="reduce")
    page.do(lambda page: page.wait_for_selector(".bars .best"))

    page.do(lambda page: page.click("text=Run the proof"))
    page.do(lambda page: page.wait_for_function("document.querySelector('.proof .big').textContent !== '–'"))

    verdicts = page.do(lambda page: page.locator(".badge").all_inner_texts())
    assert len(verdicts) >= 4
    assert set(verdicts) == {"✓ pass"}
    # The page runs the compiled variant, the server another: each is compared with itself.
    assert float(page.do(lambda page: text_of(page, ".proof .big"))) < 1e-4
    assert "compiled/int8 in Python, onnx/" in page.do(lambda page: page.inner_text(".proof"))


def test_what_is_not_there_is_said(open_page: Callable[..., BrowserPage], studio: str) -> None:
    page = open_page(f"{studio}/#/models/none")
    assert "no model called none" in page.do(lambda page: text_of(page, ".notice"))

    with ServerThread(create_app({}, find_web_root())) as bare:
        empty = open_page(bare.url)
        assert "edge-infer convert" in empty.do(lambda page: text_of(page, ".notice"))


def test_a_page_of_ones_own_stands_in_place_of_the_studio(tmp_path: Path, bundles: dict[str, Path]) -> None:
    page = tmp_path / "page"
    (page / "deep").mkdir(parents=True)
    (page / "index.html").write_text("mine")
    (page / "deep" / "index.html").write_text("deep")
    (tmp_path / "secret.txt").write_text("secret")
    with ServerThread(create_app({"mood": bundles["mood"]}, find_web_root(), page=page)) as server:
        got = {path: fetch(f"{server.url}{path}") for path in ("/", "/deep/", "/models/")}
        with pytest.raises(FetchError):
            fetch(f"{server.url}/..%2fsecret.txt")

    assert got["/"] == b"mine"
    assert got["/deep/"] == b"deep"
    assert json.loads(got["/models/"])["models"][0]["name"] == "mood"


@pytest.mark.parametrize(("kind", "operator"), [("onnx", "Conv"), ("tflite", "CONV_2D")])
def test_a_dropped_model_is_read_and_run_in_the_page(
    open_page: Callable[..., BrowserPage], studio: str, bundles: dict[str, Path], kind: str, operator: str
) -> None:
    page = open_page(f"{studio}/#/inspect")
    sent: list[str] = []
    page.do(lambda page: page.on("request", lambda request: sent.append(f"{request.method} {request.url}")))

    page.do(lambda page: page.set_input_files("input[type=file]", bundles["digits"] / kind / f"model.{kind}"))
    shown = page.do(lambda page: text_of(page, ".layers + .two"))
    page.do(lambda page: page.click("text=Run on made-up inputs"))
    page.do(lambda page: page.wait_for_selector("text=Measured now by"))

    assert operator in shown
    assert "image" in page.do(lambda page: page.inner_text("main"))
    assert all(one.startswith("GET ") for one in sent)
    assert page.do(no_overflow)
    assert page.console == []


def test_a_dropped_file_that_is_no_model_is_said(
    open_page: Callable[..., BrowserPage], studio: str, bundles: dict[str, Path], tmp_path: Path
) -> None:
    model = (bundles["digits"] / "onnx" / "model.onnx").read_bytes()
    flat = (bundles["digits"] / "tflite" / "model.tflite").read_bytes()
    page = open_page(f"{studio}/#/inspect", viewport={"width": 360, "height": 800})
    bad = {
        "cut": model[: len(model) // 2],
        "flat": flat[:400],
        "text": b"no model at all",
        "empty": b"",
        "head": b"\x00\x00\x00\x00TFL3",
    }
    for name, content in bad.items():
        (tmp_path / f"{name}.onnx").write_bytes(content)

        def drop(page: Page, name: str = name) -> None:
            page.set_input_files("input[type=file]", tmp_path / f"{name}.onnx")
            page.wait_for_selector(f"text={name}.onnx is no model")

        page.do(drop)

    assert page.do(no_overflow)
    assert page.console == []


def _zipped(bundle: Path, target: Path, **changed: bytes) -> Path:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in bundle.rglob("*") if path.is_file()):
            archive.writestr(f"{bundle.name}/{path.relative_to(bundle)}", changed.get(path.name, path.read_bytes()))
    return target


def test_a_dropped_bundle_has_its_page_without_any_server(
    open_page: Callable[..., BrowserPage], studio: str, bundles: dict[str, Path], tmp_path: Path
) -> None:
    page = open_page(f"{studio}/#/inspect", reduced_motion="reduce")
    sent: list[str] = []
    page.do(lambda page: page.on("request", lambda request: sent.append(f"{request.method} {request.url}")))

    page.do(lambda page: page.set_input_files("input[type=file]", _zipped(bundles["digits"], tmp_path / "d.zip")))
    page.do(lambda page: page.wait_for_selector(".bars .best"))
    page.do(lambda page: page.click("button[aria-label='Draw a 7']"))
    page.do(lambda page: page.wait_for_function("document.querySelector('.answer .big').textContent.startsWith('7')"))
    page.do(lambda page: page.set_input_files("input[type=file]", _zipped(bundles["mood"], tmp_path / "m.bundle")))
    page.do(lambda page: page.wait_for_selector("h2:text-is('mood')"))

    assert "bad" in page.do(lambda page: text_of(page, ".bars"))
    assert page.do(lambda page: page.is_disabled("input[value=server]"))
    assert page.evaluate("() => location.hash") == "#/inspect"
    assert all(one.startswith("GET ") and "/models/" not in one for one in sent)
    assert page.do(no_overflow)
    assert page.console == []


def test_a_dropped_bundle_that_is_damaged_is_said(
    open_page: Callable[..., BrowserPage], studio: str, bundles: dict[str, Path], tmp_path: Path
) -> None:
    page = open_page(f"{studio}/#/inspect")
    good = _zipped(bundles["mood"], tmp_path / "good.zip").read_bytes()
    manifest = json.loads((bundles["mood"] / "manifest.json").read_text())
    model = manifest["variants"][0]["file"].split("/")[-1]
    (tmp_path / "cut.zip").write_bytes(good[: len(good) // 2])
    at = good.index(b"PK\x01\x02")
    (tmp_path / "long.zip").write_bytes(good[: at + 24] + (2**31 + 9).to_bytes(4, "little") + good[at + 28 :])
    (tmp_path / "places.zip").write_bytes(good[: at + 42] + (2**31).to_bytes(4, "little") + good[at + 46 :])
    _zipped(bundles["mood"], tmp_path / "hash.zip", **{model: b"another"})
    _zipped(bundles["mood"], tmp_path / "list.zip", **{"manifest.json": b"{}"})
    changes: dict[str, dict[str, Any]] = {
        "hole": {"files": [None]},
        "inputs": {"inputs": None},
        "labels": {"labels": "no.json"},
        "unlisted": {"files": [one for one in manifest["files"] if one["path"] != manifest["labels"]]},
    }
    for wrong, change in changes.items():
        held = json.dumps({**manifest, **change}).encode()
        _zipped(bundles["mood"], tmp_path / f"{wrong}.zip", **{"manifest.json": held})
    with zipfile.ZipFile(tmp_path / "none.zip", "w") as archive:
        archive.writestr("a.txt", "a")
    said = {
        "cut": "is no zip file, or was cut short",
        "long": "larger than a page can hold",
        "places": "damaged zip file",
        "hash": "its hash is another",
        "list": "manifest.json has no schema_version",
        "hole": "manifest.json names the path",
        "inputs": "manifest.json has no list inputs",
        "labels": "no.json is not a JSON list of texts",
        "unlisted": "labels.json is not a JSON list of texts",
        "none": "has no manifest.json",
    }
    for name, sentence in said.items():

        def drop(page: Page, name: str = name, sentence: str = sentence) -> None:
            page.set_input_files("input[type=file]", tmp_path / f"{name}.zip")
            page.wait_for_selector(f".notice.bad:has-text('{sentence}')")

        page.do(drop)

    assert page.console == []


def test_a_setup_is_shared_as_a_link_and_a_qr_code(open_page: Callable[..., BrowserPage], studio: str) -> None:
    page = open_page(f"{studio}/#/models/mood?threads=1", viewport={"width": 360, "height": 800})
    page.do(lambda page: page.wait_for_selector(".bars .best"))

    page.do(lambda page: page.click("text=Share this setup"))

    assert page.do(lambda page: page.locator(".qr").get_attribute("aria-label")) == "The link as a QR code"
    assert "threads=1" in page.do(lambda page: text_of(page, ".share .mono"))
    assert page.do(no_overflow)
    page.do(lambda page: page.click("text=Close"))
    assert page.do(lambda page: page.locator(".qr").count()) == 0


def _pad(page: Page) -> FloatRect:
    page.locator(".pad").scroll_into_view_if_needed()
    box = page.locator(".pad").bounding_box()
    assert box is not None
    return box


def _draw(page: Page) -> None:
    page.press(".pad", "Escape")
    box = _pad(page)
    for points in ([(0.3, 0.2), (0.7, 0.2), (0.45, 0.95), (0.45, 1.1)], [(0.35, 0.5), (0.65, 0.55)]):
        places = [(box["x"] + box["width"] * x, box["y"] + box["height"] * y) for x, y in points]
        page.mouse.move(*places[0])
        page.mouse.down()
        for place in places[1:]:
            page.mouse.move(*place, steps=9)
        page.mouse.up()


def _add_a_stroke(page: Page) -> None:
    """Begin it while the sample is still being drawn."""
    page.emulate_media(reduced_motion="no-preference")
    page.click("button[aria-label='Draw a 7']")
    box = _pad(page)
    page.mouse.move(box["x"] + 40, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 90, box["y"] + 260, steps=4)
    page.mouse.up()


def _long(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.long)


@pytest.mark.parametrize(
    ("model", "change", "short"),
    [
        ("digits", _add_a_stroke, r"in=7\.[\w-]{6,60}$"),
        ("mood", lambda page: page.fill("textarea", "fine & 100 % bad"), r"in=fine\+%26\+100\+%25\+bad$"),
        _long("digits", _draw, r"in=\.[\w-]{30,400}\.[\w-]{15,150}$"),
        _long("digits", lambda page: page.click("button[aria-label='Draw a 0']"), r"\?in=0$"),
        _long("about", lambda page: page.fill("textarea >> nth=1", "a\nb"), r"in=a%0Ab$"),
        _long("risk", lambda page: page.select_option("label:has-text('city') select", "Genf"), r"in=.*Genf"),
    ],
    ids=["sample and a stroke", "text", "drawing", "sample", "labels", "row"],
)
def test_the_input_on_the_screen_is_in_the_address(
    open_page: Callable[..., BrowserPage], studio: str, model: str, change: Callable[[Page], None], short: str
) -> None:
    page = open_page(f"{studio}/#/models/{model}", reduced_motion="reduce")
    page.do(lambda page: page.wait_for_selector(".bars .best"))
    assert page.evaluate("() => location.hash") == f"#/models/{model}"

    page.do(change)
    page.do(lambda page: page.wait_for_function("location.hash.includes('in=')"))
    page.do(lambda page: page.wait_for_timeout(600))  # what follows the last change
    shown = page.do(lambda page: text_of(page, ".bars"))
    address = str(page.evaluate("() => location.href"))
    other = open_page(address, reduced_motion="reduce")
    other.do(lambda page: page.wait_for_selector(".bars .best"))

    assert re.search(short, address), address
    assert other.do(lambda page: text_of(page, ".bars")) == shown
    assert other.evaluate("() => location.href") == address
    assert page.console == other.console == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("model", "query"),
    [
        ("digits", "in=12.!!.AB.%F0%9F%98%80"),
        ("digits", "in="),
        ("risk", "in=1&in=2"),
        ("risk", "in=x&in=x&in=x"),
        ("colours", "in=samples/none.png"),
        ("mood", f"in={'a' * 3000}"),
    ],
)
def test_an_address_with_an_input_that_fits_nothing_opens_the_page(
    open_page: Callable[..., BrowserPage], studio: str, model: str, query: str
) -> None:
    page = open_page(f"{studio}/#/models/{model}?{query}", reduced_motion="reduce")

    ready = ".bars .best" if model != "colours" else "text=Chosen by rule"
    page.do(lambda page: page.wait_for_selector(ready, timeout=30_000))
    page.do(lambda page: page.wait_for_function("!location.hash.includes('in=')", timeout=30_000))

    assert page.do(lambda page: page.locator(".notice.bad").count()) == 0
    assert page.console == []


@pytest.mark.long
def test_an_input_is_in_the_address_only_as_far_as_chats_and_qr_codes_go(
    open_page: Callable[..., BrowserPage], studio: str
) -> None:
    def work(page: Page) -> str:
        page.set_default_timeout(20_000)
        page.wait_for_selector(".bars .best")
        page.fill("textarea", "\u4f60\u597d film")
        page.wait_for_function("location.hash.includes('in=')")
        page.fill("textarea", "\u4f60\u597d" * 100)  # 1800 letters of an address
        page.wait_for_function("!location.hash.includes('in=')")
        page.goto(f"{studio}/#/models/risk")
        page.wait_for_selector(".bars .best")
        page.goto(f"{studio}/#/models/mood?in={'a' * 3000}")  # of no link that was made here
        page.wait_for_selector(".bars .best")
        return page.input_value("textarea")

    assert "aaa" not in open_page(f"{studio}/#/models/mood").do(work)


def test_the_command_to_take_along_gives_the_answer_on_the_screen(
    open_page: Callable[..., BrowserPage], studio: str
) -> None:
    page = open_page(f"{studio}/#/models/digits", reduced_motion="reduce")
    page.do(lambda page: page.wait_for_selector(".bars .best"))
    page.do(lambda page: page.click("button[aria-label='Draw a 7']"))
    page.do(lambda page: page.wait_for_function("document.querySelector('.answer .big').textContent.startsWith('7')"))
    page.do(lambda page: page.click("text=curl"))

    command = shlex.split(page.do(lambda page: page.inner_text(".code pre")).replace("\\\n", ""))
    request = urllib.request.Request(command[1], command[-1].encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        logits = json.load(answer)["outputs"][0]["data"]

    assert command[0] == "curl"
    assert max(range(10), key=logits.__getitem__) == 7


def test_a_row_of_a_table_has_a_field_for_each_column_and_its_code_gives_the_answer_on_the_screen(
    open_page: Callable[..., BrowserPage], studio: str, bundles: dict[str, Path]
) -> None:
    page = open_page(f"{studio}/#/models/risk")
    page.do(lambda page: page.wait_for_selector(".bars .best"))

    page.do(lambda page: page.fill("label:has-text('age') input", "95"))
    page.do(lambda page: page.select_option("label:has-text('city') select", "Genf"))
    page.do(lambda page: page.fill("label:has-text('income') input", ""))
    page.do(lambda page: page.wait_for_selector(".code pre:has-text('None')"))
    best = page.do(lambda page: text_of(page, ".bars .best")).split()

    assert best[0] == "good"
    assert _ran(page, bundles["risk"])[0]["label"] == "good"
    assert page.console == []


def test_the_code_to_take_along_has_the_arguments_too(
    open_page: Callable[..., BrowserPage], studio: str, bundles: dict[str, Path]
) -> None:
    page = open_page(f"{studio}/#/models/about")
    best = page.do(lambda page: text_of(page, ".bars .best")).split()

    assert _ran(page, bundles["about"])["labels"][0] == best[0]


def _ran(page: BrowserPage, bundle: Path) -> Any:
    """What the Python on the page prints, where the bundle is."""
    code = page.do(lambda page: page.inner_text(".code pre"))
    done = subprocess.run([sys.executable, "-c", code], cwd=bundle.parent, capture_output=True, text=True, check=True)
    return ast.literal_eval(done.stdout)


def test_golden_examples_that_do_not_come_are_said(open_page: Callable[..., BrowserPage], studio: str) -> None:
    page = open_page(f"{studio}/#/models/digits", reduced_motion="reduce")
    page.do(lambda page: page.wait_for_selector(".bars .best"))
    page.do(lambda page: page.route("**/golden.safetensors", lambda route: route.fulfill(status=404)))

    page.do(lambda page: page.click("text=Run the proof"))

    assert "golden.safetensors" in page.do(lambda page: text_of(page, "section .notice.bad"))
    assert page.do(lambda page: page.is_enabled("text=Run the proof"))


def test_offline_now_keeps_the_samples_that_were_not_tried(
    open_page: Callable[..., BrowserPage], tmp_path: Path
) -> None:
    shown = colours(tmp_path / "shown.bundle")
    (shown / "samples").mkdir()
    manifest = json.loads((shown / "manifest.json").read_text())
    for name, colour in (("first.png", "red"), ("second.png", "blue")):
        Image.new("RGB", (8, 8), colour).save(shown / "samples" / name)
        data = (shown / "samples" / name).read_bytes()
        entry = {"path": f"samples/{name}", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        manifest["files"].append(entry)
    (shown / "manifest.json").write_text(json.dumps(manifest))
    with ServerThread(create_app({"shown": shown}, find_web_root())) as server:
        page = open_page(f"{server.url}/#/models/shown")
        page.do(lambda page: page.wait_for_selector(".bars .best:has-text('red')"))
        page.do(lambda page: page.click("text=Offline now"))
        page.do(lambda page: page.wait_for_selector("text=The network is cut"))
        page.do(lambda page: page.click("button:text-is('second')"))
        page.do(lambda page: page.wait_for_selector(".bars .best:has-text('blue')"))


def test_offline_now_cuts_the_network_and_goes_on_answering(open_page: Callable[..., BrowserPage], studio: str) -> None:
    page = open_page(f"{studio}/#/models/digits", reduced_motion="reduce")
    seven = "document.querySelector('.answer .big').textContent.startsWith('7')"
    page.do(lambda page: page.wait_for_selector(".bars .best"))

    page.do(lambda page: page.click("text=Offline now"))
    page.do(lambda page: page.wait_for_selector("text=The network is cut"))
    reached = page.evaluate("() => fetch('/v2/health/live').then(() => true, () => false)")
    page.do(lambda page: page.click("button[aria-label='Draw a 7']"))
    page.do(lambda page: page.wait_for_function(seven))
    page.do(lambda page: page.reload())
    page.do(lambda page: page.wait_for_selector("text=The network is still cut"))
    page.do(lambda page: page.wait_for_selector(".bars .best"))
    page.do(lambda page: page.click("text=Online again"))
    page.do(lambda page: page.wait_for_selector("text=The network is back"))

    assert reached is False
    assert page.evaluate("() => fetch('/v2/health/live').then(() => true, () => false)") is True
