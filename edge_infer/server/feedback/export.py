"""Feedback as arrays: the inputs that came by consent, and what people say is right. Needs numpy."""

from __future__ import annotations

import base64
from collections import Counter
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError, listed
from edge_infer.server.feedback.log import files_of, records_of
from edge_infer.tensors.datatypes import DTYPES
from edge_infer.tensors.dtypes import DType

#: What `convert --eval` finds the right classes under.
LABELS = "labels"

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np

    Array = np.ndarray[tuple[int, ...], np.dtype[Any]]


def feedback_of(folder: Path, model: str) -> list[dict[str, Any]]:
    """Return the feedback to a model's answers, the oldest first; of two with one id, the last.

    Raises:
        InputError: There is none.
    """
    found: dict[str, dict[str, Any]] = {}
    models: Counter[str] = Counter()
    for record in records_of(files_of(folder)):
        models[str(record.get("model"))] += 1
        if record.get("model") == model:
            found[str(record["id"])] = record
    if not found:
        others = f"it has some to {listed(sorted(models))}" if models else "edge-infer serve --feedback DIR"
        raise InputError(f"There is no feedback to the model `{model}` in `{folder}`", hint=others)
    return list(found.values())


def as_arrays(records: Sequence[dict[str, Any]], names: Sequence[str] | None) -> tuple[dict[str, Array], int]:
    """Return the inputs by name and `labels`, and how many records are left out: they have no inputs, or other shapes.

    Args:
        records: The feedback to one model.
        names: The names of the classes, which labels that are texts become the numbers of.

    Raises:
        InputError: None has inputs, one is called `labels`, or a label is none of the classes.
    """
    import numpy as np

    with_inputs = [record for record in records if isinstance(record.get("inputs"), dict)]
    if not with_inputs:
        raise InputError(
            f"None of the {len(records)} has inputs",
            hint="pages send them by consent; -o feedback.jsonl has the labels",
        )
    kinds = Counter(map(_kind, with_inputs))
    usual = kinds.most_common(1)[0][0]
    taken = [record for record in with_inputs if _kind(record) == usual]
    if any(name == LABELS for name, _, _ in usual):
        raise InputError(
            f"The model has an input `{LABELS}`, which is what the right classes are called in the file",
            hint="-o feedback.jsonl has the labels",
        )
    arrays = {name: np.concatenate([_array(record["inputs"][name]) for record in taken]) for name, _, _ in usual}
    labels = [label for record in taken for label in _numbers(record["label"], names)]
    arrays[LABELS] = np.array(labels)
    return arrays, len(records) - len(taken)


def _kind(record: dict[str, Any]) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    inputs = record["inputs"]
    return tuple((name, inputs[name]["datatype"], tuple(inputs[name]["shape"][1:])) for name in sorted(inputs))


def _array(entry: dict[str, Any]) -> Array:
    import numpy as np

    dtype, shape = DTYPES[entry["datatype"]], entry["shape"]
    if dtype is DType.STRING:
        return np.array(entry["data"]).reshape(shape)
    return np.frombuffer(base64.b64decode(entry["data"]), str(dtype)).reshape(shape)


def _numbers(label: Any, names: Sequence[str] | None) -> list[Any]:
    labels = label if isinstance(label, list) else [label]
    if not any(isinstance(one, str) for one in labels):
        return labels
    if names is None:
        raise InputError(f"The label `{labels[0]}` is a text", hint="--labels labels.json, the names of the classes")
    unknown = [one for one in labels if one not in names]
    if unknown:
        some = listed(list(names)[:10])
        raise InputError(f"The label `{unknown[0]}` is none of the {len(names)} classes", hint=f"one of {some}")
    return [names.index(one) for one in labels]
