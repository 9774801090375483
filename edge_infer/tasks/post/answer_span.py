"""`post.answer_span`: the part of a text that answers a question."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edge_infer.errors import InputError, ManifestError
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.text.windows import context_tokens
from edge_infer.tasks.values import flat

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tensors.tensor import Tensor

PARAMETERS = {
    "start": Parameter("text", "start_logits"),
    "end": Parameter("text", "end_logits"),
    "top_k": Parameter("whole", 1, low=1, high=1000, is_argument=True),
    # The longest answer, in tokens.
    "max_answer_len": Parameter("whole", 15, low=1, high=10_000, is_argument=True),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function that reads two outputs [tokens]: how likely an answer starts, and ends, at each token.

    It gives `{"score", "start", "end", "answer"}`, or a list of them for a `top_k` above 1; `start` and `end` are
    places in the context. The score is the product of both softmaxes over the context's tokens and the first token
    (`[CLS]`), which a model chooses where there is no answer, as in transformers' `QuestionAnsweringPipeline`.

    Raises:
        ManifestError: The model lacks one of the outputs.
    """
    starts, ends = (place.output(parameters[which], "post.answer_span") for which in ("start", "end"))

    def apply(outputs: dict[str, Tensor], item: Item) -> Any:
        encoding = item.encoding
        if encoding is None or encoding.offsets is None:
            raise ManifestError(
                "pipeline: `post.answer_span` needs the places of tokens",
                hint='give the step text.tokenize "offsets": true',
            )
        if item.pair is None:
            raise InputError("a question was given without its context", hint='{"question": "...", "context": "..."}')
        special = encoding.special_tokens_mask
        tokens = context_tokens(encoding.type_ids, special)
        start = _likely(flat(outputs[starts]), tokens, special)
        end = _likely(flat(outputs[ends]), tokens, special)
        longest = item.argument("max_answer_len", parameters["max_answer_len"])
        spans = [
            (start[i] * end[j], tokens[i], tokens[j])
            for i in range(len(tokens))
            for j in range(i, min(i + longest, len(tokens)))
        ]
        count = item.argument("top_k", parameters["top_k"])
        answers = []
        for score, first, last in sorted(spans, key=lambda span: -span[0])[:count]:
            begin, stop = encoding.offsets[first][0], encoding.offsets[last][1]
            answers.append({"score": score, "start": begin, "end": stop, "answer": item.pair[begin:stop]})
        if not answers:
            raise InputError("the context holds no text", hint='{"question": "...", "context": "..."}')
        return answers[0] if count == 1 else answers

    return apply


def _likely(logits: Sequence[float], tokens: list[int], special: Sequence[int]) -> list[float]:
    """Return the softmax over the context's tokens and the first token, without what it gives the first token."""
    counted = [0, *tokens] if special[:1] == [1] else tokens
    highest = max((logits[i] for i in counted), default=0.0)
    total = 0.0
    for i in counted:
        total += math.exp(logits[i] - highest)
    return [math.exp(logits[i] - highest) / total for i in tokens]
