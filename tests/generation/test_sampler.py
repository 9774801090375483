"""The choice of tokens: the draws of the shared vectors, exact selection, penalties, refusals, damaged logits."""

from __future__ import annotations

import json
import math
from array import array
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_infer.errors import ExecutionError, InputError
from edge_infer.generation import exact_math, sampler
from edge_infer.generation.options import GenerationOptions
from edge_infer.generation.random_numbers import RandomNumbers
from edge_infer.generation.sampler import Sampler, decide
from tests.support.generation import sampling_vectors
from tests.support.generation.sampling_vectors import Refusing, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

ALL: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}


class Values(Row):
    def __init__(self, values: Sequence[float]) -> None:
        self._logits = memoryview(array("f", values))
        self.asked: list[int] = []

    def top(self, count: int) -> list[tuple[int, float]]:
        self.asked.append(count)
        return super().top(count)


def chosen(values: Sequence[float], options: dict[str, Any], prompt: Sequence[int] = (), times: int = 1) -> list[int]:
    made = Sampler(GenerationOptions.of({"seed": 1, **options}), prompt, len(values))
    return [made.choose(Values(values)).token for _ in range(times)]


def test_vectors_are_what_the_sampler_draws_today() -> None:
    kept = json.loads(sampling_vectors.PATH.read_text(encoding="utf-8"))
    assert kept == json.loads(json.dumps(sampling_vectors.document()))
    assert sum(case["count"] for case in kept["cases"]) >= 500
    assert len({draw["token"] for case in kept["cases"] for draw in case["draws"]}) > 100
    assert GenerationOptions.of({}) == GenerationOptions.of(kept["defaults"])


@given(st.floats(-700, 0))
def test_exp_is_exact_to_a_few_units_of_its_last_place(x: float) -> None:
    assert exact_math.exp(x) == pytest.approx(math.exp(x), rel=5e-16 * max(1.0, -x / 50))


@given(st.floats(1, 2**20))
def test_log_is_exact_to_a_few_units_of_its_last_place(x: float) -> None:
    assert exact_math.log(x) == pytest.approx(math.log(x), rel=1e-14, abs=1e-15)


@given(st.lists(st.floats(-2000, 50, width=32), min_size=1, max_size=300))
def test_sum_of_exps_has_the_same_bits_without_numpy(values: list[float]) -> None:
    best, total = max(values), 0.0
    for value in values:
        total += exact_math.exp(value - best)
    assert exact_math.sum_of_exps(array("f", values), best) == total


@given(
    st.integers(0, 2**32),
    st.sampled_from([0.2, 0.8, 1.0, 3.0, 50.0]),
    st.sampled_from([0.0, 0.5, 0.9, 0.999, 1.0]),
    st.sampled_from([0.0, 0.001, 0.1, 1.0]),
    st.sampled_from([0.0, 0.5]),
)
def test_a_draw_from_the_best_is_the_draw_from_all(
    seed: int, temperature: float, top_p: float, min_p: float, step: float
) -> None:
    options = GenerationOptions(temperature=temperature, top_k=0, top_p=top_p, min_p=min_p)
    ranked = Row(seed, 500, 12.0, step).top(500)
    uniform = RandomNumbers(seed + 1).uniform()
    whole = decide(ranked, 0, uniform, options)
    assert whole is not None
    for count in (1, 4, 16, 64, 256, 499):
        assert decide(ranked[:count], 500 - count, uniform, options) in (None, whole)


def test_few_tokens_are_ordered_where_the_rest_cannot_matter() -> None:
    values = [20.0 - 0.5 * i if i < 40 else -20.0 for i in range(100_000)]
    row = Values(values)
    Sampler(GenerationOptions(seed=3, **{**ALL, "top_p": 0.9}), (), len(values)).choose(row)
    assert max(row.asked) == sampler.FIRST_SELECTION


def test_draws_have_the_probabilities_of_the_softmax() -> None:
    values = [0.0, 1.0, 2.0, -math.inf]
    counts = Counter(chosen(values, ALL, times=6000))
    shares = [math.exp(value) / (1 + math.e + math.e**2) for value in values]
    assert [counts[i] / 6000 for i in range(4)] == pytest.approx(shares, abs=0.025)
    assert counts[3] == 0


def test_ties_go_to_the_lower_id() -> None:
    assert chosen([1.0, 3.0, 3.0, 2.0], {"temperature": 0}) == [1]
    assert set(chosen([3.0] * 9, {**ALL, "top_k": 2}, times=50)) == {0, 1}


def test_penalties_make_tokens_of_the_prompt_and_the_answer_less_likely() -> None:
    greedy = {"temperature": 0}
    assert chosen([2.0, 1.5, -1.0], {**greedy, "repetition_penalty": 2.0}, prompt=[0]) == [1]
    assert chosen([-1.0, -1.5], {**greedy, "repetition_penalty": 2.0}, prompt=[0]) == [1]
    assert chosen([2.0, 1.5, 0.2], {**greedy, "presence_penalty": 1.0}, times=3) == [0, 1, 0]
    assert chosen([2.0, 1.5, 0.2], {**greedy, "presence_penalty": 1.0}, prompt=[0]) == [0]
    assert chosen([2.0, 0.9], {**greedy, "frequency_penalty": 0.4}, times=5) == [0, 0, 0, 1, 0]
    assert chosen([2.0, 1.5, 0.2], {**greedy, "logit_bias": {"2": 5, 0: -100}}) == [2]


