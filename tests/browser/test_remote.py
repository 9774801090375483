"""A page that asks the server: by `fetch`, as any v2 client, and by `edge_infer.load` in Python."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

import edge_infer
from edge_infer.server.app import Limits, create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from tests.support.browser.pages import BrowserPage, PagePython
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from edge_infer.server.app import Application
    from tests.support.browser.pages import BrowserThread

_MAX_BODY_BYTES = 2**13
_ASK = """async ([url, request]) => {
    const headers = { "content-type": "application/json" };
    const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(request) });
    return { status: response.status, answer: await response.json() };
}"""


@pytest.fixture(scope="module")
def small_app(digits_bundle: Path) -> Application:
    """An application that takes requests of a few kilobytes."""
    return create_app({"digits": digits_bundle}, find_web_root(), limits=Limits(max_body_bytes=_MAX_BODY_BYTES))


@pytest.fixture(scope="module")
def small_server(small_app: Application) -> Iterator[str]:
    """The address of a server that runs it."""
    with ServerThread(small_app) as running:
        yield running.url


@pytest.fixture(scope="module")
def asking(browser: BrowserThread, small_server: str) -> Iterator[PagePython]:
    """Python in a page of that server."""
    page = BrowserPage(browser, f"{small_server}/blank.html")
    yield PagePython(page)
    page.close()


@pytest.fixture(scope="module")
def expected(small_server: str) -> list[list[float]]:
    """What a native client gets from the server."""
    with edge_infer.load(f"{small_server}/v2/models/digits", arrays="tensor") as session:
        logits: list[list[float]] = session.run(_images(3))["logits"].tolist()
    return logits


def _images(count: int) -> dict[str, Any]:
    return {"image": [[[[(row + one) / 16] * 8 for row in range(8)]] for one in range(count)]}


def test_python_in_a_page_runs_a_model_of_the_server(
    asking: PagePython, small_server: str, expected: list[list[float]]
) -> None:
    found = asking.run(
        """
import edge_infer
with edge_infer.load(url) as session:
    at_once = session.run(inputs)["logits"]
    later = await session.run_async(inputs)
    report = session.report()
    with session.prepare({"image": (3, 1, 8, 8)}) as call:
        prepared = call(inputs)["logits"].tolist()
    found = [at_once.tolist(), later["logits"].tolist(), prepared, report.engine, str(at_once.dtype)]
found
""",
        url=f"{small_server}/v2/models/digits",
        inputs=_images(3),
    )

    assert found == [expected, expected, expected, "remote", "float32"]


def test_it_is_loaded_without_blocking_too(asking: PagePython, small_server: str, expected: list[list[float]]) -> None:
    found = asking.run(
        """
import edge_infer
session = await edge_infer.load_async(url)
(await session.run_async(inputs))["logits"].tolist()
""",
        url=f"{small_server}/v2/models/digits/versions/1",
        inputs=_images(3),
    )

    assert found == expected


def test_an_error_of_the_server_keeps_its_class_in_the_page(asking: PagePython, small_server: str) -> None:
    """The first is found by the page, the second and third by the server alone."""
    found = asking.run(
        """
import edge_infer
session = edge_infer.load(url)

def attempt(work):
    try:
        work()
    except edge_infer.EdgeInferError as error:
        return [type(error).__name__, error.code, error.message]

wrong = attempt(lambda: session.run({"image": [[1.0]]}))
large = attempt(lambda: session.run(inputs))
gone = attempt(lambda: edge_infer.load(url.replace("digits", "letters")))
unreached = attempt(lambda: edge_infer.load("http://127.0.0.1:1/v2/models/digits"))
session.run({"image": [[[[0.5] * 8] * 8]]})
[wrong, large, gone, unreached]
""",
        url=f"{small_server}/v2/models/digits",
        inputs=_images(64),
    )

    assert [name for name, *_ in found] == ["InputError", "PayloadTooLarge", "FetchError", "FetchError"]
    assert "image" in found[0][2]
    assert str(_MAX_BODY_BYTES) in found[1][2]
    assert "`letters` is not served" in found[2][2]
    assert "cannot be reached" in found[3][2]


def test_a_server_that_says_later_is_asked_again_by_the_page(
    asking: PagePython, small_app: Application, small_server: str, expected: list[list[float]]
) -> None:
    said = small_app.refusals["shutting_down"]
    small_app.engine.is_draining = True  # it refuses with 503 and `Retry-After: 1`

    def come_back() -> None:
        wait_until(lambda: small_app.refusals["shutting_down"] != said)
        small_app.engine.is_draining = False

    waiting = Thread(target=come_back)
    waiting.start()
    try:
        found = asking.run(
            """
import edge_infer, time
with edge_infer.load(url) as session:
    start = time.monotonic()
    logits = session.run(inputs)["logits"].tolist()
    waited_s = time.monotonic() - start
[logits, waited_s]
""",
            url=f"{small_server}/v2/models/digits",
            inputs=_images(3),
        )
    finally:
        small_app.refusals["shutting_down"] += 1  # where the page never asked
        waiting.join(60)

    assert found[0] == expected
    assert found[1] >= 1.0


def test_a_stream_is_refused_with_the_address_to_write(asking: PagePython, small_server: str) -> None:
    address = f"{small_server}/v2/models/digits"
    with pytest.raises(edge_infer.errors.UnsupportedError, match="no streams") as caught:
        asking.run("import edge_infer\nedge_infer.load(url)", url=address.replace("http", "ws", 1))

    assert caught.value.hint == address


def test_a_page_posts_json_and_gets_numbers_or_a_problem(
    open_page: Callable[..., BrowserPage], small_server: str, expected: list[list[float]]
) -> None:
    page = open_page(f"{small_server}/blank.html")
    url, data = "/v2/models/digits/infer", _images(3)["image"]
    entry = {"name": "image", "datatype": "FP32", "shape": [3, 1, 8, 8], "data": data}

    good = page.evaluate(_ASK, [url, {"id": "drawing", "inputs": [entry]}])
    bad = page.evaluate(_ASK, [url, {"inputs": [{**entry, "datatype": "INT64"}]}])

    (logits,) = [output for output in good["answer"]["outputs"] if output["name"] == "logits"]
    assert (good["status"], good["answer"]["id"], logits["shape"]) == (200, "drawing", [3, 10])
    assert logits["data"] == pytest.approx([value for row in expected for value in row], rel=1e-6)
    assert (bad["status"], bad["answer"]["code"]) == (400, "input_error")
