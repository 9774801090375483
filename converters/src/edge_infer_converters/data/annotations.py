"""Images with their objects: the annotations of COCO (a JSON file) and of Pascal VOC (an XML file for each image)."""

from __future__ import annotations

import json
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from edge_infer.errors import InputError, did_you_mean, listed
from edge_infer.formats.input_files import IMAGES
from edge_infer_converters.data.objects import Truth

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

_HINT = 'COCO: {"images": [...], "annotations": [...], "categories": [...]}; VOC: Annotations/NAME.xml'
_MAX_XML_BYTES = 2**20


class Annotated(NamedTuple):
    """An image and its objects."""

    image: Path
    truth: Truth


def find_annotations(path: str | os.PathLike[str]) -> Path | None:
    """Return what names the objects of images: a COCO file, or the folder of VOC's; None where there is neither.

    Args:
        path: A COCO file, a folder that has one (or an `annotations/` with one), or a folder of VOC with
            `Annotations/`, or with an XML file beside each image.

    Raises:
        InputError: There are several COCO files.
    """
    place = Path(path)
    if place.is_file():
        return place if place.suffix.lower() == ".json" else None
    if not place.is_dir():
        return None
    files = [file for folder in (place, place / "annotations") for file in sorted(folder.glob("*.json"))]
    files = [file for file in files if _is_coco(file)]
    if len(files) > 1:
        names = [file.relative_to(place).as_posix() for file in files]
        raise InputError(f"`{place}` has several annotations: {listed(names)}", hint=f"--eval {files[0]}")
    if files:
        return files[0]
    return next((folder for folder in (place / "Annotations", place) if any(folder.glob("*.xml"))), None)


def read_annotations(place: Path, labels: Sequence[str], most: int) -> list[Annotated]:
    """Read the images that annotations name.

    Args:
        place: What `find_annotations` found.
        labels: The model's classes, which those of the annotations must be; empty for numbers in their order.
        most: How many images are read at most.

    Raises:
        InputError: An annotation cannot be read, an image is missing, or a class is not one of the model's.
    """
    found = _of_coco(place, labels, most) if place.is_file() else _of_voc(place, labels, most)
    if not any(len(one.truth.boxes) for one in found):
        raise InputError(f"`{place}` names no object", hint=_HINT)
    return found


def _is_coco(file: Path) -> bool:
    with file.open("rb") as opened:
        return b'"annotations"' in opened.read(2**30)


def _of_coco(place: Path, labels: Sequence[str], most: int) -> list[Annotated]:
    try:
        document = json.loads(place.read_bytes())
        images = {one["id"]: str(one["file_name"]) for one in document["images"]}
        names = {one["id"]: str(one["name"]) for one in document["categories"]}
        entries: dict[Any, list[tuple[Any, Any, bool]]] = {}
        for one in document["annotations"]:
            if (category := one["category_id"]) not in names:
                raise ValueError(f"an object of the image {one['image_id']!r} has the category {category!r}")
            entries.setdefault(one["image_id"], []).append((category, one["bbox"], bool(one.get("iscrowd"))))
        # Without labels the model's classes are those of the file, in the order of their numbers.
        known = list(labels) or [names[id_] for id_ in sorted(names)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"`{place}` is not a file of COCO's annotations: {error!r}", hint=_HINT) from error
    if strange := [one for one in entries if one not in images]:
        raise InputError(f"`{place.name}` has objects of the image {strange[0]!r}, which it does not list", hint=_HINT)
    classes = {id_: known.index(name) if name in known else None for id_, name in names.items()}
    found = []
    for id_, name in list(images.items())[:most]:
        boxes, kinds, crowds = [], [], []
        for category, box, is_crowd in entries.get(id_, []):
            kind = classes[category]
            if kind is None:
                raise _not_the_models(names[category], labels, place.name)
            left, top, width, height = _numbers(box, f"`bbox` of an object of `{name}`")
            boxes.append([left, top, left + width, top + height])
            kinds.append(kind)
            crowds.append(is_crowd)
        found.append(Annotated(_image(place, name), _truth(boxes, kinds, crowds, crowds)))
    return found


