"""Text generation in the page: the tokens of CPython, in a worker, kept for the next visit; and the page for a chat."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import edge_infer
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from tests.support.browser.pages import PagePython
from tests.support.generation.bundles import write_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.browser.pages import BrowserPage

GUIDE = Path(__file__).parents[2] / "docs/guide/generate_page.md"
_TALK = [{"role": "user", "content": "Who are you?"}]
_ASKED: list[tuple[Any, dict[str, Any]]] = [
    ("Hello wörld", {"temperature": 0, "max_tokens": 24}),
    ("Hello wörld and", {"seed": 1, "max_tokens": 40, "top_k": 0, "min_p": 0}),
    ("x" * 200, {"seed": 2**60 + 1, "max_tokens": 12, "repetition_penalty": 1.3}),
    (_TALK, {"seed": 3, "max_tokens": 30, "stop": ["e"]}),
    (_TALK, {"seed": 4, "max_tokens": 9, "temperature": 1.4, "logit_bias": {"70": 5}}),
]
_RUN = """async ({url, index, variant, asked}) => {
  const { generate } = await import(index);
  const generator = await generate(url, { variant });
  const found = [];
  for (const [prompt, { seed, ...options }] of asked) {
    const { tokens, text } = await generator.stream(prompt, { ...options, seed: seed && BigInt(seed) }).result();
    found.push([tokens, text]);
  }
  await generator.dispose();
  return found;
}"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("models") / "tiny.bundle", encodings=("int4", "int8"))


@pytest.fixture(scope="module")
def address(bundle: Path, digits_bundle: Path) -> Iterator[str]:
    with ServerThread(create_app({"tiny": bundle, "digits": digits_bundle}, find_web_root())) as running:
        yield running.url


def asked(url: str, index: str, variant: str) -> dict[str, Any]:
    camel = {"max_tokens": "maxTokens", "top_k": "topK", "min_p": "minP", "logit_bias": "logitBias"}
    camel["repetition_penalty"] = "repetitionPenalty"
    cases = []
    for prompt, options in _ASKED:
        named = {camel.get(name, name): value for name, value in options.items()}
        cases.append([prompt, {**named, **({"seed": str(named["seed"])} if "seed" in named else {})}])
    return {"url": url, "index": index, "variant": variant, "asked": cases}


@pytest.mark.parametrize("variant", ["decoder/int4", "decoder/int8"])
def test_a_page_and_node_give_the_tokens_of_cpython(
    open_page: Callable[..., BrowserPage], address: str, bundle: Path, variant: str
) -> None:
    with edge_infer.generate(bundle, variant=variant) as generator:
        answers = [generator.stream(prompt, **options).result() for prompt, options in _ASKED]
    expected = [[list(one.tokens), one.text] for one in answers]
    page = open_page(f"{address}/blank.html")

    in_page = page.evaluate(_RUN, asked(f"{address}/models/tiny", "/src/index.js", variant))
    index = (find_web_root() / "src/index.js").as_uri()
    code = f"({_RUN})({json.dumps(asked(str(bundle), index, variant))}).then((x) => console.log(JSON.stringify(x)))"
    node = subprocess.run(["node", "-e", code], capture_output=True, text=True, check=True, timeout=60)

    assert len({json.dumps(one) for one in expected}) == len(_ASKED)
    assert in_page == expected
    assert json.loads(node.stdout) == expected


def test_python_in_the_page_gives_the_tokens_of_cpython(
    open_page: Callable[..., BrowserPage], address: str, bundle: Path
) -> None:
    """Its rooms come in the second archive."""
    cases = _ASKED[:2]
    with edge_infer.generate(bundle) as generator:
        expected = [list(generator.complete(prompt, **options).tokens) for prompt, options in cases]
    python = PagePython(open_page(f"{address}/blank.html"))

    found = python.run(
        """
import edge_infer
with await edge_infer.generate_async(url) as generator:
    found = [list(generator.complete(prompt, **options).tokens) for prompt, options in cases]
found
""",
        url=f"{address}/models/tiny",
        cases=[list(case) for case in cases],
    )

    assert found == expected


_TOOLS = [
    {"type": "function", "function": {"name": "rain", "parameters": {"limit": 1.0, "most": 10**17, "of": [1, 2.5]}}}
]


