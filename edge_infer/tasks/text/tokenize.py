"""`text.tokenize`: a text, or a pair of texts, to the numbers of its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import InputError, ManifestError, listed
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.text.length import Padding, Truncation
from edge_infer.tasks.text.tokenizer import Tokenizer
from edge_infer.tasks.values import integers

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tensors.tensor import Tensor

PARAMETERS = {
    "file": Parameter("text", "tokenizer.json"),
    "max_length": Parameter("whole", None, low=1, high=2**20, is_argument=True),
    # Where the ids, the attention mask and the type ids go: names of inputs.
    "tensors": Parameter("names", {"ids": "input_ids", "mask": "attention_mask", "types": "token_type_ids"}),
    "pad_id": Parameter("whole", 0, low=0, high=2**31),
    # The length that each text is filled up to; null for the longest of a batch.
    "pad_to": Parameter("whole", None, low=1, high=2**20),
    "truncate": Parameter("choice", "longest_first", choices=("longest_first", "only_first", "only_second")),
    "offsets": Parameter("flag", False),
    # What is put before each text, such as `query: `.
    "prefix": Parameter("text", None),
}

_TENSORS = ("ids", "mask", "types")


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function that tokenizes.

    It gives the tensors [tokens] that the model takes: one whose input the model lacks is left out.

    Raises:
        ManifestError: The model takes none of the tensors, or the bundle has no such file.
        BundleError: The file is not a `tokenizer.json`.
    """
    if parameters["prefix"] is not None and parameters["offsets"]:
        raise ManifestError("pipeline: `text.tokenize` tells no places behind a `prefix`", hint='leave "offsets" out')
    for what in parameters["tensors"]:
        if what not in _TENSORS:
            raise ManifestError(
                f"pipeline: `text.tokenize` makes no `{what}`, expected {listed(list(_TENSORS))}", field=what
            )
    names = {what: name for what, name in parameters["tensors"].items() if name in place.inputs}
    if "ids" not in names:
        wanted = parameters["tensors"].get("ids")
        hint = f'"tensors": {{"ids": "{next(iter(place.inputs), "NAME")}"}}'
        raise ManifestError(f"pipeline: the model has no input `{wanted}` for the tokens", hint=hint)
    tokenizer = Tokenizer.from_bytes(place.read(parameters["file"]))
    prefix = parameters["prefix"] or ""
    pad_to = parameters["pad_to"]
    padding = None if pad_to is None else Padding(length=pad_to, pad_id=parameters["pad_id"])

    def apply(value: Any, item: Item) -> dict[str, Tensor]:
        text, pair = _texts(value)
        item.text, item.pair, item.decode = text, pair, tokenizer.decode
        length = item.argument("max_length", parameters["max_length"]) or pad_to
        item.encoding = encoding = tokenizer.encode(
            prefix + text,
            pair,
            truncation=None if length is None else Truncation(length, strategy=parameters["truncate"]),
            padding=padding,
            offsets=parameters["offsets"],
        )
        made = {"ids": encoding.ids, "mask": encoding.attention_mask, "types": encoding.type_ids}
        return {
            name: integers(made[what], place.inputs[name].dtype, (len(made[what]),)) for what, name in names.items()
        }

    return apply


def _texts(value: Any) -> tuple[str, str | None]:
    """Return a text and the second one of a pair; None for a text alone."""
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        value = (value["text"], value["text_pair"]) if value.get("text_pair") is not None else value["text"]
    if isinstance(value, str):
        return value, None
    if isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(one, str) for one in value):
        return value[0], value[1]
    raise InputError(
        f"`{type(value).__name__}` is not a text", hint='give a text, or a pair: {"text": "...", "text_pair": "..."}'
    )
