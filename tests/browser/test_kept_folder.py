"""A folder of the Hub that nobody converted is kept by a page as a bundle is, by its address and its server's tags."""

from __future__ import annotations

import os
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from tests.support.tasks import hub_folders

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.browser.pages import BrowserPage

_ASK = """async (url) => {
    const { pipeline } = await import("/src/index.js");
    const classify = await pipeline(url);
    const [{ label, score }] = await classify("good film");
    const { fromStorage, offline } = classify.session.report();
    await classify.session.dispose();
    return { label, score, fromStorage, offline };
}"""
_KEPT = (
    "async () => (await (await import('/src/index.js')).keptModels()).map(({ model }) => model.split('/films/').at(-1))"
)
FILES = {"onnx/model.onnx", "config.json", "tokenizer.json"}
LABELS = {"0": "BAD", "1": "GOOD"}


class FolderServer:
    """Any host of files: it tells when a file was last changed, and allows other origins to ask."""

    def __init__(self, folder: Path) -> None:
        self.got: list[str] = []
        got = self.got

        class Files(SimpleHTTPRequestHandler):
            def __init__(self, *args: Any) -> None:
                super().__init__(*args, directory=str(folder))

            def do_GET(self) -> None:  # the name that the library calls
                got.append(self.path.removeprefix("/films/"))
                super().do_GET()

            def end_headers(self) -> None:
                self.send_header("Access-Control-Allow-Origin", "*")
                self.send_header("Cross-Origin-Resource-Policy", "cross-origin")
                super().end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def write(folder: Path, labels: dict[str, str], time: float) -> None:
    config = {"architectures": ["BertForSequenceClassification"], "model_type": "bert", "id2label": labels}
    files = {"config.json": config, "tokenizer.json": hub_folders.tokenizer()}
    hub_folders.write(folder, hub_folders.text_classifier(2), files)
    for path in folder.rglob("*"):
        os.utime(path, (time, time))


def test_a_folder_is_fetched_once_while_it_stays_the_same_and_answers_without_its_server(
    open_page: Callable[..., BrowserPage], tmp_path: Path
) -> None:
    write(tmp_path / "films", LABELS, 1_700_000_000)
    folder = FolderServer(tmp_path)
    try:
        with ServerThread(create_app({}, find_web_root())) as running:
            page = open_page(f"{running.url}/blank.html")
            address = f"{folder.url}/films"

            first = page.evaluate(_ASK, address)
            fetched = set(folder.got)
            folder.got.clear()
            second = page.evaluate(_ASK, address)

            assert (first["fromStorage"], first["offline"]) == (False, False)
            assert fetched >= FILES
            assert second == {**first, "fromStorage": True}
            assert not FILES & set(folder.got)
            assert set(page.evaluate(_KEPT)) >= FILES

            write(tmp_path / "films", {"0": "POOR", "1": "FINE"}, 1_700_000_900)
            changed = page.evaluate(_ASK, address)

            assert changed["label"] in ("POOR", "FINE")
            assert changed["score"] == first["score"]

            folder.stop()
            page.console.clear()

            assert page.evaluate(_ASK, address) == {**changed, "fromStorage": True, "offline": True}
            page.console.clear()  # the browser tells of each file that it could not reach
    finally:
        folder.stop()
