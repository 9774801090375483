"""The objects of images beside what a detector finds in them, by the steps of its pipeline."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_infer.tensors.arrays import to_tensor
from edge_infer_converters.data.objects import Seen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.prepared_steps import PreparedSteps
    from edge_infer_converters.data.objects import Truth

DETECTION_TASKS = ("object-detection", "keypoint-detection")
#: Average precision counts detections of low scores too: those above this one, or above the steps' own threshold where
#: that is lower.
LEAST_SCORE = 0.01


class Detections(NamedTuple):
    """What is measured of a detector.

    Attributes:
        steps: The steps of its pipeline.
        labels: The names of its classes; empty where it has none.
        items: What the steps before the model knew of each image.
        truths: The objects of each image.
    """

    steps: PreparedSteps
    labels: Sequence[str]
    items: tuple[Item, ...]
    truths: tuple[Truth, ...]

    def first(self, count: int) -> Detections:
        """Return those of the first images."""
        return self._replace(items=self.items[:count], truths=self.truths[:count])

    def seen(self, results: Sequence[Mapping[str, np.ndarray]]) -> list[Seen]:
        """Return the detections in each image, of the model's outputs for it."""
        return [self._seen(outputs, item) for outputs, item in zip(results, self.items, strict=True)]

    def _seen(self, outputs: Mapping[str, np.ndarray], item: Item) -> Seen:
        tensors = {name: to_tensor(np.ascontiguousarray(value)) for name, value in outputs.items()}
        answer = self.steps.after(self.steps.of_one(tensors, 0, 1), item)
        boxes = [[one["box"][side] for side in ("xmin", "ymin", "xmax", "ymax")] for one in answer]
        kinds = [self._class_of(one["label"]) for one in answer]
        scores = np.array([one["score"] for one in answer], float)
        return Seen(np.array(boxes, float).reshape(-1, 4), scores, np.array(kinds, int))

    def _class_of(self, label: str) -> int:
        if label in self.labels:
            return self.labels.index(label)
        return int(label.rpartition("_")[2])  # `LABEL_7`, a class without a name
