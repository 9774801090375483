"""Train the melody spotter of this folder: which of three melodies is in a second of sound.

    python examples/melodies/train.py [FOLDER]

Writes `melodies.onnx`, `labels.json`, `pipeline.json`, `calibration.npz`, `eval.npz`, `up.wav` and `trill.wav`. The
sounds and the net are those of examples/11_keyword_spotting.py; the features are the step `audio.log_mel`, so that the
bundle takes plain sounds.

Needs: pip install 'edge-infer[onnxruntime]' torch onnx
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import warnings
import wave
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).parent
LOG_MEL = {
    "step": "audio.log_mel",
    "fft": 640,
    "hop": 320,
    "mels": 20,
    "low_hz": 100,
    "high_hz": 4000,
    "scale": "htk",
    "area_norm": False,
    "center": False,
    "log": "ln_plus_floor",
    "floor": 0.001,
}
PIPELINE = {
    "version": 1,
    "inputs": {
        "sound": [
            {"step": "audio.decode"},
            {"step": "audio.resample", "rate": 16000},
            {"step": "audio.fit", "samples": 16000},
            LOG_MEL,
        ]
    },
    "outputs": [{"step": "post.softmax"}, {"step": "post.top_k"}],
}


def keyword_example() -> Any:
    """Import the example, whose name is no module's."""
    spec = importlib.util.spec_from_file_location("keywords", HERE.parent / "11_keyword_spotting.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class FramesNet(torch.nn.Module):
    """The example's net for features without a channel axis: [batch, frames, mels]."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        """Return the logits [batch, words]."""
        logits: torch.Tensor = self.net(sound.unsqueeze(1))
        return logits


def record(path: Path, samples: np.ndarray[Any, Any]) -> None:
    """Write a sound as a WAV file of 16 bits."""
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 16000, 0, "NONE", ""))
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", nargs="?", type=Path, default=HERE)
    folder = parser.parse_args().folder
    warnings.simplefilter("ignore")
    from edge_infer.tasks.audio import log_mel
    from edge_infer.tasks.audio.sound import Sound

    example = keyword_example()
    given = {name: kind.default for name, kind in log_mel.PARAMETERS.items()}
    apply = log_mel.prepare(given | {k: v for k, v in LOG_MEL.items() if k != "step"}, None)  # type: ignore[arg-type]
    sound, labels = example.windows(2000, np.random.default_rng(0))
    features = np.stack([np.asarray(apply(Sound(one, 16000), None)) for one in sound])  # type: ignore[arg-type]
    net = FramesNet(example.train(features[:1600, None], labels[:1600])).eval()
    with torch.no_grad():
        right = (net(torch.from_numpy(features[1600:])).argmax(1).numpy() == labels[1600:]).mean()
    print(f"accuracy on {len(labels) - 1600} sounds that it was not trained on: {right:.3f}")
    folder.mkdir(parents=True, exist_ok=True)
    torch.onnx.export(
        net,
        (torch.from_numpy(features[:1]),),
        str(folder / "melodies.onnx"),
        input_names=["sound"],
        output_names=["logits"],
        dynamic_axes={"sound": {0: "batch"}, "logits": {0: "batch"}},
        dynamo=False,
    )
    np.savez_compressed(folder / "calibration.npz", sound=features[:40])
    np.savez_compressed(folder / "eval.npz", sound=features[1600:1660], labels=labels[1600:1660])
    for name in ("up", "trill"):
        record(folder / f"{name}.wav", sound[np.flatnonzero(labels == example.WORDS.index(name))[-1]])
    (folder / "labels.json").write_text(json.dumps(example.WORDS) + "\n")
    (folder / "pipeline.json").write_text(json.dumps(PIPELINE, indent=1) + "\n")


if __name__ == "__main__":
    main()
