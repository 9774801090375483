"""Fill an index from documents: what is there already is kept, what has changed is replaced.

Pieces are embedded and added some at a time, so that a filling that was interrupted goes on where it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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
    """

    added: int
    kept: int
    removed: int


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
    for start in range(0, len(new), _STEP):
        part = new[start : start + _STEP]
        texts = [piece.text for piece in part]
        vectors = index.embedder.documents(texts, progress)
        index.add(vectors, texts=texts, metadata=[piece.metadata for piece in part])
    return Filled(len(new), kept, removed)
