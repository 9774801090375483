"""Firefox and WebKit: the main path of each kind of page of the studio, with the answers of Python."""

from __future__ import annotations

import base64
import io
import json
import wave
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

import edge_infer
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from tests.support.browser.other_browsers import LOOK_S, firefox, webkit
from tests.support.chains import made
from tests.support.generation.bundles import write_bundle
from tests.support.server.bundles import bundle_files
from tests.support.server.bundles import write_bundle as write_tensors
from tests.support.tasks.pipelines import colours, loudness, words
from tests.support.tasks.tables import risk
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.browser.other_browsers import Driven

pytestmark = pytest.mark.long

_POST = [{"step": "post.softmax"}, {"step": "post.top_k"}]
_BEST = "document.querySelector('.bars .best span')?.textContent"
_BAD_NOTICES = "[...document.querySelectorAll('.notice.bad')].map((one) => one.textContent)"
_TOO_WIDE = """[...document.body.querySelectorAll('*')]
    .filter((one) => one.getBoundingClientRect().right > innerWidth + .5).map((one) => one.outerHTML.slice(0, 200))"""


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory, digits_bundle: Path) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("studio")
    kinds = ["contradiction", "neutral", "entailment"]
    return {
        "digits": digits_bundle,
        "colours": colours(folder / "colours"),
        "loud": loudness(folder / "loud"),
        "mood": words(folder / "mood", "text-classification", _POST, 2, ["bad", "good"], pooled=True),
        "about": words(folder / "about", "zero-shot-classification", [{"step": "post.tensor"}], 3, kinds, pooled=True),
        "risk": risk(folder / "risk.bundle"),
        "minilm": made.embedder(folder / "minilm.bundle"),
        "writer": write_bundle(folder / "writer.bundle", context=1024),
        "tensors": write_tensors(folder / "tensors", bundle_files("tensors")),
    }


@pytest.fixture(scope="module")
def url(bundles: dict[str, Path]) -> Iterator[str]:
    with ServerThread(create_app(bundles, find_web_root())) as server:
        yield server.url


class Visitor:
    """Who looks at one page after the other."""

    def __init__(self, browser: Driven, url: str) -> None:
        self.browser = browser
        self.url = url

    def open(self, name: str) -> None:
        self.browser.go("about:blank")  # another fragment alone would not load the page anew
        self.browser.go(f"{self.url}/#/models/{name}")

    def sees(self, expression: str) -> Any:
        return self.browser.call(f"async () => {expression}")

    def waits(self, condition: str) -> None:
        def holds() -> bool:
            assert self.sees(_BAD_NOTICES) == []
            return bool(self.sees(f"Boolean({condition})"))

        try:
            wait_until(holds, pause_s=LOOK_S)
        except TimeoutError as late:
            raise AssertionError(self.sees("document.body.innerText")) from late

    def finds_no_trouble(self) -> None:
        assert self.sees(_BAD_NOTICES) == []
        width, room = self.sees("[document.documentElement.scrollWidth, innerWidth]")
        assert width <= room, self.sees(_TOO_WIDE)

    def gives(self, name: str, content: bytes, selector: str = ".stage input[type=file]") -> None:
        self.waits(f"document.querySelector('{selector}')")
        self.browser.call(
            """async ([selector, name, text]) => {
                const given = new DataTransfer();
                given.items.add(new File([Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))], name));
                const input = document.querySelector(selector);
                input.files = given.files;
                input.dispatchEvent(new Event("change"));
            }""",
            [selector, name, base64.b64encode(content).decode()],
        )

    def types(self, selector: str, text: str) -> None:
        self.browser.call(
            """async ([selector, text]) => {
                const field = document.querySelector(selector);
                field.value = text;
                field.dispatchEvent(new Event("input", { bubbles: true }));
            }""",
            [selector, text],
        )

    def presses(self, selector: str, text: str = "") -> None:
        fits = f"one.textContent.includes('{text}') && one.offsetParent && !one.disabled"
        found = f"[...document.querySelectorAll({json.dumps(selector)})].find((one) => {fits})"
        self.waits(found)
        self.browser.call(f"async () => {found}.click()")


@pytest.fixture(scope="module", params=[firefox, webkit])
def visitor(request: pytest.FixtureRequest, url: str) -> Iterator[Visitor]:
    with request.param() as browser:
        yield Visitor(browser, url)


