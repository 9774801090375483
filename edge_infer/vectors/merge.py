"""Segments of what several segments hold, without the deleted rows: what `Index.compact` writes.

8-bit rows and kept vectors are copied as they are. 1-bit codes are made again against the mean of the new segment; they
come from the kept vectors, or from the 8-bit rows where there are none.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from edge_infer.tensors.dtypes import DType
from edge_infer.vectors.columns import make_columns
from edge_infer.vectors.postings import count_words
from edge_infer.vectors.segment import write_segment

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from edge_infer.vectors.arithmetic import Arithmetic
    from edge_infer.vectors.catalogue import Catalogue
    from edge_infer.vectors.segment import Segment


def merge(
    segments: Sequence[Segment],
    alive: Sequence[bytes | None],
    catalogue: Catalogue,
    arithmetic: Arithmetic,
    most: int,
) -> Iterator[tuple[bytes, int]]:
    """Give the new segments' bytes, and how many entries each has.

    Args:
        segments: The old ones.
        alive: For each of them a byte for each row, 0 where it is deleted; None where no row is.
        catalogue: The index.
        arithmetic: What computes.
        most: The most entries of a segment.

    Raises:
        BundleError: An old segment is damaged.
    """
    left = sorted(
        (number, place, row)
        for place, (segment, mask) in enumerate(zip(segments, alive, strict=True))
        for row, number in enumerate(segment.ids)
        if mask is None or mask[row]
    )
    for start in range(0, len(left), most):
        part = left[start : start + most]
        yield _merged([number for number, _, _ in part], [(segments[i], row) for _, i, row in part], catalogue,
                      arithmetic), len(part)  # fmt: skip


def _merged(
    ids: Sequence[int], rows: Sequence[tuple[Segment, int]], catalogue: Catalogue, arithmetic: Arithmetic
) -> bytes:
    wide, count = catalogue.dimension, len(rows)
    codes = b"".join(bytes(one.rows[row * wide : (row + 1) * wide]) for one, row in rows)
    scales = b"".join(bytes(one.scales[row : row + 1]) for one, row in rows)
    vectors = {"i8": (codes, DType.INT8, (count, wide)), "scale": (scales, DType.FLOAT32, (count,))}
    kept = b""
    if catalogue.rows != "int8":
        size = wide * (2 if catalogue.rows == "f16" else 4)
        dtype = DType.FLOAT16 if catalogue.rows == "f16" else DType.FLOAT32
        kept = b"".join(bytes(one.floats[row * size : (row + 1) * size]) for one, row in rows if one.floats is not None)
        vectors[catalogue.rows] = (kept, dtype, (count, wide))
    decoded = arithmetic.decoded(codes, scales, kept, catalogue.rows, wide)
    mean = arithmetic.mean(decoded)
    bits = arithmetic.codes(decoded, mean)
    vectors["mean"] = (mean, DType.FLOAT32, (wide,))
    vectors["bits"] = (bits, DType.UINT8, (count, len(bits) // count))
    found = [one.payload(row) for one, row in rows]
    payload = [_payload(text, metadata) for text, metadata in found]
    texts = [text for text, _ in found]
    postings = count_words(texts) if catalogue.words and any(texts) else None
    return write_segment(ids, vectors, payload, make_columns([metadata for _, metadata in found]), postings)


def _payload(text: str | None, metadata: dict[str, object]) -> bytes:
    document = ({} if text is None else {"text": text}) | ({"metadata": metadata} if metadata else {})
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() if document else b""
