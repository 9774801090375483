"""An index as it is at one moment: its catalogue, its opened segments, and which of their rows are deleted."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import BundleError, IntegrityError
from edge_infer.formats.safetensors import read_tensors, write_tensors
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor
from edge_infer.vectors.columns import Filter, both
from edge_infer.vectors.segment import Segment, mapped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from edge_infer.vectors.catalogue import Catalogue, FileEntry
    from edge_infer.vectors.folder import IndexFolder


class View(NamedTuple):
    """The index as it is at one moment; a search keeps to one of them.

    Attributes:
        catalogue: What `index.json` says.
        segments: The segments.
        alive: For each segment a byte for each row, 0 where it is deleted; None where no row is.
    """

    catalogue: Catalogue
    segments: tuple[Segment, ...]
    alive: tuple[bytes | None, ...]

    @property
    def columns(self) -> list[str]:
        """The names of all metadata that can be filtered by."""
        return sorted({name for one in self.segments for name in one.columns})

    def masks(self, where: Mapping[str, Any] | None) -> list[bytes | None]:
        """Return for each segment a byte for each row, 0 where it is deleted or a filter leaves it out.

        Raises:
            InputError: The filter cannot be.
        """
        if not where:
            return [*self.alive]
        passes = Filter(where, self.columns)
        masks: list[bytes | None] = []
        for segment, alive in zip(self.segments, self.alive, strict=True):
            mask = passes.mask(segment.columns, segment.count)
            masks.append(mask if alive is None else both(mask, alive))
        return masks


def open_view(folder: IndexFolder, *, check: bool, known: View | None = None) -> View:
    """Open an index as it is now.

    Args:
        folder: Its folder.
        check: Whether the SHA-256 of files is compared.
        known: The index as it was before, which is returned where it is the same still.

    Raises:
        BundleError: It is not an index, or damaged.
    """
    catalogue = folder.read()
    while True:
        if known is not None and known.catalogue == catalogue:
            return known
        try:
            return load_view(folder, catalogue, _still(known, catalogue), check=check)
        except IntegrityError:
            # Another process may have compacted the index since, and removed the files of before.
            newest = folder.read()
            if newest == catalogue:
                raise
            catalogue = newest


def _still(known: View | None, catalogue: Catalogue) -> list[Segment]:
    """Return the segments that are open already and the same in another catalogue."""
    if known is None or known.catalogue[:3] != catalogue[:3]:  # metric, dimension, rows
        return []
    entries = set(catalogue.segments)
    return [one for one, entry in zip(known.segments, known.catalogue.segments, strict=True) if entry in entries]


def load_view(folder: IndexFolder, catalogue: Catalogue, known: Sequence[Segment], *, check: bool) -> View:
    """Open the files that a catalogue names.

    Args:
        folder: The index's folder.
        catalogue: What it is to be.
        known: Segments that are open already.
        check: Whether the SHA-256 of the others is compared.

    Raises:
        BundleError: A file is missing or damaged.
    """
    opened = {one.path: one for one in known}
    segments = tuple(
        opened.get(entry.path) or Segment(folder.path, entry, catalogue, is_checked=check)
        for entry in catalogue.segments
    )
    if catalogue.deleted is None:
        return View(catalogue, segments, (None,) * len(segments))
    gone, path = _read_deleted(folder, catalogue.deleted, check=check), catalogue.deleted.path
    alive: list[bytes | None] = []
    for segment in segments:
        rows = gone.pop(segment.path, None)
        mask = bytearray(b"\1" * segment.count)
        for row in rows or ():
            if row >= segment.count or not mask[row]:
                raise BundleError(f"`{path}` deletes row {row} of {segment.count} twice, or more than there are")
            mask[row] = 0
        alive.append(bytes(mask) if rows else None)
    if gone:
        raise BundleError(f"`{path}` names the segment `{next(iter(gone))}`, which is not there")
    return View(catalogue, segments, tuple(alive))


def write_deleted(gone: Mapping[str, Sequence[int]]) -> bytes:
    """Write the rows that are deleted, by segment."""
    return write_tensors(
        {path: Tensor(array("I", rows).tobytes(), DType.UINT32, (len(rows),)) for path, rows in gone.items()}
    )


def _read_deleted(folder: IndexFolder, entry: FileEntry, *, check: bool) -> dict[str, memoryview]:
    try:
        tensors = read_tensors(mapped(folder.path, entry, is_checked=check))
        if any(one.dtype is not DType.UINT32 for one in tensors.values()):
            raise BundleError("a tensor is not uint32")
        if sum(one.size for one in tensors.values()) != entry.rows:
            raise BundleError(f"it does not name {entry.rows} entries")
    except BundleError as error:
        error.message = f"`{folder.path.name}/{entry.path}`: {error.message}"
        error.args = (error.message,)
        raise
    return {
        path: tensor.data().cast("B").cast("I") if tensor.size else tensor.data() for path, tensor in tensors.items()
    }
