"""Ask each source in turn what stands before and after a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import InputError
from edge_infer.tasks.sources import huggingface, tables, tflite_metadata, ultralytics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from edge_infer.tasks.sources.facts import Facts
    from edge_infer.tasks.sources.found import Found

_READ_BY_OTHERS = ("config.json", "preprocessor_config.json", "tokenizer_config.json")


def find(facts: Facts, data: bytes, files: Mapping[str, bytes], task: str | None = None) -> Found | None:
    """Return the definition of a model; None where nobody says.

    The model's own metadata come first, then the files of the folder that it lies in.

    Args:
        facts: What the model takes and gives.
        data: The model file's bytes.
        files: The bytes of those of `huggingface.FILES` that the folder has.
        task: The task that is wanted; None for what is said.

    Raises:
        BundleError: A file, or the metadata, are damaged.
        InputError: The model is for another task.
        UnsupportedError: They ask for what no step does.
    """
    own = tflite_metadata.find(facts, data) if facts.format == "tflite" else ultralytics.find(facts)
    found = own or tables.find(facts, task)
    if found is None and (found := huggingface.find(files, facts, task)) is not None:
        # transformers.js reads these of the bundle, as of the folder.
        kept = {name: files[name] for name in _READ_BY_OTHERS if name in files}
        found = found._replace(files={**kept, **found.files})
    if found is not None and task not in (None, found.definition.task):
        own_task = found.definition.task
        raise InputError(f"the model is for {own_task}, and not for {task}", hint=f"--task {own_task}", got=task)
    return found


def files_of(read: Callable[[str], bytes | None]) -> dict[str, bytes]:
    """Return the bytes of those of `huggingface.FILES` that a folder has.

    Args:
        read: Returns the bytes of a file of the folder, None where it has none of this name.
    """
    found = {name: read(name) for name in huggingface.FILES}
    return {name: data for name, data in found.items() if data is not None}
