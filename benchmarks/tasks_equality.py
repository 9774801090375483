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
from tasks_speech import write_bundle

import edge_infer
from edge_infer.tasks.audio.wav import read_wav
from tests.support.tasks.hub_export import SMALL, SMALL_EARS, export, hearer_of_letters, ranking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from PIL.Image import Image

ENTITIES = {0: "O", 1: "B-PER", 2: "I-PER"}
NLI = {0: "contradiction", 1: "neutral", 2: "entailment"}
TEXT = "My name is Wolfgang and I live in Berlin"


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
        (
            "depth-estimation",
            hf.DPTForDepthEstimation(
                hf.DPTConfig(
                    image_size=64,
                    patch_size=16,
                    neck_hidden_sizes=[8, 8, 16, 16],
                    fusion_hidden_size=16,
                    backbone_out_indices=[0, 1, 2, 3],
                    **SMALL | {"num_hidden_layers": 4},
                )
            ),
            hf.DPTImageProcessor(size=size),
            ("predicted_depth",),
            {},
        ),
    )
    for number, (task, model, processor, outputs, arguments) in enumerate(cases):
        folder = place / f"{task}-{number}"
        pixels = processor(photo, return_tensors="pt")["pixel_values"]
        export(folder, model, [processor], {"pixel_values": pixels}, outputs, 1)
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
        (
            "question-answering",
            hf.BertForQuestionAnswering(config()),
            {"question": "Where do I live?", "context": TEXT},
            {},
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
        is_answer = task == "question-answering"
        export(folder, model, [tokenizer], example, ("start_logits", "end_logits") if is_answer else ("logits",), axes)
        peer: Any = Answers(model, tokenizer) if is_answer else None
        peer = peer or hf.pipeline(task, model=model, tokenizer=tokenizer, device="cpu")
        with edge_infer.pipeline(task, folder) as ours:
            said = "".join(f", {key}={value}" for key, value in arguments.items() if isinstance(value, str))
            yield f"{task}{said}", ours(given, **arguments), peer(given, **arguments)
    yield ranks(place, tokenizer, hf.BertForSequenceClassification(config({0: "relevance"})))


def ranks(place: Path, tokenizer: Any, model: Any) -> tuple[str, Any, Any]:
    """Give our order of some documents, and that of transformers' scores of each pair."""
    query, documents = "Where do I live?", [TEXT, "hello world", "I like trains", "Paris is in France"]
    folder = place / "text-ranking"
    example = dict(tokenizer(query, TEXT, return_tensors="pt"))
    export(folder, model, [tokenizer], example, ("logits",), 2)
    scored = ranking(model, tokenizer, query, documents)
    theirs = [one | {"text": documents[one["corpus_id"]]} for one in scored]
    with edge_infer.pipeline("text-ranking", folder) as ours:
        return "text-ranking", ours({"query": query, "documents": documents}), theirs


def pictures(place: Path, photo: Image) -> tuple[str, Any, Any]:
    """Give a larger picture: ours, and what transformers' pipeline of image-to-image did, which transformers 5 lacks.

    The processor pads photos, and no step does that yet: this photo's sides need no padding.
    """
    import torch
    import transformers as hf
    from PIL import Image as Pillow

    config = hf.Swin2SRConfig(image_size=32, embed_dim=12, depths=[2], num_heads=[2], window_size=8, upscale=2)
    model = hf.Swin2SRForImageSuperResolution(config).eval()
    with torch.no_grad():
        for one in model.parameters():  # random weights of .02 give a grey that hides every difference
            one.mul_(4)
    processor = hf.Swin2SRImageProcessor(do_pad=False)
    small = photo.resize((64, 48))
    values = processor(small, return_tensors="pt")["pixel_values"]
    folder = place / "image-to-image"
    export(folder, model, [processor], {"pixel_values": values}, ("reconstruction",), 1)
    with torch.no_grad():
        levels = model(pixel_values=values).reconstruction[0].clamp(0, 1).numpy()
    theirs = Pillow.fromarray((np.moveaxis(levels, 0, -1) * 255.0).round().astype(np.uint8))
    steps = {
        "version": 1,
        "inputs": {"pixel_values": [{"step": "image.decode"}, {"step": "image.rescale_normalize", "layout": "NCHW"}]},
        "outputs": [{"step": "post.image"}],
    }
    model_file = (folder / "onnx/model.onnx").read_bytes()
    made = write_bundle(place / "larger.bundle", model_file, "image-to-image", steps, {})
    with edge_infer.pipeline(made) as ours:
        return "image-to-image, Swin2SRForImageSuperResolution", ours(small), theirs


class Answers:
    """What transformers' pipeline of question-answering did, which transformers 5 has no more: the best span."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model, self._tokenizer = model, tokenizer

    def __call__(self, asked: dict[str, str]) -> dict[str, Any]:
        """Return the span of the context whose start and end are the most likely together."""
        import torch

        made = self._tokenizer(asked["question"], asked["context"], return_tensors="pt", return_offsets_mapping=True)
        offsets = made.pop("offset_mapping")[0].tolist()
        with torch.no_grad():
            found = self._model(**made)
        inside = np.array([kind == 1 for kind in made.sequence_ids(0)])
        inside[0] = True  # [CLS] takes part in the softmax, and stands for "no answer"
        sides = []
        for logits in (found.start_logits[0].numpy(), found.end_logits[0].numpy()):
            kept = np.where(inside, logits, -10_000.0)
            powers = np.exp(kept - kept.max())
            sides.append(powers / powers.sum() * (np.arange(len(powers)) > 0))
        both = np.triu(np.tril(np.outer(*sides), 14))
        start, end = np.unravel_index(both.argmax(), both.shape)
        first, last = offsets[start][0], offsets[end][1]
        answer = {"score": float(both[start, end]), "start": first, "end": last}
        return answer | {"answer": asked["context"][first:last]}


def sounds(place: Path) -> Iterator[tuple[str, Any, Any]]:
    """Give the name, our answer and theirs for each kind of model of sounds."""
    import transformers as hf

    yes = read_wav((Path(__file__).parents[1] / "tests/support/tasks/yes.wav").read_bytes())
    sound = np.array(yes.samples, np.float32)
    extractor = hf.Wav2Vec2FeatureExtractor(sampling_rate=16_000)
    hearer, tokenizer = hearer_of_letters(place / "vocab.json")
    cases = (
        ("audio-classification", hf.Wav2Vec2ForSequenceClassification(hf.Wav2Vec2Config(num_labels=5, **SMALL_EARS))),
        ("automatic-speech-recognition", hearer),
    )
    for task, model in cases:
        folder, more = place / task, {}
        example = {"input_values": extractor(sound, sampling_rate=16_000, return_tensors="pt")["input_values"]}
        export(folder, model, [extractor], example, ("logits",), 3 if "speech" in task else 2)
        if "speech" in task:
            tokenizer.save_pretrained(folder)
            more = {"tokenizer": tokenizer}
        peer = hf.pipeline(task, model=model, feature_extractor=extractor, device="cpu", **more)
        with edge_infer.pipeline(task, folder) as ours:
            yield f"{task}, {type(model).__name__}", ours(sound), peer(sound.copy())


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
    if hasattr(theirs, "getpixel"):  # a mask, a depth in 256 greys, or a picture
        wanted = np.array(theirs)
        pixels = np.frombuffer(ours.data, np.uint8).reshape(wanted.shape).astype(int)
        apart = abs(pixels - wanted).max()
        return 0.0 if apart <= (1 if set(np.unique(pixels)) - {0, 255} else 0) else np.inf
    if hasattr(theirs, "numpy"):  # a depth
        wanted = theirs.detach().numpy()
        return float(abs(np.array(ours.tolist()).reshape(wanted.shape) - wanted).max())
    if isinstance(theirs, (float, np.floating)):
        return abs(float(ours) - float(theirs))
    return 0.0 if ours == theirs else np.inf


def every(place: Path) -> Iterator[tuple[str, Any, Any]]:
    """Give the name, our answer and theirs for each kind of model."""
    from PIL import Image

    photo = Image.open(Path(__file__).parents[1] / "examples/faces/astronaut.jpg").resize((451, 300))
    yield from images(place, photo)
    yield pictures(place, photo)
    yield from texts(place)
    yield from sounds(place)


def rows_of(find: Callable[[Path], Iterable[tuple[str, Any, Any]]]) -> list[dict[str, Any]]:
    """Compare, and return the rows.

    Args:
        find: What gives the cases: it writes its models into a folder.

    Raises:
        ImportError: The peer is not there.
    """
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    rows = []
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stderr(io.StringIO()):
        for case, ours, theirs in find(Path(name)):
            far = float(farthest(ours, theirs))
            row = {"name": case, "metric": "difference of scores", "ours": far, "peer_name": "transformers"}
            rows.append(row | {"target": "<= 1e-4, same labels", "met": far <= 1e-4})
    return rows


def main(find: Callable[[Path], Iterable[tuple[str, Any, Any]]] = every) -> None:
    """Print the table of some cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    publish(rows_of(find), ("onnxruntime", "torch", "pillow"), as_json=options.json)


if __name__ == "__main__":
    main()
