"""Answers of a form: what the automaton accepts is valid JSON by the schema, and bad schemas are refused."""

from __future__ import annotations

import json
import random
import time
from functools import cache
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_infer.errors import ExecutionError, InputError
from edge_infer.generation.automaton import Automaton
from edge_infer.generation.grammar import grammar_of
from edge_infer.generation.json_schema import ANY_OBJECT, json_grammar
from edge_infer.generation.vocabulary import Vocabulary
from tests.support.tasks.trained_tokenizers import read

TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["name"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}
SCHEMAS: dict[str, Any] = {
    "anything": True,
    "person": {
        "title": "Person",
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 5, "description": "of the person"},
            "age": {"type": "integer"},
            "tags": {"type": "array", "items": {"enum": ["a", "b", 'c"é']}, "minItems": 1, "maxItems": 3},
            "more": {"anyOf": [{"type": "null"}, {"type": "boolean"}, {"const": {"x": [1, 2.5]}}]},
        },
        "required": ["name", "more", "unnamed"],
        "additionalProperties": True,
    },
    "optional": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "null"}, "c": {}}},
    "tree": TREE,
    "map": {"type": "object", "additionalProperties": {"type": ["integer", "null"]}},
    "empty": {"type": "object", "additionalProperties": False},
    "list": {"type": "array", "maxItems": 0},
    "inferred": {"items": {"type": "boolean"}, "minItems": 2},
    "whole": {"type": "integer"},
}


@cache
def vocabulary() -> Vocabulary:
    tokenizer = read("gpt2")
    return Vocabulary(tokenizer, tokenizer.vocab_size)


def accepts(automaton: Automaton, text: str) -> bool:
    return automaton.may_end(automaton.after(automaton.start, text.encode()))


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_text_that_is_drawn_is_valid(name: str) -> None:
    schema, chance = SCHEMAS[name], random.Random(5)
    ends = [read("gpt2").token_to_id("</s>") or 0]
    for round_ in range(1):
        grammar = grammar_of({"type": "json_schema", "schema": schema}, vocabulary(), ends)
        assert grammar is not None
        tokens: list[int] = []
        for step in range(400):
            known = list(grammar.allowed())
            assert known
            assert all(grammar.accepts(token) for token in chance.sample(known, min(5, len(known))))
            # Later, what closes: so that each answer ends.
            closing = [token for token in known if vocabulary().bytes_of(token) in (b'"', b"}", b"]", b"null", b'"}')]
            token = ends[0] if ends[0] in known else chance.choice(closing if closing and step > round_ else known)
            if token == ends[0]:
                break
            tokens.append(token)
            if grammar.advance(token):
                break
        text = b"".join(map(vocabulary().bytes_of, tokens)).decode()
        jsonschema.validate(json.loads(text), schema)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=40)
@given(JSON, st.booleans())
def test_any_json_is_accepted_as_any_json(value: Any, is_ascii: bool) -> None:
    automaton = Automaton(json_grammar(True))
    assert accepts(automaton, json.dumps(value, ensure_ascii=is_ascii))
    assert accepts(automaton, json.dumps(value, ensure_ascii=is_ascii, separators=(",", ":")))
    assert accepts(Automaton(ANY_OBJECT), json.dumps(value)) == isinstance(value, dict)


@given(st.text('{}[]",:0123.-+eEtrufalsn \\\n', max_size=12))
def test_what_is_accepted_can_be_parsed(text: str) -> None:
    if accepts(Automaton(json_grammar(True)), text):
        json.loads(text)


@pytest.mark.parametrize("text", ["01", "+1", "1.", ".5", "1e", '"\t"', '"\\x"', "[1,]", "{1:2}", "nul", "{'a':1}", ""])
def test_what_is_no_json_is_refused(text: str) -> None:
    assert not accepts(Automaton(json_grammar(True)), text)


def test_strings_are_well_formed_unicode() -> None:
    automaton = Automaton(json_grammar({"type": "string"}))
    for data in (b'"\xc0\x80"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"', b'"\xff"', b'"\x80"'):
        assert not automaton.after(automaton.start, data)
    assert accepts(automaton, '"é漢🦜"')


