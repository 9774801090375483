"""Folders of models that generate text, damaged or made to harm: one clear line that names the place, and no bundle."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_infer.cli import main_here
from edge_infer.errors import EdgeInferError
from edge_infer_converters import convert
from edge_infer_converters.sources.decoder.describe import describe
from tests.support.generation import hub_folders

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def refused(folder: Path) -> str:
    """Convert a folder that must be refused, and return what is said."""
    output = folder.with_suffix(".bundle")
    with pytest.raises(EdgeInferError) as caught:
        convert(folder, output)
    assert not output.exists()
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name]  # nothing half-written
    assert "\n" not in caught.value.message
    return str(caught.value)


#: By case changes of `config.json`, and what must be said.
CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "negative-layers": ({"num_hidden_layers": -3}, "`num_hidden_layers` is -3, expected a whole number from 1 to 1024"),
    "many-layers": ({"num_hidden_layers": 2**31}, "`num_hidden_layers` is 2147483648"),
    "one-layer-too-many": ({"num_hidden_layers": 3}, "have no `model.layers.2.input_layernorm.weight`"),
    "one-layer-too-few": ({"num_hidden_layers": 1}, "the family `llama` does not have"),
    "no-width": ({"hidden_size": ...}, "`hidden_size` is missing"),
    "huge-width": ({"hidden_size": 2**31}, "`hidden_size` is 2147483648"),
    "other-width": ({"hidden_size": 128}, "[320, 64], expected [320, 128]"),
    "width-of-text": ({"hidden_size": "64"}, "`hidden_size` is '64'"),
    "width-of-truth": ({"hidden_size": True}, "`hidden_size` is True"),
    "odd-heads": ({"num_attention_heads": 5}, "`num_attention_heads` is 5, expected a divisor of the 64 values"),
    "no-heads": ({"num_attention_heads": 0}, "`num_attention_heads` is 0"),
    "more-keys-than-heads": ({"num_key_value_heads": 8}, "`num_key_value_heads` is 8"),
    "odd-keys": ({"num_key_value_heads": 3}, "`num_key_value_heads` is 3, expected a divisor of the 4 heads"),
    "no-context": ({"max_position_embeddings": 0}, "`max_position_embeddings` is 0"),
    "context-of-text": ({"max_position_embeddings": "long"}, "`max_position_embeddings` is 'long'"),
    "huge-vocabulary": ({"vocab_size": 2**40}, "`vocab_size` is 1099511627776"),
    "other-vocabulary": ({"vocab_size": 400}, "[320, 64], expected [400, 64]"),
    "small-vocabulary": ({"vocab_size": 100}, "has a token 319, and the model 100 tokens"),
    "activation": ({"hidden_act": "softsign"}, "`hidden_act` is 'softsign', expected one of silu"),
    "activation-list": ({"hidden_act": ["silu"]}, "`hidden_act` is ['silu']"),
    "many-queries": (
        {"num_attention_heads": 1024, "head_dim": 1024, "num_key_value_heads": 1},
        "`num_attention_heads` is 1024, expected at most 256 heads of 1024 values",
    ),
    "scale-no-float": ({"attention_multiplier": 1e300}, "`attention_scale` would be 1e+300, which is no float32"),
    "cap-no-float": (
        {"model_type": "gemma2", "final_logit_softcapping": 1e300},
        "`final_softcap` would be 1e+300",
    ),
    "cap-of-another-family": ({"final_logit_softcapping": 30.0}, "asks for a cap of the logits"),
    "scale-of-yarn": (
        {"rope_scaling": {"type": "yarn", "factor": 4.0, "attention_factor": 1e30}},
        "`attention_scale` would be",
    ),
    "theta-of-one": ({"rope_theta": 1.0, "rope_scaling": {"type": "yarn", "factor": 4.0}}, "`rope_theta` is 1.0"),
    "theta-no-float": ({"rope_theta": 1e308}, "`rope_theta` is 1e+308"),
    "epsilon": ({"rms_norm_eps": -1}, "`rms_norm_eps` is -1"),
    "epsilon-nan": ({"rms_norm_eps": float("nan")}, "`rms_norm_eps` is nan"),
    "theta": ({"rope_theta": 0}, "`rope_theta` is 0"),
    "theta-infinite": ({"rope_theta": float("inf")}, "`rope_theta` is inf"),
    "rope-list": ({"rope_scaling": [1]}, "`rope_scaling` is [1], expected an object"),
    "rope-factor": ({"rope_scaling": {"type": "linear", "factor": 0}}, "`factor` is 0"),
    "rope-no-factor": ({"rope_scaling": {"rope_type": "llama3"}}, "`factor` is missing"),
    "rope-type": ({"rope_scaling": {"rope_type": {"a": 1}}}, "positions of the type"),
    "long-factors": (
        {"rope_scaling": {"rope_type": "longrope", "short_factor": [1], "original_max_position_embeddings": 64}},
        "`short_factor` is [1], expected 8 numbers above 0",
    ),
    "layer-types": ({"layer_types": ["chunked_attention"] * 2}, "`layer_types` is 'chunked_attention'"),
    "few-layer-types": ({"layer_types": ["full_attention"]}, "for each of 2 layers"),
    "window": ({"model_type": "mistral", "sliding_window": -1}, "`sliding_window` is -1"),
    "branches": ({"model_type": "granite", "residual_multiplier": "a"}, "`residual_multiplier` is 'a'"),
    "window-pattern": ({"model_type": "gemma2", "sliding_window_pattern": 0}, "`sliding_window_pattern` is 0"),
    "type-list": ({"model_type": ["llama"]}, "config.json has the model_type ['llama']"),
    "no-type": ({"model_type": ...}, "config.json has the model_type None"),
    "end-outside": ({"eos_token_id": 320}, ""),
    "tied-of-text": ({"tie_word_embeddings": "yes"}, "`tie_word_embeddings` is 'yes', expected true or false"),
}


@pytest.mark.parametrize("case", [name for name in CONFIGS if name != "end-outside"])
def test_a_wrong_configuration_is_refused_by_its_field(tmp_path: Path, case: str) -> None:
    changes, said = CONFIGS[case]

    assert said in refused(hub_folders.write_folder(tmp_path / "evil", changes=changes))


def replaced(name: str, value: bytes) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        (folder / name).write_bytes(value)

    return run


def edited(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        document = json.loads((folder / name).read_text())
        change(document)
        (folder / name).write_text(json.dumps(document))

    return run


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def cut(name: str, size: int) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:size])

    return run


WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
#: By case what is done to the files, and what must be said.
FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "empty-weights": (replaced(WEIGHTS, b""), "model.safetensors` cannot be read"),
    "cut-header": (cut(WEIGHTS, 100), "Not a safetensors file"),
    "cut-weights": (cut(WEIGHTS, 200_000), "the tensors take"),
    "text-weights": (replaced(WEIGHTS, b"version https://git-lfs.github.com/spec/v1\n" * 3), "Not a safetensors file"),
    "no-weights": (removed(WEIGHTS), "has no model.safetensors"),
    "no-tokenizer": (removed("tokenizer.json"), "has no tokenizer.json"),
    "cut-tokenizer": (cut("tokenizer.json", 500), "tokenizer.json"),
    "foreign-tokenizer": (
        edited("tokenizer.json", lambda one: one["model"]["vocab"].update({"zz": 5000})),
        "has a token 5000, and the model 320 tokens",
    ),
    "page-instead-of-config": (replaced("config.json", b"<html>404</html>"), "config.json` is not JSON"),
    "list-instead-of-config": (replaced("config.json", b"[1, 2]"), "holds list, expected a JSON object"),
    "nested-config": (replaced("config.json", b'{"a":' * 100_000), "config.json` is not JSON"),
    "end-outside": (
        edited("generation_config.json", lambda one: one.update(eos_token_id=[2, 320])),
        "`eos_token_id` is 320, expected a number below the 320 tokens",
    ),
    "end-of-text": (
        edited("generation_config.json", lambda one: one.update(eos_token_id="</s>")),
        "`eos_token_id` is '</s>'",
    ),
    "binary-template": (replaced("chat_template.jinja", b"\xff\xfe"), "is not UTF-8"),
    "large-template": (replaced("chat_template.jinja", b"a" * (2**20 + 1)), "has more than 1048576 bytes"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_damaged_file_is_named(tmp_path: Path, case: str) -> None:
    harm, said = FILES[case]
    folder = hub_folders.write_folder(tmp_path / "evil")
    harm(folder)

    assert said in refused(folder)


SHARDS: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing-shard": (
        removed("model-00002-of-00003.safetensors"),
        "model-00002-of-00003.safetensors` is missing: model.safetensors.index.json names it",
    ),
    "cut-shard": (
        cut("model-00003-of-00003.safetensors", 5000),
        "model-00003-of-00003.safetensors`: Not a safetensors",
    ),
    "no-index": (removed(INDEX), "3 files of weights"),
    "lost-tensor": (
        edited(INDEX, lambda one: one["weight_map"].update({"lm_head.bias": "model-00001-of-00003.safetensors"})),
        "lacks the tensor `lm_head.bias`",
    ),
    "outside": (
        edited(INDEX, lambda one: one["weight_map"].update({"lm_head.weight": "../../etc/passwd.safetensors"})),
        "`weight_map` is not an object of file names",
    ),
    "numbers": (edited(INDEX, lambda one: one.update(weight_map={"a": 1})), "`weight_map` is not an object"),
    "empty": (edited(INDEX, lambda one: one.update(weight_map={})), "`weight_map` is not an object"),
}


@pytest.mark.parametrize("case", SHARDS)
def test_a_wrong_shard_is_named(tmp_path: Path, case: str) -> None:
    harm, said = SHARDS[case]
    folder = hub_folders.write_folder(tmp_path / "evil", shards=3)
    harm(folder)

    assert said in refused(folder)


#: By case a tensor to replace, or to remove, and what must be said.
TENSORS: dict[str, tuple[str, np.ndarray | None, str]] = {
    "no-head": ("lm_head.weight", None, "have no `lm_head.weight`"),
    "no-embedding": ("model.embed_tokens.weight", None, "have no `model.embed_tokens.weight`"),
    "short": ("model.norm.weight", np.ones(63, np.float32), "[63], expected [64]"),
    "turned": ("model.layers.0.mlp.down_proj.weight", np.ones((96, 64), np.float32), "[96, 64], expected [64, 96]"),
    "scalar": ("model.norm.weight", np.ones((), np.float32), "[], expected [64]"),
    "nan": (
        "model.layers.1.mlp.up_proj.weight",
        np.full((96, 64), np.nan, np.float32),
        "layers.1.up.weight` holds NaN",
    ),
    "infinite": ("lm_head.weight", np.full((320, 64), np.inf, np.float32), "`head` holds NaN or infinite"),
    "lone-bias": (
        "model.layers.0.self_attn.q_proj.bias",
        np.ones(64, np.float32),
        "no `model.layers.0.self_attn.k_proj.b",
    ),
    "unknown": (
        "model.layers.0.self_attn.sinks",
        np.ones(4, np.float32),
        "`model.layers.0.self_attn.sinks` and 0 more",
    ),
}


@pytest.mark.parametrize("case", TENSORS)
def test_a_wrong_tensor_is_named(tmp_path: Path, case: str) -> None:
    name, value, said = TENSORS[case]
    tensors = {key: one for key, one in hub_folders.weights("llama").items() if key != name}
    if value is not None:
        tensors[name] = value

    assert said in refused(hub_folders.write_folder(tmp_path / "evil", tensors=tensors))


def test_the_command_says_it_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = hub_folders.write_folder(tmp_path / "evil", changes={"model_type": "mixtral"})
    monkeypatch.setattr(sys, "argv", ["edge-infer", "convert", str(folder), "-o", str(tmp_path / "out.bundle")])

    with pytest.raises(SystemExit) as ended:
        main_here()

    assert ended.value.code == 1
    first, second = capsys.readouterr().err.splitlines()
    assert "Model type `mixtral` is a mixture of experts" in first
    assert second == "hint: take a model of the type mistral"


ANYTHING: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = sorted({name for config in hub_folders.CONFIGS.values() for name in config} | {"rope_scaling", "layer_types"})


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(hub_folders.CONFIGS)), st.dictionaries(st.sampled_from(FIELDS), ANYTHING, max_size=3))
def test_any_configuration_is_read_or_refused(family: str, changes: dict[str, Any]) -> None:
    try:
        described = describe({**hub_folders.CONFIGS[family], **changes})
    except EdgeInferError as error:
        assert error.message
    else:
        assert len(described.config.layer_kinds) == described.config.layers
