"""A segment of an index: a safetensors file of entries that never changes once it is written.

Its tensors, for n entries of dimension d, in the order of their ids:

- `ids` uint64 [n], rising;
- `vectors/i8` int8 [n, d] and `vectors/scale` float32 [n]: the 8-bit rows;
- `vectors/mean` float32 [d] and `vectors/bits` uint8 [n, 8 * ceil(d / 64)]: the 1-bit codes of what is above the mean;
- `vectors/f16` or `vectors/f32` [n, d], where the index keeps the vectors themselves;
- `columns/NAME` and, where they are not numbers, `values/NAME`: the metadata (`columns.py`);
- `payload` uint8 and `payload/ends` uint64 [n]: for each entry a JSON object with `text` and `metadata`, or nothing;
- `words/...`: the words of the texts (`postings.py`), where the index counts them and there are any.
"""

from __future__ import annotations

import json
import sys
from array import array
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from edge_infer.errors import BundleError, IntegrityError
from edge_infer.formats.safetensors import read_tensors, write_tensors
from edge_infer.platform.hashing import sha256_of_file
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor
from edge_infer.vectors.columns import Column
from edge_infer.vectors.postings import Postings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from edge_infer.vectors.catalogue import Catalogue, FileEntry

_CASTS = {
    DType.FLOAT32: "f",
    DType.FLOAT64: "d",
    DType.INT8: "b",
    DType.UINT8: "B",
    DType.UINT16: "H",
    DType.UINT32: "I",
    DType.UINT64: "Q",
}
_AGAIN = "fetch the index again, or build it again"


