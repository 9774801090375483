"""`post.fill_mask`: the tokens that fit best in the place of `[MASK]`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import InputError
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.post.outputs import reader
from edge_infer.tasks.text.tokenizer import Tokenizer
from edge_infer.tasks.values import rows

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {
    "tensor": Parameter("text", None),
    "file": Parameter("text", "tokenizer.json"),
    "mask": Parameter("text", "[MASK]"),
    "top_k": Parameter("whole", 5, low=1, high=1000, is_argument=True),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function that reads probabilities [tokens, vocabulary].

    It gives `[{"score", "token", "token_str", "sequence"}]`, and for a text with several masks a list of these for
    each, as transformers' `FillMaskPipeline` does.
    """
    read = reader(parameters["tensor"], place, "post.fill_mask")
    tokenizer = Tokenizer.from_bytes(place.read(parameters["file"]))
    mask_id = tokenizer.token_to_id(parameters["mask"])

    def apply(value: Any, item: Item) -> Any:
        ids = [] if item.encoding is None else item.encoding.ids
        places = [index for index, number in enumerate(ids) if number == mask_id]
        if not places:
            raise InputError(
                f"the text has no `{parameters['mask']}`", hint=f"Paris is the {parameters['mask']} of France."
            )
        table, count = rows(read(value)), item.argument("top_k", parameters["top_k"])
        answers = []
        for index in places:
            scores = table[index]
            best = sorted(range(len(scores)), key=lambda number: -scores[number])[:count]
            answers.append([_answer(tokenizer, ids, index, number, scores[number]) for number in best])
        return answers[0] if len(answers) == 1 else answers

    return apply


def _answer(tokenizer: Tokenizer, ids: list[int], index: int, number: int, score: float) -> dict[str, Any]:
    sequence = tokenizer.decode([*ids[:index], number, *ids[index + 1 :]])
    return {"score": float(score), "token": number, "token_str": tokenizer.decode([number]), "sequence": sequence}
