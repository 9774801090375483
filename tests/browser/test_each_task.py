"""Each task of the guide is three lines at most, in Python and in a page, and both print the same."""

from __future__ import annotations

import functools
import io
import json
import re
import sys
from array import array
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pytest

import edge_infer
from edge_infer.platform import installed
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tasks.registry import OWN
from tests.support.browser.pages import BrowserPage, BrowserThread
from tests.support.tasks.each_task import write_all

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

GUIDE = (Path(__file__).parents[2] / "docs/guide/tasks.md").read_text("utf-8")
BLOCKS = re.findall(r"## (\S+)\n\n```python\n(.*?)```\n\n```js\n(.*?)```", GUIDE, re.DOTALL)
_LIVE = GUIDE.partition("## Live pictures and sound")[2]
LIVE = re.findall(r"```(?:python|js)\n(.*?)```", _LIVE, re.DOTALL)


def test_every_task_has_its_three_lines() -> None:
    assert sorted(task for task, *_ in BLOCKS) == sorted(task.name for task in OWN)
    for task, *codes in BLOCKS:
        for code in codes:
            assert sum(bool(line.strip()) for line in code.splitlines()) <= 3, task
    assert len(LIVE) == 4
    for code in LIVE:
        assert sum(bool(line.strip()) for line in code.splitlines()) <= 3, code


def test_the_page_of_the_guide_names_a_photo(browser: BrowserThread, tmp_path: Path) -> None:
    """What a newcomer copies: a page of their own beside a served bundle."""
    bundles = {"photos": write_all(tmp_path)["photos"]}
    (tmp_path / "my_page").mkdir()
    code = re.findall(r"```html\n(.*?)```", GUIDE, re.DOTALL)[0]
    (tmp_path / "my_page/index.html").write_text(code, "utf-8")
    with ServerThread(create_app(bundles, find_web_root(), page=tmp_path / "my_page")) as server:
        page = BrowserPage(browser, f"{server.url}/")

        def choose(page: Page) -> str:
            page.wait_for_function("document.querySelector('input').onchange !== null")
            page.set_input_files("input", tmp_path / "photo.jpg")
            page.wait_for_function("document.querySelector('output').textContent !== ''")
            return page.locator("output").inner_text()

        assert page.do(choose) == edge_infer.pipeline(bundles["photos"])(tmp_path / "photo.jpg")[0]["label"]
        page.close()


