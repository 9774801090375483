"""`generate`, the pipeline and the commands on a small random model: real kernels, real tokens."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import sys
import threading
import zipfile
from typing import TYPE_CHECKING

import pytest

import edge_infer
from edge_infer.cli import main_here
from edge_infer.errors import BundleError, InputError, IntegrityError, ManifestError, UnsupportedError
from tests.support.generation.bundles import changed, write_bundle
from tests.support.mutations import with_last_byte_changed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bundle(tmp_path_factory.mktemp("generate") / "tiny.bundle", encodings=("int4", "int8", "f32"))


@pytest.fixture
def generator(bundle: Path) -> Iterator[edge_infer.Generator]:
    with edge_infer.generate(bundle, slots=3) as made:
        yield made


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command line in this process."""

    def run(*arguments: object, text: str | bytes = "", errors: str = "strict") -> tuple[int, str, str]:
        data = text.encode() if isinstance(text, str) else text
        monkeypatch.setattr(sys, "argv", ["edge-infer", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors=errors))
        with pytest.raises(SystemExit) as ended:
            main_here()
        done = capsys.readouterr()
        return int(ended.value.code or 0), done.out, done.err

    return run


def test_a_bundle_generates_and_its_smallest_weights_are_taken(generator: edge_infer.Generator, bundle: Path) -> None:
    done = generator.complete("Hello world", seed=1, max_tokens=20)
    assert done.usage.completion_tokens == len(done.tokens) == 20
    assert generator.report().variant == "decoder/int4"
    assert (generator.report().context, generator.report().slots) == (256, 3)
    with edge_infer.generate(bundle, variant="decoder/int8", context=64) as other:
        assert (other.report().variant, other.report().context) == ("decoder/int8", 64)
        assert other.complete("Hello world", seed=1, max_tokens=20).text


def test_tokens_are_equal_again_in_company_after_reuse_and_after_a_cancel(
    generator: edge_infer.Generator, bundle: Path
) -> None:
    with edge_infer.generate(bundle) as lonely:
        expected = {n: lonely.complete(f"Story {n} of", seed=n, max_tokens=24).tokens for n in range(10)}
    long = "Once upon a time, " * 12
    running = generator.stream(long, seed=7, max_tokens=100)
    next(running)
    streams = {n: generator.stream(f"Story {n} of", seed=n, max_tokens=24) for n in range(10)}
    running.close()
    assert {n: stream.result().tokens for n, stream in streams.items()} == expected
    again = generator.complete("Story 3 of", seed=3, max_tokens=24)
    assert again.tokens == expected[3]
    computed, reused = (generator.complete(long, seed=7, max_tokens=8) for _ in range(2))
    assert (computed.usage.cached_tokens, reused.usage.cached_tokens) == (1, reused.usage.prompt_tokens - 1)
    assert computed.tokens == reused.tokens
    with edge_infer.generate(bundle) as fresh:
        assert fresh.complete(long, seed=7, max_tokens=8).tokens == reused.tokens


def test_two_hundred_at_once_leave_no_slot_in_use(generator: edge_infer.Generator) -> None:
    found: list[int] = []

    def run(number: int) -> None:
        with generator.stream(f"Number {number}", seed=number, max_tokens=3) as stream:
            if number % 5 == 0:
                next(stream, None)
            else:
                found.append(len(stream.result().tokens))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [3] * 160
    assert (generator.report().running, generator.report().waiting) == (0, 0)


def test_two_hundred_tasks_at_once_a_quarter_of_them_left(generator: edge_infer.Generator) -> None:
    async def read(number: int) -> str:
        pieces = generator.stream_async(f"Text {number}", seed=number, max_tokens=4)
        text = ""
        try:
            async for piece in pieces:
                text += piece
                if number % 4 == 0:
                    break
        finally:
            await pieces.aclose()
        return text

    async def run() -> list[str]:
        found = await asyncio.gather(*(read(number) for number in range(200)))
        left = [asyncio.create_task(generator.complete_async("x " * 20, max_tokens=100)) for _ in range(20)]
        await asyncio.sleep(0)
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return found

    found = asyncio.run(run())  # it waits for the threads that it began
    assert (generator.report().running, generator.report().waiting) == (0, 0)
    for number in (1, 77, 199):
        assert found[number] == generator.complete(f"Text {number}", seed=number, max_tokens=4).text


def test_a_chat_goes_on_from_the_cache(generator: edge_infer.Generator) -> None:
    first = generator.chat(HELLO, seed=2, max_tokens=10)
    talk = [*HELLO, {"role": "assistant", "content": first.text}, {"role": "user", "content": "And?"}]
    second = generator.chat(talk, seed=2, max_tokens=10)
    assert second.usage.cached_tokens >= first.usage.prompt_tokens
    assert generator.render(HELLO) == "<s>user\nHello</s>\n<s>assistant\n"


