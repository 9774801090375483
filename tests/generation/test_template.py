"""Chat templates: set up as transformers does, and ended where they take too much."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from edge_infer.errors import BundleError, InputError, UnsupportedError
from edge_infer.generation import template_limits
from edge_infer.generation.template import ChatTemplate, checked_values

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>'"
    " + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MISTRAL = """{{ bos_token }}{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{% endif %}
{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] | trim + ' [/INST]' }}
{%- else %}{% generation %}{{ message.content ~ eos_token }}{% endgeneration %}{% endif %}
{% endfor %}"""
TOOLS = """{%- if tools %}
{%- for tool in tools %}{{ tool | tojson }}{% if not loop.last %}, {% endif %}{% endfor %}{% endif %}
{%- set ns = namespace(count=0) %}
{%- for message in messages[::-1] %}
{%- set ns.count = ns.count + 1 %}
{%- if message.content is string and message.content.startswith('<think>') %}{% continue %}{% endif %}
{{- message.content.split('</think>')[-1].lstrip('\\n') }};
{%- endfor %}{{ ns.count }}{{ messages|map(attribute='role')|join(',') }}{{ ['a', 'b'] | join('+') | upper }}"""
TALK = [
    {"role": "user", "content": " Hi "},
    {"role": "assistant", "content": "Hello é"},
    {"role": "user", "content": "<b>?"},
]


def test_a_conversation_becomes_a_prompt() -> None:
    rendered = ChatTemplate(CHATML).render(TALK[:1])
    assert rendered == "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n"
    assert ChatTemplate(CHATML).render(TALK[:1], add_generation_prompt=False).endswith("<|im_end|>\n")


def test_blocks_are_trimmed_and_special_tokens_are_there() -> None:
    made = ChatTemplate(MISTRAL, {"bos_token": "<s>", "eos_token": "</s>"})
    assert made.render(TALK) == "<s>[INST] Hi [/INST]Hello é</s>[INST] <b>? [/INST]"


def test_a_template_can_refuse_a_conversation() -> None:
    with pytest.raises(InputError, match="roles must alternate"):
        ChatTemplate(MISTRAL).render(TALK[1:])


def test_tools_and_methods_and_numbers_are_written_as_python_does() -> None:
    tools = [{"name": "add", "x": 1.0, "y": "é<"}]
    rendered = ChatTemplate(TOOLS).render([*TALK, {"role": "user", "content": "<think>x"}], tools=tools)
    assert rendered == '{"name": "add", "x": 1.0, "y": "é<"}<b>?;Hello é; Hi ;4user,assistant,user,userA+B'


def test_the_clock_can_be_given() -> None:
    made = ChatTemplate("{{ strftime_now('%d %b %Y') }}")
    assert made.render([], now=datetime(2024, 7, 26, tzinfo=UTC)) == "26 Jul 2024"
    with pytest.raises(BundleError, match="writes the time as"):
        ChatTemplate("{{ strftime_now('%1000000000d') }}").render([])


def test_one_rendering_leaves_nothing_to_the_next() -> None:
    made = ChatTemplate("{% for i in range(90000) %}{% endfor %}x")
    assert [made.render([]) for _ in range(5)] == ["x"] * 5


_SIXTY = "{% set ns = namespace(x='ab') %}{% for i in range(60) %}"
EVIL = {
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "a long text": "{{ 'a' * 10000000000 }}",
    "a long list": "{{ [1] * 1000000000 }}",
    "doubling": _SIXTY + "{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "doubling by joins": _SIXTY + "{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "doubling by blocks": _SIXTY + "{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
    "doubling by macros": "{% macro m0(x) %}{{ x }}{{ x }}{% endmacro %}"
    + "".join(f"{{% macro m{i}(x) %}}{{{{ m{i - 1}(x) }}}}{{{{ m{i - 1}(x) }}}}{{% endmacro %}}" for i in range(1, 40))
    + "{{ m39('ab') }}",
    "replace": "{% set x = 'a' * 5000 %}{{ x.replace('a', x).replace('a', x) }}",
    "the filter replace": "{% set x = 'a' * 5000 %}{{ x|replace('a', x)|replace('a', x) }}",
    "join": "{% set x = 'a' * 9000 %}{{ x.join(x) }}",
    "indent": "{{ 'a\n'|indent(1000000000) }}",
    "slices": "{% set x = 'a' * 3000000 %}{% set ns = namespace(l=[]) %}{% for i in range(9000) %}"
    "{% set ns.l = ns.l + [x[1:]] %}{% endfor %}",
    "a power": "{{ 9 ** 9 ** 9 ** 9 ** 9 }}",
    "a product": "{% set ns = namespace(x=10) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
    "recursion": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "a recursive loop": "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "an indent of JSON": "{{ [1]|tojson(indent=1000000000) }}",
    "all of a range again and again": "{% for i in range(9999) %}{{ range(99999)|list|length }}{% endfor %}",
    "format": "{{ '{:1000000000}'.format(1) }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "center": "{{ 'a'.center(1000000000) }}",
    "an unknown filter": "{{ 'a'|center(1000000000) }}",
    "Python's internals": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "a filter that reads attributes": "{{ ''|attr('__class__') }}",
    "an include": "{% include 'secret' %}",
    "half a block": "{% if %}",
    "deep parentheses": "{{ " + "(" * 20000 + ")" * 20000 + " }}",
    "a long template": "x" * 300_000,
    "an undefined call": "{{ nothing() }}",
    "lipsum": "{{ lipsum(100000000) }}",
}


@pytest.mark.parametrize("source", EVIL.values(), ids=EVIL)
def test_an_evil_template_ends_with_a_clear_error(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_limits, "MAX_STEPS", 20_000)  # the limit itself takes seconds
    started = time.monotonic()
    with pytest.raises(BundleError, match="the chat template"):
        ChatTemplate(source).render(TALK)
    assert time.monotonic() - started < 2 * template_limits.MAX_SECONDS


def test_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template_limits, "MAX_SECONDS", 0.0)
    with pytest.raises(BundleError, match="more than 0 seconds"):
        ChatTemplate(CHATML).render(TALK)


def test_messages_are_not_changed() -> None:
    talk: list[dict[str, Any]] = json.loads(json.dumps(TALK))
    with pytest.raises(BundleError):
        ChatTemplate("{{ messages.append(1) }}").render(talk)
    with pytest.raises(BundleError):
        ChatTemplate("{{ messages[0].update({'role': 'x'}) }}").render(talk)
    assert talk == TALK


def test_without_jinja2_an_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['jinja2'] = None\n"
        "from edge_infer.errors import UnsupportedError\n"
        "from edge_infer.generation.template import ChatTemplate\n"
        "try: ChatTemplate('x')\nexcept UnsupportedError as error: print(error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "pip install 'edge-infer[text]'\n"
    assert issubclass(UnsupportedError, Exception)


def test_a_thousand_conversations_are_rendered_as_the_plain_sandbox_does() -> None:
    def raise_exception(message: str) -> None:
        raise ValueError(message)

    chance = random.Random(11)
    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    plain.filters["tojson"] = lambda value, **_: json.dumps(value, ensure_ascii=False)
    plain.globals["raise_exception"] = raise_exception
    words = ("Hello", " two  words ", "é漢🦜", "<b>&amp;</b>", "a\n\nb", "", "</think>x", "{{ x }}", '"quoted"')
    refused = 0
    for source in (CHATML, MISTRAL.replace("{% generation %}", "").replace("{% endgeneration %}", ""), TOOLS):
        made, expected = ChatTemplate(source, {"bos_token": "<s>", "eos_token": "</s>"}), plain.from_string(source)
        for _ in range(334):
            talk = [
                {"role": role if chance.random() < 0.95 else "tool", "content": chance.choice(words)}
                for role, _ in zip(itertools.cycle(("user", "assistant")), range(chance.randrange(1, 8)), strict=False)
            ]
            tools = [{"name": "f", "x": chance.choice((1.0, 1e-7, 10**20, True))}] if chance.random() < 0.5 else None
            values: dict[str, Any] = {"messages": talk, "tools": tools, "add_generation_prompt": True}
            try:
                text = expected.render(**values, bos_token="<s>", eos_token="</s>")
            except ValueError:
                refused += 1
                with pytest.raises(InputError):
                    made.render(talk, tools=tools)
            else:
                assert made.render(talk, tools=tools) == text
    assert refused > 10


@pytest.mark.parametrize("name", ["messages", "tools", "documents", "now", "self", "strftime_now"])
def test_a_callers_value_takes_no_name_of_the_template(name: str) -> None:
    assert checked_values({"mood": "!"}, "template_values") == {"mood": "!"}
    with pytest.raises(InputError, match=f"`template_values` has `{name}`") as caught:
        checked_values({name: 1}, "template_values")
    assert caught.value.details["option"] == "template_values"
