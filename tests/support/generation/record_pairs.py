"""Record what transformers answers with the models of `pair_folders`, in `pair_answers.json`.

    PYTHONPATH=.:.bench/transformers python tests/support/generation/record_pairs.py OUT.json

Windows that times cut are recorded only where times are asked for: transformers cuts others too.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.generation import pair_folders

TEXTS = ["the thing and another", "an answer: 12345", "r" * 400]
#: By case the seconds of sound and the options of `generate`, which leaves the task out where nobody names it.
SOUNDS: dict[str, tuple[float, dict[str, Any]]] = {
    "plain": (0.7, {"task": "transcribe"}),
    "german": (1.0, {"language": "de", "task": "translate"}),
    "times": (1.0, {"return_timestamps": True, "task": "transcribe"}),
    "times-of-a-short-sound": (0.4, {"return_timestamps": True, "language": "fr", "task": "transcribe"}),
    "long": (3.3, {"return_timestamps": True, "task": "transcribe"}),
}
STEPS = 20
#: Of the logits, how many of the last rows, and each which column.
ROWS, COLUMNS = 3, 8


def sound(seconds: float) -> np.ndarray:
    """Return a rising tone with noise, float32 at 16 kHz."""
    at = np.arange(int(16000 * seconds)) / 16000
    noise = np.random.default_rng(5).standard_normal(len(at)) * 0.05
    return (np.sin(2 * np.pi * (200 + 150 * at) * at) * 0.4 + noise).astype(np.float32)


def steps(vocabulary: int) -> list[int]:
    """Return tokens whose logits are compared."""
    return [int(one) for one in np.random.default_rng(1).integers(3, vocabulary - 60, STEPS)]


def main(output: Path) -> None:
    """Write the answers of each model, and some of its logits."""
    import torch
    import transformers

    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in pair_folders.CONFIGS:
            record = _whisper if kind.startswith("whisper") else _t5
            found[kind] = record(torch, transformers, pair_folders.write_pair(Path(folder, kind), kind))
    output.write_text(json.dumps(found, separators=(",", ":")).replace('},"', '},\n"') + "\n")


def _whisper(torch: Any, transformers: Any, place: Path) -> dict[str, Any]:
    model = transformers.WhisperForConditionalGeneration.from_pretrained(place, attn_implementation="eager").eval()
    features = transformers.WhisperFeatureExtractor.from_pretrained(place)
    answers: dict[str, Any] = {}
    for case, (seconds, options) in SOUNDS.items():
        if place.name == "whisper-times" and "return_timestamps" not in options:
            continue
        is_long = seconds > 1
        given = features(
            sound(seconds), sampling_rate=16000, return_tensors="pt", truncation=False, return_attention_mask=True,
            padding="longest" if is_long else "max_length",
        )  # fmt: skip
        with torch.no_grad():
            answer = model.generate(
                given.input_features, attention_mask=given.attention_mask if is_long else None, return_segments=True,
                **options,
            )  # fmt: skip
        segments = answer["segments"][0] if isinstance(answer, dict) else []
        answers[case] = [[float(one["start"]), float(one["end"]), one["tokens"].tolist()] for one in segments]
    tokens = steps(model.config.vocab_size)
    window = features(sound(1.0), sampling_rate=16000, return_tensors="pt").input_features
    with torch.no_grad():
        logits = model(input_features=window, decoder_input_ids=torch.tensor([tokens])).logits[0]
    return {"answers": answers, "logits": _some(logits)}


def _t5(torch: Any, transformers: Any, place: Path) -> dict[str, Any]:
    import tokenizers

    model = transformers.T5ForConditionalGeneration.from_pretrained(place, attn_implementation="eager").eval()
    tokenizer = tokenizers.Tokenizer.from_file(str(place / "tokenizer.json"))
    answers = {}
    for text in TEXTS:
        ids = torch.tensor([tokenizer.encode(text).ids])
        with torch.no_grad():
            answers[text] = model.generate(ids, max_new_tokens=24, do_sample=False, num_beams=1)[0].tolist()
    tokens = steps(model.config.vocab_size)
    ids = torch.tensor([tokenizer.encode(TEXTS[-1]).ids])
    with torch.no_grad():
        logits = model(input_ids=ids, decoder_input_ids=torch.tensor([tokens])).logits[0]
    return {"answers": answers, "logits": _some(logits)}


def _some(logits: Any) -> list[list[float]]:
    return [[float(f"{one:.8g}") for one in row] for row in logits.numpy()[-ROWS:, ::COLUMNS].tolist()]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