def test_greedy_tokens_are_the_best_of_their_logprobs(generator: edge_infer.Generator) -> None:
    done = generator.complete("Hello", temperature=0, max_tokens=12, logprobs=3)
    assert done.logprobs is not None
    assert [entry.top[0][0] for entry in done.logprobs] == list(done.tokens)


def test_an_answer_by_a_schema_is_valid(generator: edge_infer.Generator) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    form = {"type": "json_schema", "schema": schema}
    asked = {"seed": 1, "max_tokens": 200, "response_format": form, "temperature": 2.0}
    done = generator.complete("Answer:", **asked)
    assert json.loads(done.text)["ok"] in (True, False)
    assert done.finish_reason == "stop"
    assert generator.complete("Answer:", **asked).tokens == done.tokens


def test_a_zip_and_a_pipeline_generate_the_same(generator: edge_infer.Generator, bundle: Path, tmp_path: Path) -> None:
    expected = generator.complete("Hello", seed=1, max_tokens=6).text
    with zipfile.ZipFile(tmp_path / "tiny.zip", "w") as archive:
        for path in sorted(bundle.rglob("*")):
            archive.write(path, path.relative_to(bundle).as_posix())
    with edge_infer.generate(tmp_path / "tiny.zip") as zipped:
        assert zipped.complete("Hello", seed=1, max_tokens=6).text == expected
    with edge_infer.pipeline(bundle) as run:
        assert run("Hello", seed=1, max_tokens=6) == [{"generated_text": f"Hello{expected}"}]
        assert run(["Hello"], seed=1, max_tokens=6, return_full_text=False) == [[{"generated_text": expected}]]
        answer = run(HELLO, seed=1, max_tokens=6)[0]["generated_text"]
        assert (answer[0], answer[1]["role"]) == (HELLO[0], "assistant")
        with pytest.raises(InputError, match="no option `top`"):
            run("Hello", top=1)
        with pytest.raises(InputError, match="takes texts and messages"):
            run(3)
    with edge_infer.pipeline("text-generation", bundle, variant="decoder/fp32") as run:
        assert run.task == "text-generation"
    with pytest.raises(InputError, match="is for text-generation"):
        edge_infer.pipeline(bundle, task="text-classification")
    with pytest.raises(InputError, match="without `device`"):
        edge_infer.pipeline(bundle, device="cuda")


def test_the_asynchronous_twin_loads_the_same(
    generator: edge_infer.Generator, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = generator.complete("Hello", seed=1, max_tokens=6).text
    started: list[bool] = []

    async def start() -> None:
        started.append(True)

    async def run(**options: object) -> str:
        with await edge_infer.generate_async(bundle, slots=2, **options) as made:  # type: ignore[arg-type]
            assert made.report().slots == 2
            return "".join([piece async for piece in made.stream_async("Hello", seed=1, max_tokens=6)])

    async def run_pipeline() -> object:
        with await edge_infer.pipeline_async(bundle) as made:
            return await made.run_async("Hello", seed=1, max_tokens=6, return_full_text=False)

    assert asyncio.run(run()) == expected
    assert asyncio.run(run_pipeline()) == [{"generated_text": expected}]
    with pytest.raises(InputError, match="`context` is 257"):
        asyncio.run(run(context=257))
    assert not started
    # As in a page, which waits for the kernels and for each file.
    monkeypatch.setattr("edge_infer.generation.generate.in_browser", lambda: True)
    monkeypatch.setattr("edge_infer.backends.web.decoder.start", start)
    assert asyncio.run(run()) == expected
    assert started


def test_what_is_wrong_with_a_bundle_is_said(bundle: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(bundle, tmp_path / "copy.bundle")
    for fields, error, message in (
        ({"kind": "decoder/9"}, UnsupportedError, "`decoder/9`"),
        ({"kind": "decoder/1", "eos": "x"}, ManifestError, "`generate.eos`"),
        ({"eos": [1], "context": "long"}, ManifestError, "`generate.context`"),
        ({"context": 256, "vocab_size": 7}, BundleError, "the manifest says 7"),
    ):
        with pytest.raises(error, match=message):
            edge_infer.generate(changed(copy, **fields))
    with pytest.raises(InputError, match="`context` is 257, expected 1 to 256"):
        edge_infer.generate(bundle, context=257)
    with pytest.raises(InputError, match="`slots` is 0"):
        edge_infer.generate(bundle, slots=0)
    weights = copy / "decoder/model_int4.safetensors"
    weights.write_bytes(with_last_byte_changed(weights.read_bytes()))
    with pytest.raises((IntegrityError, BundleError)):
        edge_infer.generate(copy)


def test_the_command_writes_text_and_json(command: Callable[..., tuple[int, str, str]], bundle: Path) -> None:
    code, out, err = command("generate", bundle, "Hello", "--seed", 1, "--max-tokens", 8)
    assert code == 0, err
    assert "8 tokens" in err
    assert "seed 1" in err
    code, document, err = command("generate", bundle, "-", "--seed", 1, "--max-tokens", 8, "--json", text="Hello")
    assert code == 0, err
    found = json.loads(document)
    assert found["text"] + "\n" == out
    assert found["usage"]["completion_tokens"] == 8 == len(found["tokens"])
    assert (found["finish_reason"], found["seed"]) == ("length", 1)


def test_the_command_answers_by_a_schema(
    command: Callable[..., tuple[int, str, str]], bundle: Path, tmp_path: Path
) -> None:
    (tmp_path / "schema.json").write_text('{"enum": ["red", "green"]}')
    code, out, err = command("generate", bundle, "Colour:", "--schema", tmp_path / "schema.json", "--seed", 1)
    assert code == 0, err
    assert json.loads(out) in ("red", "green")
    code, out, err = command("generate", bundle, "Colour:", "--schema", tmp_path / "none.json")
    assert (code, out) == (1, "")
    assert "cannot read" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Hello", "--temperature", "-1"], "`temperature` is -1.0, expected 0 to 100"),
        (["Hello " * 300], "the context has room for 256"),
        (["Hello", "--variant", "decoder/int3"], "decoder/int3"),
        (["Hello", "--context", "100000"], "expected 1 to 256"),
    ],
)
def test_the_command_says_what_is_wrong(
    command: Callable[..., tuple[int, str, str]], bundle: Path, arguments: list[str], message: str
) -> None:
    code, out, err = command("generate", bundle, *arguments)
    assert (code, out) == (1, "")
    assert message in err


