"""The steps of transformers' feature extractors of sound, from `preprocessor_config.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.errors import UnsupportedError, listed

if TYPE_CHECKING:
    from edge_infer.tasks.sources.fields import Fields
    from edge_infer.tensors.tensor import TensorSpec

    StepJson = dict[str, Any]

_KNOWN = ("ASTFeatureExtractor", "Wav2Vec2FeatureExtractor", "WhisperFeatureExtractor")


def sound_steps(config: Fields, spec: TensorSpec) -> list[StepJson]:
    """Return the steps that make an input of a sound, as the feature extractor's class does.

    Args:
        config: preprocessor_config.json.
        spec: The model's input.

    Raises:
        UnsupportedError: The class is another one.
    """
    name = config.text("feature_extractor_type")
    if name not in _KNOWN:
        raise UnsupportedError(
            f"the feature extractor `{name}` is not supported; supported are {listed(list(_KNOWN))}",
            hint="say what the steps are: --preprocess FILE.json",
        )
    rate = config.whole("sampling_rate") or 16_000
    steps: list[StepJson] = [{"step": "audio.decode", "rate": rate}, {"step": "audio.resample", "rate": rate}]
    if name == "ASTFeatureExtractor":
        return steps + _fbank(config, rate)
    if name == "WhisperFeatureExtractor":
        return steps + _whisper(config, rate)
    if spec.shape and isinstance(spec.shape[-1], int):
        steps.append({"step": "audio.fit", "samples": spec.shape[-1]})
    method = "mean_variance" if config.flag("do_normalize", True) else "none"
    return [*steps, {"step": "audio.normalize", "method": method}]


def _fbank(config: Fields, rate: int) -> list[StepJson]:
    """Kaldi's features, as `ASTFeatureExtractor` makes them; the defaults are its own, of AudioSet."""
    steps: list[StepJson] = [
        {
            "step": "audio.log_mel",
            "rate": rate,
            "frame": 400,
            "fft": 512,
            "hop": 160,
            "mels": config.whole("num_mel_bins", 128),
            "low_hz": 20.0,
            "scale": "htk",
            "slopes": "mel",
            "area_norm": False,
            "center": False,
            "window": "hann_symmetric",
            "remove_mean": True,
            "preemphasis": 0.97,
            "log": "ln",
            "floor": 2.0**-23,
        },
        {"step": "tensor.fit", "rows": config.whole("max_length", 1024)},
    ]
    if config.flag("do_normalize", True):
        mean, std = config.real("mean", -4.2677393), config.real("std", 4.5689974)
        steps.append({"step": "tensor.normalize", "mean": mean, "std": 2 * std})
    return steps


def _whisper(config: Fields, rate: int) -> list[StepJson]:
    return [
        {"step": "audio.fit", "samples": (config.whole("chunk_length") or 30) * rate},
        {
            "step": "audio.log_mel",
            "rate": rate,
            "fft": config.whole("n_fft", 400),
            "hop": config.whole("hop_length", 160),
            "mels": config.whole("feature_size", 80),
            # `high_hz` of transformers' filters is 8000, whatever the rate.
            "high_hz": 8000.0,
            "style": "whisper",
            "axes": "mels_first",
        },
    ]
