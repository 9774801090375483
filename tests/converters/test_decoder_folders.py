"""Hugging Face folders of models that generate text become bundles whose weights mean what the model computes."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from edge_infer import Bundle
from edge_infer.errors import ConversionError, InputError, UnsupportedModel
from edge_infer.generation.decoder import Decoder
from edge_infer.tensors.dtypes import DType
from edge_infer_converters import convert
from edge_infer_converters.conversion import DecoderConversion
from edge_infer_converters.sources.decoder.describe import describe
from edge_infer_converters.sources.decoder.shards import Shards
from edge_infer_converters.sources.decoder.tensors import source_tensors
from tests.support.generation import hub_folders, transformers_folders
from tests.support.generation.oracle import Oracle
from tests.support.generation.record_family_logits import ROWS, STEP
from tests.support.generation.weights import read_floats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).parents[2]
RECORDED: dict[str, Any] = json.loads((ROOT / "tests/support/generation/family_logits.json").read_text())
TOKENS: list[int] = RECORDED["tokens"]


def converted(folder: Path, **options: Any) -> DecoderConversion:
    result = convert(folder, folder.with_suffix(".bundle"), **options)
    assert isinstance(result, DecoderConversion)
    return result


def logits(result: DecoderConversion, precision: str) -> np.ndarray:
    config, tensors = read_floats(result.path / f"decoder/model_{precision}.safetensors")
    return np.asarray(Oracle(config, tensors).logits(TOKENS))


def kernel_logits(result: DecoderConversion, precision: str) -> np.ndarray:
    decoder = Decoder.open(result.path / f"decoder/model_{precision}.safetensors")
    places = list(range(len(TOKENS)))
    try:
        decoder.run(TOKENS[:10], [0] * 10, places[:10], places[:10])
        first = [np.array(decoder.logits(row)) for row in places[:10]]
        decoder.run(TOKENS[10:], [0] * 6, places[10:], places[:6])
        return np.array([*first, *(np.array(decoder.logits(row)) for row in places[:6])])
    finally:
        decoder.close()


def decibels(reference: np.ndarray, got: np.ndarray) -> float:
    return float(10 * np.log10((reference**2).sum() / ((reference - got) ** 2).sum()))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], DecoderConversion]:
    """Return the bundle of a family in all precisions; each is made once."""

    @cache
    def make(family: str) -> DecoderConversion:
        folder = hub_folders.write_folder(tmp_path_factory.mktemp("hub") / family, family)
        return converted(folder, precision="fp32,fp16,int8,int4")

    return make


@pytest.mark.parametrize("family", hub_folders.CONFIGS)
def test_a_bundle_means_what_transformers_computes(made: Callable[[str], DecoderConversion], family: str) -> None:
    result = made(family)

    exact = logits(result, "fp32")
    assert np.abs(exact[-ROWS:, ::STEP] - np.array(RECORDED[family])).max() < 1e-5 * exact.std()
    assert decibels(exact, logits(result, "fp16")) > 50
    assert decibels(exact, logits(result, "int8")) > 25
    assert decibels(exact, logits(result, "int4")) > 5


@pytest.mark.parametrize("family", hub_folders.CONFIGS)
def test_the_kernels_compute_what_the_weights_mean(made: Callable[[str], DecoderConversion], family: str) -> None:
    result = made(family)

    # Blocks of integers are multiplied with inputs that are rounded to 8 bits.
    for precision, least in {"fp32": 100, "fp16": 100, "int8": 30, "int4": 30}.items():
        assert decibels(logits(result, precision), kernel_logits(result, precision)) > least
    exact = kernel_logits(result, "fp32")
    assert np.abs(exact[-ROWS:, ::STEP] - np.array(RECORDED[family])).max() < 1e-4 * exact.std()


@pytest.mark.long
@pytest.mark.parametrize("case", transformers_folders.CASES)
def test_logits_are_those_of_transformers(case: str, transformers_models: Path) -> None:
    folder = transformers_models / case
    described = describe(json.loads((folder / "config.json").read_text()))
    recorded = np.load(transformers_models / f"{case}.npz")
    with Shards(folder) as shards:
        tensors = {one.name: one.rows(0, one.shape[0]) for one in source_tensors(described, shards.tensors)}
    tensors |= {f"rope.{kind}": one for kind, one in described.rotations.items()}
    oracle = Oracle(described.config, tensors)

    for tokens, expected in zip(recorded["tokens"], recorded["logits"], strict=True):
        oracle.reset()
        got = [oracle.step(tokens[:16]), *(oracle.step([one]) for one in tokens[16:])]
        assert np.abs(np.concatenate(got) - expected).max() < 1e-5 * expected.std()


@pytest.fixture(scope="module")
def transformers_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return folders that transformers wrote, with its logits; it lies apart from the packages of the tests."""
    folder = tmp_path_factory.mktemp("transformers")
    command = [sys.executable, str(transformers_folders.__file__), str(folder)]
    where = {"PYTHONPATH": str(ROOT / ".bench/transformers"), "PATH": "", "HOME": str(folder)}
    subprocess.run(command, env=where, check=True, capture_output=True)
    return folder


