"""Fill an index from documents: what is there already is kept, what has changed is replaced.

Pieces are embedded and added some at a time, so that a filling that was interrupted goes on where it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from edge_infer.tensors.tensor import Tensor
    from edge_infer.vectors.documents import Piece
    from edge_infer.vectors.index import Index

#: So many pieces are added at once.
_STEP = 2048


class Filled(NamedTuple):
    """What a filling did.

    Attributes:
        added: How many pieces were added.
        kept: How many were there already.
        removed: How many were there and are not any more.
        unread: By source why it is no image: it is left out.
    """

    added: int
    kept: int
    removed: int
    unread: dict[str, str]


def fill(
    index: Index, pieces: Sequence[Piece], sources: Iterable[str], progress: Callable[[int], None] | None = None
) -> Filled:
    """Let an index hold the pieces of some documents, and nothing else of these documents.

    Args:
        index: The index, with the model that embeds texts.
        pieces: All pieces of the documents.
        sources: The documents, as the pieces' metadata name them.
        progress: Is told how many pieces were done since its last call.
    """
    there: dict[tuple[Any, Any], tuple[int, str | None, dict[str, Any]]] = {}
    wanted = {*sources}
    for number in index.ids():
        hit = index.get(number)
        if hit is not None and hit.metadata.get("source") in wanted:
            there[hit.metadata.get("source"), hit.metadata.get("part")] = (number, hit.text, hit.metadata)
    new: list[Piece] = []
    for piece in pieces:
        key = (piece.metadata["source"], piece.metadata["part"])
        if key in there and there[key][1:] == (piece.text, piece.metadata):
            del there[key]
        else:
            new.append(piece)
    kept = len(pieces) - len(new)
    if progress is not None:
        progress(kept)
    removed = index.delete([number for number, _, _ in there.values()]) if there else 0
    unread: dict[str, str] = {}
    for start in range(0, len(new), _STEP):
        part = new[start : start + _STEP]
        if part[0].image is not None:
            vectors, part = _of_images(index, part, unread, progress)
        else:
            vectors = index.embedder.documents([piece.text for piece in part], progress)
        if part:
            texts = [piece.text for piece in part]
            index.add(vectors, texts=texts, metadata=[piece.metadata for piece in part])
    return Filled(len(new) - len(unread), kept, removed, unread)


def _of_images(
    index: Index, pieces: Sequence[Piece], unread: dict[str, str], progress: Callable[[int], None] | None
) -> tuple[list[Tensor], list[Piece]]:
    """Return the vectors of images, and the images that could be read."""
    vectors: list[Tensor] = []
    read: list[Piece] = []
    for piece in pieces:
        try:
            vectors.append(index.embedder.vector(piece))
            read.append(piece)
        except InputError as error:
            unread[piece.metadata["source"]] = error.message
        if progress is not None:
            progress(1)
    return vectors, read