@pytest.mark.long
def test_python_in_the_page_renders_chat_templates_without_jinja2(
    open_page: Callable[..., BrowserPage], tmp_path: Path
) -> None:
    source = (
        "{% if tools %}{{ tools | tojson }}{% endif %}"
        "{% for one in messages %}{{ bos_token }}{{ one.role }}: {{ one.content }}|{% endfor %}"
    )
    bundle = write_bundle(tmp_path / "talk.bundle", template=source)
    talks: list[list[dict[str, Any]]] = [
        [{"role": "user", "content": "Wör\u2028ld <&> 😀"}],
        [{"role": "system", "content": [{"type": "text", "text": "Be kind."}]}, {"role": "user", "content": ""}],
    ]
    with edge_infer.generate(bundle) as generator:
        expected = [generator.render(talk, tools) for talk in talks for tools in (None, _TOOLS)]
        tokens = list(generator.chat(talks[0], seed=1, max_tokens=5).tokens)
    with ServerThread(create_app({"talk": bundle}, find_web_root())) as running:
        python = PagePython(open_page(f"{running.url}/blank.html"))

        found = python.run(
            """
import edge_infer
with await edge_infer.generate_async(url) as generator:
    texts = [generator.render(talk, given) for talk in talks for given in (None, tools)]
    tokens = list(generator.chat(talks[0], seed=1, max_tokens=5).tokens)
    wrong = []
    for values in ({"thing": object()}, {"thing": float("nan")}):
        try:
            generator.render(talks[0], **values)
        except edge_infer.InputError as error:
            wrong.append(str(error)[:28])
[texts, tokens, wrong]
""",
            url=f"{running.url}/models/talk",
            talks=talks,
            tools=_TOOLS,
        )

    assert found == [expected, tokens, ["the conversation is not JSON"] * 2]


def test_the_page_stays_alive_and_a_loop_that_is_left_ends_the_generation(
    open_page: Callable[..., BrowserPage], address: str
) -> None:
    page = open_page(f"{address}/blank.html")

    said = page.evaluate("""async () => {
      const { generate, pipeline } = await import("/src/index.js");
      const generator = await generate("/models/tiny");
      const stream = generator.stream("Hello", { seed: 1, maxTokens: 200 });
      for await (const piece of stream) if (piece) break;
      const left = stream.completion;
      const controller = new AbortController();
      const given = generator.complete("Hello", { seed: 1, signal: controller.signal }).catch((error) => error.name);
      controller.abort();
      const errors = [];
      for (const wrong of [{ temperature: -1 }, { max_tokens: 1 }]) {
        errors.push(await generator.complete("x", wrong).catch((error) => [error.code, error.message]));
      }
      const report = generator.report();
      const after = await generator.complete("Hello", { seed: 1, maxTokens: 3 });
      await generator.dispose();
      const write = await pipeline("text-generation", "/models/tiny", { device: "auto" });
      const texts = await write(["Hello", [{ role: "user", content: "Hi" }]], { max_tokens: 3, seed: 1 });
      texts.push(await write("Hello", { max_tokens: 3, seed: 1, return_full_text: false }), write.task);
      texts.push(await write(3).catch(({ code }) => code));
      await write.dispose();
      return { left, given: await given, errors, report, after, texts };
    }""")

    assert said["left"]["finishReason"] == "cancelled"
    assert 0 < said["left"]["usage"]["completionTokens"] < 50
    assert said["given"] == "AbortError"
    assert [code for code, _ in said["errors"]] == ["input_error", "input_error"]
    assert said["report"]["thread"] == "worker"
    one, talk, rest, task, code = said["texts"]
    assert one == [{"generated_text": "Hello" + said["after"]["text"]}]
    assert rest == [{"generated_text": said["after"]["text"]}]
    assert [message["role"] for message in talk[0]["generated_text"]] == ["user", "assistant"]
    assert (task, code) == ("text-generation", "input_error")
    assert said["after"]["tokens"] == said["left"]["tokens"][:3] or said["left"]["usage"]["completionTokens"] < 3


