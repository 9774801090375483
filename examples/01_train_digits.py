"""Train a small digits classifier and export it: the model that every other example uses.

    python examples/01_train_digits.py [FOLDER]

The data are scikit-learn's 1797 handwritten digits of 8 x 8 pixels, and as many drawn by strokes of its own, because
those of 1998 know hardly a 7 without a bar or a plain 1. Training takes less than a minute. The results are
committed, so that the other examples need no torch:

    examples/digits/digits.onnx       input `image` float32 [batch, 1, 8, 8] in 0..1, output `logits` [batch, 10]
    examples/digits/calibration.npz   256 training images, half of them real
    examples/digits/eval.npz          719 images held out, and their labels
    examples/digits/labels.json       the class names

Needs: pip install torch onnx onnxscript scikit-learn
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import warnings
from pathlib import Path

import numpy as np
import onnx
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

FOLDER = Path(__file__).parent / "digits"
EPOCHS = 60
BATCH = 64
CALIBRATION_IMAGES = 256


class DigitsNet(nn.Module):
    """Three convolutions and two dense layers: 32 thousand weights."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 48, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits [batch, 10] of images [batch, 1, 8, 8]."""
        return self.classifier(self.features(image))


# How people draw: each digit in its usual shapes, each shape as strokes, each stroke as points in a square of 0 to 1.
Point = tuple[float, float]


def arc(x: float, y: float, rx: float, ry: float, start: float, end: float) -> list[Point]:
    """Return points on an ellipse from one angle to another, in degrees; 0 is right and 90 is down."""
    angles = [math.radians(start + (end - start) * i / 10) for i in range(11)]
    return [(x + rx * math.cos(angle), y + ry * math.sin(angle)) for angle in angles]


BAR_OF_7 = [(0.3, 0.5), (0.75, 0.5)]
SHAPES: list[list[list[list[Point]]]] = [
    [[arc(0.5, 0.5, 0.3, 0.48, -90, 270)]],
    [
        [[(0.5, 0), (0.5, 1)]],
        [[(0.25, 0.25), (0.55, 0), (0.55, 1)]],
        [[(0.25, 0.25), (0.55, 0), (0.55, 1)], [(0.25, 1), (0.85, 1)]],
    ],
    [
        [[*arc(0.5, 0.27, 0.32, 0.27, 190, 380), (0.15, 1), (0.9, 1)]],
        [[*arc(0.5, 0.27, 0.35, 0.27, 190, 400), (0.1, 1), (0.9, 0.97)]],
    ],
    [
        [[*arc(0.45, 0.26, 0.33, 0.26, 200, 440), *arc(0.45, 0.74, 0.38, 0.26, -80, 160)]],
        [[(0.1, 0), (0.8, 0), (0.45, 0.4), *arc(0.45, 0.7, 0.38, 0.3, -80, 160)]],
    ],
    [
        [[(0.6, 0), (0.1, 0.65), (0.95, 0.65)], [(0.68, 0.3), (0.68, 1)]],
        [[(0.2, 0), (0.15, 0.5), (0.85, 0.5)], [(0.8, 0), (0.75, 1)]],
        [[(0.7, 1), (0.7, 0), (0.1, 0.65), (0.95, 0.65)]],
    ],
    [[[(0.85, 0), (0.25, 0), (0.2, 0.45), *arc(0.45, 0.68, 0.38, 0.3, -100, 150)]]],
    [
        [[(0.7, 0), (0.3, 0.35), *arc(0.5, 0.7, 0.32, 0.28, 180, 540)]],
        [[(0.35, 0), (0.2, 0.6), *arc(0.48, 0.74, 0.28, 0.25, 180, 540)]],
    ],
    [
        [[(0.1, 0), (0.9, 0), (0.4, 1)]],
        [[(0.1, 0), (0.9, 0), (0.4, 1)], BAR_OF_7],
        [[(0.1, 0.15), (0.12, 0), (0.9, 0), (0.55, 0.5), (0.45, 1)]],
    ],
    [[arc(0.5, 0.26, 0.28, 0.25, 90, 450), arc(0.5, 0.75, 0.33, 0.25, -90, 270)]],
    [[[*arc(0.5, 0.3, 0.32, 0.29, 0, 360), (0.8, 0.55), (0.65, 1)]], [[*arc(0.5, 0.28, 0.3, 0.27, 0, 360), (0.78, 1)]]],
]


