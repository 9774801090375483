"""Spot keywords in a WAV file: train a small net, convert it to int8, listen to a recording as a microphone would.

    python examples/11_keyword_spotting.py [RECORDING.wav]

The "words" are melodies of two or three tones (`up`, `down`, `trill`), sung by voices of their own pitch, speed and
loudness into noise, because real words need a data set. All else is what a device does: 16 kHz PCM, log-mel features, a
depthwise-separable convolutional net (DS-CNN, https://arxiv.org/abs/1711.07128) on a window that moves by 0.1 s, and a
word that counts once it was heard in three windows of five. On the device only `edge_infer` and numpy are needed.

Needs: pip install 'edge-infer[onnxruntime]' edge-infer-converters torch onnxscript
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import warnings
import wave
from pathlib import Path

import numpy as np
import torch
from torch import nn

import edge_infer
from edge_infer_converters import convert
from edge_infer_converters.recipe import Recipe

RATE = 16_000
WORDS = ["silence", "up", "down", "trill"]
WINDOW_S, HOP_S = 1.0, 0.1
FRAME, STEP, MELS = 640, 320, 20  # 40 ms of sound every 20 ms
FRAMES = 1 + (int(WINDOW_S * RATE) - FRAME) // STEP
MELODIES = {"up": (1.0, 1.5), "down": (1.5, 1.0), "trill": (1.0, 1.25, 1.0)}


# -- sound --


def sing(word: str, random: np.random.Generator) -> np.ndarray:
    """Sing a word of 0.45 to 0.75 s: each tone with two overtones, at a pitch and a loudness of its own."""
    pitch, length = random.uniform(300, 600), random.uniform(0.45, 0.75)
    tones = []
    for factor in MELODIES[word]:
        t = np.arange(int(RATE * length / len(MELODIES[word]))) / RATE
        tone = sum(np.sin(2 * np.pi * pitch * factor * k * t) / k for k in (1, 2, 3))
        tones.append(tone * np.hanning(len(t)) ** 0.3)
    return np.concatenate(tones) * random.uniform(0.1, 0.3)


def noise(seconds: float, random: np.random.Generator) -> np.ndarray:
    """Make noise that hums and hisses."""
    samples = random.normal(0, random.uniform(0.005, 0.03), int(RATE * seconds))
    t = np.arange(len(samples)) / RATE
    return samples + 0.02 * np.sin(2 * np.pi * random.uniform(50, 120) * t)


def windows(count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Make windows of a second, with a word in most of them: sound [count, 16000] and labels [count]."""
    sound, labels = [], []
    for i in range(count):
        window, label = noise(WINDOW_S, random), i % len(WORDS)
        if label:
            word = sing(WORDS[label], random)
            start = random.integers(0, len(window) - len(word) + 1)
            window[start : start + len(word)] += word
        elif random.random() < 0.5:  # the beginning or the end of a word is not a word
            word = sing(WORDS[random.integers(1, 4)], random)
            part = int(len(word) * random.uniform(0.1, 0.35))
            window[-part:] += word[:part]
        sound.append(window)
        labels.append(label)
    return np.stack(sound).astype(np.float32), np.array(labels)


# -- features --


def mel_filters() -> np.ndarray:
    """Return triangles on the mel scale from 100 to 4000 Hz: [bins, MELS]."""
    edges = 700 * (
        10 ** (np.linspace(2595 * np.log10(1 + 100 / 700), 2595 * np.log10(1 + 4000 / 700), MELS + 2) / 2595) - 1
    )
    frequencies = np.fft.rfftfreq(FRAME, 1 / RATE)[:, None]
    rising = (frequencies - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies) / (edges[2:] - edges[1:-1])
    return np.maximum(0, np.minimum(rising, falling))


FILTERS = mel_filters()
TAPER = np.hanning(FRAME)


def features(window: np.ndarray) -> np.ndarray:
    """Return the log-mel features of a second of sound: float32 [1, FRAMES, MELS], about -1 to 1."""
    frames = np.lib.stride_tricks.sliding_window_view(window, FRAME)[::STEP] * TAPER
    power = np.abs(np.fft.rfft(frames)) ** 2
    return ((np.log(power @ FILTERS + 1e-3) + 1) / 6).astype(np.float32)[None]


# -- the net --


