"""Slots: the same tokens alone and in company, reuse of the cache, cancelling, limits, failures."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_infer.errors import ExecutionError, InputError
from edge_infer.generation.options import GenerationOptions
from edge_infer.generation.slots import Event, Job, Slots
from tests.support.generation.fake_decoder import FakeDecoder

if TYPE_CHECKING:
    from collections.abc import Sequence


def options(**given: Any) -> GenerationOptions:
    return GenerationOptions.of({"seed": 1, "max_tokens": 8, **given})


def finish(slots: Slots) -> list[Event]:
    events = []
    while not slots.is_idle:
        events += slots.step()
    return events


def alone(prompt: Sequence[int], asked: GenerationOptions, **decoder: Any) -> list[int]:
    slots = Slots(FakeDecoder(**decoder))
    job = slots.submit(prompt, asked)
    finish(slots)
    return job.tokens


def test_a_job_gives_its_tokens_and_ends_at_its_length() -> None:
    slots = Slots(FakeDecoder())
    job = slots.submit([1, 2, 3], options())
    events = finish(slots)
    assert [event.choice.token for event in events if event.choice] == job.tokens
    assert len(job.tokens) == 8
    assert job.finish_reason == events[-1].finish_reason == "length"
    assert slots.running == slots.waiting == 0


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(0, 99), st.integers(0, 6)),
        min_size=1,
        max_size=9,
    ),
    st.integers(1, 4),
    st.sampled_from([1, 5, 128]),
)
def test_tokens_are_the_same_in_any_company(jobs: list[tuple[list[int], int, int]], count: int, chunk: int) -> None:
    slots = Slots(FakeDecoder(vocab_size=20, slots=count), chunk=chunk)
    made: list[Job] = []
    for prompt, seed, steps in jobs:
        made.append(slots.submit(prompt, options(seed=seed)))
        for _ in range(steps):
            slots.step()
    finish(slots)
    for job, (prompt, seed, _) in zip(made, jobs, strict=True):
        assert job.tokens == alone(prompt, options(seed=seed), vocab_size=20)


def test_a_conversation_goes_on_in_its_slot_without_a_copy() -> None:
    decoder = FakeDecoder(slots=2)
    slots = Slots(decoder)
    first = slots.submit([1, 2, 3, 4], options())
    finish(slots)
    decoder.runs.clear()
    second = slots.submit([*first.prompt, *first.tokens, 5], options())
    finish(slots)
    assert second.cached_tokens == 4 + 7  # the last new token was never computed
    assert [len(run[0]) for run in decoder.runs] == [2, *[1] * 7]
    assert decoder.copies == []
    assert second.tokens == alone(second.prompt, options())


def test_a_common_beginning_is_copied_and_the_other_conversation_kept() -> None:
    decoder = FakeDecoder(slots=2)
    slots = Slots(decoder)
    system = list(range(10, 30))
    first = slots.submit([*system, 1], options())
    finish(slots)
    second = slots.submit([*system, 2], options())
    finish(slots)
    third = slots.submit([*first.prompt, *first.tokens, 3], options())
    finish(slots)
    assert (second.cached_tokens, third.cached_tokens) == (20, 28)
    assert decoder.copies == [(0, 1, 20)]
    assert second.tokens == alone(second.prompt, options())
    assert third.tokens == alone(third.prompt, options())


def test_the_same_prompt_again_computes_its_last_token_alone() -> None:
    decoder = FakeDecoder()
    slots = Slots(decoder)
    one = slots.submit([1, 2, 3], options(max_tokens=1))
    finish(slots)
    two = slots.submit([1, 2, 3], options(max_tokens=1))
    finish(slots)
    assert two.cached_tokens == 2
    assert one.tokens == two.tokens


@pytest.mark.parametrize(("row_s", "most"), [(0.0001, 128), (0.0005, 48), (0.001, 24), (0.1, 16)])
def test_a_prompt_beside_running_jobs_takes_as_many_tokens_as_a_step_has_time_for(row_s: float, most: int) -> None:
    now = [0.0]

    class Clocked(FakeDecoder):
        def run(self, tokens: Sequence[int], *others: Sequence[int]) -> None:
            super().run(tokens, *others)
            now[0] += row_s * len(tokens)

    decoder = Clocked(slots=2, context=1100)
    slots = Slots(decoder, clock=lambda: now[0])
    talk = slots.submit([1] * 40, options(max_tokens=90))
    slots.step()
    question = slots.submit([2] * 1000, options(max_tokens=1))
    while question.finish_reason is None:
        slots.step()
    sizes = [len(tokens) - 1 for tokens, *_ in decoder.runs[1:]]

    assert max(sizes) <= most
    assert sizes[-2] >= most // 2, "it settles near the most"
    while talk.finish_reason is None:
        slots.step()
    assert talk.tokens == alone([1] * 40, options(max_tokens=90), context=1100)


def test_a_long_prompt_does_not_hold_others_for_more_than_a_chunk() -> None:
    decoder = FakeDecoder(slots=2, context=400)
    slots = Slots(decoder, clock=lambda: 0.0)
    running = slots.submit([1], options(max_tokens=50))
    slots.step()
    slots.submit([2] * 300, options(max_tokens=1))
    for _ in range(3):
        slots.step()
    assert [len(run[0]) for run in decoder.runs] == [1, 129, 129, 45]
    assert len(running.tokens) == 4


def test_a_cancelled_job_frees_its_slot_at_once() -> None:
    slots = Slots(FakeDecoder())
    first, second, third = (slots.submit([number], options()) for number in (1, 2, 3))
    slots.step()
    slots.cancel(first)
    slots.cancel(third)
    slots.cancel(third)
    assert (slots.running, slots.waiting) == (0, 1)
    finish(slots)
    assert [one.finish_reason for one in (first, second, third)] == ["cancelled", "length", "cancelled"]
    assert second.tokens == alone([2], options())
    assert third.tokens == []


def test_a_cancelled_prompt_leaves_what_was_computed() -> None:
    decoder = FakeDecoder(context=400)
    slots = Slots(decoder)
    job = slots.submit([2] * 300, options())
    slots.step()
    slots.cancel(job)
    again = slots.submit([2] * 300, options(max_tokens=1))
    finish(slots)
    assert again.cached_tokens == 128


def test_an_end_token_ends_a_job_and_is_not_part_of_it() -> None:
    def change(seen: list[int], logits: memoryview[float]) -> None:
        logits[7] = 99.0 if len(seen) == 5 else -99.0

    slots = Slots(FakeDecoder(change=change), ends=[7])
    job = slots.submit([1, 2, 3], options())
    events = finish(slots)
    assert (job.finish_reason, len(job.tokens), events[-1].choice) == ("stop", 2, None)


def test_the_context_ends_a_job() -> None:
    slots = Slots(FakeDecoder(context=10))
    job = slots.submit([1] * 7, options(max_tokens=100))
    full = slots.submit([1] * 10, options(max_tokens=100))
    finish(slots)
    assert (len(job.tokens), job.finish_reason) == (4, "length")
    assert (len(full.tokens), full.finish_reason) == (1, "length")


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([1] * 65, "the prompt has 65 tokens, the context has room for 64"),
        ([], "the prompt is empty"),
        ([50], "the token 50, the model has 50"),
        ([-1], "the token -1"),
    ],
)
def test_a_prompt_that_cannot_be_is_refused(prompt: list[int], message: str) -> None:
    slots = Slots(FakeDecoder())
    with pytest.raises(InputError, match=message):
        slots.submit(prompt, options())
    assert slots.is_idle


def test_logits_that_are_no_numbers_end_their_job_alone() -> None:
    def change(seen: list[int], logits: memoryview[float]) -> None:
        if seen[0] == 9 and len(seen) > 3:
            logits[0] = math.nan

    slots = Slots(FakeDecoder(slots=2, change=change))
    bad = slots.submit([9, 1], options())
    good = slots.submit([8, 1], options())
    events = finish(slots)
    failures = [event for event in events if event.finish_reason == "error"]
    assert [event.job for event in failures] == [bad]
    assert isinstance(failures[0].error, ExecutionError)
    assert good.tokens == alone([8, 1], options())
    assert slots.running == 0
    again = slots.submit([9, 1], options())
    assert slots.step()
    assert again.cached_tokens == 0


def test_a_decoder_that_fails_ends_all_jobs_and_can_go_on() -> None:
    class Failing(FakeDecoder):
        fails = True

        def run(self, *given: Any) -> None:
            if self.fails and len(self.runs) == 3:
                raise ExecutionError("the kernel failed")
            super().run(*given)

    decoder = Failing(slots=2)
    slots = Slots(decoder)
    jobs = [slots.submit([number], options()) for number in (1, 2)]
    events = [event for _ in range(4) for event in slots.step()]
    assert [event.finish_reason for event in events[-2:]] == ["error", "error"]
    assert [job.finish_reason for job in jobs] == ["error", "error"]
    decoder.fails = False
    later = slots.submit([1], options())
    finish(slots)
    assert later.tokens == alone([1], options())


@pytest.mark.parametrize("step", [1, 2, 3])
def test_an_interrupt_leaves_slots_that_go_on_as_before(step: int) -> None:
    class Interrupted(FakeDecoder):
        left = step

        def run(self, *given: Any) -> None:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            super().run(*given)

    slots = Slots(Interrupted(slots=2, context=400))
    prompt = [index % 50 for index in range(200)]
    jobs = [slots.submit(prompt, options()), slots.submit([7, 8], options())]
    with pytest.raises(KeyboardInterrupt):
        finish(slots)
    assert slots.is_idle
    assert [job.finish_reason for job in jobs] == ["error", "error"]
    again = slots.submit(prompt, options())
    finish(slots)
    assert again.tokens == alone(prompt, options(), context=400)
    assert again.cached_tokens == (0, 128, 199)[step - 1]


def test_two_hundred_jobs_at_once_leave_no_slot_in_use() -> None:
    slots = Slots(FakeDecoder(slots=3, vocab_size=30))
    jobs = [slots.submit([number % 30, number % 7], options(seed=number, max_tokens=4)) for number in range(200)]
    for number in range(0, 200, 7):
        slots.cancel(jobs[number])
    finish(slots)
    assert slots.running == slots.waiting == 0
    assert sum(len(job.tokens) for job in jobs) == 4 * sum(number % 7 != 0 for number in range(200))
    for number in (1, 99, 199):
        assert jobs[number].tokens == alone(jobs[number].prompt, jobs[number].options, vocab_size=30)
