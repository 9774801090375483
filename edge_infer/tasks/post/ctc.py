"""`post.ctc`: speech to text, the best token of each frame, repeated ones and blanks left out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from edge_infer.errors import InputError, ManifestError, did_you_mean
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.post.outputs import reader
from edge_infer.tasks.values import rows

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {
    "tensor": Parameter("text", None),
    # A JSON object with the number of each token, as transformers' `Wav2Vec2CTCTokenizer` has it.
    "file": Parameter("text", "vocab.json"),
    "blank": Parameter("text", "<pad>"),
    # What stands between words; it becomes a space.
    "delimiter": Parameter("text", "|"),
    "special": Parameter("texts", ["<pad>", "<s>", "</s>", "<unk>"]),
    "lowers": Parameter("flag", False),
}
_VOCABULARY = "take the vocab.json of the same model"


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function that reads scores [1, frames, vocabulary] and gives `{"text"}`.

    Source: `Wav2Vec2CTCTokenizer.convert_tokens_to_string` of transformers (the best path of Graves et al. 2006).
    """
    read = reader(parameters["tensor"], place, "post.ctc")
    tokens = _tokens(place.read(parameters["file"]), parameters["file"])
    blank, special, delimiter = parameters["blank"], set(parameters["special"]), parameters["delimiter"]
    if blank not in tokens:
        raise ManifestError(
            f"`{parameters['file']}` has no token `{blank}`, expected the one that the model gives between letters",
            hint=did_you_mean(blank, tokens) or '"blank": "TOKEN"',
            field="blank",
        )

    def apply(value: Any, item: Item) -> dict[str, str]:  # noqa: ARG001
        text, before = "", -1
        for row in rows(read(value)):
            if len(row) > len(tokens):
                raise InputError(
                    f"the model has {len(row)} tokens, and `{parameters['file']}` {len(tokens)}",
                    hint=_VOCABULARY,
                )
            best = max(range(len(row)), key=lambda index: (row[index], -index))
            if best != before and tokens[best] not in special and tokens[best] != blank:
                text += " " if tokens[best] == delimiter else tokens[best]
            before = best
        text = text.strip(" ")
        return {"text": text.lower() if parameters["lowers"] else text}

    return apply


def _tokens(data: bytes, name: str) -> list[str]:
    """Return the tokens by their number.

    Raises:
        ManifestError: The file is not an object of numbers from 0 on.
    """
    try:
        values = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"`{name}` is not JSON: {error}", hint=_VOCABULARY) from error
    pairs = values.items() if isinstance(values, dict) else ()
    found = sorted((number, token) for token, number in pairs if type(number) is int)
    if not found or len(found) != len(values) or [number for number, _ in found] != list(range(len(found))):
        raise ManifestError(
            f"`{name}` is not a vocabulary: an object with a number for each token, from 0 on", hint=_VOCABULARY
        )
    return [token for _, token in found]