def _of_voc(place: Path, labels: Sequence[str], most: int) -> list[Annotated]:
    if not labels:
        raise InputError(f"`{place}` names classes, and the model has no labels", hint="--labels FILE")
    found = []
    for file in sorted(place.glob("*.xml"))[:most]:
        root = _root(file)
        boxes, kinds, difficult = [], [], []
        for one in root.iter("object"):
            name = _text(one, "name", file)
            if name not in labels:
                raise _not_the_models(name, labels, file.name)
            sides = [_text(one, f"bndbox/{side}", file) for side in ("xmin", "ymin", "xmax", "ymax")]
            boxes.append(_numbers(sides, f"`bndbox` of `{file.name}`"))
            kinds.append(labels.index(name))
            difficult.append((one.findtext("difficult") or "0").strip() == "1")
        name = (root.findtext("filename") or "").strip()
        image = _image(file, Path(name).name) if name else None
        found.append(Annotated(image or _image(file, file.stem), _truth(boxes, kinds, difficult, [False] * len(kinds))))
    return found


def _root(file: Path) -> ElementTree.Element:
    data = file.read_bytes()
    # Entities make a small file a large one. In 16 bits, where zeros stand between, they would not be seen.
    if len(data) > _MAX_XML_BYTES or b"\0" in data or b"<!" in data.replace(b"<!--", b""):
        raise InputError(f"`{file}` has more than 1 MiB, a document type, or 16 bits a character", hint=_HINT)
    try:
        return ElementTree.fromstring(data)
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # the others of its encoding
        raise InputError(f"`{file}` is not XML: {error}", hint=_HINT) from error


def _text(element: ElementTree.Element, path: str, file: Path) -> str:
    found = (element.findtext(path) or "").strip()
    if not found:
        raise InputError(f"`{file}` has an object without `{path}`", hint=_HINT)
    return found


def _numbers(values: Any, where: str) -> list[float]:
    try:
        found = [float(value) for value in values] if isinstance(values, list) else []
    except (TypeError, ValueError, OverflowError):
        found = []
    if len(found) != 4 or not all(map(isfinite, found)):
        raise InputError(f"{where} is {values!r}, expected four numbers", hint=_HINT, got=values)
    return found


def _truth(boxes: list[Any], classes: list[int], ignored: list[bool], crowds: list[bool]) -> Truth:
    return Truth(
        np.array(boxes, float).reshape(-1, 4), np.array(classes, int), np.array(ignored, bool), np.array(crowds, bool)
    )


def _not_the_models(name: str, labels: Sequence[str], where: str) -> InputError:
    return InputError(
        f"`{where}` has an object of the class `{name}`, which is not one of the model's",
        hint=did_you_mean(name, list(labels)) or f"--labels FILE; the model's are {', '.join(labels[:8])}",
        got=name,
    )


def _image(place: Path, name: str) -> Path:
    """Return the image of an annotation: beside it, or in the folders where COCO and VOC keep them."""
    parent, above = place.parent, place.parent.parent
    split = place.stem.rpartition("_")[2]
    folders = [one / inner for one in (parent, above) for inner in (".", "images", "JPEGImages", split)]
    endings = ("",) if Path(name).suffix.lower() in IMAGES else tuple(IMAGES)
    for path in _paths(folders, name, endings):
        with suppress(OSError):  # a name that is too long
            if path.is_file():
                return path
    raise InputError(
        f"`{place.name}` names the image `{name}`, which is missing",
        hint=f"it is looked for in {listed([str(folder) for folder in folders])}",
    )


def _paths(folders: Sequence[Path], name: str, endings: Sequence[str]) -> Iterator[Path]:
    if Path(name).is_absolute() or ".." in Path(name).parts:
        return
    for folder in folders:
        for ending in endings:
            yield folder / f"{name}{ending}"
