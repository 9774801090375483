"""Write the tasks, and the parameters of the steps of pipelines, for JavaScript, from those that Python declares.

    python web/generate_parameters.py

The same checkout's `edge_infer` is read, and `web/src/tasks/parameters.js` written.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

WEB = Path(__file__).parent
MODULE = WEB / "src/tasks/parameters.js"
_HEADER = """\
/**
 * The tasks and the parameters of the steps, as `edge_infer/tasks` declares them. Written by
 * `python web/generate_parameters.py`; do not edit. A parameter without a default must be given; `argument` marks those
 * that the caller of a pipeline may give.
 */

/** @typedef {"whole" | "real" | "choice" | "flag" | "text" | "numbers"} PlainKind */
/** @typedef {PlainKind | "names" | "texts" | "lists" | "expressions"} Kind */
/**
 * @typedef {object} Declared
 * @property {Kind} kind
 * @property {any} [default]
 * @property {number} [low]
 * @property {number} [high]
 * @property {number} [length]
 * @property {string[]} [choices]
 * @property {boolean} [argument]
 */

/** By step, by parameter. @type {Record<string, Record<string, Declared>>} */
export const PARAMETERS = {
"""

_FLOWS = """
};

/** What each step takes and what it gives. @type {Record<string, {takes: string[], gives: string}>} */
export const FLOWS = {
"""

_TASKS = """
};

/** The kind of each task's raw input, and what the caller may give besides the arguments of the steps. */
/** @type {Record<string, {takes: "image" | "sound" | "text" | "table", args: string[]}>} */
export const TASKS = {
"""


def written() -> str:
    """Return the module's text."""
    from edge_infer.tasks.registry import OWN
    from edge_infer.tasks.steps import STEPS

    lines = []
    for step in STEPS:
        declared = import_module(f"edge_infer.tasks.{step}").PARAMETERS
        if not declared:
            lines.append(f"  {json.dumps(step)}: {{}},")
            continue
        lines.append(f"  {json.dumps(step)}: {{")
        lines += [f"    {name}: {_as_object(one.to_json())}," for name, one in declared.items()]
        lines.append("  },")
    flows = [
        f"  {json.dumps(name)}: {{ takes: {json.dumps(flow.takes)}, gives: {json.dumps(flow.gives)} }},"
        for name, flow in STEPS.items()
    ]
    tasks = [f"  {json.dumps(one.name)}: {_as_object({'takes': one.takes, 'args': one.arguments})}," for one in OWN]
    return _HEADER + "\n".join(lines) + _FLOWS + "\n".join(flows) + _TASKS + "\n".join(tasks) + "\n};\n"


def _as_object(facts: Mapping[str, object]) -> str:
    return "{ " + ", ".join(f"{key}: {json.dumps(value)}" for key, value in facts.items()) + " }"


if __name__ == "__main__":
    sys.path.insert(0, str(WEB.parent))
    MODULE.write_text(written(), "utf-8", newline="\n")
