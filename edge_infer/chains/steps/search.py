"""`search`: a vector, a text or both to the nearest entries of an index."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.chains.steps.described import Described, Opening, of_work
from edge_infer.errors import ManifestError
from edge_infer.platform.hashing import sha256
from edge_infer.vectors.catalogue import NAME, read_catalogue
from edge_infer.vectors.index import Index

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.chains.definition import ChainStep
    from edge_infer.tasks.shared import Beginning, Shared
    from edge_infer.vectors.catalogue import Catalogue


def describe(step: ChainStep, bundle: Bundle) -> Described:
    """Describe the step.

    Raises:
        ManifestError: Its mode looks for words and it reads no text, or for vectors and it reads none.
        BundleError: Its index is wrong.
    """
    mode = step.parameters["mode"]
    for name, is_needed in (("vector", mode != "words"), ("text", mode != "vectors")):
        if is_needed and name not in step.reads:
            raise ManifestError(
                f"chain: step `{step.name}` searches by {mode} and reads no `{name}`",
                hint=f'"from": {{"{name}": ...}}, or another `mode`',
                field=name,
            )
    revision = sha256(bundle.read(f"{step.folder}/{NAME}"))
    catalogue_of(step, bundle)
    return of_work(step, [revision, step.parameters, step.where], lambda opening: _Search(step, bundle, opening))


def catalogue_of(step: ChainStep, bundle: Bundle) -> Catalogue:
    """Read what the index of a step says of itself.

    Raises:
        BundleError: There is none, or it is wrong.
    """
    return read_catalogue(bundle.read(f"{step.folder}/{NAME}"), step.folder)


class _Search:
    beginnings: Sequence[Beginning] = ()

    def __init__(self, step: ChainStep, bundle: Bundle, opening: Opening) -> None:
        del opening
        self._step = step
        self._unpacked: tempfile.TemporaryDirectory[str] | None = None
        try:
            self._index = Index.open(self._folder(bundle), check=True)
        except BaseException:
            self.close()
            raise

    def run(self, values: Sequence[Mapping[str, Any]], shared: Shared) -> list[Any]:  # noqa: ARG002
        p = self._step.parameters
        found = []
        for one in values:
            vector = one.get("vector")
            if vector is not None and hasattr(vector, "reshape"):
                vector = vector.reshape(-1)
            hits = self._index.find(
                one.get("text"), vector, p["k"], where=self._step.where, full_scan=p["full_scan"], mode=p["mode"]
            )
            found.append([hit._asdict() for hit in hits])
        return found

    def close(self) -> None:
        if self._unpacked is not None:
            self._unpacked.cleanup()

    def _folder(self, bundle: Bundle) -> Path:
        """Return where the index lies: in the bundle's folder, or unpacked from its zip or its URL."""
        inside = f"{self._step.folder}/"
        place = bundle.file_path(f"{inside}{NAME}")
        if place is not None:
            return Path(place).parent
        self._unpacked = tempfile.TemporaryDirectory(prefix="edge-infer-")
        for path in bundle.manifest.files:
            if path.startswith(inside):
                target = Path(self._unpacked.name) / path.removeprefix(inside)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(bundle.read(path))
        return Path(self._unpacked.name)
