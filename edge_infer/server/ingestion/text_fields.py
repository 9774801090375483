"""The bodies of requests for text: OpenAI's chat and completions, and the short form of `/inference`.

The forms are those of https://platform.openai.com/docs/api-reference/chat and .../completions, with the names that
llama.cpp and vLLM add for sampling. Fields that mean nothing here are accepted, as clients send many.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from edge_infer.errors import InputError, PayloadTooLarge
from edge_infer.generation.options import GenerationOptions
from edge_infer.server.ingestion.embeddings import parsed

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The most answers to one request, and the most characters of its prompts or messages.
MAX_CHOICES, MAX_CHARACTERS = 16, 200_000
#: How many tokens an answer has where a request does not say: OpenAI's number for completions; of `/inference`.
_COMPLETION_TOKENS, _INFERENCE_TOKENS = 16, 256
#: The name of an option here by the names that it has in requests; the first that is there counts.
_NAMES = {
    "max_tokens": ("max_completion_tokens", "max_tokens"),
    "repetition_penalty": ("repetition_penalty", "repeat_penalty"),
    **{name: (name,) for name in ("temperature", "top_p", "top_k", "min_p", "seed", "stop", "logit_bias")},
    **{name: (name,) for name in ("frequency_penalty", "presence_penalty")},
}
CHAT_EXAMPLE = '{"model": "NAME", "messages": [{"role": "user", "content": "Hello"}]}'
COMPLETION_EXAMPLE = '{"model": "NAME", "prompt": "Hello", "max_tokens": 32}'
INFERENCE_EXAMPLE = '{"prompt": "Hello", "max_tokens": 32, "temperature": 0.7}'


class TextAsked(NamedTuple):
    """A request for text.

    Attributes:
        model: The model's name; empty where it is not said.
        prompts: What to go on from: texts, or token ids; empty for a chat.
        messages: A conversation; empty for prompts.
        tools: What the template is told of functions; None for nothing.
        template_values: More that the template reads.
        given: The options by their names in `GenerationOptions`.
        answers: How many answers to each prompt.
        is_stream: Whether pieces are sent as they are generated.
        has_usage: Whether a stream ends with what it took.
        has_echo: Whether an answer begins with its prompt.
        wants_rest: Whether an answer may fill the context where `max_tokens` is not said.
    """

    model: str
    prompts: list[str | list[int]]
    messages: list[dict[str, Any]]
    tools: list[Any] | None
    template_values: dict[str, Any]
    given: dict[str, Any]
    answers: int = 1
    is_stream: bool = False
    has_usage: bool = False
    has_echo: bool = False
    wants_rest: bool = False

    def checked(self) -> TextAsked:
        """Return itself, if it asks for no more answers than one request may.

        Raises:
            InputError: It asks for more, or for none.
        """
        choices = self.answers * max(1, len(self.prompts))
        if not 1 <= choices <= MAX_CHOICES:
            raise InputError(
                f"The request asks for {choices} answers, expected 1 to {MAX_CHOICES}",
                hint="send several requests",
                option="n",
                expected=MAX_CHOICES,
                got=choices,
            )
        return self

    def options(self, defaults: Mapping[str, Any], prompt_tokens: int, context: int) -> GenerationOptions:
        """Return the options of an answer, with a seed.

        Args:
            defaults: The bundle's own.
            prompt_tokens: The tokens of its prompt.
            context: The most tokens of both together.

        Raises:
            InputError: One is out of range; `option` names it.
        """
        given = dict(self.given)
        if self.wants_rest and "max_tokens" not in given:
            given["max_tokens"] = max(1, context - prompt_tokens + 1)
        return GenerationOptions.of(given, defaults).seeded()


def read_chat(body: bytes) -> TextAsked:
    """Read a request for a chat's next message.

    Raises:
        InputError: A field is not what it must be; `option` names it.
        PayloadTooLarge: The messages are too long.
    """
    document = _document(body, CHAT_EXAMPLE)
    messages = document.get("messages")
    if not isinstance(messages, list) or not messages:
        raise _wrong("messages", messages, "a list of messages", CHAT_EXAMPLE)
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _wrong("messages", message, "messages with a `role`", CHAT_EXAMPLE)
    _check_length(_characters(messages), "messages")
    tools, choice = document.get("tools"), document.get("tool_choice")
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise _wrong("tools", tools, "a list of functions", '"tools": []')
    if choice not in (None, "none", "auto"):
        raise InputError(
            "`tool_choice` asks for a call of a function, which no model is made to give here",
            hint='"tool_choice": "auto"; the model writes a call as text where it knows how',
            option="tool_choice",
        )
    values = document.get("chat_template_kwargs")
    if values is not None and not isinstance(values, dict):
        raise _wrong("chat_template_kwargs", values, "an object", '"chat_template_kwargs": {"enable_thinking": false}')
    given = _given(document)
    if _flag(document, "logprobs"):
        given["logprobs"] = _whole(document, "top_logprobs", 0)
    elif document.get("top_logprobs"):
        raise InputError("`top_logprobs` needs `logprobs`", hint='"logprobs": true', option="top_logprobs")
    return TextAsked(
        _model(document),
        [],
        messages,
        None if choice == "none" else tools or None,
        values or {},
        given,
        _whole(document, "n", 1),
        _flag(document, "stream"),
        _has_usage(document),
        wants_rest=True,
    ).checked()


def read_completion(body: bytes) -> TextAsked:
    """Read a request to go on from a text.

    Raises:
        InputError: A field is not what it must be; `option` names it.
        PayloadTooLarge: The prompts are too long.
    """
    document = _document(body, COMPLETION_EXAMPLE)
    prompts = _prompts(document.get("prompt"))
    if document.get("suffix"):
        raise InputError("`suffix` is not known here: a text is gone on with", hint="leave it out", option="suffix")
    if document.get("best_of") not in (None, 1, document.get("n")):
        raise InputError("`best_of` is not known here: all answers are given", hint='"n": 2', option="best_of")
    given = _given(document)
    given.setdefault("max_tokens", _COMPLETION_TOKENS)
    if document.get("logprobs") is not None:
        given["logprobs"] = document["logprobs"]
    return TextAsked(
        _model(document),
        prompts,
        [],
        None,
        {},
        given,
        _whole(document, "n", 1),
        _flag(document, "stream"),
        _has_usage(document),
        _flag(document, "echo"),
    ).checked()


def read_inference(body: bytes) -> TextAsked:
    """Read `{"prompt", "max_tokens", "temperature"}`.

    Raises:
        InputError: A field is not what it must be; `option` names it.
        PayloadTooLarge: The prompt is too long.
    """
    document = _document(body, INFERENCE_EXAMPLE)
    prompt = document.get("prompt")
    if not isinstance(prompt, str):
        raise _wrong("prompt", prompt, "a text", INFERENCE_EXAMPLE)
    given = _given(document)
    given.setdefault("max_tokens", _INFERENCE_TOKENS)
    return TextAsked(_model(document), _prompts(prompt), [], None, {}, given)


def read_content(body: bytes) -> tuple[str, str]:
    """Read `{"content": text}`, what is to be cut into tokens; return the model's name and it.

    Raises:
        InputError: It is not a text.
        PayloadTooLarge: It is too long.
    """
    example = '{"content": "Hello"}'
    document = _document(body, example)
    content = document.get("content")
    if not isinstance(content, str):
        raise _wrong("content", content, "a text", example)
    _check_length(len(content), "content")
    return _model(document), content


def read_tokens(body: bytes) -> tuple[str, list[int]]:
    """Read `{"tokens": [...]}`, what is to be written as text; return the model's name and them.

    Raises:
        InputError: They are not whole numbers.
        PayloadTooLarge: They are too many.
    """
    example = '{"tokens": [1, 2, 3]}'
    document = _document(body, example)
    tokens = document.get("tokens")
    if not _are_tokens(tokens):
        raise _wrong("tokens", tokens, "a list of token ids", example)
    _check_length(len(tokens), "tokens")
    return _model(document), tokens


# -- fields --


def _document(body: bytes, example: str) -> dict[str, Any]:
    if not body:
        raise InputError("The body is empty, expected JSON", hint=example)
    document = parsed(body, example)
    if not isinstance(document, dict):
        raise InputError("The body is not a JSON object", hint=example)
    return document


def _model(document: dict[str, Any]) -> str:
    model = document.get("model")
    if model is None:
        return ""
    if not isinstance(model, str):
        raise _wrong("model", model, "a name", '"model": "NAME"; GET /v1/models lists them')
    return model


def _given(document: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the document by their names here; null is as good as nothing."""
    given: dict[str, Any] = {}
    for option, names in _NAMES.items():
        for name in names:
            if document.get(name) is not None:
                given[option] = document[name]
                break
    if given.get("stop") == []:
        del given["stop"]
    if given.get("top_k") == -1:  # all tokens, as clients of vLLM say
        given["top_k"] = 0
    if (wanted := _response_format(document.get("response_format"))) is not None:
        given["response_format"] = wanted
    return given


