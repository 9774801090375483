"""`Generator`: streams, completions and chats, threads, cancelling, errors."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import threading
from typing import TYPE_CHECKING, Any

import pytest

from edge_infer.errors import ExecutionError, InputError, UnsupportedError
from edge_infer.generation.definition import GenerateDefinition
from edge_infer.generation.generator import Generator
from tests.support.generation.fake_decoder import FakeDecoder
from tests.support.tasks.trained_tokenizers import read

if TYPE_CHECKING:
    from collections.abc import Callable

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
HELLO = [{"role": "user", "content": "Hello"}]


def generator(
    slots: int = 1,
    context: int = 200,
    template: str | None = TEMPLATE,
    change: Callable[[list[int], memoryview[float]], None] | None = None,
    defaults: dict[str, Any] | None = None,
) -> Generator:
    tokenizer = read("llama3")
    size = tokenizer.vocab_size
    decoder = FakeDecoder(size, slots, context, change=change)
    end = tokenizer.token_to_id("</s>")
    assert end is not None
    definition = GenerateDefinition("fake", context, size, "", None, None, False, (end,), {}, defaults or {}, None)
    return Generator(decoder, tokenizer, definition, template=template, label="fake@123456", variant="decoder/int4")


def spelling(text: str, *, end: bool = True) -> Callable[[list[int], memoryview[float]], None]:
    """Make the model say a text behind any prompt of one token."""
    ids = read("llama3").encode(text, add_special_tokens=False).ids
    ids += [read("llama3").token_to_id("</s>") or 0] if end else ids

    def change(seen: list[int], logits: memoryview[float]) -> None:
        logits[ids[(len(seen) - 1) % len(ids)]] = 99.0

    return change


def test_a_stream_gives_the_text_of_the_completion() -> None:
    made = generator()
    stream = made.stream("Hello", seed=3, max_tokens=12)
    text = "".join(stream)
    done = made.complete("Hello", seed=3, max_tokens=12)
    assert done.text == text == stream.completion.text
    assert done.tokens == stream.completion.tokens
    assert (done.finish_reason, done.usage.completion_tokens, done.seed) == ("length", 12, 3)
    assert done.usage.cached_tokens == done.usage.prompt_tokens - 1
    assert made.complete("Hello", seed=4, max_tokens=12).tokens != done.tokens


def test_an_answer_without_a_seed_can_be_repeated_by_its_seed() -> None:
    made = generator()
    first = made.complete("Hello", max_tokens=6)
    assert made.complete("Hello", max_tokens=6, seed=first.seed).tokens == first.tokens


def test_the_end_token_and_stop_strings_end_the_text() -> None:
    made = generator(change=spelling("Hello wörld. Bye"))
    one = read("llama3").encode("A", add_special_tokens=False).ids
    assert len(made.tokenize("A")) == len(one) + 1
    made = generator(change=spelling("Hello wörld. Bye"), template="A")
    whole = made.chat(HELLO, temperature=0)
    assert (whole.text, whole.finish_reason) == ("Hello wörld. Bye", "stop")
    cut = made.chat(HELLO, temperature=0, stop=["rld. B"])
    assert (cut.text, cut.finish_reason) == ("Hello wö", "stop")
    assert cut.usage.completion_tokens < whole.usage.completion_tokens
    assert "".join(made.stream(HELLO, temperature=0, stop="nothing")) == whole.text
    assert made.report().running == 0


def test_messages_become_a_prompt_and_parts_are_joined() -> None:
    made = generator()
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]}]
    assert made.render(parts) == made.render(HELLO) == "user: Hello\nassistant:"
    answer = made.chat(HELLO, seed=1, max_tokens=4)
    longer = [*HELLO, {"role": "assistant", "content": answer.text}, {"role": "user", "content": "More"}]
    again = made.chat(longer, seed=1, max_tokens=4)
    assert again.usage.cached_tokens >= answer.usage.prompt_tokens


def test_the_bundles_defaults_count_where_nothing_is_given() -> None:
    made = generator(defaults={"temperature": 0.0, "max_tokens": 3, "do_sample": True})
    assert made.complete("Hello", seed=1).tokens == made.complete("Hello", seed=2).tokens
    assert made.complete("Hello").usage.completion_tokens == 3
    assert made.complete("Hello", max_tokens=2, seed=1).usage.completion_tokens == 2


def test_logprobs_name_tokens_and_alternatives() -> None:
    done = generator().complete("Hello", temperature=0, max_tokens=3, logprobs=4)
    assert done.logprobs is not None
    assert len(done.logprobs) == 3
    for entry, token in zip(done.logprobs, done.tokens, strict=True):
        assert entry.token == token == entry.top[0][0]
        assert entry.logprob == entry.top[0][2] < 0
        assert [value for *_, value in entry.top] == sorted((value for *_, value in entry.top), reverse=True)
        assert len(entry.top) == 4
    assert generator().complete("Hello", max_tokens=1).logprobs is None


def test_streams_in_many_threads_give_what_each_gives_alone() -> None:
    made = generator(slots=3)
    alone = generator()
    expected = {seed: alone.complete(f"Text {seed}", seed=seed, max_tokens=5).tokens for seed in range(12)}
    found: dict[int, Any] = {}

    def run(seed: int) -> None:
        found[seed] = made.complete(f"Text {seed}", seed=seed, max_tokens=5).tokens

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected
    report = made.report()
    assert (report.running, report.waiting, report.completion_tokens) == (0, 0, 60)


def test_a_stream_that_nobody_reads_does_not_hold_up_another() -> None:
    made = generator(slots=1)
    idle = made.stream("Hello", seed=1, max_tokens=10)
    next(idle)
    other = made.complete("Text", seed=2, max_tokens=5)
    assert other.usage.completion_tokens == 5
    assert "".join([idle.completion.text, *idle]) == generator().complete("Hello", seed=1, max_tokens=10).text


def test_a_closed_stream_frees_its_slot_and_is_cancelled() -> None:
    made = generator()
    with made.stream("Hello", seed=1, max_tokens=100) as stream:
        next(stream)
        next(stream)
    assert made.report().running == 0
    assert stream.completion.finish_reason == "cancelled"
    assert list(stream) == []


def test_a_forgotten_stream_frees_its_slot() -> None:
    made = generator()
    stream = made.stream("Hello", seed=1, max_tokens=100)
    next(stream)
    assert made.report().running == 1
    del stream
    gc.collect()
    assert made.report().running == 0


def test_closing_the_generator_ends_its_streams() -> None:
    made = generator()
    stream = made.stream("Hello", seed=1, max_tokens=100)
    next(stream)
    made.close()
    made.close()
    assert list(stream) == []
    assert stream.completion.finish_reason == "cancelled"
    with pytest.raises(UnsupportedError, match="closed"):
        made.stream("Hello")


def test_the_asynchronous_twins_give_the_same() -> None:
    made = generator(slots=2)
    expected = made.complete("Hello", seed=1, max_tokens=6)

    async def run() -> None:
        pieces = [piece async for piece in made.stream_async("Hello", seed=1, max_tokens=6)]
        assert "".join(pieces) == expected.text
        both = await asyncio.gather(
            made.complete_async("Hello", seed=1, max_tokens=6), made.chat_async(HELLO, seed=1, max_tokens=6)
        )
        assert both[0].tokens == expected.tokens
        assert both[1].tokens == made.chat(HELLO, seed=1, max_tokens=6).tokens

    asyncio.run(run())
    assert made.report().running == 0


def test_a_cancelled_task_frees_its_slot() -> None:
    made = generator()

    async def run() -> None:
        task = asyncio.create_task(made.complete_async("Hello", max_tokens=150, seed=1))
        while made.report().running == 0:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert made.report().running == 0


def test_logits_that_are_no_numbers_are_an_error_and_free_the_slot() -> None:
    def change(seen: list[int], logits: memoryview[float]) -> None:
        if len(seen) > 8:
            logits[5] = math.nan

    made = generator(change=change)
    with pytest.raises(ExecutionError, match="best logit is nan"):
        made.complete("Hello", max_tokens=50, seed=1)
    assert made.report().running == 0
    assert made.complete("Hello", max_tokens=2, seed=1).usage.completion_tokens == 2


@pytest.mark.parametrize(
    ("prompt", "options", "message"),
    [
        ("Hello 7, " * 400, {}, "the context has room for 200"),
        ("Hello", {"temperature": -1}, "`temperature` is -1"),
        ("Hello", {"stop": ["x"] * 100_000}, "at most 1024"),
        ("Hello", {"topk": 1}, "no option `topk`"),
        ("Hello", {"tools": []}, "`tools` are for messages"),
        ("Hello", {"logit_bias": {10**6: 1}}, "names token 1000000"),
        ([{"content": "x"}], {}, "is no message"),
        (["x"], {}, "is no message"),
        ([{"role": "user", "content": 3}], {}, "expected a text"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], {}, "only texts are read"),
    ],
)
def test_bad_input_is_refused_and_takes_no_slot(prompt: Any, options: dict[str, Any], message: str) -> None:
    made = generator()
    with pytest.raises(InputError, match=message):
        made.stream(prompt, **options)
    assert (made.report().running, made.report().waiting) == (0, 0)


def test_a_text_is_no_conversation_and_messages_are_no_text() -> None:
    made = generator()
    with pytest.raises(InputError, match="`messages` is a text"):
        made.chat("Hello")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="`prompt` is not a text"):
        made.complete(HELLO)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="no chat template"):
        generator(template=None).chat(HELLO)


def test_an_answer_by_a_schema_ends_where_nothing_may_follow() -> None:
    form = {"type": "json_schema", "schema": {"const": "yes"}}
    done = generator().complete("Hello", temperature=0, response_format=form)
    assert (json.loads(done.text), done.finish_reason) == ("yes", "stop")
    with pytest.raises(InputError, match="`pattern`"):
        generator().complete("Hello", response_format={"type": "json_schema", "schema": {"pattern": "a"}})
