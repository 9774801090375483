"""What a folder of Whisper says of sounds and tokens: the field `speech` of the manifest's `generate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.errors import ConversionError
from edge_infer_converters.sources.decoder.fields import Fields
from edge_infer_converters.sources.decoder.files import optional_object

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edge_infer.tasks.text.tokenizer import Tokenizer

_FEATURES = {"sampling_rate": 16_000, "feature_size": 80, "n_fft": 400, "hop_length": 160, "chunk_length": 30}
_ADVICE = "generation_config.json"


def speech_fields(folder: Path, document: Mapping[str, Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """Read `preprocessor_config.json` and `generation_config.json`.

    Raises:
        ConversionError: A field is wrong, or the parts do not fit together.
    """
    said = optional_object(folder / "preprocessor_config.json")
    mels, positions = Fields(document).size("num_mel_bins", 512), int(document.get("max_source_positions") or 1500)
    features = Fields(said, {**_FEATURES, "feature_size": mels}, where="preprocessor_config.json")
    rate, hop = features.size("sampling_rate", 768_000), features.size("hop_length", 65_536)
    samples = features.size("chunk_length", 3600) * rate
    if features.size("feature_size", 512) != mels:
        raise features.wrong("feature_size", features.get("feature_size"), f"the {mels} bands of config.json")
    if samples // hop != 2 * positions:
        raise ConversionError(
            f"preprocessor_config.json: a window has {samples // hop} frames, expected {2 * positions}: twice the "
            "`max_source_positions` of config.json",
            hint="the two files are of different models",
        )
    advice = optional_object(folder / _ADVICE)
    last = advice.get("no_timestamps_token_id")
    if last is None:
        last = tokenizer.token_to_id("<|notimestamps|>")
    if last is None:
        raise ConversionError(f"{_ADVICE} has no `no_timestamps_token_id`", hint=f"download {_ADVICE} too")
    found: dict[str, Any] = {
        "rate": rate,
        "mels": mels,
        "fft": features.size("n_fft", 16_384, 2),
        "hop": hop,
        "samples": samples,
        "positions": positions,
        "no_timestamps": last,
    }
    languages, tasks = (_object(advice, name) for name in ("lang_to_id", "task_to_id"))
    if advice.get("is_multilingual") is not False and languages:
        found["languages"] = {name.strip("<|>"): token for name, token in languages.items()}
        found["tasks"] = tasks
    for name, field in (("suppress", "suppress_tokens"), ("begin_suppress", "begin_suppress_tokens")):
        tokens = advice.get(field) or document.get(field)
        if tokens:
            found[name] = tokens
    if advice.get("max_initial_timestamp_index") is not None:
        found["max_initial_timestamp"] = advice["max_initial_timestamp_index"]
    return found


def _object(advice: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = advice.get(name) or {}
    if not isinstance(value, dict):
        raise ConversionError(f"{_ADVICE}: `{name}` is {value!r}, expected an object", field=name)
    return value
