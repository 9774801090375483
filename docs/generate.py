"""Write the generated pages of docs/reference, listed in `PAGES`. A test compares them with the code.

python docs/generate.py
"""

from __future__ import annotations

import inspect
import json
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import api
import click

from edge_infer import cli, errors
from edge_infer.backends.registry import backend_names, get_backend

if TYPE_CHECKING:
    from collections.abc import Iterator

REFERENCE = Path(__file__).parent / "reference"
_EXCUSED_NODES = Path(__file__).parents[1] / "tests/browser/excused_nodes.toml"
_NODE_TESTS = """\
Of the {cases} backend node tests that the pinned `onnx` generates, **{passed} pass** through `import onnxruntime` in
Chromium (`edge_infer.compat` over onnxruntime-web, no numpy in the page), within the tolerances that each test states.
The others are listed here, each under its reason. `make browser` runs them all; an excused case that passes fails it.
"""
_NOTE = "<!-- Written by docs/generate.py; do not edit. -->\n"


def cli_page() -> str:
    """Return the help of every command."""
    return "\n".join([_NOTE, "# Commands\n", _help(cli.cli, "edge-infer"), *_commands(cli.cli, "edge-infer")])


def _commands(group: click.Group, path: str) -> Iterator[str]:
    """Give heading and help of each command of a group, and of the groups in it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"## {path} {name}\n"
        yield _help(command, f"{path} {name}")
        if isinstance(command, click.Group):
            yield from _commands(command, f"{path} {name}")


def _help(command: click.Command, path: str) -> str:
    names = cli.cli.context_settings["help_option_names"]  # a context without a parent does not inherit them
    context = click.Context(
        command, info_name=path, max_content_width=100, terminal_width=100, help_option_names=list(names)
    )
    return f"```text\n{command.get_help(context)}\n```\n"


def errors_page() -> str:
    """Return the tree of error classes with what each says."""
    from edge_infer.server.errors import status_of

    _, tree, note, *_ = (errors.__doc__ or "").split("\n\n")
    parts = [_NOTE, "# Errors\n", f"```text\n{inspect.cleandoc(tree)}\n```\n", f"{note}\n"]
    parts.append("| class | code | HTTP status | what it means |\n|---|---|---|---|")
    parts += [
        f"| `{one.__name__}` | `{one.code}` | {status_of(one(''))} | {(one.__doc__ or '').splitlines()[0]} |"
        for one in _classes(errors.EdgeInferError)
    ]
    return "\n".join(parts) + "\n"


def _classes(root: type[errors.EdgeInferError]) -> Iterator[type[errors.EdgeInferError]]:
    if root.__module__ in ("edge_infer.errors", "edge_infer.server.errors"):
        yield root
    for child in root.__subclasses__():
        yield from _classes(child)


def backends_page() -> str:
    """Return what each backend is and reads."""
    parts = [_NOTE, "# Backends\n"]
    for name in backend_names():
        backend = get_backend(name)
        text = inspect.getdoc(inspect.getmodule(backend)) or ""
        parts += [f"## {name}\n", f"Reads: {', '.join(f'`.{one}`' for one in backend.formats)}\n", f"{text}\n"]
    return "\n".join(parts)


def tflite_page() -> str:
    """Return which ONNX operators the TFLite writer writes, and how."""
    import onnx

    from edge_infer_converters.writers.tflite.decompose import is_written_out
    from edge_infer_converters.writers.tflite.rules import RULES

    latest = {one.name: one for one in onnx.defs.get_all_schemas() if one.domain == ""}
    parts = [
        _NOTE,
        "# ONNX operators in TFLite\n",
        "- *rule*: the operator has a rule of its own, which may refuse some settings with an error that names them.\n"
        "- *function*: it is replaced by the body that the ONNX standard gives it; what has no rule there is refused.\n"
        "- *no*: it is refused, unless all that it reads is constant: then it is computed while the file is written.\n",
        f"Of {len(latest)} operators, {len(RULES)} have a rule.\n",
        "| operator | state | what the rule says |\n|---|---|---|",
    ]
    for name in sorted({*latest, *RULES}):
        rule = RULES.get(name)
        state = "rule" if rule else "function" if is_written_out(name) else "no"
        said = (rule.__doc__ or "").splitlines()[0].replace("|", "\\|") if rule else ""
        parts.append(f"| `{name}` | {state} | {said} |")
    return "\n".join(parts) + "\n"


def onnx_page() -> str:
    """Return which TFLite operators are written as ONNX, and how."""
    from edge_infer.formats.tflite import OPERATORS
    from edge_infer_converters.writers.onnx.rules import RULES

    parts = [
        _NOTE,
        "# TFLite operators in ONNX\n",
        "- *rule*: the operator has a rule, which may refuse some settings with an error that names them.\n"
        "- *no*: a file with it is refused; all such operators of a file are named at once.\n",
        f"{len(RULES)} operators have a rule.\n",
        "| operator | state | what the rule says |\n|---|---|---|",
    ]
    for name in sorted({*OPERATORS, *RULES} - {"CUSTOM", "DELEGATE", "PLACEHOLDER_FOR_GREATER_OP_CODES"}):
        rule = RULES.get(name)
        said = (rule.__doc__ or "").splitlines()[0].replace("|", "\\|") if rule else ""
        parts.append(f"| `{name}` | {'rule' if rule else 'no'} | {said} |")
    return "\n".join(parts) + "\n"


def node_tests_page() -> str:
    """Return how many of ONNX's backend node tests pass in the page, and why each of the others does not."""
    document = tomllib.loads(_EXCUSED_NODES.read_text("utf-8"))
    counts, groups = document["counts"], document["excuse"]
    parts = [_NOTE, "# ONNX node tests in the page\n", _NODE_TESTS.format(**counts)]
    for group in groups:
        names = ", ".join(f"`{name}`" for name in group["cases"])
        parts.append(f"## {group['reason']} ({len(group['cases'])})\n\n{names}\n")
    return "\n".join(parts)


