"""`edge-infer info` for a bundle with a pipeline: its task and steps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edge_infer.bundle.bundle import Bundle
from edge_infer.cli import output
from edge_infer.errors import EdgeInferError
from edge_infer.tasks.definition import read_definition
from edge_infer.tasks.sources.opened import described

if TYPE_CHECKING:
    from edge_infer.tasks.definition import Definition

_WIDEST = 100


def described_bundle(source: str) -> Bundle | None:
    """Return a model with what its metadata, or the files beside it, say; None where they say nothing.

    What they say and nobody can use is told as a warning.
    """
    try:
        found = described(source)
    except EdgeInferError as error:
        output.warn(f"It has no pipeline: {error.message}", error.hint)
        return None
    if isinstance(found, Bundle):
        return found
    return Bundle.open(found) if found != source else None


def to_json(bundle: Bundle) -> dict[str, Any]:
    """Describe the pipeline of a bundle for machines: `task` and `pipeline` as the manifest has them, or null."""
    return {"task": bundle.manifest.task, "pipeline": bundle.manifest.pipeline}


def show(bundle: Bundle) -> None:
    """Print the task, where the definition is from, and a line for each step."""
    manifest = bundle.manifest
    if manifest.task is None or manifest.pipeline is None:
        return
    try:
        definition = read_definition(manifest.task, manifest.pipeline)
    except EdgeInferError as error:  # of a newer version: everything else can be shown nevertheless
        output.warn(f"The pipeline cannot be read: {error.message}", error.hint)
        return
    output.data(f"task    {definition.task}" + (f", from {definition.source}" if definition.source else ""))
    for line in _lines(definition):
        output.data(line)


def _lines(definition: Definition) -> list[str]:
    lines = []
    for name, chain in definition.inputs.items():
        place = "all inputs" if name == "*" else name
        lines += [f"before  {place}: {_written(step.to_json())}" for step in chain]
    return lines + [f"after   {_written(step.to_json())}" for step in definition.outputs]


def _written(step: dict[str, Any]) -> str:
    """Write a step in one line: `image.resize width=224 height=224`."""
    given = " ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(',', ':'))}"
        for name, value in step.items()
        if name != "step"
    )
    given = given if len(given) <= _WIDEST else f"{given[: _WIDEST - 3]}..."
    return f"{step['step']} {given}".rstrip()
