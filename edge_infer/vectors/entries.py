"""New entries: their ids, their payload, their vectors as tensors, and the segments that they become."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from edge_infer.errors import InputError
from edge_infer.tensors.dtypes import DType
from edge_infer.vectors.catalogue import MAX_ID
from edge_infer.vectors.columns import make_columns
from edge_infer.vectors.postings import count_words
from edge_infer.vectors.segment import write_segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from edge_infer.vectors.arithmetic import Arithmetic
    from edge_infer.vectors.view import View

#: A new segment takes the mean of the largest one where that has so many entries; else its own.
_MEAN_ROWS = 1000


def new_segments(
    view: View,
    arithmetic: Arithmetic,
    ids: Sequence[int],
    rows: Any,
    metadata: Sequence[dict[str, Any] | None] | None,
    texts: Sequence[str | None] | None,
    most: int,
) -> Iterator[tuple[bytes, int]]:
    """Give the bytes of the segments that new entries become, and how many entries each has.

    Args:
        view: The index without them.
        arithmetic: What made the rows.
        ids: Their ids.
        rows: Their vectors; of length 1 where the metric is `cosine`.
        metadata: The metadata of each; None for none.
        texts: The text of each; None for none.
        most: The most entries of a segment.

    Raises:
        InputError: Texts or metadata are not what they can be.
    """
    count = len(ids)
    texts = [None] * count if texts is None else list(texts)
    objects = [{} if one is None else one for one in metadata or [None] * count]
    payload = [_payload(texts[i], objects[i], i) for i in range(count)]
    largest = max(view.segments, key=lambda one: one.count, default=None)
    order = sorted(range(count), key=ids.__getitem__)
    for start in range(0, count, most):
        part = order[start : start + most]
        picked = arithmetic.pick(rows, part)
        mean: bytes | memoryview = arithmetic.mean(picked)
        if largest is not None and largest.count >= max(_MEAN_ROWS, len(part)):
            mean = largest.mean
        words = [texts[i] for i in part] if view.catalogue.words else []
        data = write_segment(
            [ids[i] for i in part],
            _encoded(arithmetic, picked, mean, view.catalogue.rows),
            [payload[i] for i in part],
            make_columns([objects[i] for i in part]),
            count_words(words) if any(words) else None,
        )
        yield data, len(part)


def _encoded(
    arithmetic: Arithmetic, rows: Any, mean: bytes | memoryview, kind: str
) -> dict[str, tuple[bytes, DType, tuple[int, ...]]]:
    """Return the tensors `vectors/...` of rows.

    Args:
        arithmetic: What made the rows.
        rows: The rows; of length 1 where the metric is `cosine`.
        mean: What the 1-bit codes are made against, as float32.
        kind: What else is kept: `int8` for nothing, `f16` or `f32`.
    """
    codes, scales = arithmetic.encode(rows)
    count, dimension = len(scales) // 4, memoryview(mean).nbytes // 4
    bits = arithmetic.codes(rows, mean)
    found = {
        "i8": (codes, DType.INT8, (count, dimension)),
        "scale": (scales, DType.FLOAT32, (count,)),
        "bits": (bits, DType.UINT8, (count, len(bits) // count)),
        "mean": (bytes(mean), DType.FLOAT32, (dimension,)),
    }
    if kind != "int8":
        dtype = DType.FLOAT16 if kind == "f16" else DType.FLOAT32
        found[kind] = (arithmetic.floats(rows, kind), dtype, (count, dimension))
    return found


def take_ids(ids: Sequence[int] | None, count: int, view: View) -> list[int]:
    """Return the ids of new entries: those that are given, or the next free ones.

    Raises:
        InputError: One is not a number that an id can be, is given twice, or is that of an entry.
    """
    if ids is None:
        first = view.catalogue.next_id
        if first + count - 1 > MAX_ID:
            raise InputError(f"there are no ids left above {first}", hint="give ids")
        return list(range(first, first + count))
    found = [int(one) if hasattr(one, "__index__") and not isinstance(one, bool) else -1 for one in ids]
    for given, number in zip(ids, found, strict=True):
        if not 0 <= number <= MAX_ID:
            raise InputError(f"the id {given!r} is not a whole number from 0 to 2^53 - 1", hint="give numbers, or none")
    if len(set(found)) < count:
        seen: set[int] = set()
        twice = next(one for one in found if one in seen or seen.add(one))  # type: ignore[func-returns-value]
        raise InputError(f"the id {twice} is given twice", hint="give each entry its own", id=twice)
    for segment, alive in zip(view.segments, view.alive, strict=True):
        for number in found:
            row = segment.row_of(number)
            if row is not None and (alive is None or alive[row]):
                raise InputError(
                    f"the index has an entry of the id {number} already", hint="index.delete([...]) first", id=number
                )
    return found


def _payload(text: object, metadata: object, row: int) -> bytes:
    """Write the text and the metadata of an entry as JSON; nothing where it has neither.

    Raises:
        InputError: They are no text and no JSON object.
    """
    if not (text is None or isinstance(text, str)) or not isinstance(metadata, dict):
        raise InputError(
            f"entry {row} has the text {text!r} and the metadata {metadata!r}", hint="give a text and an object"
        )
    document: dict[str, Any] = {}
    if text is not None:
        document["text"] = text
    if metadata:
        document["metadata"] = metadata
    if not document:
        return b""
    try:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"entry {row} cannot be kept as JSON: {error}", hint="give JSON values", row=row) from error
