"""Answers of generated text in OpenAI's form: whole, in pieces, and errors.

The forms are those of https://platform.openai.com/docs/api-reference/chat/object, .../chat/streaming and
.../completions/object.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from edge_infer.server.errors import problem_parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_infer.errors import EdgeInferError
    from edge_infer.generation.sampler import Choice
    from edge_infer.generation.vocabulary import Vocabulary

DONE = b"data: [DONE]\n\n"
#: OpenAI's names for kinds of errors, by status; all others below 500 are `invalid_request_error`.
_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class Usage(NamedTuple):
    """What answers took, in tokens; `cached` are those of the prompts that were not computed again."""

    prompt: int
    completion: int
    cached: int

    def document(self) -> dict[str, Any]:
        """Write it as OpenAI does."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
        }


class ChoiceText:
    """One answer, as far as it has come.

    Attributes:
        index: Its number in the request.
        text: All its text.
        choices: Its tokens.
        finish_reason: Why it ended; empty until it has.
    """

    def __init__(self, index: int) -> None:
        self.index = index
        self.text = ""
        self.choices: list[Choice] = []
        self.finish_reason = ""


class Writer:
    """Writes the answers to one request.

    Args:
        model: The model's name.
        fingerprint: What changes when the model's files do.
        vocabulary: The bytes of its tokens.
        token_text: The text of one token, marks included.
        created: The time, in seconds since 1970.
        is_chat: Whether the request has messages.
        has_logprobs: Whether it asks how likely tokens were.
        has_usage: Whether a stream ends with what it took.
    """

    def __init__(
        self,
        model: str,
        fingerprint: str,
        vocabulary: Vocabulary,
        token_text: Callable[[int], str],
        created: int,
        *,
        is_chat: bool,
        has_logprobs: bool,
        has_usage: bool = False,
    ) -> None:
        self._vocabulary = vocabulary
        self._token_text = token_text
        self._is_chat = is_chat
        self._has_logprobs = has_logprobs
        self._has_usage = has_usage
        self._head = {
            "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{uuid4().hex}",
            "object": "",
            "created": created,
            "model": model,
            "system_fingerprint": fingerprint,
        }

    def whole(self, answers: Sequence[ChoiceText], usage: Usage) -> bytes:
        """Write the answers to a request that is no stream."""
        choices = []
        for answer in answers:
            choice: dict[str, Any] = {"index": answer.index}
            if self._is_chat:
                choice["message"] = {"role": "assistant", "content": answer.text, "refusal": None}
            else:
                choice["text"] = answer.text
            choices.append(
                choice | {"logprobs": self._logprobs(answer.choices), "finish_reason": answer.finish_reason or "stop"}
            )
        kind = "chat.completion" if self._is_chat else "text_completion"
        return _json({**self._head, "object": kind, "choices": choices, "usage": usage.document()})

    def begin(self, index: int, prompt: str = "") -> bytes:
        """Write the first event of an answer: in a chat its role, else its prompt where that is asked for."""
        if self._is_chat:
            return self._event({"index": index, "delta": {"role": "assistant", "content": ""}}, None)
        return self._event({"index": index, "text": prompt}, None) if prompt else b""

    def piece(self, index: int, text: str, choices: Sequence[Choice], offset: int = 0) -> bytes:
        """Write a piece of an answer; so many characters of it came before."""
        part = {"delta": {"content": text}} if self._is_chat else {"text": text}
        return self._event({"index": index, **part, "logprobs": self._logprobs(choices, offset)}, None)

    def end(self, index: int, reason: str) -> bytes:
        """Write the last event of an answer."""
        part: dict[str, Any] = {"delta": {}} if self._is_chat else {"text": ""}
        return self._event({"index": index, **part, "logprobs": None}, reason)

    def usage(self, usage: Usage) -> bytes:
        """Write what all answers took, where that is asked for."""
        return self._data({"choices": [], "usage": usage.document()}) if self._has_usage else b""

    def _event(self, choice: dict[str, Any], reason: str | None) -> bytes:
        more = {"usage": None} if self._has_usage else {}
        return self._data({"choices": [{"logprobs": None, **choice, "finish_reason": reason}], **more})

    def _data(self, document: dict[str, Any]) -> bytes:
        kind = "chat.completion.chunk" if self._is_chat else "text_completion"
        return b"data: %s\n\n" % _json({**self._head, "object": kind, **document})

    def _logprobs(self, choices: Sequence[Choice], offset: int = 0) -> dict[str, Any] | None:
        if not self._has_logprobs:
            return None
        known = [choice for choice in choices if choice.logprob is not None]
        if self._is_chat:
            return {"content": [self._entry(one.token, one.logprob, one.top) for one in known], "refusal": None}
        text = self._token_text
        tokens = [text(one.token) for one in known]
        return {
            "tokens": tokens,
            "token_logprobs": [one.logprob for one in known],
            "top_logprobs": [{text(token): logprob for token, logprob in one.top} for one in known],
            "text_offset": [
                offset + end - len(one) for one, end in zip(tokens, accumulate(map(len, tokens)), strict=True)
            ],
        }

    def _entry(self, token: int, logprob: float | None, top: Sequence[tuple[int, float]] | None) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "token": self._token_text(token),
            "logprob": logprob,
            "bytes": list(self._vocabulary.bytes_of(token)),
        }
        if top is not None:
            entry["top_logprobs"] = [self._entry(one, value, None) for one, value in top]
        return entry


def openai_error(error: EdgeInferError) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    """Return status, body and headers of the answer to a request that failed, in OpenAI's form.

    Their clients print `message`, so that it has the hint too.
    """
    status, body, headers = problem_parts(error)
    if not body:  # nobody reads it
        return status, b"", headers
    return status, _json(error_document(error, status)), headers


def error_document(error: EdgeInferError, status: int) -> dict[str, Any]:
    """Describe an error as OpenAI does."""
    kind = _KINDS.get(status, "invalid_request_error" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "server_error")
    message = f"{error.message} (hint: {error.hint})" if error.hint else error.message
    param = error.details.get("option")
    return {
        "error": {
            "message": message,
            "type": kind,
            "param": param if isinstance(param, str) else None,
            "code": error.code,
        }
    }


def _json(document: dict[str, Any]) -> bytes:
    """Write JSON; half of a surrogate pair, which a template may echo, becomes U+FFFD."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=str).encode("utf-8", "replace")
