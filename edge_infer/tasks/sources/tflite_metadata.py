"""Read the metadata of a TFLite file: labels, normalisation, the order of boxes.

The layout is that of tensorflow/lite/experimental/metadata (metadata_schema.fbs); labels lie in a zip that is appended
to the model.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from struct import error as struct_error
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import BundleError, UnsupportedError
from edge_infer.formats.tflite_tables import Table
from edge_infer.tasks.sources.fields import MAX_LABELS
from edge_infer.tasks.sources.found import made
from edge_infer.tasks.sources.images import ImageInput, is_image

if TYPE_CHECKING:
    from edge_infer.tasks.sources.facts import Facts
    from edge_infer.tasks.sources.found import Found

SOURCE = "tflite-metadata"
_ENTRY = "TFLITE_METADATA"
#: The largest file of labels, unpacked.
_MAX_BYTES = 4 * 2**20
_IMAGE, _BOXES, _AUDIO = 2, 3, 4  # ContentProperties
_NORMALIZATION = 1  # ProcessUnitOptions
_TOKENIZERS = {4: "BertTokenizer", 5: "SentencePieceTokenizer", 6: "RegexTokenizer"}
_LABELS = (2, 3)  # AssociatedFileType: names by place along an axis, names by value
#: Which number of a box stands where: left, top, right, bottom is the file's own order.
_ORDERS: dict[tuple[int, ...], str] = {(0, 1, 2, 3): "xyxy", (1, 0, 3, 2): "yxyx"}
_BACKGROUND = ("???", "background")


class _Tensor(NamedTuple):
    """The metadata of one input or output."""

    name: str
    content: int
    mean: list[float]
    std: list[float]
    process: tuple[int, ...]
    labels: str
    order: tuple[int, ...]
    box_type: int
    in_pixels: bool


def find(facts: Facts, data: bytes) -> Found | None:
    """Return the definition that a TFLite file's metadata give; None where it has none, or they say too little.

    Args:
        facts: What the model takes and gives.
        data: The file's bytes.

    Raises:
        BundleError: The metadata, or the zip with the labels, are damaged.
        UnsupportedError: They ask for what no step does.
    """
    try:
        sides = _metadata(data)
    except (struct_error, IndexError, UnicodeDecodeError) as error:
        raise BundleError("the TFLite metadata are damaged", hint="download the file again") from error
    if sides is None:
        return None
    before, after = sides
    for kind in (kind for tensor in before for kind in tensor.process if kind in _TOKENIZERS):
        raise UnsupportedError(
            f"{_TOKENIZERS[kind]} of the TFLite metadata is not supported",
            hint="say what the steps are: --preprocess FILE.json",
        )
    if len(before) != 1 or len(facts.inputs) != 1:
        return None
    if before[0].content == _AUDIO:
        raise UnsupportedError(
            "sounds in the TFLite metadata are not supported", hint="say what the steps are: --preprocess FILE.json"
        )
    if not is_image(facts.inputs[0]) or (before[0].content != _IMAGE and not before[0].mean):
        return None
    image = ImageInput(facts.inputs[0])
    if image.width is None or image.height is None:
        raise UnsupportedError(
            f"input `{facts.inputs[0]}` has no fixed size", hint="say what the steps are: --preprocess FILE.json"
        )
    if not image.takes_levels and not before[0].mean:
        return None
    steps = [
        image.decode(),
        {"step": "image.resize", "width": image.width, "height": image.height},
        image.tensor(1.0, before[0].mean or [0.0], before[0].std or [1.0]),
    ]
    labels = _labels(data, next((tensor.labels for tensor in after if tensor.labels), ""))
    if facts.detections:
        return made("object-detection", SOURCE, {image.name: steps}, _detections(facts, after), _of_objects(labels))
    if len(facts.outputs) != 1:
        return None
    return made(*_one_output(facts, image.name, steps, labels))


def _one_output(facts: Facts, name: str, steps: list[dict[str, Any]], labels: list[str]) -> tuple[Any, ...]:
    """Return the arguments of `made` for a model of one output: a classifier, or what gives a vector."""
    (output,) = facts.outputs
    chain = dequantized(facts, output.name)
    is_sure = facts.has_probabilities(output.name)
    if not labels and not is_sure:
        return "image-feature-extraction", SOURCE, {name: steps}, [*chain, {"step": "post.tensor"}]
    count = output.shape[-1] if output.shape else None
    if labels and isinstance(count, int) and count != len(labels):
        raise BundleError(
            f"the TFLite metadata name {len(labels)} labels, and output `{output}` has {count}", hint="--labels FILE"
        )
    after = [*chain, *([] if is_sure else [{"step": "post.softmax"}]), {"step": "post.top_k"}]
    return "image-classification", SOURCE, {name: steps}, after, labels


def dequantized(facts: Facts, output: str) -> list[dict[str, Any]]:
    """Return the step that makes floats of a quantized output; an empty list for a float one."""
    found = facts.quantization.get(output)
    if found is None:
        return []
    name = output if len(facts.outputs) > 1 else None
    zero = found.zero_point or None
    return [{"step": "tensor.dequantize", "tensor": name, "scale": found.scale, "zero_point": zero}]


def _detections(facts: Facts, after: list[_Tensor]) -> list[dict[str, Any]]:
    """Return the steps after TFLite_Detection_PostProcess: its outputs are known by the operator, and not by order."""
    boxes = next((tensor for tensor in after if tensor.content == _BOXES), None)
    order, in_pixels = "yxyx", False  # what the operator gives
    if boxes is not None:
        if boxes.box_type not in (0, 1) or (boxes.order or (0, 1, 2, 3)) not in _ORDERS:
            raise UnsupportedError(
                f"boxes of type {boxes.box_type}, order {boxes.order} are not supported",
                hint="say what the steps are: --preprocess FILE.json",
            )
        order, in_pixels = _ORDERS[boxes.order or (0, 1, 2, 3)], boxes.in_pixels
    names = dict(zip(("boxes", "classes", "scores", "count"), facts.detections, strict=True))
    unit = None if in_pixels else "ratio"
    decode = {"step": "post.boxes", "format": "tflite", "tensors": names, "order": order, "unit": unit}
    return [*(step for name in facts.detections for step in dequantized(facts, name)), decode, _TO_IMAGE]


_TO_IMAGE: dict[str, Any] = {"step": "post.detections"}


def _of_objects(labels: list[str]) -> list[str]:
    """Return the labels of what is found: the operator counts without the background, which older lists begin with."""
    return labels[1:] if labels and labels[0] in _BACKGROUND else labels


def _metadata(data: bytes) -> tuple[list[_Tensor], list[_Tensor]] | None:
    model = Table.root(data)
    entry = next((one for one in model.tables(6) if one.text(0) == _ENTRY), None)
    if entry is None:
        return None
    buffers = list(model.tables(4))
    content = buffers[entry.number(1, "I")].bytes(0)
    if content is None:
        return None
    subgraph = next(Table.root(bytes(content)).tables(3), None)
    if subgraph is None:
        return None
    return [_tensor(one) for one in subgraph.tables(2, 64)], [_tensor(one) for one in subgraph.tables(3, 64)]


def _tensor(table: Table) -> _Tensor:
    content = table.table(3)
    kind = content.number(0, "B") if content else 0
    properties = content.table(1) if content else None
    mean: list[float] = []
    std: list[float] = []
    process = []
    for unit in table.tables(4, 16):
        process.append(unit.number(0, "B"))
        options = unit.table(1)
        if process[-1] == _NORMALIZATION and options is not None:
            mean, std = list(options.numbers(0, "f")), list(options.numbers(1, "f"))
    if len(mean) not in (0, 1, 3) or len(std) != len(mean) or 0 in std:
        raise BundleError(f"the TFLite metadata normalise by mean {mean[:4]}, std {std[:4]}", hint="--preprocess FILE")
    files = [one for one in table.tables(6, 64) if one.number(2, "B") in _LABELS]
    # Of several languages the one without a locale is the standard.
    files.sort(key=lambda one: bool(one.text(3)))
    has_boxes = kind == _BOXES and properties is not None
    return _Tensor(
        table.text(0),
        kind,
        mean,
        std,
        tuple(process),
        files[0].text(0) if files else "",
        properties.numbers(0, "I") if has_boxes and properties else (),
        properties.number(1, "B") if has_boxes and properties else 0,
        bool(properties.number(2, "B")) if has_boxes and properties else False,
    )


def _labels(data: bytes, name: str) -> list[str]:
    """Read a file of labels from the zip at the end of the model: one name on each line."""
    if not name:
        return []
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive, archive.open(name) as file:
            packed = file.read(_MAX_BYTES + 1)
    except KeyError:
        raise BundleError(
            f"the TFLite metadata name the file `{name}`, which is missing", hint="--labels FILE"
        ) from None
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, RuntimeError, EOFError, NotImplementedError) as error:
        raise BundleError(f"the labels `{name}` cannot be read: {error}", hint="--labels FILE") from error
    if len(packed) > _MAX_BYTES:
        raise BundleError(f"the labels `{name}` unpack to more than {_MAX_BYTES} bytes", hint="--labels FILE")
    try:
        labels = packed.decode().splitlines()
    except UnicodeDecodeError as error:
        raise BundleError(f"the labels `{name}` are not UTF-8: {error}", hint="--labels FILE") from error
    if len(labels) > MAX_LABELS:
        raise BundleError(f"`{name}` holds {len(labels)} labels, expected at most {MAX_LABELS}", hint="--labels FILE")
    return labels
