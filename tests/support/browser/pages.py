"""A Chromium in a thread of its own, its pages, and Python in them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from edge_infer.errors import error_from_json
from edge_infer.tools.browser.chromium import chromium

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Self

    from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Route


T = TypeVar("T")


#: One step in a page; what a test does in all has four times as long.
_TIMEOUT_S = 120


class BrowserThread:
    """A Chromium in a thread of its own.

    Args:
        *flags: More switches for it.
    """

    def __init__(self, *flags: str) -> None:
        self._flags = flags

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(1)
        self._open = ExitStack()
        self.browser: Browser = self.do(lambda: self._open.enter_context(chromium(*self._flags)))
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self._open.close)
        self._pool.shutdown()

    def do(self, work: Callable[[], T]) -> T:
        """Call a function in the browser's thread."""
        return self._pool.submit(work).result(4 * _TIMEOUT_S)


class BrowserPage:
    """A page, and what its console said."""

    def __init__(self, thread: BrowserThread, url: str, **options: Any) -> None:
        self._thread = thread
        self.console: list[str] = []
        self.context: BrowserContext = thread.do(lambda: thread.browser.new_context(**options))
        self.page: Page = thread.do(self.context.new_page)
        thread.do(lambda: self._listen(url))

    def _listen(self, url: str) -> None:
        self.page.set_default_timeout(_TIMEOUT_S * 1000)
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.console.append(f"uncaught: {error}"))
        self.page.goto(url)

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.console.append(f"{message.type}: {message.text}")

    def do(self, work: Callable[[Page], T]) -> T:
        """Call a function with the page, in the browser's thread."""
        return self._thread.do(lambda: work(self.page))

    def evaluate(self, function: str, argument: Any = None) -> Any:
        """Run JavaScript in the page; an EdgeInferError comes back as the same error of Python."""
        guarded = (
            f"async (argument) => {{ try {{ return {{ value: await ({function})(argument) }}; }}"
            " catch (error) { if (!error.toJSON) throw error; return { error: error.toJSON() }; } }"
        )
        answer = self.do(lambda page: page.evaluate(guarded, argument))
        if "error" in answer:
            raise error_from_json(answer["error"])
        return answer.get("value")

    def close(self) -> None:
        self._thread.do(self.context.close)


class PagePython:
    """Python in a page whose browser has no JSPI, as Safari has none.

    Args:
        page: The page.
        **options: More options of `loadPython`.
    """

    def __init__(self, page: BrowserPage, **options: Any) -> None:
        self.page = page
        page.do(lambda page: page.route("**/src/page/python-worker.js", without_jspi))
        self.report = page.evaluate(
            """async (options) => {
                const { loadPython } = await import("/src/index.js");
                globalThis.python = await loadPython({ keepImage: false, ...options });
                return python.report();
            }""",
            options,
        )

    def run(self, code: str, **names: Any) -> Any:
        """Run Python in the page; names and result cross as JSON, so that no integer is rounded on the way."""
        given = "".join(f"{name} = _json.loads({json.dumps(json.dumps(value))})\n" for name, value in names.items())
        body, _, last = code.strip().rpartition("\n")
        wrapped = f"import json as _json\n{given}{body}\n_json.dumps({last})"
        return json.loads(self.page.evaluate("(code) => python.run(code)", wrapped))


def without_jspi(route: Route) -> None:
    """Serve a worker's script so that it finds no JSPI, as in Safari."""
    response = route.fetch()
    removed = "delete WebAssembly.Suspending; delete WebAssembly.promising;\n"
    route.fulfill(response=response, body=removed + response.text())
