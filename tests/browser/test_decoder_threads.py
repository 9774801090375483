"""Threads of the page's decoder: the bits of one thread, and a report that tells how many there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import edge_infer
from edge_infer.generation.decoder import Decoder
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from tests.support.browser.pages import PagePython
from tests.support.generation.bundles import write_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.browser.pages import BrowserPage

# A worker of the test's own: a page's own thread may not wait for others.
_WORKER = """
import { Decoder, kernelModule } from "/src/generation/decoder.js";
import { threadsHere } from "/src/generation/team.js";
import { startDecoderThread } from "/src/page/decoder-threads.js";

onmessage = async ({ data: { url, tokens, counts } }) => {
  const hex = (values) =>
    Array.from(new Uint8Array(values.slice().buffer), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const bytes = await (await fetch(url)).arrayBuffer();
  const found = {};
  for (const threads of counts) {
    const module = await kernelModule(threads > 1);
    const options = { slots: 2, context: 200, module, threads: threadsHere(threads), areFixed: true };
    options.startWorker = startDecoderThread;
    const decoder = await Decoder.open(bytes, options);
    const run = () => {
      decoder.run(tokens, tokens.map(() => 0), tokens.map((_, i) => i), [0, 140]);
      const rows = [hex(decoder.logits(0)), hex(decoder.logits(1))];
      decoder.run([5, 6], [0, 1], [150, 0], [0, 1]);
      return [...rows, hex(decoder.logits(0)), hex(decoder.logits(1))];
    };
    const first = run(); // while they come
    while (decoder.threads < threads) await new Promise((resolve) => setTimeout(resolve, 5));
    const rounds = [];
    for (let i = 0; i < 10; i++) rounds.push(run());
    const areEqual = rounds.every((one) => one.join() === first.join());
    found[threads] = { rows: first, areEqual, threads: decoder.threads };
    decoder.close();
  }
  postMessage(found);
};
"""
_START = """({code, asked}) => new Promise((resolve, reject) => {
  const script = new Blob([code.replaceAll('"/src', `"${location.origin}/src`)], { type: "text/javascript" });
  const worker = new Worker(URL.createObjectURL(script), { type: "module" });
  worker.onmessage = ({ data }) => resolve(data);
  worker.onerror = ({ message }) => reject(new Error(message));
  worker.postMessage({ ...asked, url: new URL(asked.url, location.href).href });
})"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("models") / "tiny.bundle", encodings=("int4",))


@pytest.fixture(scope="module")
def address(bundle: Path) -> Iterator[str]:
    with ServerThread(create_app({"tiny": bundle}, find_web_root())) as running:
        yield running.url


def test_any_number_of_threads_gives_the_native_bits(
    open_page: Callable[..., BrowserPage], address: str, bundle: Path
) -> None:
    (variant,) = edge_infer.Bundle.open(bundle).manifest.variants
    with Decoder.open(bundle / variant.file, slots=2, context=200) as decoder:
        tokens = [(7 * i) % decoder.config.vocab_size for i in range(150)]
        decoder.run(tokens, [0] * 150, range(150), [0, 140])
        want = [bytes(decoder.logits(row)).hex() for row in range(2)]
        decoder.run([5, 6], [0, 1], [150, 0], [0, 1])
        want += [bytes(decoder.logits(row)).hex() for row in range(2)]
    asked = {"url": f"/models/tiny/{variant.file}", "tokens": tokens, "counts": [1, 2, 3, 4, 5]}

    found = open_page(f"{address}/blank.html").evaluate(_START, {"code": _WORKER, "asked": asked})

    for count in range(1, 6):
        assert found[str(count)] == {"rows": want, "areEqual": True, "threads": count}


_GENERATE = """async (asked) => {
  const { generate } = await import("/src/index.js");
  const found = [];
  for (const threads of asked) {
    try {
      const generator = await generate("/models/tiny", { threads: threads ?? undefined });
      let completion;
      for (let i = 0; i < 100; i++) {
        completion = await generator.complete("Hello", { seed: 1, maxTokens: 30 });
        if (!threads || generator.report().threads === threads) break;
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      const { threads: told } = generator.report();
      found.push([completion.tokens, told, (await generator.complete("Hi", { maxTokens: 2 })).finishReason]);
      await generator.dispose();
    } catch ({ code, message }) {
      found.push([code, message]);
    }
  }
  return found;
}"""


def test_a_generator_takes_threads_and_says_how_many(
    open_page: Callable[..., BrowserPage], address: str, bundle: Path
) -> None:
    """Each opens the kept weights again: they arrive in memory that threads share, and are checked there."""
    with edge_infer.generate(bundle) as generator:
        tokens = list(generator.complete("Hello", seed=1, max_tokens=30).tokens)
    page = open_page(f"{address}/blank.html")

    found = page.evaluate(_GENERATE, [1, 3, None, 0, 300])

    assert found[:2] == [[tokens, 1, "length"], [tokens, 3, "length"]]
    assert found[2][0] == tokens
    assert found[2][1] in range(1, 5)
    assert [code for code, _ in found[3:]] == ["input_error"] * 2
    assert "threads" in found[3][1]


def test_a_page_that_is_not_isolated_has_one_thread_and_says_why(
    open_page: Callable[..., BrowserPage], bundle: Path
) -> None:
    with ServerThread(create_app({"tiny": bundle}, find_web_root(), isolated=False)) as running:
        found = open_page(f"{running.url}/blank.html").evaluate(_GENERATE, [None, 2])

    assert found[0][1] == 1
    code, message = found[1]
    assert code == "unsupported"
    assert "isolated" in message


@pytest.mark.long
def test_python_in_the_page_has_threads_with_the_same_tokens(
    open_page: Callable[..., BrowserPage], address: str, bundle: Path
) -> None:
    with edge_infer.generate(bundle) as generator:
        expected = list(generator.complete("Hello", seed=1, max_tokens=30, logprobs=2).tokens)
    python = PagePython(open_page(f"{address}/blank.html"))

    tokens, threads = python.run(
        """
import asyncio, edge_infer
with await edge_infer.generate_async(url, threads=2) as generator:
    for _ in range(100):
        answer = generator.complete("Hello", seed=1, max_tokens=30, logprobs=2)
        if generator.report().threads == 2:
            break
        await asyncio.sleep(.02)
    found = [list(answer.tokens), generator.report().threads]
found
""",
        url=f"{address}/models/tiny",
    )

    assert (tokens, threads) == (expected, 2)