def test_a_chat_answers_each_line_of_a_pipe(command: Callable[..., tuple[int, str, str]], bundle: Path) -> None:
    code, out, err = command(
        "chat", bundle, "--seed", 1, "--max-tokens", 5, "--json", "--system", "Be brief.", text="Hello\n\nMore\n"
    )
    assert code == 0, err
    answers = [json.loads(line) for line in out.splitlines()]
    assert len(answers) == 2
    assert answers[1]["usage"]["cached_tokens"] >= answers[0]["usage"]["prompt_tokens"]
    assert ">" not in err
    code, out, err = command(
        "chat", bundle, "--seed", 1, "--max-tokens", 5, text="Hello\n/clear\n/help\nHello\n/quit\nMore"
    )
    assert code == 0, err
    assert out.splitlines()[: len(out.splitlines()) // 2] == out.splitlines()[len(out.splitlines()) // 2 :]
    assert err.count("tokens/s") <= 2
    assert "/exit or Ctrl-D ends" in err


def test_a_long_chat_leaves_its_oldest_messages_out(command: Callable[..., tuple[int, str, str]], bundle: Path) -> None:
    lines = "\n".join("Tell me a very long story, please, with many words." for _ in range(12))
    code, out, err = command("chat", bundle, "--context", 120, "--seed", 1, "--max-tokens", 8, "--json", text=lines)
    assert code == 0, err
    assert len(out.splitlines()) == 12
    assert "left out the 2 oldest messages" in err


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
def test_a_chat_reads_utf8_alone(command: Callable[..., tuple[int, str, str]], bundle: Path, errors: str) -> None:
    code, out, err = command("chat", bundle, text=b"\xff\xfe\n", errors=errors)
    assert (code, out) == (1, "")
    assert "the input is not UTF-8" in err


def test_a_folder_of_the_hub_is_named_in_the_hint(command: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    code, _, err = command("generate", tmp_path, "Hello")
    assert code == 1
    assert f"edge-infer convert {tmp_path} -o model.bundle" in err


def test_a_chat_needs_a_template(command: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    code, out, err = command("chat", write_bundle(tmp_path / "base.bundle", template=None), text="Hello\n")
    assert (code, out) == (1, "")
    assert "has no chat template" in err


def test_bench_measures_prompts_and_answers(command: Callable[..., tuple[int, str, str]], bundle: Path) -> None:
    quick = ("--rounds", 2, "--seconds", 0.01)
    code, out, err = command("bench", bundle, "--variant", "decoder/int4", *quick, "--json")
    assert code == 0, err
    rows = json.loads(out)["generation"]
    shapes = [(row["what"], row["position"]) for row in rows]
    assert shapes == [("prefill", 16), ("decode", 16), ("prefill", 128), ("decode", 128)]
    assert all(row["per_s"] > 0 and row["variant"] == "decoder/int4" for row in rows)
    code, out, err = command("bench", bundle, *quick)
    assert code == 0, err
    assert len(out.splitlines()) == 1 + 3 * 4
    code, out, err = command("bench", bundle, "--backend", "litert")
    assert (code, out) == (1, "")
    assert "--backend" in err


def test_load_says_who_generates(bundle: Path) -> None:
    with pytest.raises(edge_infer.BackendUnavailable, match="generates text") as caught:
        edge_infer.load(bundle)
    assert "edge_infer.generate" in caught.value.hint
