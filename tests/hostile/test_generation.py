"""Hostile requests for text: options, messages, templates and schemas by chance end as edge-infer's own errors."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_infer.errors import EdgeInferError, InputError
from edge_infer.generation.definition import GenerateDefinition
from edge_infer.generation.generator import Generator
from edge_infer.generation.options import GenerationOptions
from edge_infer.generation.template import ChatTemplate
from tests.support.generation.fake_decoder import FakeDecoder
from tests.support.tasks.trained_tokenizers import read

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
NAMES = tuple(GenerationOptions.__dataclass_fields__)
#: What JSON may hold, and what only Python may.
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
KEYWORDS = st.sampled_from(
    [
        "type",
        "properties",
        "required",
        "items",
        "enum",
        "const",
        "anyOf",
        "allOf",
        "$ref",
        "minItems",
        "maxItems",
        "minLength",
        "maxLength",
        "additionalProperties",
        "pattern",
        "not",
        "$defs",
        "description",
    ]
)
SCHEMAS: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([True, False, None, 3, -1, "string", "object", "array", "#", "#/$defs/a", [], {}, 10**30]),
    lambda inner: st.dictionaries(KEYWORDS, inner, max_size=4) | st.lists(inner, max_size=3),
    max_leaves=12,
)
SOURCES = st.lists(
    st.sampled_from(
        [
            "{{",
            "}}",
            "{%",
            "%}",
            " for m in messages ",
            " endfor ",
            " if x ",
            " endif ",
            " set x = x ~ x ",
            "messages",
            "|tojson",
            "|replace('a','aa')",
            "[0]",
            ".content",
            "[::2]",
            "'a'*99",
            " macro m() ",
            " endmacro ",
            "m()",
            "loop.index",
            "range(9999)",
            "|list",
            "+",
            "**9",
            "namespace(a=1)",
            "{#",
            "raise_exception('no')",
            "\x00",
        ]
    ),
    max_size=12,
).map("".join)


@cache
def generator() -> Generator:
    tokenizer = read("llama3")
    size = tokenizer.vocab_size
    definition = GenerateDefinition("fake", 60, size, "", None, 0, True, (1,), {}, {}, None)
    return Generator(FakeDecoder(size, 2, 60), tokenizer, definition, template=TEMPLATE)


def ends(prompt: Any, **options: Any) -> None:
    """Claim that a request is answered, or refused by name, and takes no slot for good."""
    made = generator()
    try:
        made.stream(prompt, **options).result()
    except EdgeInferError as error:
        assert error.message
    assert (made.report().running, made.report().waiting) == (0, 0)


@settings(max_examples=150)
@given(st.dictionaries(st.sampled_from(NAMES), ANYTHING, max_size=3))
def test_any_options_are_checked(options: dict[str, Any]) -> None:
    ends("Hello", **{"seed": 1, **options, "max_tokens": 1})
    with pytest.raises(InputError):
        GenerationOptions.of({"max_tokens": "x", **{name: None for name in options if name != "max_tokens"}})


@settings(max_examples=60)
@given(ANYTHING | st.lists(st.dictionaries(st.sampled_from(["role", "content", "tool_calls"]), ANYTHING), max_size=3))
def test_any_prompt_is_answered_or_refused(prompt: Any) -> None:
    ends(prompt, seed=1, max_tokens=1)


@settings(max_examples=200)
@given(SCHEMAS)
def test_any_schema_is_kept_or_refused(schema: Any) -> None:
    ends("Hello", seed=1, max_tokens=2, response_format={"type": "json_schema", "schema": schema})


@settings(max_examples=200)
@given(SOURCES)
def test_any_template_is_rendered_or_refused(source: str) -> None:
    try:
        rendered = ChatTemplate(source).render([{"role": "user", "content": "a" * 50}])
    except EdgeInferError as error:
        assert error.message
    else:
        assert len(rendered) <= 16_000_000


@pytest.mark.parametrize(
    "options",
    [
        {"stop": ["x"] * 100_000},
        {"stop": [f"{number:0900d}" for number in range(1000)]},
        {"logit_bias": dict.fromkeys(range(100_000), 1.0)},
        {"logit_bias": dict.fromkeys(range(2000), -1000.0), "max_tokens": 3},
        {"temperature": -1},
        {"max_tokens": 10**20},
        {"seed": 10**30},
        {"response_format": {"type": "json_schema", "schema": {"description": "x" * 1_000_000}}},
    ],
)
def test_large_requests_end(options: dict[str, Any]) -> None:
    ends("Hello", **options)


def test_a_prompt_of_a_million_words_is_refused() -> None:
    with pytest.raises(InputError, match="the context has room for 60"):
        generator().complete("word " * 1_000_000)


def test_values_of_a_template_do_not_replace_the_messages() -> None:
    with pytest.raises(InputError, match="`template_values`"):
        generator().stream([{"role": "user", "content": "Hello"}], template_values={"messages": []})


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(InputError, match="surrogate"):
        generator().complete("\ud800")
    with pytest.raises(InputError, match="surrogate"):
        generator().chat([{"role": "user", "content": "\ud800"}])