def test_the_bundle_says_what_generates(tmp_path: Path) -> None:
    folder = hub_folders.write_folder(tmp_path / "tiny")

    result = converted(folder, name="my-model", version="3")

    bundle = Bundle.open(result.path)
    assert [one.id for one in bundle.manifest.variants] == ["decoder/int4", "decoder/int8"]
    assert (bundle.manifest.name, bundle.manifest.version, bundle.manifest.task) == ("my-model", "3", "text-generation")
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
        "defaults": {"temperature": 0.7, "top_p": 0.9, "top_k": 40},
        "vectors": "generation_vectors.json",
    }
    assert bundle.read("chat_template.jinja").decode() == hub_folders.TEMPLATE
    assert bundle.read("tokenizer.json") == (folder / "tokenizer.json").read_bytes()


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    folder = hub_folders.write_folder(tmp_path / "tiny")

    first = convert(folder, tmp_path / "one.bundle").revision

    assert convert(folder, tmp_path / "two.bundle").revision == first


def test_shards_in_bfloat16_are_read_as_one_file(tmp_path: Path) -> None:
    folder = hub_folders.write_folder(tmp_path / "shards", dtype=DType.BFLOAT16, shards=3)
    rounded = {
        name: (np.ascontiguousarray(one).view(np.uint32) & 0xFFFF0000).view(np.float32)
        for name, one in hub_folders.weights("llama").items()
    }
    whole = hub_folders.write_folder(tmp_path / "whole", tensors=rounded)

    one, other = converted(folder, precision="fp32"), converted(whole, precision="fp32")

    file = "decoder/model_fp32.safetensors"
    assert (one.path / file).read_bytes() == (other.path / file).read_bytes()


def test_halves_are_read(tmp_path: Path) -> None:
    folder = hub_folders.write_folder(tmp_path / "half", dtype=DType.FLOAT16)

    _, tensors = read_floats(converted(folder, precision="fp16").path / "decoder/model_fp16.safetensors")

    expected = hub_folders.weights("llama")["lm_head.weight"].astype(np.float16)
    assert (tensors["head"] == expected).all()


def test_columns_that_blocks_do_not_divide_stay_float16(tmp_path: Path) -> None:
    changes = {"hidden_size": 64, "intermediate_size": 100}
    shapes = {"mlp.gate_proj": (100, 64), "mlp.up_proj": (100, 64), "mlp.down_proj": (64, 100)}
    tensors = hub_folders.weights("llama")
    for name, one in tensors.items():
        part = next((shape for key, shape in shapes.items() if key in name), one.shape)
        tensors[name] = np.resize(one, part)
    folder = hub_folders.write_folder(tmp_path / "odd", changes=changes, tensors=tensors)

    _, found = read_floats(converted(folder, precision="int4").path / "decoder/model_int4.safetensors")

    expected = tensors["model.layers.1.mlp.down_proj.weight"]
    assert (found["layers.1.down.weight"] == expected.astype(np.float16)).all()
    assert decibels(tensors["model.layers.1.self_attn.o_proj.weight"], found["layers.1.attention_output.weight"]) < 40