@pytest.mark.long
def test_both_languages_print_the_same(browser: BrowserThread, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundles = write_all(tmp_path)
    monkeypatch.chdir(tmp_path)

    def send(route: Route) -> None:
        route.fulfill(body=(tmp_path / route.request.url.rpartition("/")[2]).read_bytes())

    with ServerThread(create_app(bundles, find_web_root())) as server:
        page = BrowserPage(browser, f"{server.url}/blank.html")
        page.do(lambda page: page.route("**/photo.jpg", send))
        page.do(lambda page: page.route("**/hello.wav", send))
        for task, python, script in BLOCKS:
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(compile(python, task, "exec"), {})
            code = script.replace(
                'import { pipeline } from "edge-infer"', 'const { pipeline } = await import("/src/index.js")'
            )
            code = code.replace("console.log(", "said.push(")
            said = page.evaluate(f"async () => {{ const said = []; {code}\n return said; }}")
            assert same(printed.getvalue().strip(), said[0]), (task, printed.getvalue(), said)
        page.close()


@pytest.mark.long
def test_the_page_of_the_api_has_a_form_for_each_task(browser: BrowserThread, tmp_path: Path) -> None:
    bundles = write_all(tmp_path)
    with ServerThread(create_app(bundles)) as server:
        page = BrowserPage(browser, f"{server.url}/docs")

        def ask(name: str, page: Page) -> str:
            form = page.locator(f"form[data-predict='v2/models/{name}/predict']")
            files = form.locator("[type=file]")
            if files.count():
                kind = files.get_attribute("accept")
                files.set_input_files(tmp_path / ("photo.jpg" if kind == "image/*" else "hello.wav"))
            elif name == "gaps":
                form.locator("textarea").fill(json.dumps({"inputs": "a bad film"}))
            form.locator("button").click()
            said = "form => !['', 'asked'].includes(form.querySelector('output').textContent)"
            page.wait_for_function(said, arg=form.element_handle())
            return form.locator("output").inner_text()

        for name in bundles:
            answer = page.do(functools.partial(ask, name))
            assert '"error"' not in answer, (name, answer)
        assert page.console == []
        page.close()


class Ended(Exception):
    """The device of this test was turned off."""


class Microphone:
    """What the package sounddevice gives: two seconds of a wave."""

    def __init__(self, rate: int, size: int, *_: Any, **_options: Any) -> None:
        self._left = 2 * rate // size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, size: int) -> tuple[bytes, bool]:
        self._left -= 1
        if self._left < 0:
            raise Ended
        return array("f", [(at % 40 - 20) / 20 for at in range(size)]).tobytes(), False


class Camera:
    """What OpenCV gives: one picture."""

    def __init__(self, _: int) -> None:
        self._left = 1

    def isOpened(self) -> bool:  # noqa: N802
        return True

    def read(self) -> tuple[bool, Any]:
        self._left -= 1
        return self._left >= 0, np.full((30, 40, 3), 90, np.uint8)

    def release(self) -> None:
        pass


@pytest.mark.long
def test_a_camera_and_a_microphone_are_three_lines_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundles = write_all(tmp_path)
    monkeypatch.chdir(tmp_path)
    known = installed.origin_of
    packages: dict[str, dict[str, Any]] = {
        "cv2": {"VideoCapture": Camera},
        "sounddevice": {"RawInputStream": Microphone, "PortAudioError": OSError},
    }
    for name, members in packages.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(installed, "origin_of", lambda name: "here" if name in packages else known(name))
    printed = []
    for python in LIVE[::2]:
        said = io.StringIO()
        with redirect_stdout(said), suppress(Ended):
            exec(compile(python, "live", "exec"), {})
        printed.append(said.getvalue().split()[0])
    assert printed == ["car", "yes"]

    flags = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    with BrowserThread(*flags) as thread, ServerThread(create_app(bundles, find_web_root())) as server:
        page = BrowserPage(thread, f"{server.url}/blank.html")
        for script, expected in zip(LIVE[1::2], printed, strict=True):
            code = script.replace(
                'import { pipeline } from "edge-infer"', 'const { pipeline } = await import("/src/index.js")'
            )
            code = re.sub(r"console\.log\((.*)\);", r"{ said.push(\1); break; }", code)
            found = page.evaluate(f"async () => {{ const said = []; {code}\n return said; }}")
            assert found == [expected]
        tracks = page.evaluate(_WATCHED)
        page.close()
    assert tracks == {"answers": 3, "own": "live", "code": ["input_error", "unsupported", "input_error"]}


_WATCHED = """async () => {
  const { pipeline } = await import("/src/index.js");
  const [see, hear] = [await pipeline("/models/street"), await pipeline("/models/words")];
  const stream = await navigator.mediaDevices.getUserMedia({ video: true });
  let answers = 0;
  for await (const _ of see.watch(stream, { threshold: 0.3 })) if (++answers === 3) break;
  const own = stream.getVideoTracks()[0].readyState; // a stream of the page stays on
  const pictures = see.watch(stream, { threshold: 0.3 });
  const sound = await navigator.mediaDevices.getUserMedia({ audio: true });
  await pictures.next();
  stream.getTracks()[0].stop(); // no event tells of it
  const heard = hear.listen(sound);
  setTimeout(() => sound.getTracks()[0].stop(), 300);
  while (!(await pictures.next()).done);
  while (!(await heard.next()).done);
  const code = [];
  const broken = Object.assign(document.createElement("video"), { src: "data:video/mp4,none" });
  await new Promise((resolve) => broken.addEventListener("error", resolve)); // before anybody watches
  const wrongs = [see.watch(3), hear.watch(), see.watch(broken)];
  for (const wrong of wrongs) await wrong.next().catch((error) => code.push(error.code));
  stream.getVideoTracks()[0].stop();
  for await (const _ of see.watch(stream)) answers = -1; // it is over
  return { answers, own, code };
}"""


def same(printed: str, value: object) -> bool:
    """Whether Python printed a value of JavaScript; numbers may differ in their last digits."""
    if isinstance(value, (int, float)):
        return float(printed) == pytest.approx(value, abs=0.05)
    return printed == value
