"""Made-up images with objects, crowds and detections: some near an object, some of the wrong class, some of nothing."""

from __future__ import annotations

import numpy as np

from edge_infer_converters.data.objects import Seen, Truth


def corpus(seed: int, images: int = 12, classes: int = 3) -> tuple[list[Truth], list[Seen]]:
    """Return the objects of each image, and what was seen in it."""
    chance = np.random.default_rng(seed)
    truths, seen = [], []
    for _ in range(images):
        count = int(chance.integers(0, 8))
        starts, sides = chance.random((count, 2)) * 300, chance.random((count, 2)) * 100 + 4
        boxes = np.concatenate([starts, starts + sides], axis=1)
        kinds = chance.integers(0, classes, count)
        crowds = chance.random(count) < 0.15
        truths.append(Truth(boxes, kinds, crowds, crowds))
        copies = chance.integers(0, 4, count)
        near = np.repeat(boxes, copies, axis=0)
        near = near + (chance.random(near.shape) - 0.5) * np.repeat(sides.min(1, initial=99), copies)[:, None] * 0.4
        wrong = int(chance.integers(0, 6))
        starts, sides = chance.random((wrong, 2)) * 300, chance.random((wrong, 2)) * 100
        found = np.concatenate([near, np.concatenate([starts, starts + sides], axis=1)])
        labels = np.concatenate([np.repeat(kinds, copies), chance.integers(0, classes, wrong)])
        labels = np.where(chance.random(len(labels)) < 0.1, (labels + 1) % classes, labels)
        seen.append(Seen(found, np.round(chance.random(len(found)), 2), labels))
    return truths, seen