def test_a_page_of_tensors_fetches_nothing_of_it_and_a_first_token_costs_little(
    open_page: Callable[..., BrowserPage], address: str
) -> None:
    page = open_page(f"{address}/blank.html")

    said = page.evaluate("""async () => {
      const { load, generate } = await import("/src/index.js");
      const { openWorkers, workerResources } = await import("/src/page/client.js");
      const names = async () => {
        const found = performance.getEntriesByType("resource").map(({ name }) => name);
        for (const worker of openWorkers) await worker.request({ kind: "resources" });
        found.push(...workerResources);
        return new Set(found);
      };
      const session = await load("/models/digits");
      const before = await names();
      await session.dispose();
      workerResources.clear(); // those of the session's worker
      const generator = await generate("/models/tiny");
      await generator.complete("Hello", { maxTokens: 1 });
      const code = [...(await names())].filter((name) => /\\/src\\//.test(name));
      const withoutChat = [...(await names())];
      await generator.chat([{ role: "user", content: "Hello" }], { maxTokens: 1 });
      const withChat = [...(await names())];
      const sizes = {};
      for (const name of code) {
        const response = await fetch(name, { cache: "reload" });
        await response.arrayBuffer();
        sizes[name] = performance.getEntriesByName(name).at(-1).encodedBodySize;
      }
      await generator.dispose();
      return { before: [...before], withoutChat, withChat, sizes };
    }""")

    assert not [name for name in said["before"] if "generat" in name or "jinja" in name]
    assert not [name for name in said["withoutChat"] if "/vendor/jinja/" in name]
    assert [name for name in said["withChat"] if "/vendor/jinja/" in name]
    own = {name: size for name, size in said["sizes"].items() if "/generation/" in name or "generat" in name}
    assert len(own) > 10
    assert sum(own.values()) < 60_000, own
    # With the tokenizer and its tables, the kernels for threads, and what all pages share.
    assert sum(said["sizes"].values()) < 170_000


def test_the_page_of_a_model_that_generates_text_is_a_chat_also_without_the_server(
    open_page: Callable[..., BrowserPage], address: str, bundle: Path
) -> None:
    app = create_app({"tiny": bundle}, find_web_root())
    with ServerThread(app) as running:
        page = open_page(f"{running.url}/", viewport={"width": 360, "height": 740})
        page.do(lambda page: page.wait_for_selector(".chat button.go:enabled"))
        page.do(lambda page: page.fill(".chat textarea", "Hello, who are you? " * 5))
        page.do(lambda page: page.keyboard.press("Enter"))
        page.do(lambda page: page.wait_for_selector("text=works without the server"))
        said = page.evaluate("() => [...document.querySelectorAll('.log p')].map((one) => one.textContent.length)")
        width = page.evaluate("() => document.documentElement.scrollWidth")
    page.do(lambda page: page.reload())
    page.do(lambda page: page.wait_for_selector(".chat button.go:enabled"))
    page.do(lambda page: page.fill(".chat textarea", "Again"))
    page.do(lambda page: page.keyboard.press("Enter"))
    page.do(lambda page: page.wait_for_function("document.querySelectorAll('.log p')[1]?.textContent.length > 0"))
    page.do(lambda page: page.wait_for_selector(".chat button.go:text-is('Send'), .chat button.go:text-is('Write on')"))
    page.do(lambda page: page.fill(".chat textarea", "Hello " * 4000))
    page.do(lambda page: page.keyboard.press("Enter"))
    page.do(lambda page: page.wait_for_selector(".log .notice.bad"))
    page.do(lambda page: page.wait_for_selector("dl.cost div:has(dt:text-is('First piece')) dd:text-is('–')"))

    assert said[0] == 99
    assert said[1] > 0
    assert width == 360
    assert "tiny" in page.evaluate("() => document.querySelector('h1').textContent")


def test_the_guide_and_the_example_work(open_page: Callable[..., BrowserPage], bundle: Path) -> None:
    with ServerThread(create_app({"smol": bundle}, find_web_root())) as running:
        page = open_page(f"{running.url}/blank.html")
        code = "\n".join(re.findall(r"```js\n(.*?)```", GUIDE.read_text("utf-8"), re.DOTALL))
        code = code.replace('import { generate } from "/src/index.js";', "")
        said = page.evaluate(
            f"""async () => {{
              const {{ generate }} = await import("/src/index.js");
              const said = [];
              const console = {{ log: (...words) => said.push(words) }};
              {code}
              return {{ said, text: document.body.textContent }};
            }}"""
        )
        with edge_infer.generate(bundle) as generator:
            expected = generator.complete("The three colours are", max_tokens=20, seed=1).text
        page.do(lambda page: page.goto(f"{running.url}/vendor/examples/22_browser_chat/index.html"))
        page.do(lambda page: page.fill("input", "Hello"))
        page.do(lambda page: page.click("button:enabled"))
        page.do(
            lambda page: page.wait_for_function("document.querySelector('#talk').textContent.split('\\n').length > 2")
        )

    assert said["text"] == expected
    assert said["said"][0][1] in ("stop", "length")
    assert len(said["said"]) in (3, 4)  # the story may be told before its time is over
    assert isinstance(said["said"][-1][0], str)