def _response_format(value: Any) -> dict[str, Any] | None:
    """Return what an answer must be, as `GenerationOptions` takes it."""
    hint = '"response_format": {"type": "json_object"}'
    if value is None:
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "json_object"}
    if kind == "json_schema":
        inner = value.get("json_schema", value)  # some clients leave the inner object out
        schema = inner.get("schema") if isinstance(inner, dict) else None
        if isinstance(schema, dict):
            return {"type": "json_schema", "schema": schema}
        raise _wrong("response_format", schema, "`json_schema` with an object `schema`", hint)
    raise _wrong("response_format", value, "`text`, `json_object` or `json_schema`", hint)


def _prompts(value: Any) -> list[str | list[int]]:
    """Return the prompts: a text, token ids, or a list of either."""
    hint = '"prompt": "Hello"'
    prompts = [value] if isinstance(value, str) or _are_tokens(value) else value
    if not isinstance(prompts, list) or not prompts:
        raise _wrong("prompt", value, "a text, a list of texts, or token ids", hint)
    if not all(isinstance(one, str) or _are_tokens(one) for one in prompts):
        raise _wrong("prompt", value, "a text, a list of texts, or token ids", hint)
    _check_length(sum(map(len, prompts)), "prompt")
    return prompts


def _are_tokens(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and bool(value) and all(type(one) is int and 0 <= one < 2**31 for one in value)


def _whole(document: dict[str, Any], name: str, default: int) -> int:
    value = document.get(name)
    if value is None:
        return default
    if type(value) is not int or value < 0:
        raise _wrong(name, value, "a whole number", f'"{name}": {default}')
    return value


def _flag(document: dict[str, Any], name: str) -> bool:
    value = document.get(name)
    if value is not None and not isinstance(value, bool):
        raise _wrong(name, value, "true or false", f'"{name}": true')
    return value is True


def _has_usage(document: dict[str, Any]) -> bool:
    options = document.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise _wrong("stream_options", options, "an object", '"stream_options": {"include_usage": true}')
    return options is not None and _flag(options, "include_usage")


def _characters(value: Any, depth: int = 0) -> int:
    """Count the characters of all texts inside a JSON value."""
    if isinstance(value, str):
        return len(value)
    if depth > 32:
        raise InputError("`messages` are nested too deeply", hint=CHAT_EXAMPLE, option="messages")
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return sum(_characters(one, depth + 1) for one in inner)


def _check_length(size: int, name: str) -> None:
    if size > MAX_CHARACTERS:
        raise PayloadTooLarge(
            f"`{name}` has {size} characters or tokens, at most {MAX_CHARACTERS} are read",
            hint="shorten it",
            option=name,
            expected=MAX_CHARACTERS,
            got=size,
        )


def _wrong(name: str, value: Any, expected: str, hint: str) -> InputError:
    shown = "missing" if value is None else repr(value)[:80]
    return InputError(f"`{name}` is {shown}, expected {expected}", hint=hint, option=name)