def test_logprobs_are_those_of_the_model_alone() -> None:
    options = GenerationOptions(seed=1, temperature=0, logit_bias={0: -100.0}, logprobs=2)
    choice = Sampler(options, (), 3).choose(Values([2.0, 1.0, 0.0]))
    total = math.log(math.exp(2) + math.exp(1) + 1)
    assert choice.token == 1
    assert choice.logprob == pytest.approx(1 - total)
    assert [token for token, _ in choice.top] == [0, 1]
    assert [logprob for _, logprob in choice.top] == pytest.approx([2 - total, 1 - total])


def test_a_refused_token_is_never_chosen_and_the_others_keep_their_shares() -> None:
    made = Sampler(GenerationOptions(seed=5, **ALL), (), 4)
    counts = Counter(made.choose(Values([1.0, 1.0, 3.0, 2.0]), Refusing(2, 4)).token for _ in range(3000))
    assert set(counts) == {1, 3}
    assert counts[1] / 3000 == pytest.approx(1 / (1 + math.e), abs=0.03)


def test_after_many_refusals_the_allowed_tokens_are_looked_for() -> None:
    made = Sampler(GenerationOptions(seed=5, temperature=0), (), 500)

    class Only:
        def accepts(self, token: int) -> bool:
            return token == 499

        def allowed(self) -> list[int]:
            return [499]

        def advance(self, token: int) -> bool:
            return token < 0

    assert made.choose(Values([-float(i) for i in range(500)]), Only()).token == 499


def test_a_grammar_that_refuses_everything_is_an_error() -> None:
    made = Sampler(GenerationOptions(seed=5, **ALL), (), 100)
    with pytest.raises(ExecutionError, match="no token may come next"):
        made.choose(Values([0.0] * 100), Refusing(1, 100))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_an_error(bad: float) -> None:
    class First(Values):
        def top(self, count: int) -> list[tuple[int, float]]:
            return [(1, bad)][:count]

    with pytest.raises(ExecutionError, match="best logit"):
        Sampler(GenerationOptions(seed=1), (), 2).choose(First([0.0, bad]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "`temperature` is -1, expected 0 to 100"),
        ({"temperature": math.nan}, "`temperature` is nan, expected a number"),
        ({"temperature": "hot"}, "expected a number"),
        ({"top_k": -1}, "`top_k` is -1"),
        ({"top_k": 1.5}, "expected a whole number"),
        ({"top_p": 1.01}, "`top_p` is 1.01, expected 0 to 1"),
        ({"min_p": -0.1}, "`min_p`"),
        ({"max_tokens": 0}, "`max_tokens` is 0"),
        ({"max_tokens": True}, "expected a whole number"),
        ({"seed": 2**64}, "`seed`"),
        ({"stop": ["a"] * 100_000}, "has 100000 texts, at most 1024"),
        ({"stop": ["x" * 2000]}, "2000 characters"),
        ({"stop": [""]}, "not empty"),
        ({"stop": 3}, "expected a text or a list"),
        ({"repetition_penalty": 0}, "`repetition_penalty` is 0"),
        ({"logit_bias": {"dog": 1}}, "token 'dog'"),
        ({"logit_bias": {-1: 1}}, "token -1"),
        ({"logit_bias": {1: math.inf}}, "expected a number"),
        ({"logit_bias": {1: 10**400}}, "expected -1000 to 1000"),
        ({"logit_bias": {math.inf: 1}}, "token inf"),
        ({"logit_bias": {1.5: 1}}, "token 1.5"),
        ({"temperature": 10**400}, "expected 0 to 100"),
        ({"logit_bias": [1]}, "expected token ids"),
        ({"logprobs": 21}, "`logprobs` is 21"),
        ({"response_format": "json"}, "expected an object"),
        ({"temprature": 1}, "no option `temprature`"),
    ],
)
def test_options_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        GenerationOptions.of(options)


def test_options_take_the_bundles_defaults_where_nothing_is_given() -> None:
    made = GenerationOptions.of({"top_k": 3, "top_p": None}, {"temperature": 0.2, "top_k": 9, "do_sample": True})
    assert (made.temperature, made.top_k, made.top_p) == (0.2, 3, 0.95)
    assert made.seeded().seed != made.seeded().seed
    assert GenerationOptions(seed=4).seeded().seed == 4


def test_a_bias_for_a_token_that_the_model_lacks_is_an_error() -> None:
    with pytest.raises(InputError, match="names token 9, the model has 3"):
        Sampler(GenerationOptions(seed=1, logit_bias={9: 1.0}), (), 3)
