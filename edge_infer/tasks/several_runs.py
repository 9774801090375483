"""Tasks whose one input takes several runs of the model, or another form than its text."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edge_infer.errors import InputError, ManifestError
from edge_infer.tasks.values import flat

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from edge_infer.tasks.place import Place
    from edge_infer.tensors.tensor import Tensor

_TEMPLATE = "This example is {}."
_MAX_RUNS = 10_000


def best_answers(answers: list[Any], value: Any, arguments: Mapping[str, Any], place: Place) -> Any:  # noqa: ARG001
    """Return the best of the answers of a context's windows; of one that two windows give the higher score counts."""
    if len(answers) == 1:
        return answers[0]
    found: dict[tuple[int, int], dict[str, Any]] = {}
    parts = [answer if isinstance(answer, list) else [answer] for answer in answers]
    for one in sorted((one for part in parts for one in part), key=lambda one: -one["score"]):
        found.setdefault((one["start"], one["end"]), one)
    best = [*found.values()]
    return best[: max(map(len, parts))] if isinstance(answers[0], list) else best[0]


def question_and_context(value: Any, arguments: Mapping[str, Any]) -> list[Any]:  # noqa: ARG001
    """Return `{"question", "context"}` as a pair of texts."""
    question, context = (value.get(key) if isinstance(value, dict) else None for key in ("question", "context"))
    if not isinstance(question, str) or not isinstance(context, str):
        raise InputError("a question is asked of a context", hint='{"question": "...", "context": "..."}')
    return [(question, context)]


def hypotheses(value: Any, arguments: Mapping[str, Any]) -> list[Any]:
    """Return a pair of the text and a hypothesis for each candidate label."""
    labels = _labels(arguments)
    template = arguments.get("hypothesis_template") or _TEMPLATE
    if "{}" not in template:
        raise InputError(f"`hypothesis_template` is {template!r}, without {{}} for the label", hint=_TEMPLATE)
    if not isinstance(value, str):
        raise InputError(f"`{type(value).__name__}` is not a text", hint="give a text, or a list of texts")
    return [(value, template.replace("{}", label)) for label in labels]


def by_entailment(answers: list[Tensor], value: str, arguments: Mapping[str, Any], place: Place) -> dict[str, Any]:
    """Return `{"sequence", "labels", "scores"}`, the best label first.

    Of one label the scores are softmaxes of entailment over the labels; with `multi_label` of entailment against
    contradiction for each label, as in transformers' `ZeroShotClassificationPipeline`.
    """
    names = [label.lower() for label in place.labels]
    entailment = next((i for i, name in enumerate(names) if name.startswith("entail")), None)
    if entailment is None:
        raise ManifestError(
            f"pipeline: the labels {place.labels} hold no `entailment`", hint="convert a model trained on NLI"
        )
    labels = _labels(arguments)
    logits = [flat(answer) for answer in answers]
    if arguments.get("multi_label") or len(labels) == 1:
        other = next((i for i, name in enumerate(names) if name.startswith("contra")), 0 if entailment else -1)
        scores = [1.0 / (1.0 + math.exp(row[other] - row[entailment])) for row in logits]
    else:
        highest = max(row[entailment] for row in logits)
        powers = [math.exp(row[entailment] - highest) for row in logits]
        total = 0.0
        for power in powers:
            total += power
        scores = [power / total for power in powers]
    order = sorted(range(len(labels)), key=lambda i: -scores[i])
    return {"sequence": value, "labels": [labels[i] for i in order], "scores": [scores[i] for i in order]}


def _labels(arguments: Mapping[str, Any]) -> list[str]:
    labels = arguments.get("candidate_labels")
    if isinstance(labels, str):
        labels = [label.strip() for label in labels.split(",") if label.strip()]
    if not isinstance(labels, (list, tuple)) or not 1 <= len(labels) <= _MAX_RUNS:
        raise InputError("there are no labels to choose from", hint='candidate_labels=["sport", "politics"]')
    return [str(label) for label in labels]


def query_and_documents(value: Any, arguments: Mapping[str, Any]) -> list[Any]:  # noqa: ARG001
    """Return a pair of the query and each document."""
    query, documents = (value.get(key) if isinstance(value, dict) else None for key in ("query", "documents"))
    is_list = isinstance(documents, (list, tuple)) and all(isinstance(one, str) for one in documents)
    if not isinstance(query, str) or not is_list or not 1 <= len(documents or ()) <= _MAX_RUNS:
        raise InputError("documents are ranked for a query", hint='{"query": "...", "documents": ["...", "..."]}')
    return [(query, document) for document in documents or ()]


def by_relevance(answers: list[Tensor], value: Any, arguments: Mapping[str, Any], place: Place) -> list[dict[str, Any]]:  # noqa: ARG001
    """Return `[{"corpus_id", "score", "text"}]`, the best document first, as sentence-transformers' `rank` does."""
    scores = [float(flat(answer)[0]) for answer in answers]
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    found = [{"corpus_id": i, "score": scores[i], "text": value["documents"][i]} for i in order]
    return found[: arguments.get("top_k") or len(found)]
