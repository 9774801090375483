"""The native decoder: near to the oracle, the same bits by every library, alone and in company."""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_infer.errors import BundleError, InputError, OutOfMemory
from edge_infer.generation.config import DecoderConfig
from edge_infer.generation.decoder import Decoder
from edge_infer.generation.native import NativeEngine
from edge_infer.kernels import build, generation
from tests.support.generation.decoders import random_decoder
from tests.support.generation.families import FAMILIES
from tests.support.generation.oracle import Oracle

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from edge_infer.generation.weight_file import Encoding

TOKENS = [int(token) for token in np.random.default_rng(3).integers(0, 97, 40)]
ENCODINGS: tuple[Encoding, ...] = ("f32", "f16", "int8", "int4")


def _libraries() -> list[Path]:
    """List the built libraries that this CPU runs."""
    best = generation.generation_library().path.name
    names = ["x86_64", "x86_64_v3", "x86_64_vnni"] if "x86_64" in best else [best[17:-3]]
    found = [build.BUILT / f"generation_linux_{name}.so" for name in names]
    return found[: [path.name for path in found].index(best) + 1]


def _open(path: Path, library: Path | None = None, slots: int = 1, context: int = 64) -> Decoder:
    kernels = generation.GenerationLibrary(library) if library else None
    return Decoder(NativeEngine(path, slots, context, kernels), slots, context)


def _all_logits(decoder: Decoder, tokens: Sequence[int], slot: int = 0) -> np.ndarray:
    """Run a whole sequence as one batch."""
    count = len(tokens)
    decoder.run(tokens, [slot] * count, range(count), range(count))
    return np.array([decoder.logits(row) for row in range(count)])


def _bits(values: np.ndarray) -> bytes:
    return values.astype("<f4").tobytes()


@pytest.mark.parametrize("family", [*FAMILIES])
@pytest.mark.parametrize("encoding", ["f32", "f16"])
def test_logits_are_near_those_of_the_oracle(tmp_path: Path, family: str, encoding: Encoding) -> None:
    config, optional = FAMILIES[family]
    made = random_decoder(config, encoding, optional=optional)
    want = Oracle(config, made.values).logits(TOKENS)

    with _open(made.write(tmp_path / "model.safetensors")) as decoder:
        found = _all_logits(decoder, TOKENS)

    assert np.abs(found - want).max() <= 1e-5 * math.sqrt((want**2).mean())


@pytest.mark.parametrize("family", [*FAMILIES])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_library_gives_the_same_bits_alone_and_in_company(
    tmp_path: Path, family: str, encoding: Encoding
) -> None:
    config, optional = FAMILIES[family]
    path = random_decoder(config, encoding, optional=optional).write(tmp_path / "model.safetensors")
    found = set()
    for library in _libraries():
        with _open(path, library, slots=3) as decoder:
            whole = _all_logits(decoder, TOKENS, slot=2)
            found.add(_bits(whole))
            alone = []
            for position, token in enumerate(TOKENS):
                decoder.run([token], [0], [position], [0])
                alone.append(np.array(decoder.logits(0)))
            found.add(_bits(np.array(alone)))
            # 37 rows of one slot, then the last three beside another slot's first ones
            decoder.run(TOKENS[:37], [1] * 37, range(37), [])
            decoder.run(*(TOKENS[:5] + TOKENS[37:], [0] * 5 + [1] * 3, [*range(5), 37, 38, 39], [0, 4, 5, 6, 7]))
            rows = np.array([decoder.logits(row) for row in range(5)])
            assert _bits(rows) == _bits(whole[[0, 4, 37, 38, 39]])

    assert len(found) == 1


_SIZES = st.tuples(*(st.integers(1, 3) for _ in range(3)), st.sampled_from([2, 8, 10, 16, 34]))


