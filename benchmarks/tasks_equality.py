"""Whether pipelines answer what transformers' own answer: a Hugging Face folder of each task, random weights.

Each model is exported to ONNX beside its `config.json` and its processor, `edge_infer.pipeline` opens that folder, and
both sides answer the same photo or text. The peer lies in `.bench/tasks`: see `benchmarks/tasks.py`.

    python benchmarks/tasks_equality.py [--json]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[1] / ".bench/tasks"))

from convert_models import minilm_folder
from table import publish

import edge_infer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from PIL.Image import Image

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
ENTITIES = {0: "O", 1: "B-PER", 2: "I-PER"}
NLI = {0: "contradiction", 1: "neutral", 2: "entailment"}
TEXT = "My name is Wolfgang and I live in Berlin"


def export(
    folder: Path, model: Any, processor: Any, example: dict[str, Any], outputs: Sequence[str], axes: int
) -> None:
    """Write a folder as the Hub has them: configuration, processor and `onnx/model.onnx`."""
    import torch

    names = list(example)

    class Positional(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *values: Any) -> tuple[Any, ...]:
            found = self.model(**dict(zip(names, values, strict=True)))
            return tuple(found[name] for name in outputs)

    (folder / "onnx").mkdir(parents=True)
    model.save_pretrained(folder)  # it writes the architecture into config.json
    (folder / "model.safetensors").unlink()
    processor.save_pretrained(folder)
    free = {name: {0: "batch", 1: "tokens"} if axes > 1 else {0: "batch"} for name in names}
    free |= {name: {0: "batch", 1: "tokens"} if axes > 2 else {0: "batch"} for name in outputs}
    target, values = str(folder / "onnx/model.onnx"), tuple(example.values())
    torch.onnx.export(
        Positional(),
        values,
        target,
        input_names=names,
        output_names=list(outputs),
        dynamic_axes=free,
        opset_version=17,
        dynamo=False,
    )
    model.eval()


def images(place: Path, photo: Image) -> Iterator[tuple[str, Any, Any]]:
    """Give the name, our answer and theirs for each kind of image model."""
    import transformers as hf

    size = {"height": 64, "width": 64}
    cases = (
        (
            "image-classification",
            hf.ViTForImageClassification(hf.ViTConfig(image_size=64, patch_size=16, num_labels=7, **SMALL)),
            hf.ViTImageProcessor(size=size),
            ("logits",),
            {},
        ),
        (
            "image-classification",
            hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config(num_labels=9, image_size=96)),
            hf.MobileNetV2ImageProcessor(size={"shortest_edge": 110}, crop_size={"height": 96, "width": 96}),
            ("logits",),
            {},
        ),
        (
            "image-classification",
            hf.ConvNextForImageClassification(
                hf.ConvNextConfig(num_labels=9, depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32])
            ),
            hf.ConvNextImageProcessor(size={"shortest_edge": 64}, crop_pct=0.875),
            ("logits",),
            {},
        ),
        (
            "object-detection",
            hf.YolosForObjectDetection(
                hf.YolosConfig(image_size=[64, 96], num_detection_tokens=8, num_labels=5, **SMALL)
            ),
            hf.YolosImageProcessor(size={"height": 64, "width": 96}),
            ("logits", "pred_boxes"),
            {"threshold": 0.15},
        ),
        (
            "image-segmentation",
            hf.SegformerForSemanticSegmentation(
                hf.SegformerConfig(
                    num_labels=5, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], decoder_hidden_size=16
                )
            ),
            hf.SegformerImageProcessor(size=size),
            ("logits",),
            {},
        ),
    )
    for number, (task, model, processor, outputs, arguments) in enumerate(cases):
        folder = place / f"{task}-{number}"
        pixels = processor(photo, return_tensors="pt")["pixel_values"]
        export(folder, model, processor, {"pixel_values": pixels}, outputs, 1)
        peer = hf.pipeline(task, model=model, image_processor=processor, device="cpu")
        with edge_infer.pipeline(task, folder) as ours:
            yield f"{task}, {type(model).__name__}", ours(photo, **arguments), peer(photo, **arguments)


def texts(place: Path) -> Iterator[tuple[str, Any, Any]]:
    """Give the name, our answer and theirs for each kind of text model."""
    import transformers as hf

    tokenizer = hf.AutoTokenizer.from_pretrained(str(minilm_folder()))

    def config(labels: dict[int, str] | None = None) -> Any:
        named = {} if labels is None else {"id2label": labels, "label2id": {v: k for k, v in labels.items()}}
        return hf.BertConfig(vocab_size=tokenizer.vocab_size, **SMALL, **named)

    two = ["hello world", "a much longer text than that one"]
    cases: tuple[tuple[str, Any, Any, dict[str, Any], int], ...] = (
        ("text-classification", hf.BertForSequenceClassification(config()), two, {"top_k": 2}, 2),
        ("token-classification", hf.BertForTokenClassification(config(ENTITIES)), TEXT, {}, 3),
        (
            "token-classification",
            hf.BertForTokenClassification(config(ENTITIES)),
            TEXT,
            {"aggregation_strategy": "simple"},
            3,
        ),
        ("fill-mask", hf.BertForMaskedLM(config()), "Paris is the [MASK] of France.", {}, 3),
        (
            "zero-shot-classification",
            hf.BertForSequenceClassification(config(NLI)),
            "I like trains",
            {"candidate_labels": ["a", "travel", "food"]},
            2,
        ),
    )
    for number, (task, model, given, arguments, axes) in enumerate(cases):
        folder = place / f"{task}-{number}"
        example = dict(tokenizer("hello world this is", return_tensors="pt"))
        export(folder, model, tokenizer, example, ("logits",), axes)
        peer = hf.pipeline(task, model=model, tokenizer=tokenizer, device="cpu")
        with edge_infer.pipeline(task, folder) as ours:
            said = "".join(f", {key}={value}" for key, value in arguments.items() if isinstance(value, str))
            yield f"{task}{said}", ours(given, **arguments), peer(given, **arguments)


def farthest(ours: Any, theirs: Any) -> float:
    """Return the largest difference of two answers' scores; infinity where they are of another form or label.

    transformers cuts the sides of boxes to whole pixels, so that a side may be one pixel apart.
    """
    if isinstance(theirs, dict):
        if set(ours) != set(theirs):
            return np.inf
        if set(theirs) == {"xmin", "ymin", "xmax", "ymax"}:
            return 0.0 if all(0 <= ours[side] - theirs[side] < 1.01 for side in theirs) else np.inf
        return max(farthest(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, (list, tuple)):
        pairs = zip(ours, theirs, strict=False)
        return max([farthest(one, other) for one, other in pairs], default=0.0) if len(ours) == len(theirs) else np.inf
    if hasattr(theirs, "getpixel"):  # a mask
        pixels = np.frombuffer(ours.data, np.uint8).reshape(ours.height, ours.width)
        return 0.0 if np.array_equal(pixels, np.array(theirs)) else np.inf
    if isinstance(theirs, (float, np.floating)):
        return abs(float(ours) - float(theirs))
    return 0.0 if ours == theirs else np.inf


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    import torch
    from PIL import Image

    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    photo = Image.open(Path(__file__).parents[1] / "examples/faces/astronaut.jpg").resize((451, 300))
    rows = []
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stderr(io.StringIO()):
        for case, ours, theirs in (*images(Path(name), photo), *texts(Path(name))):
            far = farthest(ours, theirs)
            rows.append(
                {
                    "name": case,
                    "metric": "difference of scores",
                    "ours": float(far),
                    "peer_name": "transformers",
                    "target": "<= 1e-4, same labels",
                    "met": bool(far <= 1e-4),
                }
            )
    publish(rows, ("onnxruntime", "torch", "pillow"), as_json=options.json)


if __name__ == "__main__":
    main()
