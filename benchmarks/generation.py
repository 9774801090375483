"""What sampling, slots and text add to a decoder, and what batching and the cache give back.

The model is a random Llama of 47 million parameters (SmolLM2-135M's layer, 8 of them, 16384 tokens, int4). Both sides
run in one process, in turn; the ratio of each round is taken. A peer here is the decoder alone, or the same generator
used in the plainer way: other programs are not measured.

    python benchmarks/generation.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from table import publish

from edge_infer.generation.config import DecoderConfig
from edge_infer.generation.decoder import Decoder
from edge_infer.generation.options import GenerationOptions
from edge_infer.generation.sampler import Sampler
from edge_infer.generation.slots import Row, Slots
from tests.support.generation.decoders import random_decoder

if TYPE_CHECKING:
    from collections.abc import Callable

LLAMA = DecoderConfig(
    architecture="llama",
    vocab_size=16384,
    hidden_size=576,
    layers=8,
    heads=9,
    kv_heads=3,
    head_size=64,
    mlp_size=1536,
    context=2048,
    rotary_size=64,
    attention_scale=0.125,
    layer_kinds=(0,) * 8,
)
#: The vocabulary of Qwen 2 on a model that computes next to nothing.
WIDE = replace(LLAMA, vocab_size=151_936, hidden_size=32, layers=1, heads=1, kv_heads=1, head_size=32, mlp_size=32,
               rotary_size=32, layer_kinds=(0,))  # fmt: skip
PROMPT = [7919 * at % LLAMA.vocab_size for at in range(16)]


def alone(decoder: Decoder, count: int) -> float:
    """Return tokens a second of the decoder with its best token, and nothing around it."""
    decoder.run(PROMPT, [0] * 16, list(range(16)), [15])
    token = decoder.top(0, 1)[0][0]
    start = time.perf_counter()
    for position in range(16, 16 + count):
        decoder.run([token], [0], [position], [0])
        token = decoder.top(0, 1)[0][0]
    return count / (time.perf_counter() - start)


def generated(decoder: Decoder, count: int, **options: Any) -> float:
    """Return tokens a second of one generation."""
    slots = Slots(decoder)
    slots.submit(PROMPT, GenerationOptions.of({"seed": 1, "max_tokens": count + 1, **options}))
    slots.step()
    start = time.perf_counter()
    while not slots.is_idle:
        slots.step()
    return count / (time.perf_counter() - start)


def streams(decoder: Decoder, count: int, *, together: bool) -> float:
    """Return tokens a second of eight generations, prompts included: at once, or one after the other."""
    slots = Slots(decoder)
    start = time.perf_counter()
    for number in range(8):
        slots.submit([*PROMPT[number:], number], GenerationOptions(seed=number, max_tokens=count))
        while not together and not slots.is_idle:
            slots.step()
    while not slots.is_idle:
        slots.step()
    return 8 * count / (time.perf_counter() - start)


def first_token_ms(decoder: Decoder, *, is_known: bool) -> float:
    """Return the milliseconds to the first token of a prompt of 512, the first 500 of which may be cached."""
    prompt = [7919 * at % LLAMA.vocab_size for at in range(512)]
    once = GenerationOptions(seed=1, max_tokens=1)
    slots = Slots(decoder)
    if is_known:
        slots.submit(prompt[:500], once)
        while not slots.is_idle:
            slots.step()
    start = time.perf_counter()
    slots.submit(prompt, once)
    while not slots.is_idle:
        slots.step()
    return (time.perf_counter() - start) * 1e3


def choice_ms(decoder: Decoder, count: int, **options: Any) -> float:
    """Return the milliseconds of one choice among 151,936 tokens."""
    sampler = Sampler(GenerationOptions.of({"seed": 1, **options}), [1, 2, 3], WIDE.vocab_size)
    taken = 0.0
    for position in range(count):
        decoder.run([position], [0], [position], [0])
        logits = decoder.logits(0)
        logits[position] = logits[position] + 30.0  # a model that is fairly sure, as trained ones are
        start = time.perf_counter()
        sampler.choose(Row(decoder, 0))
        taken += time.perf_counter() - start
    return taken / count * 1e3


def row(name: str, metric: str, sides: tuple[str, Callable[[], float], Callable[[], float]], rounds: int, **more: Any
        ) -> dict[str, Any]:  # fmt: skip
    """Measure two sides in turn: ours, and the peer."""
    peer_name, ours, peer = sides
    pairs = [(ours(), peer()) for _ in range(rounds)]
    ratios = [one / other for one, other in pairs]
    ratio, target = statistics.median(ratios), more.get("target")
    is_time = metric == "ms"
    met = None if target is None else (min(ratios) <= target if is_time else max(ratios) >= target)
    return {
        "name": name,
        "metric": metric,
        "ours": statistics.median(one for one, _ in pairs),
        "peer_name": peer_name,
        "peer": statistics.median(other for _, other in pairs),
        "ratio": ratio,
        "target": target,
        "met": met,
        "spread": f"{min(ratios):.2f} to {max(ratios):.2f}",
    }


def measure(folder: Path, *, quick: bool) -> list[dict[str, Any]]:
    """Return all rows."""
    rounds, count = (3, 40) if quick else (9, 100)
    optional = frozenset({"head"})
    path = random_decoder(LLAMA, "int4", optional=optional, embedding="int8").write(folder / "llama.safetensors")
    rows: list[dict[str, Any]] = []
    with Decoder.open(path, slots=8, context=1024) as decoder:
        for name, options in (
            ("one stream, most likely tokens", {"temperature": 0}),
            ("one stream, sampled", {}),
            ("one stream, repetition penalty 1.1", {"repetition_penalty": 1.1}),
            ("one stream, logprobs of 5", {"logprobs": 5}),
            ("one stream, top_k 0, top_p .95, min_p .05", {"top_k": 0}),
        ):
            sides = (
                "the decoder alone",
                lambda o=options: generated(decoder, count, **o),
                lambda: alone(decoder, count),
            )
            rows.append(row(name, "tokens/s", sides, rounds, target=0.95 if len(rows) < 3 else None))
        both = (lambda: streams(decoder, count, together=True), lambda: streams(decoder, count, together=False))
        rows.append(row("8 streams at once", "tokens/s", ("one after the other", *both), rounds, target=1.2))
        times = (lambda: first_token_ms(decoder, is_known=True), lambda: first_token_ms(decoder, is_known=False))
        rows.append(row("prompt of 512, 500 cached", "ms", ("nothing cached", *times), rounds, target=0.1))
    wide = random_decoder(WIDE, "int8", optional=optional).write(folder / "wide.safetensors")
    with Decoder.open(wide, context=512) as decoder:
        for name, options in (("default", {}), ("top_k 0", {"top_k": 0}), ("most likely", {"temperature": 0})):
            times_ms = [choice_ms(decoder, 20, **options) for _ in range(rounds)]
            value = statistics.median(times_ms)
            rows.append(
                {
                    "name": f"choice among 151,936, {name}",
                    "metric": "ms",
                    "ours": value,
                    "target": 1.0,
                    "met": min(times_ms) <= 1.0,
                    "spread": f"{min(times_ms):.2f} to {max(times_ms):.2f}",
                }
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        publish(measure(Path(folder), quick=given.quick), ["edge-infer", "numpy"], as_json=given.json)


if __name__ == "__main__":
    main()