@given(
    sizes=_SIZES,
    hidden=st.sampled_from([32, 64, 96, 160, 20, 33]),
    mlp=st.sampled_from([32, 64, 288, 17]),
    encoding=st.sampled_from(ENCODINGS),
    window=st.integers(1, 9),
    gated=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_random_shapes_give_the_same_bits(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: tuple[int, int, int, int],
    hidden: int,
    mlp: int,
    encoding: Encoding,
    window: int,
    gated: bool,
    seed: int,
) -> None:
    group, kv_heads, layers, head_size = sizes
    config = DecoderConfig(
        *("random", 41, hidden, layers, group * kv_heads, kv_heads, head_size, mlp, 64),
        gated=gated,
        rotary_size=head_size // 2 * 2,
        sliding_window=window,
        layer_kinds=(*(layer % 2 for layer in range(layers)),),
    )
    made = random_decoder(config, encoding, seed=seed)
    path = made.write(tmp_path_factory.mktemp("random") / "model.safetensors")
    tokens = [token % 41 for token in TOKENS[: 1 + seed % 40]]
    found = set()
    for library in _libraries():
        with _open(path, library) as decoder:
            found.add(_bits(_all_logits(decoder, tokens)))

    assert len(found) == 1
    want = Oracle(config, made.values).logits(tokens)
    near = 1e-5 if encoding in ("f32", "f16") else 0.3
    assert np.abs(np.frombuffer(found.pop(), "<f4").reshape(want.shape) - want).max() <= near * math.sqrt(
        (want**2).mean()
    )


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_plain_form_gives_the_same_bits(tmp_path: Path, encoding: Encoding) -> None:
    plain = tmp_path / "plain.so"
    build.compile_to(plain, (*build.TARGETS["generation_linux_x86_64.so"], "-DPLAIN"), build.LIBRARIES["generation"])
    for family, (config, optional) in FAMILIES.items():
        path = random_decoder(config, encoding, optional=optional).write(tmp_path / f"{family}.safetensors")
        found = set()
        for library in (plain, *_libraries()):
            with _open(path, library) as decoder:
                found.add(_bits(_all_logits(decoder, TOKENS)))
        assert len(found) == 1, family


def _fold(lanes: np.ndarray) -> np.float32:
    """Fold lanes as a tree, in float32."""
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    return np.float32(lanes[0])


@pytest.mark.parametrize("encoding", ["int8", "int4"])
def test_the_dots_of_blocks_are_exact_and_added_in_the_stated_order(tmp_path: Path, encoding: Encoding) -> None:
    """All layers add zero, so the logits are the head's product with the normed embedding."""
    config = DecoderConfig("llama", 97, 224, 1, 1, 1, 32, 32, 8, rotary_size=32)
    made = random_decoder(config, encoding, embedding="f32", optional=frozenset({"head"}))
    quiet = random_decoder(config, "f32").tensors
    for index, (name, tensor) in enumerate(made.tensors):
        if name in ("layers.0.attention_output.weight", "layers.0.down.weight"):
            zeros = next(one for other, one in quiet if other == name)
            made.tensors[index] = (name, type(tensor)("f32", tensor.shape, bytes(len(bytes(zeros.values)))))
    with _open(made.write(tmp_path / "model.safetensors"), context=8) as decoder:
        decoder.run([5], [0], [0], [0])
        found = np.array(decoder.logits(0))

    x = made.values["embedding"][5].astype(np.float32)
    lanes = np.zeros(16, np.float32)
    for start in range(0, 224, 16):
        lanes += x[start : start + 16] * x[start : start + 16]
    root = np.sqrt(_fold(lanes) / np.float32(224) + np.float32(config.norm_epsilon))
    blocks = (x * (np.float32(1) / root) * made.values["final_norm.weight"]).reshape(7, 32)
    largest = np.abs(blocks).max(axis=1)
    scales = largest / np.float32(127)
    whole = np.rint(blocks * (np.float32(127) / largest)[:, None]).astype(np.int64)
    head = dict(made.tensors)["head"]
    weight_scales = np.frombuffer(bytes(head.scales or b""), "<f2").reshape(97, 7).astype(np.float32)
    weights = np.rint(made.values["head"].reshape(97, 7, 32) / weight_scales[:, :, None]).astype(np.int64)
    for row in range(97):
        sums = np.zeros(4, np.float32)
        for block in range(7):
            dot = np.float32((weights[row, block] * whole[block]).sum())
            sums[block % 4] += dot * (weight_scales[row, block] * scales[block])
        assert found[row] == _fold(sums)


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Decoder]:
    config, optional = FAMILIES["llama"]
    path = random_decoder(config, "int4", optional=optional).write(tmp_path / "model.safetensors")
    with Decoder.open(path, slots=2, context=48) as decoder:
        yield decoder


def test_a_copied_prefix_goes_on_as_the_original(tiny: Decoder) -> None:
    want = _all_logits(tiny, TOKENS)
    tiny.run([1] * 30, [1] * 30, range(30), [])
    for length in (0, 1, 16, 21, 39):
        tiny.copy(0, 1, length)
        rest = TOKENS[length:]
        tiny.run(rest, [1] * len(rest), range(length, 40), [len(rest) - 1])
        assert _bits(np.array(tiny.logits(0))) == _bits(want[-1])


def test_a_batch_longer_than_a_chunk_is_computed_in_parts(tmp_path: Path) -> None:
    config, optional = FAMILIES["llama"]
    config = DecoderConfig.of({**config.to_json(), "context": 300})
    path = random_decoder(config, "int8", optional=optional).write(tmp_path / "model.safetensors")
    tokens = [(7 * place) % 97 for place in range(290)]
    with Decoder.open(path) as decoder:
        decoder.run(tokens, [0] * 290, range(290), [0, 127, 128, 200, 289])
        found = [np.array(decoder.logits(row)) for row in range(5)]
        for row, place in enumerate([0, 127, 128, 200, 289]):
            decoder.run(tokens[place : place + 1], [0], [place], [0])
            assert _bits(np.array(decoder.logits(0))) == _bits(found[row])


