"""The model that makes vectors of texts or of images: a bundle for feature extraction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.bundle.bundle import Bundle
from edge_infer.errors import BundleError, InputError, IntegrityError
from edge_infer.tasks.pipeline import pipeline
from edge_infer.vectors.catalogue import Embedding

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Self

    from edge_infer.tensors.tensor import Tensor
    from edge_infer.vectors.catalogue import Catalogue
    from edge_infer.vectors.documents import Piece

_TASKS = ("feature-extraction", "image-feature-extraction")
#: Texts that are sorted by length at once, so that texts of about one length run together (`tasks/prepared_steps.py`).
_AHEAD = 2048


class Embedder:
    """A model for texts, or for images.

    Args:
        model: A bundle whose task is `feature-extraction` or `image-feature-extraction` and whose answer is one vector.
        query_prefix: What is put in front of each query.
        document_prefix: What is put in front of each document.
        options: What `load` takes.

    Raises:
        InputError: The bundle is for another task.
        EdgeInferError: What `pipeline` raises.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Bundle,
        query_prefix: str = "",
        document_prefix: str = "",
        **options: Any,
    ) -> None:
        self.bundle = model if isinstance(model, Bundle) else Bundle.open(model)
        task = self.bundle.manifest.task
        self._pipeline = pipeline(self.bundle, task=task if task in _TASKS else _TASKS[0], **options)
        #: Whether it takes images.
        self.is_of_images = task == _TASKS[1]
        self._query_prefix, self._document_prefix = query_prefix, document_prefix

    def embedding(self) -> Embedding:
        """Describe the model as an index does."""
        steps = {step.name: step.parameters for step in self._pipeline.definition.outputs}
        return Embedding(
            Path(self.bundle.location).name,
            self.bundle.revision,
            self._pipeline.session.report().variant,
            str(steps.get("post.pool", {}).get("method", "")),
            "post.normalize" in steps,
            self._query_prefix,
            self._document_prefix,
        )

    def query(self, query: str | os.PathLike[str] | bytes) -> Tensor:
        """Return the vector of a query: a text, or the path or the bytes of an image.

        Raises:
            InputError: The query is the other, or no image. A text never names a file.
        """
        if isinstance(query, str) == self.is_of_images:
            raise InputError(
                f"`{self.bundle.manifest.name}` takes {'images' if self.is_of_images else 'texts'}",
                hint='index.search(Path("photo.jpg"))' if self.is_of_images else 'index.search("a text")',
            )
        return self._one(self._pipeline(self._query_prefix + query if isinstance(query, str) else query))

    def vector(self, piece: Piece) -> Tensor:
        """Return the vector of a piece.

        Raises:
            InputError: The file of an image is none.
        """
        return self._one(self._pipeline(piece.image or self._document_prefix + piece.text))

    def documents(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> list[Tensor]:
        """Return the vectors of documents.

        Args:
            texts: The texts.
            progress: Is told how many texts were done since its last call.
        """
        found: list[Tensor | None] = [None] * len(texts)
        for start in range(0, len(texts), _AHEAD):
            order = sorted(range(start, min(start + _AHEAD, len(texts))), key=lambda i: (len(texts[i]), i))
            prefixed: Iterator[str] = iter([self._document_prefix + texts[i] for i in order])
            for i, answer in zip(order, self._pipeline(prefixed), strict=True):
                found[i] = self._one(answer)
                if progress is not None:
                    progress(1)
        return [one for one in found if one is not None]

    def close(self) -> None:
        """Give the engine's memory back."""
        self._pipeline.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _one(self, answer: Tensor) -> Tensor:
        shape = [dim for dim in answer.shape if dim != 1]
        if len(shape) != 1:
            raise InputError(
                f"`{self.bundle.manifest.name}` answers with a tensor of shape {list(answer.shape)}, expected a vector",
                hint="convert it with the step post.pool",
            )
        return answer.reshape(shape[0])


def open_embedder(model: str | os.PathLike[str] | Bundle | None, catalogue: Catalogue, path: Path) -> Embedder:
    """Open the model of an index.

    Args:
        model: The bundle; None for the one that the index names, beside it or in the working directory.
        catalogue: The index.
        path: Its folder.

    Raises:
        BundleError: It is not there.
        IntegrityError: It is of other weights than the vectors of the index.
    """
    asked = catalogue.embedding
    if model is None:
        if asked is None:
            raise BundleError(
                f"`{path}` does not say by which model its vectors were made", hint="search with a vector instead"
            )
        places = [path.parent / asked.name, Path(asked.name)]
        model = next((one for one in places if one.exists()), None)
        if model is None:
            raise BundleError(
                f"the model of `{path.name}` is not there: `{places[0]}`", hint="Index.open(PATH, model=BUNDLE)"
            )
    prefixes = (asked.query_prefix, asked.document_prefix) if asked else ("", "")
    bundle = model if isinstance(model, Bundle) else Bundle.open(model)
    if asked is not None and bundle.revision != asked.revision:
        raise IntegrityError(
            f"`{bundle.label}` is not the model of `{path.name}`: revision {bundle.revision[:12]}, "
            f"expected {asked.revision[:12]}",
            hint="use the bundle that the index was built by, or build the index again",
            expected=asked.revision,
            got=bundle.revision,
        )
    known = [one.id for one in bundle.manifest.variants]
    options = {"variant": asked.variant} if asked is not None and asked.variant in known else {}
    return Embedder(bundle, *prefixes, **options)


def float_variant(bundle: Bundle) -> str | None:
    """Return the variant that makes vectors of documents: the one with float weights; None where there is none.

    Variants with 8-bit weights lose a tenth of the nearest, and their dynamic scales depend on the texts of a batch.
    """
    variants = [one for precision in ("fp32", "fp16") for one in bundle.manifest.variants if one.precision == precision]
    return variants[0].id if variants else None
