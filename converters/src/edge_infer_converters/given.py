"""What a user gives of a model beside the recipe: its name and version, its data, and what stands around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    FilePath = str | os.PathLike[str]


class Given(NamedTuple):
    """The options of `convert` that are neither the recipe's nor say where to write; `api.convert` documents them."""

    name: str | None = None
    version: str = "1"
    calibration: FilePath | None = None
    evaluation: FilePath | None = None
    labels: FilePath | None = None
    task: str | None = None
    preprocess: FilePath | None = None
    license: str | None = None
    samples: Sequence[FilePath] = ()
    measured: FilePath | None = None

    def by_flag(self) -> dict[str, object]:
        """Return those that tell of data and of what stands around the model, by their flag; None where left out."""
        return {
            "--calibration": self.calibration,
            "--eval": self.evaluation,
            "--labels": self.labels,
            "--task": self.task,
            "--sample": self.samples or None,
            "--preprocess": self.preprocess,
            "--measured": self.measured,
        }