def test_a_model_of_images_and_text_gives_its_text_model(tmp_path: Path) -> None:
    tensors: dict[str, np.ndarray] = {
        f"language_model.{name}": one for name, one in hub_folders.weights("gemma3_text").items()
    }
    tensors["vision_tower.patches.weight"] = np.ones((3, 3), np.float32)
    outer = {
        "model_type": "gemma3",
        "architectures": ["Gemma3ForConditionalGeneration"],
        "text_config": {**hub_folders.CONFIGS["gemma3_text"]},
        "eos_token_id": [1, 106],
    }
    folder = hub_folders.write_folder(tmp_path / "images", "gemma3_text", changes=outer, tensors=tensors)

    exact = logits(converted(folder, precision="fp32"), "fp32")

    assert np.abs(exact[-ROWS:, ::STEP] - np.array(RECORDED["gemma3_text"])).max() < 1e-5 * exact.std()


def test_a_special_token_without_weights_is_told_and_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = hub_folders.write_folder(tmp_path / "images")
    document = hub_folders.tokenizer()
    flags = {**document["added_tokens"][0], "content": "<image>", "id": hub_folders.VOCABULARY}
    document["added_tokens"].append(flags)
    (folder / "tokenizer.json").write_text(json.dumps(document))

    converted(folder)

    assert "no weights for the special tokens `<image>`" in caplog.text


@pytest.mark.parametrize(
    ("family", "changes", "window", "caps"),
    [
        ("mistral", {"sliding_window": ..., "max_position_embeddings": 8192}, 4096, (0.0, 0.0)),
        ("mistral", {"sliding_window": None}, 0, (0.0, 0.0)),
        ("gemma2", {}, 8, (50.0, 30.0)),
        ("gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None}, 8, (0.0, 0.0)),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 8}, 0, (0.0, 0.0)),
    ],
)
def test_null_is_none_and_a_missing_field_the_familys_own(
    family: str, changes: dict[str, Any], window: int, caps: tuple[float, float]
) -> None:
    document = {name: value for name, value in {**hub_folders.CONFIGS[family], **changes}.items() if value is not ...}

    config = describe(document).config

    assert (config.sliding_window, (config.attention_softcap, config.final_softcap)) == (window, caps)


def test_a_context_beyond_the_kernels_is_cut_and_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = hub_folders.write_folder(tmp_path / "long", changes={"max_position_embeddings": 2**21})

    result = converted(folder, precision="int8")

    assert "The context is 1048576 tokens, the most that the kernels take" in caplog.text
    definition = Bundle.open(result.path).manifest.generate
    assert definition is not None
    assert (definition["context"], definition["vectors"]) == (2**20, "generation_vectors.json")


REFUSED: dict[str, tuple[Mapping[str, Any], str]] = {
    "mixtral": ({"model_type": "mixtral"}, "`mixtral` is a mixture of experts"),
    "experts": ({"num_local_experts": 8}, "mixtures of experts are not supported"),
    "typing-error": ({"model_type": "lama"}, "`llama` is the nearest that is read"),
    "pythia": ({"model_type": "gpt_neox"}, "with a norm each, which is not supported"),
    "falcon": ({"model_type": "falcon"}, "keys in a layout of its own"),
    "gemma 3 with caps of scores": (
        {"model_type": "gemma3_text", "attn_logit_softcapping": 50.0},
        "a cap of the scores, which a `gemma3_text` does not have",
    ),
    "caps of logits": ({"final_logit_softcapping": 30.0}, "a cap of the logits, which a `llama` does not have"),
    "rotation": ({"rope_scaling": {"rope_type": "mrope", "factor": 2.0}}, "positions of the type `mrope`"),
    "part of a head": ({"partial_rotary_factor": 0.5}, "which a `llama` does not have"),
    "part by layer": (
        {"rope_parameters": {"full_attention": {"partial_rotary_factor": 0.5}}},
        "which a `llama` does not have",
    ),
    "quantized": ({"quantization_config": {"quant_method": "gptq"}}, "quantized by gptq already"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_supported_is_refused_by_name(tmp_path: Path, case: str) -> None:
    changes, said = REFUSED[case]
    folder = hub_folders.write_folder(tmp_path / "other", changes=changes)

    with pytest.raises(UnsupportedModel) as caught:
        convert(folder, tmp_path / "out.bundle")

    assert said in str(caught.value)
    assert not (tmp_path / "out.bundle").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"evaluation": "data.npz"}, "without --eval"),
        ({"min_sqnr": 20.0}, "without --max-loss, --min-sqnr"),
        ({"max_loss": "1%"}, "needs a text"),
        ({"precision": "mixed"}, "within a budget"),
        ({"calibration": "nothing.txt"}, "cannot be read"),
        ({"labels": "labels.txt", "format": "onnx"}, "without --labels and --format"),
        ({"target": "pi"}, "without --target"),
        ({"precision": "int8-dynamic"}, "no precision `int8-dynamic`"),
        ({"task": "fill-mask"}, "without --task"),
    ],
)
def test_options_that_do_not_apply_are_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    folder = hub_folders.write_folder(tmp_path / "tiny")

    with pytest.raises(InputError, match=said):
        convert(folder, tmp_path / "out.bundle", **options)


