/** Chat templates: as `tests/generation/test_template.py` has them, with Python's numbers, and ended where they take too much. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { floatText, parseJson } from "../src/generation/json-numbers.js";
import { ChatTemplate, loadJinja } from "../src/generation/template.js";

const jinja = await loadJinja("");
const CHATML =
  "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>'" +
  " + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
const MISTRAL = `{{ bos_token }}{% for message in messages %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
{% endif %}
{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] | trim + ' [/INST]' }}
{%- else %}{% generation %}{{ message.content ~ eos_token }}{% endgeneration %}{% endif %}
{% endfor %}`;
const TOOLS = `{%- if tools %}{% for tool in tools %}{{ tool | tojson }}{% if not loop.last %}, {% endif %}{% endfor %}{% endif %}
{%- set ns = namespace(count=0) %}
{%- for message in messages[::-1] %}
{%- set ns.count = ns.count + 1 %}
{%- if message.content is string and message.content.startswith('<think>') %}{% continue %}{% endif %}
{{- message.content.split('</think>')[-1].lstrip('\\n') }};
{%- endfor %}{{ ns.count }}{{ messages|map(attribute='role')|join(',') }}{{ ['a', 'b'] | join('+') | upper }}`;
const TALK = [
  { role: "user", content: " Hi " },
  { role: "assistant", content: "Hello é" },
  { role: "user", content: "<b>?" },
];
const templateOf = (/** @type {string} */ source, /** @type {Record<string, string>} */ tokens = {}) => new ChatTemplate(jinja, source, tokens);

test("a conversation becomes the prompt that Python makes of it", () => {
  assert.equal(templateOf(CHATML).render(TALK.slice(0, 1)), "<|im_start|>user\n Hi <|im_end|>\n<|im_start|>assistant\n");
  assert.ok(templateOf(CHATML).render(TALK, { addGenerationPrompt: false }).endsWith("<|im_end|>\n"));
  assert.equal(templateOf(MISTRAL, { bos_token: "<s>", eos_token: "</s>" }).render(TALK), "<s>[INST] Hi [/INST]Hello é</s>[INST] <b>? [/INST]");
  const tools = parseJson('[{"name": "add", "x": 1.0, "y": "é<"}]');
  assert.equal(
    templateOf(TOOLS).render([...TALK, { role: "user", content: "<think>x" }], { tools }),
    '{"name": "add", "x": 1.0, "y": "é<"}<b>?;Hello é; Hi ;4user,assistant,user,userA+B',
  );
  assert.throws(() => templateOf(MISTRAL).render(TALK.slice(1)), { code: "input_error", message: /roles must alternate/ });
});

test("numbers of JSON are written as Python writes them", () => {
  const text = '{"a": [1.0, -0.0, 2, 1e16, 1.5e-7, 123456789012345678901, 0.1], "b": "1.0 \\"2.0"}';

  const value = parseJson(text);
  const rendered = templateOf("{{ messages[0] | tojson }} {{ messages[0].a[0] }} {{ messages[0].a[0] < 1.5 }}").render([value]);

  assert.equal(rendered, '{"a": [1.0, -0.0, 2, 1e+16, 1.5e-07, 123456789012345678901, 0.1], "b": "1.0 \\"2.0"} 1.0 true');
  assert.deepEqual([1, 1e-5, 1e15, 1e22, 0.30000000000000004].map(floatText), ["1.0", "1e-05", "1000000000000000.0", "1e+22", "0.30000000000000004"]);
  assert.throws(() => parseJson("{1.0}"), SyntaxError);
});

test("the clock can be given", () => {
  const now = new Date(2024, 6, 6, 9, 5);

  assert.equal(templateOf("{{ strftime_now('%d %b %Y %-d %H:%M') }}").render([], { now }), "06 Jul 2024 6 09:05");
  assert.throws(() => templateOf("{{ strftime_now('%1000d') }}").render([]), { code: "bundle_error", message: /writes the time as/ });
});

test("an evil template ends with a clear error", () => {
  const doubling = (/** @type {string} */ step) => `{% set ns = namespace(x='ab') %}{% for i in range(60) %}${step}{% endfor %}`;
  const evil = {
    "nested loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "a long range": "{% for i in range(10000000000) %}{% endfor %}",
    doubling: doubling("{% set ns.x = ns.x + ns.x %}"),
    "doubling by joins": doubling("{% set ns.x = ns.x ~ ns.x %}"),
    "doubling by blocks": doubling("{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}"),
    recursion: "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "an indent of JSON": "{{ [1]|tojson(indent=1000000000) }}",
    "JavaScript's internals": "{{ ''.constructor.constructor('return 1')() }}",
    "half a block": "{% if %}",
    "deep parentheses": `{{ ${"(".repeat(20000)}${")".repeat(20000)} }}`,
    "a long template": "x".repeat(300_000),
    "an undefined call": "{{ nothing() }}",
  };
  for (const [what, source] of Object.entries(evil)) {
    assert.throws(() => templateOf(source).render(TALK), { code: "bundle_error", message: /the chat template/ }, what);
  }
});