def serve_options_page() -> str:
    """Return the options of `edge-infer serve` and their keys in its file."""
    from edge_infer.server.options import declared

    parts = [
        _NOTE,
        "# Options of the server\n",
        "Each option of `edge-infer serve` may also stand under its key in the table `[server]` of the file that "
        "`--config` names; the command line goes first. `edge_infer/server/options.py` declares them.\n",
        "| option | key | default | meaning |\n|---|---|---|---|",
    ]
    for one in declared():
        default = "" if one.default in ("", (), None) else f"`{str(one.default).lower()}`"
        parts.append(f"| `{one.flag}` | `{one.key}` | {default} | {one.facts.help} |")
    return "\n".join(parts) + "\n"


def convert_options_page() -> str:
    """Return the options of `edge-infer convert` and their keywords in Python."""
    from edge_infer_converters.options import table

    head = (
        "Each option of `edge-infer convert` is a keyword of `edge_infer_converters.convert`. "
        "`converters/src/edge_infer_converters/options.py` declares them.\n"
    )
    return "\n".join([_NOTE, "# Options of convert\n", head, table()]) + "\n"


def pipeline_steps_page() -> str:
    """Return the steps of pipelines with their parameters."""
    from importlib import import_module

    from edge_infer.tasks.parameters import REQUIRED
    from edge_infer.tasks.steps import STEPS

    parts = [
        _NOTE,
        "# The steps of pipelines\n",
        "What `pipeline` in a bundle's manifest is made of: see [From raw data to an answer](../guide/pipelines.md). "
        "Parameters marked *argument* may also be given in a call.\n",
    ]
    for name in STEPS:
        module = import_module(f"edge_infer.tasks.{name}")
        what = (module.__doc__ or "").partition(": ")[2].strip()
        parts.append(f"## `{name}`\n\n{what[:1].upper()}{what[1:]}\n")
        how = inspect.cleandoc(module.prepare.__doc__).partition("Raises:")[0].strip()
        parts.append(how.replace("Return the function that", "It", 1).replace("Return the function: ", "", 1) + "\n")
        if module.PARAMETERS:
            parts.append("| parameter | is | default |\n|---|---|---|")
            for key, one in module.PARAMETERS.items():
                default = "must be given" if one.default is REQUIRED else f"`{json.dumps(one.default)}`"
                parts.append(f"| `{key}`{', *argument*' if one.is_argument else ''} | {one.expected} | {default} |")
            parts.append("")
    return "\n".join(parts)


PAGES = {
    "cli.md": cli_page,
    "errors.md": errors_page,
    "backends.md": backends_page,
    "onnx_operators.md": onnx_page,
    "tflite_operators.md": tflite_page,
    "node_tests.md": node_tests_page,
    "serve_options.md": serve_options_page,
    "convert_options.md": convert_options_page,
    "pipeline_steps.md": pipeline_steps_page,
    "python.md": lambda: f"{_NOTE}\n{api.python_page()}",
    "javascript.md": lambda: f"{_NOTE}\n{api.javascript_page()}",
}


def main() -> None:
    """Write the pages; or print the one that is named."""
    if len(sys.argv) > 1:
        sys.stdout.write(PAGES[sys.argv[1]]())
        return
    for name, page in PAGES.items():
        (REFERENCE / name).write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
