"""The answers of pipelines as JSON."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from edge_infer.tasks.image.image import Image
from edge_infer.tasks.image.png import write_png
from edge_infer.tensors.tensor import Tensor


def as_json(answer: Any) -> Any:
    """Return an answer as JSON has it: a tensor as nested lists, an image as the base64 text of a PNG file."""
    if isinstance(answer, Tensor):
        return answer.tolist()
    if isinstance(answer, Image):
        return b64encode(write_png(answer)).decode()
    if isinstance(answer, dict):
        return {key: as_json(value) for key, value in answer.items()}
    if isinstance(answer, (list, tuple)):
        return [as_json(value) for value in answer]
    return answer
