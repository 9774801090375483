"""GGUF files become the bundles of the folders that they were made from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
import pytest
import tokenizers

from edge_infer import Bundle
from edge_infer.errors import UnsupportedModel
from edge_infer.generation.decoder import Decoder
from edge_infer_converters import convert
from edge_infer_converters.conversion import DecoderConversion
from edge_infer_converters.sources.decoder.gguf_file import GgufFile
from edge_infer_converters.sources.decoder.gguf_tensor import GgufTensor
from edge_infer_converters.sources.decoder.gguf_tokens import tokenizer_of
from tests.support.generation import gguf_files, hub_folders
from tests.support.generation.weights import read_floats

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = [5, 17, 200, 3, 88, 140, 9, 31, 310, 64, 12, 77]


def converted(source: Path, **options: Any) -> DecoderConversion:
    result = convert(source, source.with_suffix(".bundle"), **options)
    assert isinstance(result, DecoderConversion)
    return result


def weights_of(result: DecoderConversion, precision: str) -> dict[str, np.ndarray]:
    return read_floats(result.path / f"decoder/model_{precision}.safetensors")[1]


def logits(result: DecoderConversion, precision: str = "fp32") -> np.ndarray:
    places = list(range(len(TOKENS)))
    with Decoder.open(result.path / f"decoder/model_{precision}.safetensors") as decoder:
        decoder.run(TOKENS, [0] * len(TOKENS), places, places)
        return np.array([np.array(decoder.logits(row)) for row in places])


@pytest.mark.parametrize("family", gguf_files.ARCHITECTURES)
def test_logits_are_those_of_the_folder(tmp_path: Path, family: str) -> None:
    folder = hub_folders.write_folder(tmp_path / "hub", family, changes=gguf_files.CHANGES.get(family))
    file = gguf_files.write_gguf(tmp_path / "file.gguf", family)

    expected = logits(converted(folder, precision="fp32"))
    got = logits(converted(file, precision="fp32"))

    assert np.abs(got - expected).max() <= 1e-6 * expected.std()


@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_halves_are_read(tmp_path: Path, kind: str) -> None:
    exact = weights_of(converted(gguf_files.write_gguf(tmp_path / "file.gguf"), precision="fp32"), "fp32")
    half = converted(gguf_files.write_gguf(tmp_path / "half.gguf", kind=kind), precision="fp32")

    found = weights_of(half, "fp32")

    assert np.abs(found["head"] - exact["head"]).max() < {"F16": 2e-3, "BF16": 2e-2}[kind]


@pytest.mark.parametrize(("kind", "precision"), [("Q4_0", "int4"), ("Q8_0", "int8")])
def test_blocks_are_taken_over_as_they_are(tmp_path: Path, kind: str, precision: str) -> None:
    file = gguf_files.write_gguf(tmp_path / "file.gguf", kind=kind)

    result = converted(file)

    assert [one.variant.precision for one in result.decoders] == [precision]
    assert result.decoders[0].sqnr_db == np.inf
    found = weights_of(result, precision)
    for key, name in {"embedding": "token_embd", "head": "output", "layers.1.down.weight": "blk.1.ffn_down"}.items():
        stored = gguf.quants.quantize(gguf_files.stored_weights("llama")[f"{name}.weight"], gguf_files.TYPES[kind])
        assert (found[key] == gguf.quants.dequantize(stored, gguf_files.TYPES[kind])).all()


def test_four_bits_are_kept_in_eight(tmp_path: Path) -> None:
    result = converted(gguf_files.write_gguf(tmp_path / "file.gguf", kind="Q4_0"), precision="int4,int8")

    assert [one.sqnr_db for one in result.decoders] == [np.inf, np.inf]
    four, eight = (weights_of(result, one) for one in ("int4", "int8"))
    assert all((four[name] == eight[name]).all() for name in four)


def test_eight_bits_made_four_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    result = converted(gguf_files.write_gguf(tmp_path / "file.gguf", kind="Q8_0"), precision="int4")

    assert "which have 8 bits in the file, are quantized anew" in caplog.text
    assert 10 < result.decoders[0].sqnr_db < 60


def test_a_value_that_the_kernels_leave_out_is_encoded_anew() -> None:
    values = np.full(32, -128, np.int8)
    data = np.concatenate([np.frombuffer(np.float16(0.5).tobytes(), np.uint8), values.view(np.uint8)]).reshape(1, 34)
    tensor = GgufTensor("Q8_0", (1, 32), data)

    assert tensor.blocks(0, 1, "int8") is None
    assert (tensor.rows(0, 1) == -64).all()


def test_q6_k_means_what_the_package_says() -> None:
    generator = np.random.default_rng(3)
    data = generator.integers(0, 256, (4, 2 * 210), np.uint8)
    for start in (208, 418):  # the scales of float16, finite
        data[:, start : start + 2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)

    got = GgufTensor("Q6_K", (4, 512), data).rows(0, 4)

    assert (got == gguf.quants.dequantize(data, gguf.GGMLQuantizationType.Q6_K)).all()


def test_the_bundle_says_what_the_file_says(tmp_path: Path) -> None:
    result = converted(gguf_files.write_gguf(tmp_path / "tiny-model.gguf", kind="Q4_0"))

    bundle = Bundle.open(result.path)
    assert (bundle.manifest.name, bundle.manifest.task) == ("tiny-model", "text-generation")
    assert bundle.manifest.generate == {
        "kind": "decoder/1",
        "architecture": "llama",
        "context": 128,
        "vocab_size": hub_folders.VOCABULARY,
        "tokenizer": "tokenizer.json",
        "chat_template": "chat_template.jinja",
        "bos": 1,
        "eos": [2, 4],
        "add_bos": False,
        "special_tokens": {"bos_token": "<s>", "eos_token": "</s>"},
        "vectors": "generation_vectors.json",
    }
    assert bundle.read("chat_template.jinja").decode() == hub_folders.TEMPLATE


TEXTS = [
    "The theatre and the sand",
    " and  and\nthe",
    "höher 12345 \U0001f600",
    "",
    "<s> and </s>",
    "don't",
    "a\tb\r\n c",
]


def test_byte_pairs_give_the_ids_of_the_folder(tmp_path: Path) -> None:
    with GgufFile(gguf_files.write_gguf(tmp_path / "file.gguf")) as file:
        made = tokenizers.Tokenizer.from_str(tokenizer_of(file).decode())
    original = tokenizers.Tokenizer.from_str(json.dumps(hub_folders.tokenizer()))

    for text in TEXTS:
        assert made.encode(text).ids == original.encode(text).ids


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("gpt-2", "ab 1234  x", ["ab", "Ġ1234", "Ġ", "Ġx"]),
        ("llama-bpe", "ab 12345 x\n\ny", ["ab", "Ġ", "123", "45", "Ġx", "ĊĊ", "y"]),
        ("qwen2", "ab 12 X's", ["ab", "Ġ", "1", "2", "ĠX", "'s"]),
        ("smollm", "ab 12 x", ["ab", "Ġ", "1", "2", "Ġx"]),
    ],
)
def test_texts_are_cut_as_the_name_says(tmp_path: Path, name: str, text: str, expected: list[str]) -> None:
    path = gguf_files.write_gguf(tmp_path / "file.gguf", metadata={"tokenizer.ggml.pre": name})
    with GgufFile(path) as file:
        made = tokenizers.Tokenizer.from_str(tokenizer_of(file).decode())

    assert made.pre_tokenizer is not None
    assert [one for one, _ in made.pre_tokenizer.pre_tokenize_str(text)] == expected


def test_sentence_pieces_are_merged_by_their_scores(tmp_path: Path) -> None:
    with GgufFile(gguf_files.write_gguf(tmp_path / "file.gguf", tokenizer="llama")) as file:
        made = tokenizers.Tokenizer.from_str(tokenizer_of(file).decode())

    assert made.encode("the and").tokens == ["<s>", "\u2581the", "\u2581and"]
    assert made.encode("then\u00e4").tokens == ["<s>", "\u2581the", "n", "<0xC3>", "<0xA4>"]
    assert made.decode(made.encode("the \u00e4 sand").ids) == "the \u00e4 sand"


def test_a_bundle_of_sentence_pieces_answers(tmp_path: Path) -> None:
    result = converted(gguf_files.write_gguf(tmp_path / "file.gguf", tokenizer="llama", kind="Q8_0"))

    entry = Bundle.open(result.path).manifest.generate
    assert entry is not None
    assert (entry["bos"], entry["add_bos"], entry["vectors"]) == (1, False, "generation_vectors.json")


def test_the_frequencies_of_llama_3_are_divided(tmp_path: Path) -> None:
    factors = np.linspace(1, 8, 8).astype(np.float32)
    plain = gguf_files.write_gguf(tmp_path / "plain.gguf")
    tensors = {**gguf_files.stored_weights("llama"), "rope_freqs.weight": factors}
    other = gguf_files.write_gguf(tmp_path / "other.gguf", tensors=tensors)

    before = weights_of(converted(plain, precision="int8"), "int8")["rope.0"]
    after = weights_of(converted(other, precision="int8"), "int8")["rope.0"]

    assert (after == before / factors).all()


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"general.architecture": "rwkv6"}, "'rwkv6' is a model with states in place of attention"),
        ({"general.architecture": "qwen3moe"}, "the architecture 'qwen3moe' is not read"),
        ({"llama.expert_count": 8}, "mixtures of experts"),
        ({"tokenizer.ggml.pre": "tekken"}, "cuts texts as 'tekken'"),
        ({"tokenizer.ggml.model": "bert"}, "a tokenizer of the kind 'bert'"),
        ({"split.count": 3}, "is one of 3 parts"),
    ],
)
def test_what_is_not_read_is_named(tmp_path: Path, metadata: dict[str, Any], said: str) -> None:
    file = gguf_files.write_gguf(tmp_path / "file.gguf", metadata=metadata)

    with pytest.raises(UnsupportedModel) as caught:
        convert(file, tmp_path / "out.bundle")

    assert said in str(caught.value)
    assert caught.value.hint
    assert not (tmp_path / "out.bundle").exists()
