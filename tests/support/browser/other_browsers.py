"""Firefox and WebKit without a display, each driven by its own protocol, WebDriver BiDi and WebDriver; and Chromium.

Debian has both: `firefox-esr`, which speaks BiDi itself, and `webkit2gtk-driver`, which starts WebKitGTK's MiniBrowser.
The protocols: https://www.w3.org/TR/webdriver-bidi/ and https://www.w3.org/TR/webdriver2/.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from websockets.sync.client import connect

from edge_infer.errors import error_from_json
from tests.support.browser.pages import BrowserPage, BrowserThread
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from websockets.sync.client import ClientConnection

_START_S = 60
#: Between two looks at a page: each is a call through a browser, which then computes nothing else.
LOOK_S = 0.05
#: One step in a page.
_STEP_S = 180
# Firefox 153 listens to all workers for whoever drives it, though nobody asks for them. A worker that starts another
# one then stands still, about one time in thirty: without a driver, or without the listener, it does not.
_FORGET_WORKERS = """{
    const place = "chrome://remote/content/shared/js-process-actors/WebDriverWorkerListenerActor.sys.mjs";
    ChromeUtils.importESModule(place).unregisterWebDriverWorkerListenerActor();
}"""
_MINI_BROWSERS = ("webkit2gtk-4.1", "webkitgtk-6.0", "webkit2gtk-4.0")


class Driven(Protocol):
    """A browser with one page."""

    def go(self, url: str) -> None:
        """Show an address."""

    def call(self, function: str, argument: Any = None) -> Any:
        """Call an asynchronous JavaScript function in the page; what it gives and takes crosses as JSON."""


def _guarded(function: str, argument: Any) -> str:
    """Write an expression that gives JSON: the value of the function, or its error."""
    call = f"await ({function})({json.dumps(argument)}) ?? null"
    problem = '{ error: error.toJSON ? error.toJSON() : { error: String(error), code: "error" } }'
    attempt = f"try {{ return JSON.stringify({{ value: {call} }}); }}"
    return f"(async () => {{ {attempt} catch (error) {{ return JSON.stringify({problem}); }} }})()"


def _value(answer: str) -> Any:
    document = json.loads(answer)
    if "error" in document:
        raise error_from_json(document["error"])
    return document["value"]


class Firefox:
    """A Firefox that listens for WebDriver BiDi.

    Args:
        socket: The connection to it.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self._send("session.new", capabilities={})
        own = self._send("browsingContext.getTree", **{"moz:scope": "chrome"})["contexts"][0]["context"]
        # A Firefox without the listener answers with an exception, which is as good.
        self._send("script.evaluate", expression=_FORGET_WORKERS, target={"context": own}, awaitPromise=False)
        (page,) = self._send("browsingContext.getTree")["contexts"]
        self._page = page["context"]

    def go(self, url: str) -> None:
        """Show an address."""
        self._send("browsingContext.navigate", context=self._page, url=url, wait="complete")

    def call(self, function: str, argument: Any = None) -> Any:
        """Call an asynchronous JavaScript function in the page."""
        found = self._send(
            "script.evaluate",
            expression=_guarded(function, argument),
            target={"context": self._page},
            awaitPromise=True,
        )
        if found["type"] != "success":
            raise RuntimeError(json.dumps(found["exceptionDetails"]))
        return _value(found["result"]["value"])

    def _send(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        end = time.monotonic() + _STEP_S
        while True:
            answer = json.loads(self._socket.recv(max(0.1, end - time.monotonic())))
            if answer.get("id") != self._number:
                continue
            if answer["type"] == "error":
                raise RuntimeError(f"{method}: {answer['error']}: {answer['message']}")
            return answer["result"]


class WebKit:
    """A MiniBrowser of WebKitGTK behind its driver.

    Args:
        address: Of the driver.
        binary: The browser.
    """

    def __init__(self, address: str, binary: Path) -> None:
        self._address = f"{address}/session"
        options = {"webkitgtk:browserOptions": {"binary": str(binary), "args": ["--automation"]}}
        opened = self._send("POST", "", {"capabilities": {"alwaysMatch": options}})
        self._address += f"/{opened['sessionId']}"
        self._send("POST", "/timeouts", {"script": _STEP_S * 1000, "pageLoad": _STEP_S * 1000})

    def go(self, url: str) -> None:
        """Show an address."""
        self._send("POST", "/url", {"url": url})

    def call(self, function: str, argument: Any = None) -> Any:
        """Call an asynchronous JavaScript function in the page."""
        script = f"{_guarded(function, argument)}.then(arguments[0])"
        return _value(self._send("POST", "/execute/async", {"script": script, "args": []}))

    def close(self) -> None:
        """End the browser."""
        self._send("DELETE", "")

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self._address}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=_STEP_S + 10) as answer:
            return json.load(answer)["value"]


