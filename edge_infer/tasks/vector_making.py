"""Make the vectors of a bundle: choose raw inputs for its task, and write what the source answers to them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError
from edge_infer.tasks.agreement import SCORE, difference, plain
from edge_infer.tasks.definition import definition_of
from edge_infer.tasks.item import Item
from edge_infer.tasks.place import Place
from edge_infer.tasks.registry import get_task
from edge_infer.tasks.vectors import VERSION, Case, digests, least_score, tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.tasks.definition import Definition
    from edge_infer.tasks.steps import Step

#: Odd sizes: one smaller than most models' input, one wide, one tall.
_IMAGES = ((1, 67, 43), (2, 241, 159), (3, 97, 211))
_SOUNDS = ((16_000, 16_001), (44_100, 30_869))
_TEXTS = (
    "The quick brown fox jumps over 13 lazy dogs.",
    "  A na\u00efve caf\u00e9 \u2013 costs \u20ac5,\tnot $6!  ",
    "\u6771\u4eac\u306f\u9996\u90fd\u3067\u3059\u3002 \u041c\u043e\u0441\u043a\u0432\u0430, \U0001f600 ok",
)
_CONTEXT = "Ada Lovelace wrote the first program in 1843. She lived in London and worked with Charles Babbage."
_TABLE_ROWS = 5
_QUESTIONS = ("Who wrote the first program?", "Where did she live?")
#: What is tried where a detector finds nothing in a made-up image, and the most that is kept.
_THRESHOLDS, _MAX_FOUND = (0.25, 0.1, 0.05, 0.02, 0.0), 50


def cases_for(definition: Definition, texts: Sequence[str] = _TEXTS) -> list[Case]:
    """Return raw inputs for a task; an empty list where nothing here can make some.

    Args:
        definition: The task and its steps.
        texts: What a task that takes text is asked about.
    """
    task = get_task(definition.task)
    if task.takes == "image":
        return [Case({"image": {"seed": s, "width": w, "height": h}}, {}) for s, w, h in _IMAGES]
    if task.takes == "sound":
        return [Case({"sound": {"rate": rate, "samples": samples}}, {}) for rate, samples in _SOUNDS]
    if task.takes == "table":
        return [Case({"value": row}, {}) for row in _rows(definition)]
    if task.takes != "text":
        return []
    if task.name == "question-answering":
        contexts = [_CONTEXT] if texts is _TEXTS else texts
        return [Case({"value": {"question": one, "context": text}}, {}) for text in contexts for one in _QUESTIONS]
    if task.name == "text-ranking":
        return [Case({"value": {"query": _QUESTIONS[0], "documents": [_CONTEXT, *texts]}}, {})]
    if task.name == "zero-shot-classification":
        return [Case({"value": one}, {"candidate_labels": ["animals", "money", "travel"]}) for one in texts]
    masks = [step.parameters["mask"] for step in definition.outputs if step.name == "post.fill_mask"]
    if masks:
        asked = [] if texts is _TEXTS else texts
        return [
            Case({"value": one}, {}) for one in (f"London is the {masks[0]} of England.", *_masked(asked, masks[0]))
        ]
    return [Case({"value": one}, {}) for one in texts]


def _rows(definition: Definition) -> list[dict[str, Any]]:
    """Return rows for a table's columns: numbers of a lattice, and the categories one after the other."""
    chain = next((chain for chain in definition.inputs.values() if chain[0].name == "tabular.columns"), None)
    if chain is None:
        return []
    steps = {step.name: step.parameters for step in chain}
    columns, categories = steps["tabular.columns"], dict(steps.get("tabular.categories", {}).get("values", {}))
    derive = steps.get("tabular.derive")
    for tree in derive["expressions"] if derive else ():
        categories |= _categories(tree)
    made = []
    for row in range(_TABLE_ROWS if derive is None else 8 * _TABLE_ROWS):
        values: dict[str, Any] = {}
        for place, (name, kind) in enumerate(zip(columns["names"], columns["types"], strict=True)):
            number = (5 * place + 7 * row) % 11 - 5
            if known := categories.get(name):
                values[name] = known[(place + row) % len(known)]
            elif kind == "string":
                values[name] = f"text {row}"
            elif kind == "bool":
                values[name] = number > 0
            else:
                values[name] = number if kind == "int64" else number * 0.375
        if derive is None or _is_computed(chain[:2], values):
            made.append(values)
    return made[:_TABLE_ROWS]


def _categories(tree: Any) -> dict[str, list[Any]]:
    """Return the groups that an expression knows of its columns."""
    if not isinstance(tree, list):
        return {}
    found: dict[str, list[Any]] = {}
    for one in tree[1:]:
        found |= _categories(one)
    if tree[0] == "lookup" and tree[2] and isinstance(tree[1], list) and tree[1][0] == "col":
        found[tree[1][1]] = tree[2]
    return found


def _is_computed(steps: Sequence[Step], row: dict[str, Any]) -> bool:
    """Tell whether a row has all the features that it must have."""
    place = Place(lambda _path: b"", [], [], [])
    value: Any = row
    try:
        for step in steps:
            value = step.prepare(place)(value, Item())
    except InputError:
        return False
    return True


def _masked(texts: Sequence[str], mask: str) -> list[str]:
    """Put a mask in the place of each text's second word."""
    words = [one.split(" ") for one in texts]
    return [" ".join((*one[:1], mask, *one[2:])) for one in words]


def with_something_found(definition: Definition, case: Case, answer: Callable[[Case], Any]) -> Case:
    """Return a case in which a detector finds something: with a lower threshold, where that helps.

    Args:
        definition: The definition; one without detections leaves the case as it is.
        case: The case.
        answer: Returns the pipeline's answer to a case.
    """
    if not any(step.name == "post.boxes" for step in definition.outputs):
        return case
    for threshold in (None, *_THRESHOLDS):
        tried = case if threshold is None else case._replace(arguments={**case.arguments, "threshold": threshold})
        found = answer(tried)
        if len(found) <= _MAX_FOUND and any(one["score"] > least_score(definition, tried) + SCORE for one in found):
            return tried
    return case


def write(bundle: Bundle, cases: Sequence[Case], answers: Mapping[str, Sequence[Any]], source: str) -> bytes:
    """Write the file of vectors.

    Args:
        bundle: The bundle, its manifest with a definition.
        cases: The raw inputs.
        answers: By variant, the answers to them as `ask` gives them.
        source: The variant that says what is right.

    Raises:
        EdgeInferError: A step fails on a case.
    """
    definition = definition_of(bundle.manifest)
    steps, labels = digests(bundle)
    runs = tensors(bundle, cases)
    right = [plain(answer) for answer in answers[source]]
    own = {
        variant: [plain(answer) for answer in given]
        for variant, given in answers.items()
        if any(difference(right[i], plain(one), least_score(definition, cases[i])) for i, one in enumerate(given))
    }
    document = {
        "version": VERSION,
        "definition": steps,
        "labels": labels,
        "cases": [
            {**case._asdict(), "runs": runs[i], "answer": right[i]}
            | ({"own": {variant: given[i] for variant, given in own.items()}} if own else {})
            for i, case in enumerate(cases)
        ],
    }
    return (json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n").encode()
