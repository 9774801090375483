"""OpenAI's embeddings: a body with a model and texts, an answer with a vector for each.

The form is that of https://platform.openai.com/docs/api-reference/embeddings.
"""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import ExecutionError, InputError, PayloadTooLarge
from edge_infer.server.response.answer_json import answer_json
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from edge_infer.tasks.prepared_steps import PreparedSteps, Ready

#: The most texts of a request, and the most characters of one.
MAX_TEXTS, MAX_CHARACTERS = 256, 200_000
#: JSON of more values is not read: the event loop waits while it is, 40 ms for so many numbers.
MAX_VALUES = 500_000
_EXAMPLE = '{"model": "minilm", "input": ["a text", "another"]}'
#: What clients of OpenAI send are ids of its own tokenizers.
_TEXTS = "send texts, no token ids: `check_embedding_ctx_length=False` of LangChain's `OpenAIEmbeddings`"


class Asked(NamedTuple):
    """A request for embeddings: the model's name, the texts, and whether vectors are base64 text."""

    model: str
    texts: list[str]
    is_base64: bool


def parsed(body: bytes, hint: str) -> Any:
    """Return a body of JSON that has few enough values to be parsed at once.

    Raises:
        InputError: It is not JSON.
        PayloadTooLarge: It has too many values.
    """
    if body.count(b",") + body.count(b"[") + body.count(b"{") > MAX_VALUES:
        raise PayloadTooLarge(f"The JSON has more than {MAX_VALUES} values", hint="send the bytes of a file instead")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"The body is not JSON: {error}", hint=hint) from error


def read_embeddings(body: bytes) -> Asked:
    """Read a request for embeddings.

    Raises:
        InputError: A field lacks, or is not what it must be.
    """
    document = parsed(body, _EXAMPLE)
    if not isinstance(document, dict) or not isinstance(document.get("model"), str):
        raise InputError("The body has no `model`", hint=_EXAMPLE, option="model")
    given = document.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        hint = _EXAMPLE if not _is_of_tokens(texts) else _TEXTS
        raise InputError("`input` is neither a text nor a list of texts", hint=hint, option="input")
    if not 1 <= len(texts) <= MAX_TEXTS or max(map(len, texts)) > MAX_CHARACTERS:
        raise InputError(
            f"`input` is not 1 to {MAX_TEXTS} texts of at most {MAX_CHARACTERS} characters",
            hint="send fewer at once",
            option="input",
        )
    form = document.get("encoding_format")
    if form not in (None, "float", "base64"):
        raise InputError(
            f"`encoding_format` is {form!r}, expected `float` or `base64`", hint=_EXAMPLE, option="encoding_format"
        )
    if document.get("dimensions") is not None:
        raise InputError(
            "`dimensions` cannot be chosen: the model has its own", hint="leave `dimensions` out", option="dimensions"
        )
    return Asked(document["model"], texts, form == "base64")


def _is_of_tokens(values: Any) -> bool:
    """Tell whether an input is a list of ids, or of lists of them."""
    return isinstance(values, list) and any(isinstance(one, int | list) for one in values)


def write_embeddings(asked: Asked, prepared: PreparedSteps, ready: list[Ready], outputs: list[Any]) -> bytes:
    """Return the answer: the steps after the model make the vectors.

    Raises:
        ExecutionError: The pipeline does not give a vector for each text.
    """
    data, tokens = [], 0
    for index, (one, found) in enumerate(zip(ready, outputs, strict=True)):
        vector = prepared.after(found, one.item)
        if not isinstance(vector, Tensor) or len(vector.shape) != 1 or not vector.dtype.startswith("float"):
            raise ExecutionError("the pipeline gives no vector for a text", hint='end it with {"step": "post.pool"}')
        tokens += 0 if one.item.encoding is None else sum(one.item.encoding.attention_mask)
        numbers: Any = b64encode(bytes(vector.data())).decode() if asked.is_base64 else vector.tolist()
        data.append({"object": "embedding", "index": index, "embedding": numbers})
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return answer_json({"object": "list", "data": data, "model": asked.model, "usage": usage})