class Chromium:
    """A Chromium behind the same interface.

    Args:
        page: Its page.
    """

    def __init__(self, page: BrowserPage) -> None:
        self._page = page

    def go(self, url: str) -> None:
        """Show an address."""
        self._page.do(lambda page: page.goto(url))

    def call(self, function: str, argument: Any = None) -> Any:
        """Call an asynchronous JavaScript function in the page."""
        return _value(self._page.evaluate(f"() => {_guarded(function, argument)}"))


@contextmanager
def chromium() -> Iterator[Chromium]:
    """Start a Chromium."""
    with BrowserThread() as thread:
        page = BrowserPage(thread, "about:blank")
        yield Chromium(page)
        page.close()


#: A camera and a microphone that nobody is asked for.
_FAKE_DEVICES = (
    'user_pref("media.navigator.streams.fake", true);\nuser_pref("media.navigator.permission.disabled", true);\n'
)


@contextmanager
def firefox(*, fake_devices: bool = False) -> Iterator[Firefox]:
    """Start a Firefox with a profile of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder, "user.js").write_text(_FAKE_DEVICES if fake_devices else "", "utf-8")
        log = Path(folder, "log")
        command = ["firefox-esr", "--headless", "--no-remote", "--profile", folder, "--remote-debugging-port", "0"]
        command.append("--remote-allow-system-access")  # to its own windows, for `_FORGET_WORKERS`
        with _started(command, log, {"MOZ_CRASHREPORTER_DISABLE": "1"}):
            found: list[str] = []

            def is_listening() -> bool:
                found[:] = re.findall(r"WebDriver BiDi listening on (ws://\S+)", log.read_text("utf-8", "replace"))
                return bool(found)

            wait_until(is_listening, _START_S, LOOK_S)
            with connect(f"{found[0]}/session", max_size=2**26, open_timeout=_START_S) as socket:
                yield Firefox(socket)


@contextmanager
def webkit() -> Iterator[WebKit]:
    """Start a MiniBrowser on a display of its own."""
    binary = next((path for name in _MINI_BROWSERS for path in Path("/usr/lib").glob(f"*/{name}/MiniBrowser")), None)
    if binary is None:
        raise FileNotFoundError("MiniBrowser is missing: apt-get install webkit2gtk-driver")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, ExitStack() as stack:
        home = {"HOME": folder, "XDG_DATA_HOME": folder, "XDG_CACHE_HOME": folder, "XDG_RUNTIME_DIR": folder}
        display = stack.enter_context(_display(Path(folder, "display")))
        port = _free_port()
        # Its sandbox needs a system bus, and its compositor a GPU; a machine for tests has neither.
        drawn = {"WEBKIT_DISABLE_SANDBOX_THIS_IS_DANGEROUS": "1", "WEBKIT_DISABLE_DMABUF_RENDERER": "1"}
        drawn |= {"LIBGL_ALWAYS_SOFTWARE": "1", "DISPLAY": display}
        stack.enter_context(_started(["WebKitWebDriver", f"--port={port}"], Path(folder, "log"), home | drawn))
        address = f"http://127.0.0.1:{port}"
        wait_until(lambda: _answers(f"{address}/status"), _START_S, LOOK_S)
        browser = WebKit(address, binary)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def _display(log: Path) -> Iterator[str]:
    """Start an X server on a free display; give its name."""
    read, write = os.pipe()
    command = ["Xvfb", "-displayfd", str(write), "-screen", "0", "1280x900x24", "-nolisten", "tcp"]
    with _started(command, log, {}, pass_fds=(write,)):
        os.close(write)
        with os.fdopen(read) as pipe:
            yield f":{pipe.readline().strip()}"


@contextmanager
def _started(command: list[str], log: Path, more: dict[str, str], pass_fds: tuple[int, ...] = ()) -> Iterator[None]:
    """Run a program beside the tests, and end it and what it has started."""
    if shutil.which(command[0]) is None:
        raise FileNotFoundError(f"{command[0]} is missing: tests/setup.sh all")
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=os.environ | more, pass_fds=pass_fds, start_new_session=True
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False
