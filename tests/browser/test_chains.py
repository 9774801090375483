"""Chains in a page: the answers of Python, kept results, and a step on a server."""

from __future__ import annotations

import base64
import zipfile
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

import edge_infer
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tasks.answers import as_json
from tests.support.browser.pages import BrowserPage
from tests.support.chains import made

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.browser.pages import BrowserThread, PagePython

NAMES = ("things", "answers", "grouped", "speech")
_PLAIN = """
    globalThis.plain = (value) => {
        if (value?.data && value.shape) {
            const flat = Array.from(value.data, Number);
            return value.shape.length ? flat : flat[0];
        }
        if (Array.isArray(value)) return value.map(plain);
        return value && typeof value === "object"
            ? Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]))
            : value;
    };
    globalThis.bytes = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("chains")
    for name in ("things", "answers", "speech"):
        made.build(place, getattr(made, name)(place))
    (place / "grouped").mkdir()
    made.build(place / "grouped", made.grouped(place / "grouped"))
    (place / "grouped" / "chain-grouped.bundle").rename(place / "chain-grouped.bundle")
    return place


@pytest.fixture(scope="module")
def page(browser: BrowserThread, folder: Path) -> Iterator[BrowserPage]:
    models = {name: folder / f"chain-{name}.bundle" for name in NAMES}
    models["groups"] = folder / "grouped" / "groups.bundle"
    with ServerThread(create_app(models, find_web_root())) as server:
        opened = BrowserPage(browser, f"{server.url}/blank.html")
        opened.evaluate(f"() => {{ {_PLAIN} }}")
        yield opened
        opened.close()


def near(one: Any, other: Any) -> bool:
    """Whether two answers are the same but for 1e-4 in their numbers."""
    if isinstance(one, list):
        return len(one) == len(other) and all(near(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, dict):
        return set(one) == set(other) and all(near(one[key], other[key]) for key in one)
    return bool(one == other or (isinstance(one, float | int) and abs(one - other) <= 1e-4))


def png(seed: int) -> bytes:
    file = BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (37, 52, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def test_crops_are_classified_as_in_python(page: BrowserPage, folder: Path) -> None:
    pictures = [png(1), png(2)]
    found = page.evaluate(
        """async (files) => {
            const { openChain } = await import("/src/index.js");
            const chain = await openChain("/models/things");
            const run = await chain.run(files.map((one) => new Blob([bytes(one)])));
            const single = await chain.answer({ image: bytes(files[0]) });
            await chain.dispose();
            const names = run.timings.map(({ name, values }) => [name, values]);
            return plain({ answer: run.answer, single, names, spared: run.spared });
        }""",
        [base64.b64encode(one).decode() for one in pictures],
    )
    with edge_infer.Chain.open(folder / "chain-things.bundle") as chain:
        run = chain.run(pictures)
    assert near(found["answer"], as_json(run.answer))
    assert near(found["single"], as_json(run.answer[0]))
    assert found["names"] == [[one.name, one.values] for one in run.timings]
    assert found["spared"] == run.spared


def test_a_question_is_answered_from_what_was_found_as_in_python(page: BrowserPage, folder: Path) -> None:
    questions = ["a good paris", "bad film"]
    found = page.evaluate(
        """async (questions) => {
            const { openChain } = await import("/src/index.js");
            const chain = await openChain("/models/answers");
            const answers = await chain.answer(questions);
            await chain.dispose();
            return plain(answers);
        }""",
        questions,
    )
    with edge_infer.Chain.open(folder / "chain-answers.bundle") as chain:
        expected = chain(questions)
    assert [one["answer"] for one in found] == [one["answer"] for one in expected]
    assert near(found, as_json(expected))


def test_groups_and_stretches_are_those_of_python(page: BrowserPage, folder: Path) -> None:
    samples = np.zeros(16_000, np.float32)
    samples[3200:8000] = 0.9
    found = page.evaluate(
        """async ({ texts, samples }) => {
            const { openChain } = await import("/src/index.js");
            const grouped = await openChain("/models/grouped");
            const [first, again] = [await grouped.run(texts), await grouped.run(texts)];
            await grouped.dispose();
            const speech = await openChain("/models/speech");
            const parts = await speech.answer(Float32Array.from(samples));
            await speech.dispose();
            const cached = [first, again].map(({ timings }) => timings.map(({ cached }) => cached));
            return plain({ groups: [first.answer, again.answer], cached, parts });
        }""",
        {"texts": made.TEXTS, "samples": samples.tolist()},
    )
    cache = edge_infer.StepCache()
    with (
        edge_infer.Chain.open(folder / "chain-grouped.bundle", cache=cache) as grouped,
        edge_infer.Chain.open(folder / "chain-speech.bundle") as speech,
    ):
        expected = [one.tolist() for one in grouped(made.TEXTS)]
        assert found["groups"] == [expected, expected]
        assert near(found["parts"], speech(samples))
    assert found["cached"] == [[0, 0], [len(made.TEXTS), 0]]


def test_a_step_runs_on_a_server(page: BrowserPage, folder: Path) -> None:
    found = page.evaluate(
        """async (texts) => {
            const { openChain } = await import("/src/index.js");
            const { RemoteModel } = await import("/src/engines/remote-model.js");
            const remote = new RemoteModel(new URL("/v2/models/groups", location.href).href);
            const specs = [["x", "float32", ["n", 4]]].map(([name, dtype, shape]) => ({ name, dtype, shape }));
            const label = { name: "label", dtype: "int64", shape: ["n"] };
            const outputs = [label, { name: "scores", dtype: "float32", shape: ["n", 3] }];
            await remote.check({ inputs: specs, outputs });
            const wrong = await remote.check({ inputs: [], outputs }).catch(({ code, message }) => [code, message]);
            const chain = await openChain("/models/grouped");
            const { data } = await chain.answer(texts[0]);
            await chain.dispose();
            const x = { data: Float32Array.from([0.1, 0.2, 0.3, 0.4]), dtype: "float32", shape: [1, 4] };
            const answer = await remote.run({ x });
            return plain({ wrong, answer, data });
        }""",
        made.TEXTS,
    )
    with edge_infer.load(folder / "grouped" / "groups.bundle", arrays="numpy") as session:
        expected = session.run({"x": np.array([[0.1, 0.2, 0.3, 0.4]], np.float32)})
    assert found["answer"]["label"] == expected["label"].tolist()
    assert near(found["answer"]["scores"], expected["scores"].reshape(-1).tolist())
    assert found["wrong"][0] == "bundle_error"


def test_a_chain_that_was_damaged_or_is_none_is_refused(page: BrowserPage) -> None:
    found = page.evaluate(
        """async () => {
            const { openChain } = await import("/src/index.js");
            const chain = await openChain("/models/grouped");
            const refused = [];
            const wrong = [() => chain.answer(3), () => chain.answer({ texts: "a", text: "b" })];
            for (const work of [() => openChain("/models/groups"), ...wrong]) {
                refused.push(await work().then(() => "nothing", ({ code }) => code));
            }
            await chain.dispose();
            return refused;
        }"""
    )
    assert found == ["unsupported", "input_error", "input_error"]


def test_a_tensor_with_rows_of_two_lengths_is_refused(page: BrowserPage) -> None:
    found = page.evaluate(
        """async () => {
            const { Chain } = await import("/src/chains/chain.js");
            const { readChain } = await import("/src/chains/definition.js");
            const steps = [{ name: "p", do: "prompt", from: { x: "x" }, with: { template: "{x}" } }];
            const definition = readChain({ version: 1, inputs: { x: "tensor" }, steps });
            const chain = new Chain("c", definition, [], { x: { name: "tensor", depth: 0 } }, undefined);
            return chain.answer({ x: [[1, 2], [3]] }).then(() => "nothing", ({ message }) => message);
        }"""
    )
    assert "lists of different lengths" in found


def test_a_step_on_another_server_shares_no_model_with_one_here(page: BrowserPage) -> None:
    found = page.evaluate(
        """async () => {
            const { describe } = await import("/src/chains/steps.js");
            const asked = [];
            const before = globalThis.fetch;
            globalThis.fetch = async (url, { headers }) => {
                asked.push([url, headers.Authorization ?? ""]);
                return new Response(JSON.stringify({ inputs: [], outputs: [] }));
            };
            const manifest = { name: "m", inputs: [], outputs: [] };
            const opened = [];
            const load = async (...given) => {
                opened.push(given);
                return { inputs: [], outputs: [] };
            };
            const url = new URL("/models/m", location.href).href;
            const servers = ["https://elsewhere.test/v2/models/m", new URL("/v2/models/m", location.href).href];
            for (const server of servers) {
                const step = { name: "s", do: "tensors", reads: {}, parameters: {}, server };
                await describe(step, { url, manifest, revision: "" }).open({ load, apiKey: "secret" });
            }
            globalThis.fetch = before;
            const places = opened.map(([, server]) => (server === "" ? "here" : "there"));
            return { asked: asked.map(([, key]) => key), opened: places };
        }"""
    )
    assert found == {"asked": ["", "Bearer secret"], "opened": ["there", "there"]}


def test_python_in_the_page_runs_chains(python: PagePython, folder: Path, tmp_path: Path) -> None:
    bundle = folder / "chain-grouped.bundle"
    packed = tmp_path / "chain.zip"
    with zipfile.ZipFile(packed, "w") as file:
        for path in sorted(bundle.rglob("*")):
            if path.is_file():
                file.write(path, path.relative_to(bundle))
    found = python.run(
        """
import base64
from pathlib import Path
import edge_infer
Path("chain.zip").write_bytes(base64.b64decode(packed))
with edge_infer.Chain.open("chain.zip") as chain:
    labels = [one.tolist() for one in chain(texts)]
labels
""",
        packed=base64.b64encode(packed.read_bytes()).decode(),
        texts=made.TEXTS,
    )
    with edge_infer.Chain.open(bundle) as chain:
        assert found == [one.tolist() for one in chain(made.TEXTS)]
