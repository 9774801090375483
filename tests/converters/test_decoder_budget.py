"""4 and 8 bits within a budget of perplexity: what is searched, what is measured, what is refused."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

import edge_infer
from edge_infer.errors import AccuracyError, InputError
from edge_infer.generation.decoder import Decoder
from edge_infer_converters import convert
from edge_infer_converters.cli import convert as command
from edge_infer_converters.conversion import DecoderConversion
from edge_infer_converters.search.mixed_decoder import most_trials, search
from edge_infer_converters.search.perplexity import Judge, Measured, read_windows
from edge_infer_converters.sources.decoder.tokens import TOKENIZER_NAME, Tokens
from tests.support.generation import hub_folders

if TYPE_CHECKING:
    from pathlib import Path

_TEXT = "Hello, world! " * 200  # on which the random weights lose by each rounding


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random Llama, and a text beside it."""
    place = tmp_path_factory.mktemp("budget")
    made = hub_folders.write_folder(place / "tiny")
    (place / "text.txt").write_text(_TEXT)
    return made


def test_perplexity_is_that_of_the_logits(folder: Path, tmp_path: Path) -> None:
    bundle = convert(folder, tmp_path / "out.bundle", precision="fp32")
    file = bundle.path / "decoder" / "model_fp32.safetensors"
    window = [5, 9, 200, 31, 7, 7, 12]

    total = 0.0
    with Decoder.open(file, context=16) as decoder:
        for place, token in enumerate(window[:-1]):  # one by one, and not all at once
            decoder.run([token], [0], [place], [0])
            logits = np.array(decoder.logits(0), np.float64)
            total += float(np.log(np.exp(logits).sum()) - logits[window[place + 1]])

    assert Judge(file, [window]).base == pytest.approx(math.exp(total / 6), rel=1e-6)


def test_divergence_is_that_of_the_shares_of_all_tokens(folder: Path, tmp_path: Path) -> None:
    bundle = convert(folder, tmp_path / "out.bundle", precision="fp32,int4")
    files = [bundle.path / "decoder" / f"model_{one}.safetensors" for one in ("fp32", "int4")]
    window = [5, 9, 200, 31, 7, 7, 12]
    logs = []
    for file in files:
        with Decoder.open(file, context=16) as decoder:
            decoder.run(window[:-1], [0] * 6, range(6), range(6))
            logits = np.array([decoder.logits(row) for row in range(6)], np.float64)
        logs.append(logits - np.log(np.exp(logits).sum(1, keepdims=True)))

    judge = Judge(files[0], [window])

    # 256 of the 320 tokens are kept, and the others count as one: that takes next to nothing off.
    whole = float((np.exp(logs[0]) * (logs[0] - logs[1])).sum(1).mean())
    assert judge.measure(files[1]).divergence == pytest.approx(whole, rel=0.02)
    assert judge.measure(files[1]).divergence > 0
    assert judge.measure(files[0]).perplexity == judge.base
    assert judge.measure(files[0]).divergence == pytest.approx(0, abs=1e-7)


def test_a_text_measures_each_variant(folder: Path, tmp_path: Path) -> None:
    made = convert(folder, tmp_path / "out.bundle", calibration=folder.parent / "text.txt", precision="fp32,int8,int4")

    told = json.loads((made.path / "quality.json").read_text())["variants"]
    assert told["decoder/fp32"]["loss"] == 0
    assert told["decoder/fp32"]["perplexity"] != told["decoder/int4"]["perplexity"]
    assert abs(told["decoder/int8"]["loss"]) < abs(told["decoder/int4"]["loss"])


def test_mixed_keeps_the_budget_and_is_smaller_than_8_bits(folder: Path, tmp_path: Path) -> None:
    text = folder.parent / "text.txt"
    plain = convert(folder, tmp_path / "plain.bundle", calibration=text, precision="int8,int4")
    assert isinstance(plain, DecoderConversion)
    losses = {one.variant.precision: max(one.loss or 0, math.expm1(one.divergence or 0)) for one in plain.decoders}
    assert losses["int4"] > losses["int8"] > 0
    most = losses["int8"] + 1e-5

    made = convert(folder, tmp_path / "mixed.bundle", calibration=text, max_loss=most)

    assert isinstance(made, DecoderConversion)
    [mixed] = made.decoders
    assert mixed.variant.precision == "mixed"
    assert mixed.loss is not None
    assert mixed.divergence is not None
    assert max(mixed.loss, math.expm1(mixed.divergence)) <= most
    assert mixed.nbytes <= next(one.nbytes for one in plain.decoders if one.variant.precision == "int8")
    with edge_infer.generate(made.path) as generator:
        assert generator.report().variant == "decoder/mixed"
        assert generator.complete("The", max_tokens=4, temperature=0).usage.completion_tokens == 4


