"""The result of a source of definitions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.tasks.definition import VERSION, Definition, read_definition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

#: Where the labels of a definition lie in a bundle.
LABELS_NAME = "labels.json"


class Found(NamedTuple):
    """A definition, and what it needs beside the model.

    Attributes:
        definition: What is done before and after the model.
        labels: The names of the classes; empty where nobody says.
        files: Further files of the bundle by their path, such as `tokenizer.json`.
    """

    definition: Definition
    labels: list[str]
    files: dict[str, bytes]

    def all_files(self) -> dict[str, bytes]:
        """Return the further files, and that of the labels where there are some."""
        named = {LABELS_NAME: labels_file(self.labels)} if self.labels else {}
        return {**self.files, **named}


def labels_file(labels: Sequence[str]) -> bytes:
    """Write the file of the labels, as every bundle has it."""
    return (json.dumps(list(labels), ensure_ascii=False) + "\n").encode()


def made(
    task: str,
    source: str,
    inputs: Mapping[str, list[dict[str, Any]]],
    outputs: list[dict[str, Any]],
    labels: Sequence[str] = (),
    files: Mapping[str, bytes] | None = None,
) -> Found:
    """Return a definition made of steps as a manifest writes them; a parameter that is None is left to its default.

    Raises:
        ManifestError: A step does not take such a parameter.
    """
    document = {
        "version": VERSION,
        "source": source,
        "inputs": {name: [_given(step) for step in steps] for name, steps in inputs.items()},
        "outputs": [_given(step) for step in outputs],
    }
    return Found(read_definition(task, document), list(labels), dict(files or {}))


def _given(step: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in step.items() if value is not None}
