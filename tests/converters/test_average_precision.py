"""Detectors are measured on images with their objects, as COCO's own evaluation does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from edge_infer.errors import InputError
from edge_infer_converters import convert
from edge_infer_converters.data.annotations import find_annotations, read_annotations
from edge_infer_converters.data.objects import Seen
from edge_infer_converters.measure.average_precision import average_precision
from tests.support.converters.detections import corpus
from tests.support.tasks import hub_folders

if TYPE_CHECKING:
    from pathlib import Path

# AP and AP50 of pycocotools 2.0.11 on `corpus(seed, images, classes)`.
PYCOCOTOOLS = [
    (1, 4, 2, 0.32754605955101007, 0.6432787509520184),
    (2, 5, 3, 0.22481435643564357, 0.3809052333804809),
    (3, 6, 4, 0.15533415841584158, 0.24814356435643564),
    (4, 7, 5, 0.19206690669066903, 0.41991449144914494),
    (9, 12, 5, 0.29089577968785885, 0.49989567088576986),
]
LABELS = ["cat", "dog"]
SIDES = ("xmin", "ymin", "xmax", "ymax")


@pytest.mark.parametrize(("seed", "images", "classes", "ap", "ap50"), PYCOCOTOOLS)
def test_it_is_that_of_pycocotools(seed: int, images: int, classes: int, ap: float, ap50: float) -> None:
    assert average_precision(*corpus(seed, images, classes)) == pytest.approx((ap, ap50), abs=1e-9)


def test_right_boxes_are_1_and_nothing_is_0() -> None:
    truths, _ = corpus(3)
    counted = [~one.ignored for one in truths]
    right = [
        Seen(one.boxes[kept], np.ones(int(kept.sum())), one.classes[kept])
        for one, kept in zip(truths, counted, strict=True)
    ]
    nothing = [Seen(np.zeros((0, 4)), np.zeros(0), np.zeros(0, int)) for _ in truths]
    assert average_precision(truths, right) == (1.0, 1.0)
    assert average_precision(truths, nothing) == (0.0, 0.0)


def detector(folder: Path) -> Path:
    """Write a detector that always sees a cat at the left and a dog at the right, of an image's size or half of it."""
    folder.mkdir()
    boxes = np.array([[[0.0, 0.0, 0.5, 1.0], [0.5, 0.0, 1.0, 1.0], [0.1, 0.1, 0.2, 0.2]]], np.float32)
    scores = np.array([[[0.9, 0.0], [0.0, 0.8], [0.04, 0.0]]], np.float32)
    (folder / "model.onnx").write_bytes(hub_folders.fixed_outputs(8, {"boxes": boxes, "scores": scores}))
    steps = {
        "task": "object-detection",
        "inputs": {
            "pixel_values": [
                {"step": "image.decode"},
                {"step": "image.resize", "width": 8, "height": 8},
                {"step": "image.rescale_normalize", "mean": [0.0], "std": [1.0]},
            ]
        },
        "outputs": [
            {
                "step": "post.boxes",
                "format": "decoded",
                "unit": "ratio",
                "tensors": {"boxes": "boxes", "scores": "scores"},
                "threshold": 0.5,
            },
            {"step": "post.detections"},
        ],
    }
    (folder / "steps.json").write_text(json.dumps(steps))
    (folder / "labels.json").write_text(json.dumps(LABELS))
    return folder


def coco(folder: Path, *, sides: tuple[str, str] = ("cat", "dog"), count: int = 2) -> Path:
    """Write images of 40 x 20 pixels, and a COCO file that names their halves."""
    (folder / "images").mkdir(parents=True)
    (folder / "annotations").mkdir()
    numbers = {"dog": 18, "cat": 17, "cow": 21}
    entries = []
    for image in range(count):
        Image.new("RGB", (40, 20), (image, 0, 0)).save(folder / f"images/{image}.png")
        for side, name in enumerate(sides):
            box = [20 * side, 0, 20, 20]
            entries.append({"image_id": image, "category_id": numbers[name], "bbox": box, "iscrowd": 0})
    document = {
        "images": [{"id": image, "file_name": f"{image}.png"} for image in range(count)],
        "annotations": entries,
        "categories": [{"id": number, "name": name} for name, number in numbers.items()],
    }
    (folder / "annotations/instances.json").write_text(json.dumps(document))
    return folder


def voc(folder: Path, *, difficult: int = 0) -> Path:
    (folder / "Annotations").mkdir(parents=True)
    (folder / "JPEGImages").mkdir()
    Image.new("RGB", (40, 20)).save(folder / "JPEGImages/a.jpg")
    boxes = [("cat", (0, 0, 20, 20), 0), ("dog", (20, 0, 40, 20), 0), ("dog", (0, 0, 4, 4), difficult)]
    objects = "".join(
        f"<object><name>{name}</name><difficult>{hard}</difficult><bndbox>"
        + "".join(
            f"<{side}>{value}</{side}>" for side, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True)
        )
        + "</bndbox></object>"
        for name, box, hard in boxes
    )
    (folder / "Annotations/a.xml").write_text(f"<annotation><filename>a.jpg</filename>{objects}</annotation>")
    return folder


def measured(folder: Path, evaluation: Path, metric: str | None = None) -> tuple[str, float]:
    made = convert(
        folder / "model.onnx",
        folder / "made.bundle",
        preprocess=str(folder / "steps.json"),
        labels=folder / "labels.json",
        evaluation=evaluation,
        metric=metric,
        precision="fp32",
        format="onnx",
        force=True,
    )
    (variant,) = made.variants
    return made.metric, variant.quality.score


