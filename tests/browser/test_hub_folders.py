"""Folders as transformers writes them answer in Python, on the server and in a page as its own pipelines do."""

from __future__ import annotations

import json
import subprocess
import sys
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import pytest

import edge_infer
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from tests.support.browser.pages import BrowserPage, BrowserThread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_infer.tasks.pipeline import Pipeline

ROOT = Path(__file__).parents[2]
WRITER = ROOT / "tests/support/tasks/transformers_tasks.py"
#: By folder its task.
TASKS = {
    "vit": "image-classification",
    "sentiment": "text-classification",
    "pairs": "text-classification",
    "roberta": "text-classification",
    "tags": "token-classification",
    "answers": "question-answering",
    "ranks": "text-ranking",
    "letters": "automatic-speech-recognition",
}
#: By what scores may differ: the same float32 computed by PyTorch, onnxruntime and wasm.
CLOSE = 2e-5
_ASK = """async ([url, asked, file, args]) => {
  const { pipeline } = await import("/src/index.js");
  const answering = await pipeline(url);
  const raw = file && new Blob([await (await fetch(file)).arrayBuffer()]);
  const answer = await answering(raw ?? asked, args);
  (globalThis.kept ??= []).push(answering); // the engine stays for the next one
  return { task: answering.task, answer };
}"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return folders that transformers wrote; it lies apart from the packages of the tests."""
    folder = tmp_path_factory.mktemp("hub")
    where = {"PYTHONPATH": f"{ROOT / '.bench/transformers'}:{ROOT}", "PATH": "", "HOME": str(folder)}
    done = subprocess.run([sys.executable, str(WRITER), str(folder)], env=where, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return folder


@pytest.fixture(scope="module")
def static(place: Path) -> Iterator[str]:
    """Serve the folders as any host of files does, with what other origins must be allowed."""

    class Files(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(place))

        def end_headers(self) -> None:
            self.send_header("Access-Control-Allow-Origin", "*")
            self.send_header("Cross-Origin-Resource-Policy", "cross-origin")
            super().end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def served(place: Path, browser: BrowserThread) -> Iterator[tuple[str, BrowserPage]]:
    """Serve the folders; give the server's address and a page of it."""
    with ServerThread(create_app({name: place / name for name in TASKS}, find_web_root())) as server:
        page = BrowserPage(browser, f"{server.url}/blank.html")
        yield server.url, page
        page.close()


@pytest.mark.long
@pytest.mark.parametrize("name", TASKS)
def test_a_folder_answers_everywhere_as_transformers_does(
    name: str, place: Path, static: str, served: tuple[str, BrowserPage]
) -> None:
    address, page = served
    case: dict[str, Any] = json.loads((place / "asked.json").read_text("utf-8"))[name]
    assert case["task"] == TASKS[name]
    given = str(place / case["file"]) if "file" in case else case["asked"]
    with edge_infer.pipeline(place / name) as ask:
        fed = fed_to(ask)
        ours = ask(given, **case["arguments"])
        assert ask.task == case["task"]
    if "tensors" in case:  # the ids, masks and types of transformers' own tokenizer
        assert fed == [case["tensors"]]
    if case["answer"] is not None:
        check(ours, case["answer"], "transformers")
    check(predicted(f"{address}/v2/models/{name}/predict", place, case), ours, "server")
    for url in (f"/models/{name}", f"{static}/{name}"):
        file = f"{static}/{case['file']}" if "file" in case else None
        found = page.evaluate(_ASK, [url, case.get("asked"), file, case["arguments"]])
        assert found["task"] == case["task"], url
        check(found["answer"], ours, url)


def fed_to(ask: Pipeline) -> list[dict[str, Any]]:
    """Return a list that fills with what the model is run on."""
    found: list[dict[str, Any]] = []
    run = ask.session.run

    def spy(inputs: dict[str, Any], *args: Any, **options: Any) -> Any:
        found.append({name: value.tolist() for name, value in inputs.items()})
        return run(inputs, *args, **options)

    ask.session.run = spy  # type: ignore[assignment, method-assign]
    return found


def predicted(url: str, place: Path, case: dict[str, Any]) -> Any:
    """Ask the server."""
    if "file" in case:
        request = Request(url, (place / case["file"]).read_bytes())
    else:
        body = json.dumps({"inputs": case["asked"], "parameters": case["arguments"]}).encode()
        request = Request(url, body, {"Content-Type": "application/json"})
    with urlopen(request) as answer:
        return json.loads(answer.read())


def check(got: Any, expected: Any, where: str) -> None:
    """Compare answers: the same labels and words, numbers that are close; of what is expected, no more."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            check(got[key], value, f"{where}, {key}")
    elif isinstance(expected, (list, tuple)):
        assert len(got) == len(expected), where
        for one, other in zip(got, expected, strict=True):
            check(one, other, where)
    elif isinstance(expected, float):
        assert got == pytest.approx(expected, abs=CLOSE), where
    else:
        assert got == expected, where
