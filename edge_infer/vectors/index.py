"""Public `Index`: vectors with their texts and metadata in a folder, and the search for the nearest."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from edge_infer.errors import InputError
from edge_infer.vectors.catalogue import Catalogue, Embedding, check_choice
from edge_infer.vectors.entries import new_segments, take_ids
from edge_infer.vectors.folder import DELETED, SEGMENTS, IndexFolder
from edge_infer.vectors.hit import Hit
from edge_infer.vectors.modes import check_search, find
from edge_infer.vectors.view import load_view, open_view, write_deleted
from edge_infer.vectors.ways import best_arithmetic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any, Self

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.vectors.arithmetic import Arithmetic
    from edge_infer.vectors.embedder import Embedder
    from edge_infer.vectors.view import View

#: A segment has at most so many entries: an index of a million changes by files of 50 MB.
SEGMENT_ROWS = 131_072


class Index:
    """An index: vectors, their texts and metadata, found by vector, by text, or by words.

    It is exact: each search compares each entry, up to 100,000 of them in a few milliseconds; above, 1-bit codes choose
    candidates, unless `full_scan` is asked for. Python, Pyodide and the page give the same ids and scores.

    Made by `Index.create` and `Index.open`. Searches may run in any thread; one process writes at a time.

    Attributes:
        path: The folder.
        arithmetic: What computes: `kernel`, `numpy` or `plain`.
    """

    def __init__(self, folder: IndexFolder, *, check: bool, model: str | os.PathLike[str] | Bundle | None) -> None:
        self._folder, self._check, self._model = folder, check, model
        self.path = folder.path
        self._arithmetic: Arithmetic = best_arithmetic()
        self._writing = threading.RLock()
        self._embedder: Embedder | None = None
        self._view = open_view(folder, check=check)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        dimension: int,
        metric: str = "cosine",
        *,
        rows: str = "int8",
        words: bool = True,
        embedding: Embedding | None = None,
        model: str | os.PathLike[str] | Bundle | None = None,
    ) -> Self:
        """Make an empty index.

        Args:
            path: The folder to make, such as `notes.index`.
            dimension: The length of the vectors.
            metric: `cosine` for the angle between vectors, `dot` for their dot product.
            rows: What is kept of each vector besides its 8-bit row: `int8` for nothing more, `f16` or `f32` for the
                vector itself, by which the best are scored again.
            words: Whether the words of texts are counted, for searches by words.
            embedding: The model that the vectors come from; None where nobody says.
            model: The bundle that embeds texts, as in `open`.

        Raises:
            InputError: An argument is not what it can be.
            BundleError: There is something at the path already.
        """
        check_choice(metric, dimension, rows)
        folder = IndexFolder(path)
        folder.create(Catalogue(metric, dimension, rows, words, embedding))
        return cls(folder, check=True, model=model)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        model: str | os.PathLike[str] | Bundle | None = None,
        check: bool = True,
    ) -> Self:
        """Open an index.

        Args:
            path: Its folder.
            model: The bundle that embeds texts. Unless given it is looked for by its name beside the index, then in the
                working directory, when a text is first asked for.
            check: Whether the SHA-256 of each file is compared; sizes always are.

        Raises:
            BundleError: There is no index, or it is of another version.
            IntegrityError: A file of it is missing or damaged.
        """
        return cls(IndexFolder(path), check=check, model=model)

    def __len__(self) -> int:
        return self._view.catalogue.entries

    def __repr__(self) -> str:
        catalogue = self._view.catalogue
        return f"Index({self.path.name}, {len(self):,} x {catalogue.dimension}, {catalogue.metric})"

    @property
    def arithmetic(self) -> str:
        """What computes: `kernel`, `numpy` or `plain`."""
        return self._arithmetic.name

    @property
    def view(self) -> View:
        """The index as it is now: for files of this room."""
        return self._view

    @property
    def computing(self) -> Arithmetic:
        """The arithmetic itself: for files of this room."""
        return self._arithmetic

    @property
    def embedding(self) -> Embedding | None:
        """The model that the vectors come from; None where nobody says."""
        return self._view.catalogue.embedding

    # -- reading --

    def search(
        self,
        query: Any,
        k: int = 10,
        *,
        where: Mapping[str, Any] | None = None,
        full_scan: bool = False,
        mode: str = "vectors",
    ) -> list[Hit]:
        """Find the nearest entries.

        Args:
            query: A vector; or a text, or the path (a `Path`) or the bytes of an image, which the index's model embeds.
            k: The most entries to return.
            where: What their metadata must be: `{"lang": "en", "year": {">=": 2020}, "tag": ["a", "b"]}`.
            full_scan: Whether each 8-bit row is compared, however many there are.
            mode: How a text is looked for: by its vector (`vectors`, the default), by its words (`words`, BM25), or by
                both (`hybrid`, reciprocal rank fusion).

        Returns:
            The entries, the nearest first; of two with the same score the lower id first.

        Raises:
            InputError: The query does not fit the index, or an argument is not what it can be.
            BundleError: The index is damaged, or the model of a text is not there or of other weights.
        """
        check_search(k, mode)
        if isinstance(query, (os.PathLike, bytes)):
            query = self.embedder.query(query)
        if not isinstance(query, str):
            return self.find(None, query, k, where=where, full_scan=full_scan, mode=mode)
        vector = self.embedder.query(query) if mode != "words" else None
        return self.find(query, vector, k, where=where, full_scan=full_scan, mode=mode)

    def find(
        self,
        text: str | None,
        vector: Any,
        k: int = 10,
        *,
        where: Mapping[str, Any] | None = None,
        full_scan: bool = False,
        mode: str = "vectors",
    ) -> list[Hit]:
        """Find the nearest entries to a text whose vector is there already; else as `search`.

        Args:
            text: The text; None where there is a vector alone.
            vector: Its vector; None for the mode `words`.
            k: The most entries to return.
            where: What their metadata must be.
            full_scan: Whether each 8-bit row is compared.
            mode: `vectors`, `words` or `hybrid`.

        Raises:
            InputError: The query does not fit the index, or an argument is not what it can be.
            BundleError: The index is damaged.
        """
        return find(self._view, self._arithmetic, text, vector, k, where=where, full_scan=full_scan, mode=mode)

    def refresh(self) -> bool:
        """See what other processes wrote since; return whether there was anything.

        Searches that are under way keep to what they began with. Files that are open already are not read again.

        Raises:
            BundleError: The index is gone or damaged; this one stays as it was.
        """
        with self._writing:
            view = open_view(self._folder, check=self._check, known=self._view)
            is_new = view is not self._view
            self._view = view
        return is_new

    def get(self, number: int) -> Hit | None:
        """Return the entry of an id with a score of 0, or None where there is none."""
        view = self._view
        for segment, alive in zip(view.segments, view.alive, strict=True):
            row = segment.row_of(number)
            if row is not None and (alive is None or alive[row]):
                return Hit(number, 0.0, *segment.payload(row))
        return None

    def ids(self, where: Mapping[str, Any] | None = None) -> Iterator[int]:
        """Give the ids of all entries, or of those whose metadata are as `where` says, segment by segment."""
        view = self._view
        for segment, mask in zip(view.segments, view.masks(where), strict=True):
            yield from (number for row, number in enumerate(segment.ids) if mask is None or mask[row])

    def info(self) -> dict[str, Any]:
        """Describe the index: JSON values."""
        catalogue = self._view.catalogue
        stored = sum(one.rows for one in catalogue.segments)
        return {
            "path": str(self.path),
            "entries": catalogue.entries,
            "deleted": stored - catalogue.entries,
            "dimension": catalogue.dimension,
            "metric": catalogue.metric,
            "rows": catalogue.rows,
            "words": catalogue.words,
            "segments": len(catalogue.segments),
            "bytes": sum(one.size for one in catalogue.files),
            "embedding": catalogue.embedding and catalogue.embedding._asdict(),
            "columns": self._view.columns,
            "arithmetic": self.arithmetic,
        }

    # -- writing --

    def add(
        self,
        vectors: Any = None,
        ids: Sequence[int] | None = None,
        metadata: Sequence[dict[str, Any] | None] | None = None,
        texts: Sequence[str | None] | None = None,
    ) -> list[int]:
        """Add entries as new segments; what is there is not written again.

        Args:
            vectors: Vectors [n, dimension]: an array, or a list of vectors. None for those of the texts, which the
                index's model embeds.
            ids: Whole numbers from 0 to 2^53 - 1; the next free ones unless given.
            metadata: JSON objects; texts, numbers, true and false in them can be filtered by.
            texts: The texts.

        Returns:
            The ids.

        Raises:
            InputError: A vector, an id or metadata are not what they can be; the index stays as it was.
            BundleError: Another process is writing.
        """
        if vectors is None:
            if texts is None or any(text is None for text in texts):
                raise InputError("there is neither a vector nor a text for each entry", hint="index.add(texts=[...])")
            vectors = self.embedder.documents([text for text in texts if text is not None])
        rows = self._arithmetic.rows(vectors, self._view.catalogue.dimension)
        count = len(rows)
        for name, given in (("ids", ids), ("metadata", metadata), ("texts", texts)):
            if given is not None and len(given) != count:
                raise InputError(
                    f"there are {count} vectors and {len(given)} {name}", hint=f"give {name} for each vector"
                )
        if not count:
            return []
        if self._view.catalogue.metric == "cosine":
            rows = self._arithmetic.normalize(rows)
        with self._changing() as view:
            numbers = take_ids(ids, count, view)
            made = new_segments(view, self._arithmetic, numbers, rows, metadata, texts, SEGMENT_ROWS)
            entries = [self._folder.add(SEGMENTS, data, size) for data, size in made]
            self._commit(
                view.catalogue._replace(
                    segments=(*view.catalogue.segments, *entries),
                    next_id=max(view.catalogue.next_id, max(numbers) + 1),
                )
            )
        return numbers

    def delete(self, ids: Sequence[int]) -> int:
        """Delete entries; their room is kept until `compact`.

        Returns:
            How many there were: ids that the index does not have are passed over.

        Raises:
            BundleError: Another process is writing.
        """
        wanted = set(ids)
        with self._changing() as view:
            gone: dict[str, list[int]] = {}
            count = 0
            for segment, alive in zip(view.segments, view.alive, strict=True):
                found = {row for number in wanted if (row := segment.row_of(number)) is not None}
                count += len(found if alive is None else [row for row in found if alive[row]])
                dead = {row for row in range(segment.count) if not alive[row]} if alive is not None else set()
                if found | dead:
                    gone[segment.path] = sorted(found | dead)
            if count:
                entry = self._folder.add(DELETED, write_deleted(gone), sum(map(len, gone.values())))
                self._commit(view.catalogue._replace(deleted=entry))
        return count

    def compact(self) -> int:
        """Write the entries again without the deleted ones, in as few segments as they need.

        Returns:
            How many bytes the index is smaller; negative where it is larger.

        Raises:
            BundleError: Another process is writing, or the index is damaged.
        """
        from edge_infer.vectors.merge import merge

        with self._changing() as view:
            before = sum(one.size for one in view.catalogue.files)
            entries = [
                self._folder.add(SEGMENTS, data, count)
                for data, count in merge(view.segments, view.alive, view.catalogue, self._arithmetic, SEGMENT_ROWS)
            ]
            self._commit(view.catalogue._replace(segments=tuple(entries), deleted=None))
            return before - sum(one.size for one in entries)

    # -- the model of texts --

    @property
    def embedder(self) -> Embedder:
        """The model that embeds texts, loaded when it is first needed.

        Raises:
            BundleError: The index names none, or it is not there, or of other weights.
        """
        if self._embedder is None:
            from edge_infer.vectors.embedder import open_embedder

            self._embedder = open_embedder(self._model, self._view.catalogue, self.path)
        return self._embedder

    @embedder.setter
    def embedder(self, embedder: Embedder) -> None:
        self._embedder = embedder

    # -- inside --

    def _changing(self) -> _Change:
        return _Change(self)

    def _commit(self, catalogue: Catalogue) -> None:
        view = load_view(self._folder, catalogue, self._view.segments, check=self._check)
        self._folder.commit(catalogue)
        self._view = view
        self._folder.remove_unnamed(catalogue)


class _Change:
    """A change of an index: one writer, who sees what others wrote before."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._lock = index._folder.writing()

    def __enter__(self) -> View:
        index = self._index
        index._writing.acquire()
        try:
            self._lock.__enter__()
        except BaseException:
            index._writing.release()
            raise
        try:
            catalogue = index._folder.read()
            if catalogue != index._view.catalogue:
                index._view = load_view(index._folder, catalogue, index._view.segments, check=index._check)
            index._folder.remove_unnamed(catalogue)
        except BaseException:
            self.__exit__()
            raise
        return index._view

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__(None, None, None)
        self._index._writing.release()
