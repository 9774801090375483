"""Keep the measurements of a search between runs, so that the next search continues from them.

One JSON file for each model, data and metric lies in `trials/` of the cache folder (`EDGE_INFER_CACHE`), named by a
hash of all that a figure depends on: the model, the inputs, the metric, the versions, and the code that packs weights.
Figures do not depend on the budget. The folder is kept below 32 MB, the files that were not used for longest go first.
A file that is damaged counts as none.
"""

from __future__ import annotations

import hashlib
import json
import time
from importlib.metadata import version
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from edge_infer.platform import host
from edge_infer.platform.atomic_write import write_file
from edge_infer_converters.measure.judge import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np

_T = TypeVar("_T")
_FORMAT = 1
#: The most bytes that the folder may have.
MAX_BYTES = 32 * 10**6
_MAX_FILE_BYTES = 8 * 10**6
# How long figures may be lost that were not yet written.
_SAVE_EVERY_S = 5.0


class TrialCache:
    """The figures of one model on one data set.

    Args:
        key: A hash of all that they depend on (`key_of`), or None to remember nothing beyond this run.
    """

    def __init__(self, key: str | None) -> None:
        self._path = None if key is None else host.cache_folder() / "trials" / f"{key}.json"
        self._noises: dict[str, float] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._saved = time.monotonic()
        self.hits = 0
        self._known: set[str] = set()  # what an earlier run has measured
        if self._path is not None:
            self._read(self._path)

    def noise(self, weight: str, encoding: str) -> float | None:
        """Return the noise that storing one weight so adds, where it is known."""
        return self._hit(f"{encoding} {weight}", self._noises)

    def add_noise(self, weight: str, encoding: str, noise: float) -> None:
        """Take note of a noise."""
        self._noises[f"{encoding} {weight}"] = noise
        self._save_soon()

    def outcome(self, choice: Mapping[str, str]) -> Outcome | None:
        """Return what a choice of encodings gave, where it is known."""
        return self._hit(_spelled(choice), self._outcomes)

    def add_outcome(self, choice: Mapping[str, str], outcome: Outcome) -> None:
        """Take note of what a choice gave."""
        self._outcomes[_spelled(choice)] = outcome
        self._save_soon()

    def save(self) -> None:
        """Write everything, and make room; a folder that cannot be written costs nothing but the next run's time."""
        if self._path is None:
            return
        document = {
            "format": _FORMAT,
            "noises": {name: value if isfinite(value) else None for name, value in self._noises.items()},
            "outcomes": {
                name: [one.sqnr_db if isfinite(one.sqnr_db) else repr(one.sqnr_db), one.loss, one.keeps_clear]
                for name, one in self._outcomes.items()
                if isfinite(one.loss)
            },
        }
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_file(self._path, json.dumps(document, allow_nan=False).encode())
            _make_room(self._path)
        except OSError:
            return
        self._saved = time.monotonic()

    def _hit(self, name: str, figures: Mapping[str, _T]) -> _T | None:
        self.hits += name in self._known
        return figures.get(name)

    def _save_soon(self) -> None:
        if time.monotonic() - self._saved >= _SAVE_EVERY_S:
            self.save()

    def _read(self, path: Path) -> None:
        try:
            if path.stat().st_size > _MAX_FILE_BYTES:
                return
            document = json.loads(path.read_bytes())
            if document["format"] != _FORMAT:
                return
            noises = {str(name): inf if value is None else float(value) for name, value in document["noises"].items()}
            outcomes = {
                str(name): Outcome(float(sqnr_db), float(loss), bool(keeps_clear))
                for name, (sqnr_db, loss, keeps_clear) in document["outcomes"].items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return
        self._noises, self._outcomes = noises, outcomes
        self._known = {*noises, *outcomes}


def key_of(model: bytes, calls: Iterable[Mapping[str, np.ndarray]], *words: str) -> str:
    """Hash all that figures depend on.

    Args:
        model: The bytes of the cleaned model.
        calls: The inputs, those for ranking included.
        words: The metric, and what else there is.
    """
    digest = hashlib.sha256(model)
    for call in calls:
        for name, value in sorted(call.items()):
            digest.update(f"{name} {value.dtype} {value.shape}\0".encode())
            digest.update(repr(value.tolist()).encode() if value.dtype == object else value.tobytes())
    versions = [f"{name} {version(name)}" for name in ("onnx", "onnxruntime", "numpy")]
    digest.update("\0".join([*words, *versions, _code()]).encode())
    return digest.hexdigest()[:40]


def _code() -> str:
    """Hash the code that packs weights and measures: a change of it makes other figures."""
    folder = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for file in sorted(
        [*folder.glob("passes/*.py"), *(folder / name for name in ("search/sensitivity.py", "measure/metrics.py"))]
    ):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _spelled(choice: Mapping[str, str]) -> str:
    said = " ".join(f"{name}={encoding}" for name, encoding in sorted(choice.items()) if encoding != "fp32")
    return hashlib.sha256(said.encode()).hexdigest()[:32]


def _make_room(newest: Path) -> None:
    """Remove the files that were not written for longest, until the folder is small enough."""
    files = sorted(newest.parent.glob("*.json"), key=lambda file: (file != newest, -file.stat().st_mtime))
    total = 0
    for file in files:
        total += file.stat().st_size
        if total > MAX_BYTES and file != newest:
            file.unlink(missing_ok=True)
