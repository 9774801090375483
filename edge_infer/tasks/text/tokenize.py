"""`text.tokenize`: a text, or a pair of texts, to the numbers of its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import InputError, ManifestError, did_you_mean, listed
from edge_infer.tasks.item import Item
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.text.length import Padding, Truncation, pad
from edge_infer.tasks.text.tokenizer import Tokenizer
from edge_infer.tasks.text.windows import Window, windows
from edge_infer.tasks.values import integers

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from edge_infer.tasks.place import Place
    from edge_infer.tensors.tensor import Tensor, TensorSpec

PARAMETERS = {
    "file": Parameter("text", "tokenizer.json"),
    "max_length": Parameter("whole", None, low=1, high=2**20, is_argument=True),
    # Where the ids, the attention mask and the type ids go: names of inputs.
    "tensors": Parameter("names", {"ids": "input_ids", "mask": "attention_mask", "types": "token_type_ids"}),
    "pad_id": Parameter("whole", 0, low=0, high=2**31),
    # The length that each text is filled up to; null for the longest of a batch.
    "pad_to": Parameter("whole", None, low=1, high=2**20),
    # How many tokens of a pair's second text a window has again, where the text is longer than `max_length`: it is then
    # cut into windows, and not cut off. For `post.answer_span`.
    "doc_stride": Parameter("whole", None, low=0, high=2**20),
    "truncate": Parameter("choice", "longest_first", choices=("longest_first", "only_first", "only_second")),
    "offsets": Parameter("flag", False),
    # What is put before each text, such as `query: `.
    "prefix": Parameter("text", None),
}

_TENSORS = ("ids", "mask", "types")


class Tokenize:
    """The work of the step, and the windows that a text takes.

    Args:
        parameters: Those of the step.
        tokenizer: The bundle's.
        specs: What the model takes, by `ids`, `mask` and `types`.
    """

    def __init__(self, parameters: dict[str, Any], tokenizer: Tokenizer, specs: dict[str, TensorSpec]) -> None:
        self._parameters = parameters
        self._tokenizer = tokenizer
        self._specs = specs
        pad_to = parameters["pad_to"]
        self._padding = None if pad_to is None else Padding(length=pad_to, pad_id=parameters["pad_id"])

    def __call__(self, value: Any, item: Item) -> dict[str, Tensor]:
        """Return the tensors of a text, a pair or a window."""
        if isinstance(value, Window):
            item.text, item.pair, encoding = value
        else:
            item.text, item.pair = _texts(value)
            length = self._length(item)
            encoding = self._tokenizer.encode(
                (self._parameters["prefix"] or "") + item.text,
                item.pair,
                truncation=None if length is None else Truncation(length, strategy=self._parameters["truncate"]),
                padding=self._padding,
                offsets=self._parameters["offsets"],
            )
        item.encoding, item.decode = encoding, self._tokenizer.decode
        made = {"ids": encoding.ids, "mask": encoding.attention_mask, "types": encoding.type_ids}
        return {spec.name: integers(made[what], spec.dtype, (len(made[what]),)) for what, spec in self._specs.items()}

    def windows(self, value: Any, arguments: Mapping[str, Any]) -> list[Any]:
        """Return the runs that a raw input takes: windows of a pair where there is a `doc_stride`, else itself.

        Raises:
            InputError: It is not a text, or leaves no room for a window.
        """
        item = Item(arguments)
        stride, length = item.argument("doc_stride", self._parameters["doc_stride"]), self._length(item)
        if stride is None or length is None:
            return [value]
        if not isinstance(stride, int) or isinstance(stride, bool) or stride < 0:
            raise InputError(f"`doc_stride` is {stride!r}, expected a whole number from 0 on", hint="doc_stride=128")
        text, pair = _texts(value)
        if pair is None:
            return [value]
        whole = self._tokenizer.encode(text, pair, truncation=None, padding=None, offsets=True)
        found = windows(whole, length, stride)
        if self._padding is not None:
            pad(found, self._padding)
        return [Window(text, pair, one) for one in found]

    def _length(self, item: Item) -> int | None:
        length: int | None = item.argument("max_length", self._parameters["max_length"])
        return length or self._parameters["pad_to"]


def prepare(parameters: dict[str, Any], place: Place) -> Tokenize:
    """Return the function that tokenizes.

    It gives the tensors [tokens] that the model takes: one whose input the model lacks is left out.

    Raises:
        ManifestError: The model takes none of the tensors, or the bundle has no such file.
        BundleError: The file is not a `tokenizer.json`.
    """
    if parameters["prefix"] is not None and parameters["offsets"]:
        raise ManifestError("pipeline: `text.tokenize` tells no places behind a `prefix`", hint='leave "offsets" out')
    if parameters["doc_stride"] is not None and not parameters["offsets"]:
        raise ManifestError("pipeline: `text.tokenize` has a `doc_stride` without offsets", hint='"offsets": true')
    for what in parameters["tensors"]:
        if what not in _TENSORS:
            raise ManifestError(
                f"pipeline: `text.tokenize` makes no `{what}`, expected {listed(list(_TENSORS))}",
                hint=did_you_mean(what, list(_TENSORS)) or f'leave "{what}" out of "tensors"',
                field=what,
            )
    specs = {what: place.inputs[name] for what, name in parameters["tensors"].items() if name in place.inputs}
    if "ids" not in specs:
        wanted = parameters["tensors"].get("ids")
        hint = f'"tensors": {{"ids": "{next(iter(place.inputs), "NAME")}"}}'
        raise ManifestError(f"pipeline: the model has no input `{wanted}` for the tokens", hint=hint)
    return Tokenize(parameters, Tokenizer.from_bytes(place.read(parameters["file"])), specs)


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
