"""Definitions of tables: what the converter of estimators writes into an ONNX file, or columns by number.

The metadata `edge_infer.table` of the file is an object: `columns` (each with `name`, `dtype`, and perhaps `nullable`
and `categories`, with an `unknown` of their own), `unknown` (as of the step `tabular.categories`), `answer`
(`classes`, `nearest`, `label`, `value` or `values`) and `classes`, their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.errors import BundleError, InputError, listed
from edge_infer.tasks.sources.found import made
from edge_infer.tasks.steps import read_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.tasks.sources.facts import Facts
    from edge_infer.tasks.sources.found import Found

#: The key in the metadata of an ONNX file.
KEY = "edge_infer.table"
TASKS = ("tabular-classification", "tabular-regression")
#: What each answer is of: the outputs that may hold it, the steps, and the task.
_ANSWERS = {
    "classes": (("probabilities", "output_probability"), ("post.top_k",), TASKS[0]),
    "nearest": (("scores",), ("post.nearest", "post.top_k"), TASKS[0]),
    "label": (("label", "output_label"), ("post.label",), TASKS[0]),
    "value": (("variable",), ("post.value",), TASKS[1]),
    "values": (("variable",), ("post.tensor",), TASKS[1]),
}


def find(facts: Facts, task: str | None) -> Found | None:
    """Return the definition of a model over a table; None where it is for something else.

    Args:
        facts: What the model takes and gives.
        task: The task that is wanted; of a model that names no columns one of tables makes `x0`, `x1`, ...

    Raises:
        BundleError: The metadata are damaged.
        InputError: The model is not one over a table.
    """
    if KEY in facts.metadata:
        return _of_metadata(facts)
    if task not in TASKS:
        return None
    spec = facts.inputs[0]
    width = spec.shape[-1] if len(spec.shape) == 2 else None
    if len(facts.inputs) != 1 or not isinstance(width, int) or not str(spec.dtype).startswith("float"):
        raise InputError(
            f"the model takes {', '.join(map(str, facts.inputs))}, expected one input float32[batch, columns]",
            hint="--preprocess FILE.json, with the columns by name",
        )
    columns = [{"name": f"x{i}", "dtype": str(spec.dtype)} for i in range(width)]
    answer = "value" if task == TASKS[1] else "classes"
    output = facts.output(*_ANSWERS[answer][0]) or facts.outputs[0]
    steps: list[dict[str, Any]] = []
    if answer == "classes" and not facts.has_probabilities(output.name) and output.name not in _ANSWERS[answer][0]:
        steps.append({"step": "post.softmax", "tensor": output.name})
    steps.append({"step": _ANSWERS[answer][1][-1], "tensor": None if steps else output.name})
    return made(task, "onnx", {spec.name: before(columns)}, steps)


def before(columns: Sequence[dict[str, Any]], unknown: str = "error") -> list[dict[str, Any]]:
    """Return the steps that make one tensor of columns, as a manifest writes them."""
    categories: dict[str, dict[str, list[Any]]] = {}
    for one in columns:
        if one.get("categories"):
            categories.setdefault(one.get("unknown", unknown), {})[one["name"]] = one["categories"]
    nullable = [one["name"] for one in columns if one.get("nullable")]
    steps: list[dict[str, Any]] = [
        {
            "step": "tabular.columns",
            "names": [one["name"] for one in columns],
            "types": [one["dtype"] for one in columns],
            "nullable": nullable or None,
        }
    ]
    for other, values in categories.items():
        steps.append({"step": "tabular.categories", "values": values, "unknown": other})
    return [*steps, {"step": "tabular.tensor"}]


def with_features(features: Any, facts: Facts, task: str | None) -> Found:
    """Return the definition of a model over features: the steps that compute them, then the model's own.

    Args:
        features: The steps, as `Features.steps` writes them.
        facts: What the model takes and gives.
        task: The task that is wanted.

    Raises:
        InputError: The model is not one over these features.
        ManifestError: A step is wrong.
    """
    given = [read_step(step, f"features[{i}]") for i, step in enumerate(features if isinstance(features, list) else [])]
    if [step.name for step in given] != ["tabular.columns", "tabular.derive"]:
        raise InputError("`features` are not the steps that `Features.save` writes", hint="features.save(FILE.json)")
    names = given[1].parameters["names"]
    found = find(facts, task)
    chains = list(found.definition.inputs.items()) if found is not None else []
    columns = next((step.parameters for _, chain in chains for step in chain if step.name == "tabular.columns"), None)
    if found is None or columns is None:
        raise InputError("the model says nothing of its columns", hint="--task tabular-classification")
    if KEY in facts.metadata and columns["names"] != names:
        raise InputError(
            f"the features are {listed(names[:20])}, and the model has {listed(columns['names'][:20])}",
            hint="fit the model on features.table(...)",
        )
    nullable = [new for new, old in zip(names, columns["names"], strict=False) if old in columns["nullable"]]
    derive = given[1]._replace(parameters={**given[1].parameters, "nullable": nullable})
    inputs = {name: [given[0], derive, *chain[1:]] for name, chain in chains}
    return found._replace(definition=found.definition._replace(inputs=inputs))


def _of_metadata(facts: Facts) -> Found:
    import json

    try:
        document = json.loads(facts.metadata[KEY])
        outputs, steps, task = _ANSWERS[document["answer"]]
        named = {spec.name for spec in facts.outputs}
        output = next(name for name in outputs if name in named)
        first, *more = steps
        after: list[dict[str, Any]] = [
            {"step": first, "tensor": output if len(named) > 1 else None},
            *({"step": one} for one in more),
        ]
        inputs = {facts.inputs[0].name: before(document["columns"], document.get("unknown", "error"))}
        classes = document.get("classes", ())
        return made(task, document["source"], inputs, after, classes)
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError) as error:
        raise BundleError(
            f"the metadata `{KEY}` of the model are damaged: {type(error).__name__}: {error}",
            hint="convert the model again, or give --preprocess FILE.json",
        ) from error