def test_a_classifier_is_no_decoder(tmp_path: Path) -> None:
    folder = hub_folders.write_folder(tmp_path / "class", changes={"architectures": ["LlamaForSequenceClassification"]})

    with pytest.raises(Exception, match=r"has no onnx/model\.onnx"):
        convert(folder, tmp_path / "out.bundle")


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    folder = hub_folders.write_folder(tmp_path / "pickle")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")

    with pytest.raises(UnsupportedModel, match="pickled weights"):
        convert(folder, tmp_path / "out.bundle")


def test_a_weight_that_float16_cannot_hold_is_refused(tmp_path: Path) -> None:
    tensors = hub_folders.weights("llama")
    tensors["lm_head.weight"][5, 5] = 1e9
    folder = hub_folders.write_folder(tmp_path / "large", tensors=tensors)

    with pytest.raises(ConversionError, match=r"A weight is 1e\+09"):
        convert(folder, tmp_path / "out.bundle")
    assert converted(folder, precision="fp32").decoders[0].sqnr_db == np.inf


@pytest.mark.parametrize("has_template", [True, False])
def test_the_command_that_is_named_next_works(tmp_path: Path, has_template: bool) -> None:
    """`chat` needs a template; a model without one goes on from a text."""
    folder = hub_folders.write_folder(tmp_path / "small")
    if not has_template:
        (folder / "tokenizer_config.json").write_text('{"bos_token": "<s>", "eos_token": "</s>"}')
    program, bundle = [sys.executable, "-m", "edge_infer"], str(tmp_path / "small.bundle")

    done = subprocess.run(
        [*program, "convert", folder, "-o", bundle, "--precision", "int8"], capture_output=True, text=True, check=True
    )
    words = shlex.split(done.stderr.splitlines()[-1].rpartition("; edge-infer ")[2])
    said = subprocess.run(
        [*program, *words, "--max-tokens", "2"], input="a b\n", capture_output=True, text=True, check=False
    )

    assert words[:2] == ["chat" if has_template else "generate", bundle]
    assert said.returncode == 0, said.stderr


def test_a_conversion_loads_no_engine_and_no_onnx(tmp_path: Path) -> None:
    """They take 40 MB, a fifth of the weights of a small model."""
    folder = hub_folders.write_folder(tmp_path / "tiny")
    code = """
import sys
from edge_infer_converters.cli import convert
convert(sys.argv[1:], standalone_mode=False)
print([one for one in ("onnx", "onnxruntime", "ai_edge_litert", "google.protobuf") if one in sys.modules])
"""
    command = [sys.executable, "-c", code, str(folder), "-o", str(tmp_path / "out.bundle")]

    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"