def test_the_command_searches_as_the_guide_says(folder: Path, tmp_path: Path) -> None:
    text, made = str(folder.parent / "text.txt"), tmp_path / "out.bundle"

    done = CliRunner().invoke(
        command, [str(folder), "-o", str(made), "--calibration", text, "--max-loss", "99%", "--json"]
    )

    assert done.exit_code == 0, done.output
    told = json.loads((made / "quality.json").read_text())["variants"]
    assert list(told) == ["decoder/mixed"]


@pytest.mark.parametrize(
    ("options", "said"),
    [(("--max-loss", "2%"), "needs a text to measure"), (("--max-loss", "2%", "--dry-run"), "--dry-run foresees no")],
)
def test_the_command_says_what_a_decoder_lacks(
    folder: Path, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    done = CliRunner().invoke(command, [str(folder), "-o", str(tmp_path / "out.bundle"), *options])

    assert isinstance(done.exception, InputError)
    assert said in done.exception.message


def test_a_wide_budget_takes_4_bits_everywhere(folder: Path, tmp_path: Path) -> None:
    text = folder.parent / "text.txt"

    wide = convert(folder, tmp_path / "wide.bundle", calibration=text, max_loss="99%", precision="mixed,int4")

    assert isinstance(wide, DecoderConversion)
    sizes = {one.variant.precision: one.nbytes for one in wide.decoders}
    assert sizes["mixed"] < sizes["int4"]  # the head and the embedding have 4 bits too


def test_what_loses_more_than_the_budget_is_left_out(folder: Path, tmp_path: Path) -> None:
    text = folder.parent / "text.txt"

    with pytest.raises(AccuracyError, match="keeps a loss of") as caught:
        convert(folder, tmp_path / "out.bundle", calibration=text, max_loss=0.0, precision="int4")

    assert "mixed" in (caught.value.hint or "")
    assert not (tmp_path / "out.bundle").exists()


def test_windows_are_spread_over_all_of_a_text(folder: Path, tmp_path: Path) -> None:
    """Of 20,000 letters, each a token: too few for cuts by characters, and more than 16 windows."""
    (tmp_path / "text.txt").write_text("x" * 19_000 + "y" * 1000)
    tokens = Tokens({}, {TOKENIZER_NAME: (folder / "tokenizer.json").read_bytes()}, ())

    windows = read_windows(tmp_path / "text.txt", tokens, 1024)

    assert (len(windows.measured), len(windows.read)) == (16, 16)
    assert windows.measured[0] != windows.read[-1]


def test_a_model_that_foretells_nothing_is_named(tmp_path: Path) -> None:
    weights = hub_folders.weights("llama")
    for name in ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"):
        weights[name] = weights[name] * np.float32(1e4)
    folder = hub_folders.write_folder(tmp_path / "loud", tensors=weights)
    (tmp_path / "text.txt").write_text(_TEXT)

    with pytest.raises(AccuracyError, match="its perplexity is infinite"):
        convert(folder, tmp_path / "out.bundle", calibration=tmp_path / "text.txt")

    assert not (tmp_path / "out.bundle").exists()


@pytest.mark.parametrize(("content", "said"), [(b"\xff\xfe\x00", "is no text"), (b"short", "tokens to foretell")])
def test_what_is_no_text_is_refused(folder: Path, tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "text.txt").write_bytes(content)

    with pytest.raises(InputError, match=said):
        convert(folder, tmp_path / "out.bundle", calibration=tmp_path / "text.txt")


def test_the_search_takes_what_costs_least_for_a_byte() -> None:
    sizes = {"a": 100, "b": 100, "c": 10, "d": 1000}
    costs = {"a": 0.01, "b": 0.05, "c": 0.004, "d": 0.02}
    seen: list[int] = []

    def measure(chosen: frozenset[str], _: int) -> Measured:
        cost = sum(costs[one] for one in chosen)
        return Measured(10, 0.5 if cost > 0.033 else -0.1, cost)  # what followed tells little: divergence orders

    found = search(sizes, measure, 0.034, seen.append)

    assert found == {"d", "a"}
    assert len(seen) <= most_trials(len(sizes))


def test_a_budget_holds_for_what_is_to_be_expected_too() -> None:
    found = search({"a": 1, "b": 1}, lambda chosen, _: Measured(9, -0.1, 0.02 * len(chosen)), 0.03, lambda _: None)

    assert found == {"a"}


def test_the_search_says_where_8_bits_lose_too_much() -> None:
    with pytest.raises(AccuracyError, match="8 bits lose 20"):
        search({"a": 1}, lambda parts, _: Measured(12.0, 0.2 + len(parts), 0.1), 0.1, lambda _: None)