class Segment:
    """One opened file of entries, mapped into memory.

    Args:
        folder: The index's folder.
        entry: What the catalogue says of the file.
        catalogue: The catalogue.
        is_checked: Whether its SHA-256 is compared.

    Raises:
        IntegrityError: The file is missing, or not the one that the catalogue names.
        BundleError: It is not a segment of this index.

    Attributes:
        count: How many entries it has, deleted ones included.
        ids: Their ids.
        rows: The 8-bit rows.
        scales: Their scales.
        bits: The 1-bit codes.
        mean: The mean that these were made against.
        floats: The vectors themselves; None where the index does not keep them.
        columns: The metadata.
        postings: The words; None where they are not counted.
    """

    def __init__(self, folder: Path, entry: FileEntry, catalogue: Catalogue, *, is_checked: bool) -> None:
        self.path, self.count, self.dimension = entry.path, entry.rows, catalogue.dimension
        try:
            self._tensors = read_tensors(mapped(folder, entry, is_checked=is_checked))
            wide = -(-self.dimension // 64) * 8
            self.ids = self._view("ids", DType.UINT64, (self.count,))
            self.rows = self._view("vectors/i8", DType.INT8, (self.count, self.dimension))
            self.scales = self._view("vectors/scale", DType.FLOAT32, (self.count,))
            self.bits = self._view("vectors/bits", DType.UINT8, (self.count, wide))
            self.mean = self._view("vectors/mean", DType.FLOAT32, (self.dimension,))
            self.floats = self._floats(catalogue.rows)
            self._payload = self._view("payload", DType.UINT8, None)
            self._ends = self._view("payload/ends", DType.UINT64, (self.count,))
            self.columns = {name[8:]: self._column(name) for name in self._tensors if name.startswith("columns/")}
            self.postings = self._postings() if "words/lengths" in self._tensors else None
        except BundleError as error:
            error.message = f"`{folder.name}/{entry.path}`: {error.message}"
            error.args = (error.message,)
            error.hint = error.hint or _AGAIN
            raise

    def _view(self, name: str, dtype: DType, shape: tuple[int, ...] | None) -> Any:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise BundleError(f"the tensor `{name}` is missing")
        if tensor.dtype is not dtype or (tensor.shape != shape and (shape is not None or len(tensor.shape) != 1)):
            expected = f"{dtype}{list(shape) if shape is not None else '[n]'}"
            raise BundleError(f"`{name}` is {tensor.dtype}{list(tensor.shape)}, expected {expected}")
        data: Any = tensor.data()
        return data.cast("B").cast(_CASTS.get(dtype, "B"))

    def _floats(self, kind: str) -> memoryview | None:
        if kind == "int8":
            return None
        dtype = DType.FLOAT16 if kind == "f16" else DType.FLOAT32
        self._view(f"vectors/{kind}", dtype, (self.count, self.dimension))
        return self._tensors[f"vectors/{kind}"].data()

    def _column(self, name: str) -> Column:
        values = f"values/{name[8:]}"
        if values not in self._tensors:
            return Column(self._view(name, DType.FLOAT64, (self.count,)), None)
        return Column(self._view(name, DType.UINT32, (self.count,)), bytes(self._view(values, DType.UINT8, None)))

    def _postings(self) -> Postings:
        made = Postings(
            self._view("words/terms", DType.UINT8, None),
            self._view("words/term_ends", DType.UINT32, None),
            self._view("words/ends", DType.UINT32, None),
            self._view("words/rows", DType.UINT32, None),
            self._view("words/counts", DType.UINT16, None),
            self._view("words/lengths", DType.UINT32, (self.count,)),
        )
        last, most = len(made.term_ends), 0
        if len(made.ends) != last or len(made.rows) != len(made.counts):
            raise BundleError("the tensors `words/...` do not fit together")
        if last and (made.ends[-1] != len(made.rows) or made.term_ends[-1] != len(made.terms)):
            raise BundleError("the tensors `words/...` do not fit together")
        for end in made.ends:
            if end < most:
                raise BundleError("`words/ends` falls")
            most = end
        return made

    def row_of(self, number: int) -> int | None:
        """Return the row of an id, or None where the segment never had it."""
        row = bisect_left(self.ids, number)
        return row if row < self.count and self.ids[row] == number else None

    def payload(self, row: int) -> tuple[str | None, dict[str, Any]]:
        """Return the text and the metadata of a row.

        Raises:
            BundleError: They are damaged.
        """
        start, end = self._ends[row - 1] if row else 0, self._ends[row]
        if start == end:
            return None, {}
        try:
            if not start <= end <= len(self._payload):
                raise ValueError(f"bytes {start} to {end} of {len(self._payload)}")
            document = json.loads(bytes(self._payload[start:end]))
            text, metadata = document.get("text"), document.get("metadata", {})
            if not isinstance(metadata, dict) or not (text is None or isinstance(text, str)):
                raise TypeError("neither a text nor metadata")
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise BundleError(f"the payload of row {row} in `{self.path}` is damaged: {error}", hint=_AGAIN) from error
        return text, metadata


def mapped(folder: Path, entry: FileEntry, *, is_checked: bool) -> memoryview:
    """Map a file of an index into memory.

    Raises:
        IntegrityError: It is missing, or not the one that the catalogue names.
    """
    path = folder / entry.path
    try:
        size = path.stat().st_size
    except OSError as error:
        raise IntegrityError(f"the file is missing: {error.strerror}", hint=_AGAIN) from error
    if size != entry.size:
        raise IntegrityError(f"{size:,} bytes, expected {entry.size:,}", hint=_AGAIN, expected=entry.size, got=size)
    if is_checked and (digest := sha256_of_file(str(path))) != entry.sha256:
        raise IntegrityError(
            f"sha256 {digest}, expected {entry.sha256}", hint=_AGAIN, expected=entry.sha256, got=digest
        )
    if not size:
        raise IntegrityError("the file is empty", hint=_AGAIN, got=0)
    if sys.platform == "emscripten":  # a page's files are in memory already
        return memoryview(bytearray(path.read_bytes()))
    from mmap import ACCESS_COPY, mmap

    with path.open("rb") as file:
        # A private copy: `ctypes` takes the address of nothing that is read-only. Nobody writes into it.
        return memoryview(mmap(file.fileno(), 0, access=ACCESS_COPY))


def write_segment(
    ids: Sequence[int],
    vectors: Mapping[str, tuple[bytes, DType, tuple[int, ...]]],
    payload: Sequence[bytes],
    columns: Mapping[str, Column],
    postings: Postings | None,
) -> bytes:
    """Write a segment's file.

    Args:
        ids: The ids, rising.
        vectors: The tensors `vectors/...` by the rest of their names.
        payload: The JSON of each entry.
        columns: The metadata.
        postings: The words; None where they are not counted.
    """
    ends, end = array("Q"), 0
    for one in payload:
        end += len(one)
        ends.append(end)
    tensors = {
        "ids": _flat(array("Q", ids), DType.UINT64),
        "payload": _flat(b"".join(payload), DType.UINT8),
        "payload/ends": _flat(ends, DType.UINT64),
        **{f"vectors/{name}": Tensor(*parts) for name, parts in vectors.items()},
    }
    for name, column in columns.items():
        tensors[f"columns/{name}"] = _flat(column.data, DType.UINT32 if column.values is not None else DType.FLOAT64)
        if column.values is not None:
            tensors[f"values/{name}"] = _flat(column.values, DType.UINT8)
    if postings is not None:
        for name, data in postings._asdict().items():
            kinds = {"terms": DType.UINT8, "counts": DType.UINT16}
            tensors[f"words/{name}"] = _flat(data, kinds.get(name, DType.UINT32))
    return write_tensors(tensors, aligned=True)


def _flat(data: Any, dtype: DType) -> Tensor:
    view = memoryview(data)
    return Tensor(view.cast("B"), dtype, (view.nbytes // dtype.nbytes((1,)),))
