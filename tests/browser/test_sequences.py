"""Whisper and T5 in the page and in Node: the tokens, texts and times of CPython."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import edge_infer
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer_converters import convert
from tests.support.generation import pair_folders, record_pairs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.browser.pages import BrowserPage

# Samples cross as JSON: numbers of float32 come whole.
_RUN = """async ({root, index, cases}) => {
  const { pipeline } = await import(index);
  const found = [];
  for (const [name, task, inputs, options] of cases) {
    try {
      const answer = await pipeline(...(task ? [task, `${root}/${name}`] : [`${root}/${name}`]));
      const given = inputs.map((one) => (typeof one === "string" ? one : Float32Array.from(one)));
      found.push([answer.task, await answer(given, options)]);
      await answer.dispose();
    } catch ({ code, message }) {
      found.push([code, message]);
    }
  }
  return found;
}"""


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, made = tmp_path_factory.mktemp("pairs"), dict[str, Path]()
    for kind in ("whisper-times", "t5", "flan"):
        source = pair_folders.write_pair(folder / kind, kind)
        task = "summarization" if kind == "flan" else None
        made[kind] = convert(source, folder / f"{kind}.bundle", precision="fp32,int8", task=task).path
    return made


@pytest.fixture(scope="module")
def address(bundles: dict[str, Path]) -> Iterator[str]:
    with ServerThread(create_app(dict(bundles), find_web_root())) as running:
        yield running.url


def _cases() -> list[list[Any]]:
    sounds = [record_pairs.sound(seconds).tolist() for seconds in (0.5, 3.3)]
    return [
        ["whisper-times", "automatic-speech-recognition", sounds, {"return_timestamps": True}],
        ["whisper-times", None, sounds[:1], {"language": "de", "task": "translate"}],
        ["t5", "text2text-generation", record_pairs.TEXTS, {"max_tokens": 12}],
        ["flan", None, record_pairs.TEXTS[:1], {"max_tokens": 12}],
    ]


def _expected(bundles: dict[str, Path]) -> list[Any]:
    found: list[Any] = []
    for name, task, inputs, options in _cases():
        with edge_infer.pipeline(*((task, bundles[name]) if task else (bundles[name],))) as answer:
            found.append([answer.task, answer(inputs, **options)])
    answers: list[Any] = json.loads(json.dumps(found))
    return answers


def test_a_page_and_node_answer_as_cpython_does(
    open_page: Callable[..., BrowserPage], bundles: dict[str, Path], address: str
) -> None:
    expected, given = _expected(bundles), {"cases": _cases()}
    page = open_page(f"{address}/blank.html")

    in_page = page.evaluate(_RUN, {**given, "root": "/models", "index": "/src/index.js"})

    assert in_page == expected
    assert len({json.dumps(one) for one in expected}) == len(expected)
    assert len(expected[0][1][1]["chunks"]) > 2


def test_a_page_fetches_each_graph_once_where_no_task_is_named(
    open_page: Callable[..., BrowserPage], address: str
) -> None:
    page, asked = open_page(f"{address}/blank.html"), list[str]()
    page.do(lambda page: page.context.on("request", lambda request: asked.append(request.url)))

    cases = [["flan", None, record_pairs.TEXTS[:1], {"max_tokens": 4}]]
    page.evaluate(_RUN, {"cases": cases, "root": "/models", "index": "/src/index.js"})

    graphs = [url for url in asked if ".onnx" in url]
    assert len(graphs) == 2
    assert len(set(graphs)) == 2


@pytest.mark.long
def test_node_answers_as_cpython_does(bundles: dict[str, Path], tmp_path: Path) -> None:
    for name, path in bundles.items():
        (tmp_path / name).symlink_to(path)
    given = {"cases": _cases(), "root": str(tmp_path), "index": (find_web_root() / "src/index.js").as_uri()}
    code = f"({_RUN})({json.dumps(given)}).then((x) => console.log(JSON.stringify(x)))"
    (tmp_path / "run.mjs").write_text(code)

    done = subprocess.run(["node", tmp_path / "run.mjs"], capture_output=True, text=True, check=True, timeout=120)

    assert json.loads(done.stdout) == _expected(bundles)


def test_what_does_not_fit_is_refused(open_page: Callable[..., BrowserPage], address: str) -> None:
    cases: list[list[Any]] = [
        ["t5", "automatic-speech-recognition", ["a"], {}],
        ["t5", None, ["a"], {"min_tokens": 3}],
        ["t5", None, ["a"], {"max_tokens": 0}],
        ["t5", None, [""], {}],
        ["whisper-times", None, [[0.0] * 100], {"language": "xx"}],
        ["whisper-times", None, ["/nothing.wav"], {}],
        ["whisper-times", "summarization", ["a"], {}],
    ]

    found = open_page(f"{address}/blank.html").evaluate(
        _RUN, {"cases": cases, "root": "/models", "index": "/src/index.js"}
    )

    assert [code for code, _ in found] == [*["input_error"] * 5, "fetch_error", "input_error"]
    for (_, message), said in zip(
        found, ("not for", "min_tokens", "max_tokens", "no tokens", "`xx`", "nothing.wav", "not for"), strict=True
    ):
        assert said in message