@pytest.mark.parametrize("write", [coco, voc])
def test_annotations_are_found(write: Any, tmp_path: Path) -> None:
    place = find_annotations(write(tmp_path / "data"))
    assert place is not None
    found = read_annotations(place, LABELS, 1000)
    assert found[0].image.is_file()
    assert found[0].truth.boxes[:2].tolist() == [[0, 0, 20, 20], [20, 0, 40, 20]]
    assert found[0].truth.classes[:2].tolist() == [0, 1]


@pytest.mark.parametrize("write", [coco, voc])
def test_a_detector_is_measured_on_raw_images(write: Any, tmp_path: Path) -> None:
    folder = detector(tmp_path / "detector")
    # The third box is a cat in a corner of the first one: a mistake of a low score, below all that is right.
    data = write(tmp_path / "data", **({"difficult": 1} if write is voc else {}))
    for metric in ("map", "map50"):
        name, score = measured(folder, data, None if metric == "map" else metric)
        assert name == metric
        assert score == pytest.approx(1)


def test_what_is_missed_and_what_is_wrong_costs(tmp_path: Path) -> None:
    folder = detector(tmp_path / "detector")
    # A third object that nobody sees: half of the dogs, so that precision is 1 up to a recall of .5.
    name, score = measured(folder, voc(tmp_path / "voc"))
    assert name == "map"
    assert score == pytest.approx((1 + 51 / 101) / 2)
    # Both halves are dogs: one of two is seen as a dog, and cats are not asked for.
    _, score = measured(folder, coco(tmp_path / "coco", sides=("dog", "dog")) / "annotations/instances.json")
    assert score == pytest.approx(51 / 101)


def replaced(folder: Path, file: str, old: str, new: str) -> Path:
    place = folder / file
    text = place.read_text()
    assert old in text
    place.write_text(text.replace(old, new))
    return folder


def test_bad_annotations_are_refused_by_name(tmp_path: Path) -> None:
    folder = detector(tmp_path / "detector")
    file, xml = "annotations/instances.json", "Annotations/a.xml"
    cases = [
        (coco(tmp_path / "a", sides=("cat", "cow")), "class `cow`, which is not one of the model's"),
        (replaced(coco(tmp_path / "b"), file, "1.png", "2.png"), "names the image `2.png`, which is missing"),
        (replaced(coco(tmp_path / "c"), file, "1.png", "../images/1.png"), "which is missing"),
        (replaced(coco(tmp_path / "d"), file, "[20, 0, 20, 20]", "[20, 0, 20]"), "expected four numbers"),
        (replaced(coco(tmp_path / "e"), file, "[20, 0, 20, 20]", "[20, 0, NaN, 20]"), "expected four numbers"),
        (replaced(coco(tmp_path / "f"), file, '"image_id": 1', '"image_id": 7'), "which it does not list"),
        (replaced(coco(tmp_path / "g"), file, '"category_id": 18', '"category_id": 99'), "the category 99"),
        (replaced(coco(tmp_path / "o"), file, '"category_id": 18', '"category_id": [18]'), "unhashable"),
        (replaced(coco(tmp_path / "p"), file, "[20, 0, 20, 20]", f"[20, 0, 20, {10**400}]"), "expected four numbers"),
        (replaced(coco(tmp_path / "q"), file, "[20, 0, 20, 20]", '"1234"'), "expected four numbers"),
        (replaced(coco(tmp_path / "r"), file, "1.png", f"{'1' * 400}.png"), "which is missing"),
        (replaced(voc(tmp_path / "s"), xml, "<annotation>", "<?xml version='1.0' encoding='no'?><annotation>"), "XML"),
        (replaced(coco(tmp_path / "h"), file, '"categories"', '"kinds"'), "not a file of COCO's annotations"),
        (replaced(voc(tmp_path / "i"), xml, "<annotation>", "<!DOCTYPE a><annotation>"), "document type"),
        (replaced(voc(tmp_path / "j"), xml, "</annotation>", ""), "is not XML"),
        (replaced(voc(tmp_path / "k"), xml, "<xmax>40</xmax>", ""), "without `bndbox/xmax`"),
        (replaced(voc(tmp_path / "l"), xml, "<xmax>40</xmax>", "<xmax>wide</xmax>"), "expected four numbers"),
        (replaced(voc(tmp_path / "m"), xml, "a.jpg", "b.jpg"), "names the image `b.jpg`, which is missing"),
    ]
    for data, said in cases:
        with pytest.raises(InputError, match=said):
            measured(folder, data)
    wide = voc(tmp_path / "t")
    text = '<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE a [<!ENTITY e "cat">]>' + (wide / xml).read_text()
    (wide / xml).write_bytes(text.encode("utf-16"))
    with pytest.raises(InputError, match="document type"):
        measured(folder, wide)
    two = coco(tmp_path / "n")
    (two / "annotations/other.json").write_bytes((two / file).read_bytes())
    with pytest.raises(InputError, match="several annotations"):
        measured(folder, two)
    pixels = np.zeros((2, 3, 8, 8), np.float32)
    np.savez(tmp_path / "arrays.npz", pixel_values=pixels)
    with pytest.raises(InputError, match="needs images with their objects"):
        measured(folder, tmp_path / "arrays.npz", "map")
