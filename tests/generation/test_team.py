"""Threads of a decoder: the same bits with any number of them, and their life."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edge_infer.errors import InputError, OutOfMemory
from edge_infer.generation.config import DecoderConfig
from edge_infer.generation.decoder import Decoder
from edge_infer.generation.native import NativeEngine
from edge_infer.generation.team import ThreadChoice
from edge_infer.kernels import build, generation
from tests.support.generation.decoders import random_decoder
from tests.support.generation.families import FAMILIES
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.generation.weight_file import Encoding

TOKENS = [int(token) for token in np.random.default_rng(5).integers(0, 97, 40)]


def _numbers(decoder: Decoder) -> bytes:
    """Run a prompt, then each of its last tokens alone, beside another slot's rows."""
    found = []
    decoder.run(TOKENS, [1] * 40, range(40), [0, 3, 39])
    found += [bytes(decoder.logits(row)) for row in range(3)]
    for position in range(30, 40):
        decoder.run([TOKENS[position]], [1], [position], [0])
        found.append(bytes(decoder.logits(0)))
    decoder.run(TOKENS[:5] + TOKENS[38:], [0] * 5 + [1] * 2, [*range(5), 38, 39], [4, 6])
    found += [bytes(decoder.logits(row)) for row in range(2)]
    return b"".join(found)


@pytest.mark.parametrize("encoding", ["f32", "f16", "int8", "int4"])
@pytest.mark.parametrize("family", [*FAMILIES])
def test_any_number_of_threads_gives_the_same_bits(tmp_path: Path, family: str, encoding: Encoding) -> None:
    config, optional = FAMILIES[family]
    path = random_decoder(config, encoding, optional=optional).write(tmp_path / "model.safetensors")
    found = []
    for threads in (1, 2, 3, 4):
        with Decoder.open(path, slots=2, context=64, threads=threads) as decoder:
            found.append(_numbers(decoder))

    assert found.count(found[0]) == 4


def test_every_library_shares_its_work(tmp_path: Path) -> None:
    config, optional = FAMILIES["llama"]
    path = random_decoder(config, "int4", optional=optional).write(tmp_path / "model.safetensors")
    best = generation.generation_library().path.name
    built = [one for one in sorted(build.BUILT.glob("generation_linux_x86_64*.so")) if len(one.name) <= len(best)]
    found = set()
    for path_of_library in built if "x86_64" in best else [generation.generation_library().path]:
        engine = NativeEngine(path, 2, 64, generation.GenerationLibrary(path_of_library), threads=3)
        with Decoder(engine, 2, 64) as decoder:
            found.add(_numbers(decoder))

    assert len(found) == 1


def test_many_batches_in_a_row_stay_equal(tmp_path: Path) -> None:
    """More threads than processors: each is put aside in the middle of parts."""
    config = DecoderConfig("llama", 97, 64, 3, 4, 2, 16, 96, 300, rotary_size=16, layer_kinds=(0,) * 3)
    path = random_decoder(config, "int4").write(tmp_path / "model.safetensors")
    with Decoder.open(path) as one, Decoder.open(path, threads=5) as five:
        for position in range(300):
            for decoder in (one, five):
                decoder.run([position % 97], [0], [position], [0])
            assert bytes(one.logits(0)) == bytes(five.logits(0))


def _threads_since(before: list[threading.Thread]) -> int:
    """Count the threads of decoders that began since then: those of other tests may still be there."""
    return sum(one.name.startswith("edge-infer decoder") for one in threading.enumerate() if one not in before)


def test_threads_end_with_their_decoder(tmp_path: Path) -> None:
    config, optional = FAMILIES["llama"]
    path = random_decoder(config, "int4", optional=optional).write(tmp_path / "model.safetensors")
    before = threading.enumerate()
    closed = Decoder.open(path, threads=4)
    forgotten = Decoder.open(path, threads=2)
    assert _threads_since(before) == 4
    closed.close()
    closed.close()
    del forgotten

    wait_until(lambda: _threads_since(before) == 0)


def test_a_fork_computes_alone(tmp_path: Path) -> None:
    config, optional = FAMILIES["llama"]
    path = random_decoder(config, "int4", optional=optional).write(tmp_path / "model.safetensors")
    with Decoder.open(path, slots=2, context=64, threads=2) as decoder:
        want = _numbers(decoder)
        child = os.fork()
        if child == 0:
            is_equal = _numbers(decoder) == want and decoder.threads == 1
            os._exit(0 if is_equal else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert _numbers(decoder) == want


def test_threads_that_do_not_start_are_an_error_and_the_others_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, optional = FAMILIES["llama"]
    path = random_decoder(config, "int4", optional=optional).write(tmp_path / "model.safetensors")
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if thread.name.endswith("decoder 3"):
            raise RuntimeError("can't start new thread")
        start(thread)

    before = threading.enumerate()
    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(OutOfMemory, match="does not start 5 threads"):
        Decoder.open(path, threads=5)
    wait_until(lambda: _threads_since(before) == 0)


@pytest.mark.parametrize("threads", [0, -1, 257, 2**40, 1.0, True, "2"])
def test_a_number_that_is_none_is_refused(tmp_path: Path, threads: int) -> None:
    with pytest.raises(InputError, match="threads is"):
        Decoder.open(tmp_path / "model.safetensors", threads=threads)


def _settle(choice: ThreadChoice, seconds: dict[int, float], batches: int) -> list[int]:
    used = []
    for _ in range(batches):
        used.append(choice.threads)
        choice.add(seconds[choice.threads])
    return used


def test_the_faster_number_of_threads_is_used_and_tried_again() -> None:
    choice = ThreadChoice(4)

    idle = _settle(choice, {4: 1.0, 1: 2.5}, 2000)
    assert set(idle[:8]) == {1, 4}
    assert idle[8:].count(1) <= 2000 // 50

    busy = _settle(choice, {4: 5.0, 1: 2.5}, 2000)
    assert busy[-800:].count(4) <= 800 // 25

    again = _settle(choice, {4: 1.0, 1: 2.5}, 2000)
    assert again[-800:].count(1) <= 800 // 25
