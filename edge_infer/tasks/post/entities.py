"""`post.entities`: a class for each token to the names, places and so on in the text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import ManifestError
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.post.outputs import reader
from edge_infer.tasks.values import rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {
    "tensor": Parameter("text", None),
    "aggregation_strategy": Parameter("choice", "none", choices=("none", "simple"), is_argument=True),
    # Classes that are left out.
    "ignore": Parameter("text", "O"),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function that reads probabilities [tokens, classes].

    `none`: `[{"entity", "score", "index", "word", "start", "end"}]`, an answer for each token. `simple`: tokens that
    belong together by their `B-` and `I-` are one, `[{"entity_group", "score", "word", "start", "end"}]`. These are the
    rules of transformers' `TokenClassificationPipeline`, whose `word` is the tokens' own spelling.
    """
    read = reader(parameters["tensor"], place, "post.entities")

    def apply(value: Any, item: Item) -> list[dict[str, Any]]:
        encoding = item.encoding
        if encoding is None or encoding.offsets is None:
            raise ManifestError(
                "pipeline: `post.entities` needs the places of tokens",
                hint='give the step text.tokenize "offsets": true',
            )
        found = []
        for index, scores in enumerate(rows(read(value))[: len(encoding)]):
            if encoding.special_tokens_mask[index]:
                continue
            place.check_labels(len(scores))
            best = max(range(len(scores)), key=scores.__getitem__)
            start, end = encoding.offsets[index]
            word = encoding.tokens[index]
            entity = {"entity": place.label(best), "score": float(scores[best]), "index": index, "word": word}
            found.append({**entity, "start": start, "end": end})
        kind = item.argument("aggregation_strategy", parameters["aggregation_strategy"])
        if kind == "none":
            return [one for one in found if one["entity"] != parameters["ignore"]]
        return [
            one for one in _grouped(found, encoding.ids, item.decode) if one["entity_group"] != parameters["ignore"]
        ]

    return apply


def _grouped(found: list[dict[str, Any]], ids: list[int], decode: Callable[[list[int]], str]) -> list[dict[str, Any]]:
    groups: list[list[dict[str, Any]]] = []
    for one in found:
        begins, tag = _tag(one["entity"])
        if groups and not begins and _tag(groups[-1][-1]["entity"])[1] == tag:
            groups[-1].append(one)
        else:
            groups.append([one])
    answers = []
    for group in groups:
        start, end = group[0]["start"], group[-1]["end"]
        total = 0.0
        for one in group:
            total += one["score"]
        tag, word = _tag(group[0]["entity"])[1], decode([ids[one["index"]] for one in group])
        answers.append({"entity_group": tag, "score": total / len(group), "word": word, "start": start, "end": end})
    return answers


def _tag(entity: str) -> tuple[bool, str]:
    """Return whether an entity begins here, and its kind: (True, "PER") for `B-PER`, (False, "PER") for `I-PER`."""
    return (entity[0] == "B", entity[2:]) if entity[:2] in ("B-", "I-") else (False, entity)