def drawn(count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw digits with strokes that wobble, lean and differ in width, scaled to 8 x 8 pixels as the real ones were.

    Returns:
        Images float32 [count, 1, 8, 8] of 0 to 1, and their labels int64 [count].
    """
    labels = np.arange(count) % 10
    images = np.empty((count, 1, 8, 8), np.float32)
    places = (np.arange(32) + 0.5) / 32
    for i, label in enumerate(labels):
        shapes = SHAPES[label]
        strokes = shapes[random.integers(len(shapes))]
        lean, turn = random.normal(0, 0.12), random.normal(0, 0.1)
        change = np.array([[random.uniform(0.65, 1.15), lean], [turn, 1.0]])
        lines = [np.array(stroke) @ change.T + random.normal(0, 0.018, (len(stroke), 2)) for stroke in strokes]
        start, end = (np.concatenate([line[side] for line in lines]) for side in (slice(None, -1), slice(1, None)))
        width = random.uniform(0.05, 0.13)

        low, high = np.minimum(start, end).min(0) - width, np.maximum(start, end).max(0) + width
        side = (high - low).max()
        corner = (low + high - side) / 2
        grid = np.stack(np.meshgrid(corner[0] + places * side, corner[1] + places * side), -1)[:, :, None]
        along = end - start
        share = np.clip(((grid - start) * along).sum(-1) / np.maximum((along**2).sum(-1), 1e-9), 0, 1)
        distance = np.linalg.norm(grid - (start + share[..., None] * along), axis=-1).min(-1)
        images[i, 0] = (distance < width).reshape(8, 4, 8, 4).mean((1, 3))
    return images, labels


def augmented(images: torch.Tensor) -> torch.Tensor:
    """Rotate by up to 12 degrees, scale by up to 15 % and shift by up to a pixel: people draw less neatly."""
    count = len(images)
    angle = (torch.rand(count) * 2 - 1) * math.radians(12)
    scale = 1 + (torch.rand(count) * 2 - 1) * 0.15
    shift = (torch.rand(count, 2) * 2 - 1) * 0.25
    cosine, sine = torch.cos(angle) * scale, torch.sin(angle) * scale
    rows = torch.stack([cosine, -sine, shift[:, 0], sine, cosine, shift[:, 1]], dim=1).reshape(count, 2, 3)
    grid = nn.functional.affine_grid(rows, list(images.shape), align_corners=False)
    return nn.functional.grid_sample(images, grid, align_corners=False)


def train(images: torch.Tensor, labels: torch.Tensor) -> DigitsNet:
    model = DigitsNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    steps = EPOCHS * math.ceil(len(images) / BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=5e-3, total_steps=steps)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(augmented(images[rows])), labels[rows])
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


def export(model: DigitsNet, example: torch.Tensor, path: Path) -> str:
    """Write the model as ONNX with a free batch size; returns which of torch's exporters wrote it."""
    try:
        program = torch.onnx.export(
            model,
            (example,),
            input_names=["image"],
            output_names=["logits"],
            dynamic_shapes={"image": {0: torch.export.Dim("batch")}},
            dynamo=True,
            verbose=False,
        )
        proto, exporter = program.model_proto, "dynamo"
    except ImportError:  # onnxscript is not there: torch's older exporter needs it not
        names = {"image": {0: "batch"}, "logits": {0: "batch"}}
        torch.onnx.export(
            model, (example,), path, input_names=["image"], output_names=["logits"], dynamic_axes=names, dynamo=False
        )
        proto, exporter = onnx.load(path), "legacy"
    strip(proto)
    onnx.checker.check_model(proto, full_check=True)
    path.write_bytes(proto.SerializeToString(deterministic=True))
    return exporter


def strip(proto: onnx.ModelProto) -> None:
    """Drop what only a debugger needs: the exporter writes the Python stack beside each node."""
    del proto.metadata_props[:], proto.graph.metadata_props[:]
    for node in proto.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        del value.metadata_props[:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "folder", metavar="FOLDER", nargs="?", type=Path, default=FOLDER, help="where to write; default: %(default)s"
    )
    folder = parser.parse_args().folder
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # sums in one order: the same weights each time
    folder.mkdir(parents=True, exist_ok=True)

    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    train_images, eval_images, train_labels, eval_labels = train_test_split(
        images, digits.target.astype(np.int64), test_size=719, random_state=0, stratify=digits.target
    )

    drawn_images, drawn_labels = drawn(len(train_images), np.random.default_rng(0))
    model = train(
        torch.from_numpy(np.concatenate([train_images, drawn_images])),
        torch.from_numpy(np.concatenate([train_labels, drawn_labels])),
    )
    with torch.no_grad():
        answers = model(torch.from_numpy(eval_images)).argmax(1).numpy()
    accuracy = float((answers == eval_labels).mean())

    path = folder / "digits.onnx"
    exporter = export(model, torch.from_numpy(train_images[:2]), path)
    half = CALIBRATION_IMAGES // 2
    calibration = np.concatenate([train_images[:half], drawn_images[:half]])
    np.savez_compressed(folder / "calibration.npz", image=calibration)
    np.savez_compressed(folder / "eval.npz", image=eval_images, labels=eval_labels)
    (folder / "labels.json").write_text(json.dumps([str(digit) for digit in range(10)]) + "\n")

    print(f"accuracy {accuracy:.4f} on {len(eval_labels)} images held out")
    print(f"wrote {path.name}, {path.stat().st_size / 1000:.1f} kB ({exporter} exporter)")


if __name__ == "__main__":
    main()
