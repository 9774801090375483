"""Train a small digits classifier and export it: the model that every other example uses.

The data are scikit-learn's 1797 handwritten digits of 8 x 8 pixels. Training takes less than half a
minute. The results are committed, so that the other examples need no torch:

    examples/digits/digits.onnx       input `image` float32 [batch, 1, 8, 8] in 0..1, output `logits` [batch, 10]
    examples/digits/calibration.npz   256 training images
    examples/digits/eval.npz          719 images held out, and their labels
    examples/digits/labels.json       the class names

Needs: pip install torch onnx onnxscript scikit-learn
"""

from __future__ import annotations

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

HERE = Path(__file__).parent / "digits"
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
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.manual_seed(0)
    torch.set_num_threads(1)  # sums in one order: the same weights each time
    HERE.mkdir(exist_ok=True)

    digits = load_digits()
    images = (digits.images / 16).astype(np.float32)[:, None]
    train_images, eval_images, train_labels, eval_labels = train_test_split(
        images, digits.target.astype(np.int64), test_size=719, random_state=0, stratify=digits.target
    )

    model = train(torch.from_numpy(train_images), torch.from_numpy(train_labels))
    with torch.no_grad():
        answers = model(torch.from_numpy(eval_images)).argmax(1).numpy()
    accuracy = float((answers == eval_labels).mean())

    path = HERE / "digits.onnx"
    exporter = export(model, torch.from_numpy(train_images[:2]), path)
    np.savez_compressed(HERE / "calibration.npz", image=train_images[:CALIBRATION_IMAGES])
    np.savez_compressed(HERE / "eval.npz", image=eval_images, labels=eval_labels)
    (HERE / "labels.json").write_text(json.dumps([str(digit) for digit in range(10)]) + "\n")

    print(f"accuracy {accuracy:.4f} on {len(eval_labels)} images held out")
    print(f"wrote {path.name}, {path.stat().st_size / 1000:.1f} kB ({exporter} exporter)")


if __name__ == "__main__":
    main()
