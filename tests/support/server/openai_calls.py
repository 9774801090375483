"""What the OpenAI Python client does against a server, in that client's own environment.

python openai_calls.py http://127.0.0.1:8080 EXPECTED_TEXT EXPECTED_VECTORS
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import openai  # type: ignore[import-not-found, unused-ignore]

if TYPE_CHECKING:
    from collections.abc import Callable

USER = [{"role": "user", "content": "Hi"}]
calls = 0


def check(holds: object) -> None:
    global calls
    assert holds
    calls += 1


def refused(kind: type[Any], call: Callable[..., Any], **given: Any) -> Any:
    try:
        call(**given)
    except kind as error:
        return error
    raise AssertionError(kind)


def main(url: str, expected: str, vectors: str) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60)
    check([model.id for model in client.models.list()] == ["chat", "words"])
    check(client.models.retrieve("chat").object == "model")
    asked: dict[str, Any] = {"model": "chat", "messages": USER, "seed": 3, "max_tokens": 12, "temperature": 1.5}
    whole = client.chat.completions.create(**asked)
    check(whole.choices[0].message.content == expected)
    check(whole.choices[0].finish_reason == "length")
    check(whole.usage.completion_tokens == 12)
    check(client.chat.completions.create(**asked).usage.prompt_tokens_details.cached_tokens > 0)
    with client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}) as stream:
        chunks = list(stream)
    check("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == expected)
    check(chunks[-1].usage.completion_tokens == 12)
    probable = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    check(len(probable.choices[0].logprobs.content) == 12)
    check(len(probable.choices[0].logprobs.content[0].top_logprobs) == 2)
    several = client.chat.completions.create(**asked, n=2, extra_body={"top_k": 5, "min_p": 0.1})
    check([choice.index for choice in several.choices] == [0, 1])
    stopped = client.chat.completions.create(**{**asked, "seed": None}, stop=[expected[0]], user="me")
    check(stopped.choices[0].message.content is not None)
    completion = client.completions.create(model="chat", prompt=["ab", "cd"], max_tokens=4, echo=True, logprobs=1)
    check([choice.text[:2] for choice in completion.choices] == ["ab", "cd"])
    check(len(completion.choices[0].logprobs.tokens) == 4)
    pieces = client.completions.create(model="chat", prompt="ab", max_tokens=4, stream=True)
    check("".join(piece.choices[0].text for piece in pieces) is not None)
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    check(client.chat.completions.create(**{**asked, "messages": parts}).choices[0].message.content == expected)
    error = refused(openai.BadRequestError, client.chat.completions.create, **{**asked, "temperature": -1})
    check((error.param, error.code) == ("temperature", "input_error"))
    error = refused(openai.NotFoundError, client.chat.completions.create, **{**asked, "model": "gpt"})
    check(error.code == "model_not_found")
    tools = [{"type": "function", "function": {"name": "f", "description": "x" * 50}}]
    told = client.chat.completions.create(**asked, tools=tools).usage.prompt_tokens
    check(told > whole.usage.prompt_tokens + 50)
    check(client.chat.completions.create(**asked, tools=tools, tool_choice="none").usage == whole_again(client, asked))
    refused(openai.BadRequestError, client.chat.completions.create, **asked, tools=tools, tool_choice="required")
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer"}}}
    number = client.chat.completions.create(**asked, response_format=form).choices[0].message.content
    check(number.strip(" -").isdigit())
    embedded = client.embeddings.create(model="words", input=["good film", "paris"])
    check([one.embedding for one in embedded.data] == json.loads(vectors))
    error = refused(openai.BadRequestError, client.embeddings.create, model="words", input=[[1, 2]])
    check("neither a text nor" in error.message)
    broken = {**asked, "messages": [{"role": "user", "content": "~"}]}
    error = refused(openai.InternalServerError, client.chat.completions.create, **broken)
    check("best logit is nan" in error.message)
    error = refused(openai.APIError, lambda: list(client.chat.completions.create(**broken, stream=True)))
    check("best logit is nan" in error.message)
    check(client.chat.completions.create(**asked).choices[0].message.content == expected)
    with client.chat.completions.create(**{**asked, "max_tokens": 400}, stream=True) as stream:
        next(iter(stream))  # it leaves in the midst of it
    check(asyncio.run(together(url, asked)) == [expected] * 16)
    print(f"{calls} calls passed")


def whole_again(client: Any, asked: dict[str, Any]) -> Any:
    return client.chat.completions.create(**asked).usage


async def together(url: str, asked: dict[str, Any]) -> list[str]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=60) as client:
        answers = await asyncio.gather(*(client.chat.completions.create(**asked) for _ in range(16)))
    return [answer.choices[0].message.content for answer in answers]


if __name__ == "__main__":
    main(*sys.argv[1:])