def test_properties_come_in_the_schemas_order_and_the_required_ones_always() -> None:
    automaton = Automaton(json_grammar(SCHEMAS["optional"]))
    for text in ("{}", '{"a": 1}', '{"b":null}', '{"a":1,"c":[]}', '{"b": null, "c": "x"}'):
        assert accepts(automaton, text), text
    for text in ('{"b":null,"a":1}', '{"d":1}', '{"a":1,}', '{,"b":null}', '{"a":null}'):
        assert not accepts(automaton, text), text


def test_a_schema_may_refer_to_itself() -> None:
    automaton = Automaton(json_grammar(TREE))
    assert accepts(automaton, '{"name":"a","children":[{"name":"b"},{"name":"c","children":[]}]}')
    assert not accepts(automaton, '{"name":"a","children":[{"children":[]}]}')


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


CIRCULAR: dict[str, Any] = {"type": "array"}
CIRCULAR["items"] = CIRCULAR


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "string", "description": "x" * 1_000_000}, "bytes, at most 65536"),
        (nested(100), "nested more than 64 deep"),
        (nested(100_000), "not JSON"),
        (CIRCULAR, "not JSON"),
        ({"type": "string", "pattern": "a+"}, "`pattern` at `#`, which is not supported"),
        ({"type": "integer", "minimum": 3}, "`minimum`"),
        ({"type": "object", "properties": {"a": {"not": {}}}}, "`not` at `#/properties/a`"),
        ({"type": "strin"}, "the type"),
        ({"type": []}, "the type"),
        ({"$ref": "http://example.com"}, "refers to 'http"),
        ({"$ref": "#/$defs/none"}, "which it does not have"),
        ({"$ref": "#"}, "no text is valid"),
        ({"enum": []}, "not a list of values"),
        ({"enum": [1], "minimum": 0}, "beside `enum`"),
        ({"anyOf": {}}, "not a list of schemas"),
        ({"allOf": [{}, {}]}, "several schemas in `allOf`"),
        ({"minLength": 5, "maxLength": 2}, "above"),
        ({"type": "string", "maxLength": -1}, "expected 0 to"),
        ({"type": "object", "properties": [1]}, "not an object"),
        ({"type": "object", "required": "a"}, "not a list of names"),
        ({"type": "object", "properties": {"a": 3}}, "expected an object"),
        ({"required": ["a"], "additionalProperties": False}, "requires `a`"),
        ({"prefixItems": [{}]}, "`prefixItems`"),
        ({"const": float}, "not JSON"),
        ("string", "expected an object"),
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused(schema: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        grammar_of({"type": "json_schema", "schema": schema}, vocabulary(), ())


@pytest.mark.parametrize(
    "response_format", [{}, {"type": "xml"}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": 3}]
)
def test_an_unknown_response_format_is_refused(response_format: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="`response_format`"):
        grammar_of(response_format, vocabulary(), ())
    assert grammar_of({"type": "text"}, vocabulary(), ()) is None


def test_openais_form_is_read() -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {"type": "null"}}}
    grammar = grammar_of(form, vocabulary(), ())
    assert grammar is not None
    found = {vocabulary().bytes_of(token) for token in grammar.allowed()}
    assert {b"n", b" n", b"\n"} <= found
    assert all(one.strip() in (b"", b"n", b"nu", b"nul", b"null") for one in found)


def test_an_ambiguous_schema_ends_with_an_error_and_soon() -> None:
    part: dict[str, Any] = {"type": "string"}
    for _ in range(6):
        part = {"anyOf": [{"type": "object", "properties": {"a": part}, "required": ["a"]} for _ in range(5)]}
    started = time.monotonic()
    with pytest.raises((ExecutionError, InputError)):
        automaton = Automaton(json_grammar(part))
        automaton.after(automaton.start, b'{"a":{"a":{"a":{"a":{"a":{"a":"')
    assert time.monotonic() - started < 20