def _sound() -> bytes:
    written = io.BytesIO()
    with wave.open(written, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes((np.sin(np.arange(16_000) / 5) * 20_000).astype("<i2").tobytes())
    return written.getvalue()


def test_a_picture_is_named(visitor: Visitor, bundles: dict[str, Path], tmp_path: Path) -> None:
    picture = tmp_path / "green.png"
    Image.fromarray(np.full((40, 60, 3), (20, 220, 40), np.uint8)).save(picture)
    visitor.open("colours")

    visitor.gives("green.png", picture.read_bytes())
    visitor.waits(_BEST)

    assert visitor.sees(_BEST) == edge_infer.pipeline(bundles["colours"])(picture)[0]["label"]
    visitor.finds_no_trouble()


def test_a_sound_is_heard(visitor: Visitor, bundles: dict[str, Path], tmp_path: Path) -> None:
    sound = tmp_path / "tone.wav"
    sound.write_bytes(_sound())
    visitor.open("loud")

    visitor.gives("tone.wav", sound.read_bytes())
    visitor.waits(_BEST)

    start, end = (edge_infer.pipeline(bundles["loud"])(sound)[0][key] for key in ("start", "end"))
    assert visitor.sees(_BEST).strip() == f"{start:.2f} to {end:.2f} s"
    assert visitor.sees("document.querySelectorAll('.wave i').length > 100")


def test_camera_and_microphone_are_answered_in_firefox(url: str) -> None:
    """MiniBrowser asks a person for the camera, and has no fake one that answers for itself."""
    with firefox(fake_devices=True) as browser:
        visitor = Visitor(browser, url)
        visitor.open("colours")
        visitor.presses("button", "Use the camera")
        visitor.waits("document.querySelector('video')?.videoWidth > 0")
        visitor.waits(_BEST)
        visitor.presses("button", "Stop the camera")

        visitor.open("loud")
        visitor.presses("button", "Record 3 seconds")
        visitor.waits("document.querySelector('.cost')")  # an answer, whatever was heard
        assert visitor.sees("document.querySelector('.wave i') !== null")


def test_a_text_a_row_and_labels_are_answered_and_the_setup_stays(visitor: Visitor, bundles: dict[str, Path]) -> None:
    visitor.open("mood")
    visitor.waits(_BEST)
    visitor.types(".stage textarea", "a bad film")
    visitor.waits("location.hash.endsWith('in=a+bad+film')")
    assert visitor.sees(_BEST) == edge_infer.pipeline(bundles["mood"])("a bad film")[0]["label"]

    visitor.presses(".pick label", "server")
    visitor.waits("document.body.textContent.includes('The server answers')")
    assert visitor.sees("document.querySelector('.stage textarea').value") == "a bad film"

    visitor.open("about")
    visitor.waits(_BEST)
    visitor.open("risk?in=95&in=Genf&in=")
    visitor.waits(f"{_BEST} === 'good'")
    visitor.finds_no_trouble()


def test_documents_are_found_and_answered_from(visitor: Visitor) -> None:
    visitor.open("minilm")
    visitor.gives("films.md", b"# Good\n\ngood film in paris\n\n# Bad\n\na bad film", ".drop input[type=file]")
    visitor.waits("document.querySelector('.shelf li')")

    visitor.types("input[type=search]", "good film in paris")
    visitor.waits("document.querySelector('.hits h3')?.textContent === 'Good'")
    visitor.presses(".pick label", "writer")
    visitor.presses("form .go")
    visitor.waits("document.querySelector('.mind').textContent")
    visitor.waits("!document.querySelector('form .go').disabled")  # the whole answer is written

    visitor.finds_no_trouble()


def test_a_chat_is_answered(visitor: Visitor) -> None:
    visitor.open("writer")
    visitor.waits("document.querySelector('.chat .go')?.disabled === false")

    visitor.types(".chat textarea", "abc")
    visitor.presses(".chat .go")

    visitor.waits("document.querySelector('.log p:not(.you)')?.textContent")
    visitor.finds_no_trouble()


def test_a_drawing_opens_again_by_its_address(visitor: Visitor) -> None:
    visitor.open("digits?in=7")

    visitor.waits("document.querySelector('.answer .big')?.textContent.startsWith('7,')")
    visitor.presses("button[aria-label='Draw a 0']")

    visitor.waits("location.hash.endsWith('in=0')")
    visitor.waits("document.querySelector('.answer .big')?.textContent.startsWith('0,')")
    visitor.finds_no_trouble()


def test_tensors_are_answered(visitor: Visitor) -> None:
    visitor.open("tensors")

    visitor.waits("document.querySelector('.answer .tensor')?.textContent.includes('float32[1, 3]')")

    visitor.finds_no_trouble()