class KeywordNet(nn.Module):
    """A convolution over all bands, then three depthwise-separable ones over time: 10 thousand weights."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, width, (10, MELS), stride=(2, 1)), nn.BatchNorm2d(width), nn.ReLU()]
        for _ in range(3):
            depthwise = nn.Conv2d(width, width, (9, 1), padding=(4, 0), groups=width)
            layers += [depthwise, nn.BatchNorm2d(width), nn.ReLU()]
            layers += [nn.Conv2d(width, width, 1), nn.BatchNorm2d(width), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(width, len(WORDS))

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        """Return the logits [batch, words] of features [batch, 1, FRAMES, MELS]."""
        return self.head(self.body(sound).mean((2, 3)))


def train(x: np.ndarray, y: np.ndarray) -> KeywordNet:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # two threads on so small a net wait for each other
    net, inputs, labels = KeywordNet(), torch.from_numpy(x), torch.from_numpy(y)
    epochs, batch = 10, 50
    optimizer = torch.optim.AdamW(net.parameters(), lr=4e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, total_steps=epochs * -(-len(x) // batch))
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(batch):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(inputs[rows]), labels[rows]).backward()
            optimizer.step()
            schedule.step()
    return net.eval()


def make_bundle(folder: Path, random: np.random.Generator) -> Path:
    """Train, export, and convert to int8 as one step each; say what it cost."""
    sound, labels = windows(1000, random)
    x = np.stack([features(window) for window in sound])
    net = train(x[:800], labels[:800])
    torch.onnx.export(
        net,
        (torch.from_numpy(x[:1]),),
        folder / "words.onnx",
        input_names=["sound"],
        output_names=["logits"],
        dynamic_axes={"sound": {0: "batch"}, "logits": {0: "batch"}},
        dynamo=False,
    )
    np.savez(folder / "calibration.npz", sound=x[:200])
    np.savez(folder / "held_out.npz", sound=x[800:], labels=labels[800:])
    (folder / "words.json").write_text(str(WORDS).replace("'", '"'))
    result = convert(
        folder / "words.onnx",
        folder / "words.bundle",
        calibration=folder / "calibration.npz",
        evaluation=folder / "held_out.npz",
        labels=folder / "words.json",
        recipe=Recipe(formats=("onnx",), precisions=("fp32", "int8")),
    )
    for one in result.variants:
        print(f"{one.variant.id}: {one.nbytes / 1000:.1f} kB, accuracy {one.quality.accuracy or 0:.3f}")
    return folder / "words.bundle"


# -- listening --


def record(path: Path, random: np.random.Generator) -> list[tuple[float, str]]:
    """Write a recording of 16 s with seven words in it; return when each is said."""
    said = [(1.2, "up"), (3.1, "down"), (5.4, "trill"), (7.0, "down"), (9.3, "up"), (11.8, "trill"), (13.9, "up")]
    sound = noise(16, random)
    for at, word in said:
        tones = sing(word, random)
        sound[int(at * RATE) : int(at * RATE) + len(tones)] += tones
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())
    return said


def listen(path: Path, bundle: Path) -> list[tuple[float, str]]:
    """Read a recording in pieces of HOP_S, as a microphone gives them; return when each word was heard."""
    heard: list[tuple[float, str]] = []
    recent: list[int] = []
    quiet_until = 0.0
    with wave.open(str(path), "rb") as file, edge_infer.load(bundle) as session:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (RATE, 1, 2):
            raise SystemExit(f"{path} is not 16 kHz mono of 16 bits: sox {path} -r 16000 -c 1 -b 16 out.wav")
        print(f"listening with {session!r}")
        buffer = np.zeros(int(WINDOW_S * RATE), np.float32)
        with session.prepare({"sound": (1, 1, FRAMES, MELS)}) as call:
            now = 0.0
            while len(piece := file.readframes(int(HOP_S * RATE))) == 2 * int(HOP_S * RATE):
                now += HOP_S
                samples = np.frombuffer(piece, "<i2").astype(np.float32) / 32767
                buffer = np.concatenate([buffer[len(samples) :], samples])
                word = int(call({"sound": features(buffer)[None]})["logits"].argmax())
                recent = [*recent[-4:], word]
                if word and now >= quiet_until and recent.count(word) >= 3:
                    heard.append((now, WORDS[word]))
                    quiet_until = now + 1.0  # the same word lasts for several windows
                    recent = []
    return heard


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", metavar="RECORDING.wav", nargs="?", type=Path, help="a recording to listen to")
    recording = parser.parse_args().recording
    if recording is not None and not recording.is_file():
        parser.error(f"there is no file {recording}; without one, a recording is made")
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as name:
        folder, random = Path(name), np.random.default_rng(0)
        bundle = make_bundle(folder, random)
        if recording is not None:
            for at, word in listen(recording, bundle):
                print(f"{at:5.1f} s  {word}")
            return
        said = record(folder / "kitchen.wav", random)
        heard = listen(folder / "kitchen.wav", bundle)
    right = 0
    for at, word in heard:
        match = next((start for start, one in said if one == word and start < at < start + 1.6), None)
        right += match is not None
        print(f"{at:5.1f} s  {word:6} {f'said at {match} s' if match is not None else 'WRONG'}")
    print(f"heard {right} of {len(said)} words, {len(heard) - right} that were not said")


if __name__ == "__main__":
    main()