def test_a_file_that_is_replaced_by_renaming_stays_as_it_was_opened(tmp_path: Path) -> None:
    config, optional = FAMILIES["llama"]
    path = random_decoder(config, "int8", optional=optional).write(tmp_path / "model.safetensors")
    with Decoder.open(path, slots=2, context=48) as decoder:
        want = _bits(_all_logits(decoder, TOKENS))
        random_decoder(config, "int8", optional=optional, seed=1).write(tmp_path / "next")
        (tmp_path / "next").replace(path)
        assert _bits(_all_logits(decoder, TOKENS, slot=1)) == want
        path.unlink()
        assert _bits(_all_logits(decoder, TOKENS)) == want


@pytest.mark.parametrize("size", [0, 1000, -1])
def test_a_file_that_is_cut_while_in_use_is_an_error_and_not_the_end(tmp_path: Path, size: int) -> None:
    config, optional = FAMILIES["llama"]
    path = random_decoder(config, "int8", optional=optional).write(tmp_path / "model.safetensors")
    whole = path.read_bytes()
    with Decoder.open(path, context=48, threads=2) as decoder:
        want = _bits(_all_logits(decoder, TOKENS))
        with path.open("r+b") as file:
            file.truncate(size % len(whole))
        with pytest.raises(BundleError, match=r"was cut to .* while it was in use"):
            decoder.run([1], [0], [0], [0])
        with pytest.raises(InputError, match="were not computed"):
            decoder.logits(0)
        path.write_bytes(whole)
        assert _bits(_all_logits(decoder, TOKENS)) == want


@given(
    logits=st.lists(
        st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf, -math.inf])),
        min_size=97,
        max_size=97,
    ),
    count=st.integers(1, 120),
)
@settings(max_examples=60, deadline=None)
def test_the_best_are_those_of_a_full_sort(
    tmp_path_factory: pytest.TempPathFactory, logits: list[float], count: int
) -> None:
    config, optional = FAMILIES["llama"]
    path = tmp_path_factory.getbasetemp() / "top.safetensors"
    if not path.exists():
        random_decoder(config, "int8", optional=optional).write(path)
    with Decoder.open(path, context=4) as decoder:
        decoder.run([0], [0], [0], [0])
        decoder.logits(0)[:] = array("f", logits)
        found = decoder.top(0, count)

    order = sorted(range(97), key=lambda i: (not math.isnan(logits[i]), 0 if math.isnan(logits[i]) else -logits[i], i))
    assert [token for token, _ in found] == order[:count]
    np.testing.assert_array_equal([value for _, value in found], [logits[i] for i in order[:count]])


def test_weights_that_are_no_numbers_show_in_the_logits(tmp_path: Path) -> None:
    config, optional = FAMILIES["llama"]
    made = random_decoder(config, "int4", optional=optional)
    for index, (name, tensor) in enumerate(made.tensors):
        if name == "layers.0.attention_norm.weight":
            made.tensors[index] = (name, type(tensor)("f32", tensor.shape, array("f", [math.nan] * 64).tobytes()))
    with _open(made.write(tmp_path / "model.safetensors")) as decoder:
        decoder.run([1], [0], [0], [0])
        assert math.isnan(decoder.top(0, 1)[0][1])


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (([97], [0], [0], []), r"tokens\[0\] is 97, expected 0 to 96"),
        (([1, -1], [0, 0], [0, 1], []), r"tokens\[1\] is -1"),
        (([1], [2], [0], []), r"slots\[0\] is 2, expected 0 to 1"),
        (([1], [0], [48], []), r"positions\[0\] is 48, expected 0 to 47"),
        (([1, 1], [0, 0], [3, 3], []), r"positions\[1\] is 3, .* rising"),
        (([1], [0], [0], [1]), r"wanted\[0\] is 1"),
        (([1, 1], [0, 0], [0, 1], [1, 0]), r"wanted\[1\] is 0"),
        (([1], [0, 0], [0], []), "1 tokens, 2 slots and 1 positions"),
        (([2**40], [0], [0], []), "32-bit integers"),
        (([1.5], [0], [0], []), "32-bit integers"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(tiny: Decoder, batch: tuple[list[int], ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        tiny.run(*batch)
    with pytest.raises(InputError, match="were not computed"):
        tiny.logits(0)


def test_other_arguments_out_of_range_are_refused(tiny: Decoder, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="slot 2 is out of range"):
        tiny.copy(0, 2, 1)
    with pytest.raises(InputError, match="length 49"):
        tiny.copy(0, 1, 49)
    tiny.run([1], [0], [0], [0])
    with pytest.raises(InputError, match="count is 0"):
        tiny.top(0, 0)
    tiny.close()
    tiny.close()
    with pytest.raises(InputError, match="closed"):
        tiny.run([1], [0], [0], [0])
    path = tmp_path / "model.safetensors"
    for options in ({"slots": 0}, {"slots": 2**32 + 1}, {"slots": 1.0}, {"context": 0}, {"context": 65}):
        with pytest.raises(InputError, match=next(iter(options))):
            Decoder.open(path, **options)
    with pytest.raises(OutOfMemory, match="no memory for the decoder"):
        NativeEngine(path, 2**31 - 1, None)
    path.write_bytes(path.read_bytes()[:-16])
    with pytest.raises(BundleError):
        Decoder.open(path)
