"""A form for each model with a task, on the page `/docs`: a file or JSON goes to `predict`, and the answer is shown."""

from __future__ import annotations

import json
from html import escape
from typing import TYPE_CHECKING, Any

from edge_infer.errors import EdgeInferError
from edge_infer.tasks.definition import definition_of
from edge_infer.tasks.registry import get_task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.bundle.manifest import Manifest
    from edge_infer.tasks.definition import Definition

#: What is asked of tasks that take more than a text.
_EXAMPLES: dict[str, Any] = {
    "question-answering": {"inputs": {"question": "Where do I live?", "context": "I live in Bern."}},
    "text-ranking": {"inputs": {"query": "a film", "documents": ["a good film", "rain in Bern"]}},
    "zero-shot-classification": {
        "inputs": "a good film",
        "parameters": {"candidate_labels": ["film", "weather"]},
    },
}
_ACCEPTED = {"image": "image/*", "sound": "audio/*"}
_SCRIPT = """<script type="module">
for (const form of document.querySelectorAll("form[data-predict]")) form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const [field, said] = [form.elements.value, form.querySelector("output")];
  said.textContent = "asked";
  const body = field.type === "file" ? field.files[0] : field.value;
  const type = field.type === "file" ? "application/octet-stream" : "application/json";
  try {
    const answer = await fetch(form.dataset.predict, { method: "POST", headers: { "Content-Type": type }, body });
    const text = await answer.text();
    const isJson = answer.headers.get("Content-Type")?.includes("json");
    said.textContent = isJson ? JSON.stringify(JSON.parse(text), null, 1) : text;
  } catch (error) {
    said.textContent = String(error);
  }
});
</script>"""


def forms(manifests: Sequence[tuple[str, Manifest]]) -> str:
    """Return the forms as HTML; an empty text where no model has a task with a pipeline.

    Args:
        manifests: The models' names and what their bundles say.
    """
    found = "".join(_form(name, manifest) for name, manifest in manifests)
    return f"<h2>Ask a model</h2>{found}{_SCRIPT}" if found else ""


def _form(name: str, manifest: Manifest) -> str:
    try:
        definition = definition_of(manifest)
    except EdgeInferError:
        return ""  # `predict` refuses it, and says why
    task = definition.task
    takes = get_task(task).takes
    if takes in _ACCEPTED:
        field = f'<input type="file" name="value" accept="{_ACCEPTED[takes]}" required aria-label="{takes}">'
    else:
        asked = escape(
            json.dumps(_EXAMPLES.get(task) or {"inputs": _row(definition) if takes == "table" else "a text"})
        )
        field = f'<textarea name="value" rows="3" style="width:100%" aria-label="JSON">{asked}</textarea>'
    return (
        f'<form data-predict="v2/models/{escape(name)}/predict"><p><code>{escape(name)}</code> {escape(task)} '
        f'{field} <button>Ask</button></p><output style="white-space:pre-wrap;overflow-wrap:anywhere"></output></form>'
    )


def _row(definition: Definition) -> dict[str, Any]:
    """Return a row for a table's columns: zeros, empty texts and the first of the known names."""
    steps = {step.name: step.parameters for chain in definition.inputs.values() for step in chain}
    columns = steps.get("tabular.columns", {})
    known = steps.get("tabular.categories", {}).get("values", {})
    zeros = {"string": "", "bool": False}
    return {
        name: known[name][0] if known.get(name) else zeros.get(kind, 0)
        for name, kind in zip(columns.get("names", []), columns.get("types", []), strict=False)
    }
