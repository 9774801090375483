"""The steps of pipelines give in Pyodide what CPython and JavaScript give: sounds, graphs, windows of texts."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

import edge_infer
from edge_infer.cli import cli
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer_converters import convert
from tests.support.browser.pages import BrowserPage, BrowserThread, PagePython
from tests.support.tasks import hub_folders, step_cases
from tests.support.tasks.pipelines import graphs, questions

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = Path(__file__).parents[1] / "tasks/run_steps.mjs"
QUESTION = {"question": "a film", "context": "good film " * 60 + "paris a london " + "bad film " * 30}
WINDOWS: dict[str, Any] = {"top_k": 3, "doc_stride": 8}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("steps")
    return {"answer": questions(folder / "answer.bundle"), "graphs": graphs(folder / "graphs.bundle")}


@pytest.fixture(scope="module")
def page(browser: BrowserThread, bundles: dict[str, Path]) -> Iterator[BrowserPage]:
    with ServerThread(create_app({**bundles}, find_web_root())) as server:
        page = BrowserPage(browser, f"{server.url}/blank.html")
        yield page
        page.close()


@pytest.fixture(scope="module")
def pyodide(page: BrowserPage) -> PagePython:
    return PagePython(page)


def is_near(one: dict[str, Any], other: dict[str, Any], within: float) -> bool:
    pair = step_cases.numbers(one), step_cases.numbers(other)
    return one.get("shape") == other.get("shape") and np.allclose(*pair, rtol=0, atol=within)


def test_sounds_become_the_same_features(python: PagePython, tmp_path: Path) -> None:
    documents = step_cases.documents()
    here = [step_cases.answer(one) for one in documents]
    source = Path(step_cases.__file__).read_text("utf-8")
    there = python.run(
        """
        space = {"__name__": "step_cases"}
        exec(source, space)
        [space["answer"](one) for one in documents]
        """.replace("\n        ", "\n"),
        source=source,
        documents=documents,
    )
    (tmp_path / "cases.json").write_text(json.dumps(documents))
    command = ["node", str(PROGRAM), str(tmp_path / "cases.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    node = [one["answer"] for one in json.loads(done.stdout)]
    for document, *answers in zip(documents, here, there, node, strict=True):
        name = document["name"]
        if name in step_cases.EXACT:
            assert answers[1] == answers[2] == answers[0], name
        else:
            assert is_near(answers[0], answers[1], 2e-6), name
            assert is_near(answers[0], answers[2], 2e-6), name


IN_PYTHON = """
import edge_infer
with edge_infer.pipeline(f"{server}/models/{name}", backend=backend) as ask:
    found = ask(value, **arguments)
found
"""


@pytest.mark.long
def test_a_context_is_read_in_the_same_windows(
    page: BrowserPage, pyodide: PagePython, bundles: dict[str, Path]
) -> None:
    server = page.evaluate("() => location.origin")
    there = pyodide.run(IN_PYTHON, server=server, name="answer", value=QUESTION, arguments=WINDOWS, backend=None)
    script = page.evaluate(
        """async ([value, more]) => {
            const { pipeline } = await import("/src/index.js");
            const ask = await pipeline("/models/answer");
            const found = await ask(value, more);
            await ask.dispose();
            return found;
        }""",
        [QUESTION, WINDOWS],
    )
    with edge_infer.pipeline(bundles["answer"]) as ask:
        here = ask(QUESTION, **WINDOWS)
    assert here[0]["answer"] == "paris a london"
    for answers in (there, script):
        assert [(one["start"], one["end"], one["answer"]) for one in answers] == [
            (one["start"], one["end"], one["answer"]) for one in here
        ]
        assert [one["score"] for one in answers] == pytest.approx([one["score"] for one in here], abs=1e-6)


@pytest.mark.long
def test_graphs_run_on_the_engine_of_the_page(page: BrowserPage, pyodide: PagePython, bundles: dict[str, Path]) -> None:
    samples = [((7 * i) % 19 - 9) / 10 for i in range(320)]
    server = page.evaluate("() => location.origin")
    there = pyodide.run(IN_PYTHON, server=server, name="graphs", value=samples, arguments={}, backend=None)
    script = page.evaluate(
        """async (samples) => {
            const { pipeline } = await import("/src/index.js");
            const ask = await pipeline("/models/graphs");
            const found = await ask(Float32Array.from(samples));
            await ask.dispose();
            return found;
        }""",
        samples,
    )
    with edge_infer.pipeline(bundles["graphs"]) as ask:
        here = ask(samples)
    assert {one["label"] for one in here} == {"high", "low"}
    for answers in (there, script):
        assert [one["label"] for one in answers] == [one["label"] for one in here]
        assert [one["score"] for one in answers] == pytest.approx([one["score"] for one in here], abs=1e-6)


@pytest.mark.long
def test_verify_runs_the_vectors_of_a_pipeline_in_a_page(tmp_path: Path) -> None:
    hub_folders.write(tmp_path / "vit", hub_folders.image_classifier(3), hub_folders.VIT)
    bundle = tmp_path / "vit.bundle"
    convert(tmp_path / "vit", bundle, precision="fp32", format="onnx")

    def verified() -> tuple[int, list[tuple[str, str, str]]]:
        done = CliRunner().invoke(cli, ["verify", str(bundle), "--backend", "ort-web", "--json"])
        document = json.loads(done.stdout)
        return done.exit_code, [(row["variant"], row["backend"], row["verdict"]) for row in document["pipeline"]]

    assert verified() == (
        0,
        [("steps", "", "ok"), ("steps", "pyodide", "ok"), ("onnx/fp32", "ort-web", "ok")],
    )
    # Other answers, with their hash: the steps are right, and the model does not give what the vectors say.
    proof = bundle / "examples/pipeline.json"
    document = json.loads(proof.read_text("utf-8"))
    for case in document["cases"]:
        for one in case["answer"]:
            one["score"] = 1 - one["score"]
    proof.write_text(json.dumps(document), "utf-8")
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    (entry,) = (one for one in manifest["files"] if one["path"] == "examples/pipeline.json")
    entry["size"], entry["sha256"] = proof.stat().st_size, hashlib.sha256(proof.read_bytes()).hexdigest()
    (bundle / "manifest.json").write_text(json.dumps(manifest), "utf-8")
    assert verified() == (
        1,
        [("steps", "", "ok"), ("steps", "pyodide", "ok"), ("onnx/fp32", "ort-web", "fail")],
    )
