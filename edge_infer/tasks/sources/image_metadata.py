"""Definitions of models of images that prepare them by their own first layers, as Keras writes them.

The metadata `edge_infer.images` of an ONNX file is an object: the `source`, and the `scale` of what the model takes, 1
for the levels 0 to 255 and 1/255 for numbers from 0 to 1.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edge_infer.errors import BundleError
from edge_infer.tasks.sources.asked import after
from edge_infer.tasks.sources.found import made
from edge_infer.tasks.sources.images import ImageInput, is_image

if TYPE_CHECKING:
    from edge_infer.tasks.sources.facts import Facts
    from edge_infer.tasks.sources.found import Found

#: The key in the metadata of an ONNX file.
KEY = "edge_infer.images"
_CLASSES = 2


def find(facts: Facts, task: str | None) -> Found | None:
    """Return the definition of a model that says what images it takes; None for others.

    Args:
        facts: What the model takes and gives.
        task: The task that is wanted; of a model that gives a row of numbers it is image-classification.

    Raises:
        BundleError: The metadata are damaged.
        InputError: The task needs more than its name.
    """
    if KEY not in facts.metadata or len(facts.inputs) != 1 or not is_image(facts.inputs[0]):
        return None
    if task is None and (len(facts.outputs) != 1 or len(facts.outputs[0].shape) != _CLASSES):
        return None
    try:
        document = json.loads(facts.metadata[KEY])
        source, scale = str(document["source"]), float(document["scale"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BundleError(
            f"the metadata `{KEY}` of the model are damaged: {type(error).__name__}: {error}",
            hint="convert the model again, or give --preprocess FILE.json",
        ) from error
    image = ImageInput(facts.inputs[0])
    steps: list[dict[str, Any]] = [image.decode()]
    if image.width is not None and image.height is not None:
        steps.append({"step": "image.resize", "width": image.width, "height": image.height})
    steps.append(image.tensor(scale, [0.0], [1.0]))
    task = task or "image-classification"
    return made(task, source, {image.name: steps}, after(task, facts))
