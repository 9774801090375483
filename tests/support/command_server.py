"""The process that `warm_command` forks commands off: it imports what they need and runs nothing itself."""

from __future__ import annotations

import importlib
import json
import os
import sys
from contextlib import suppress
from typing import Any

#: What commands import in most of their time. An import runs nothing and starts no engine.
_MODULES = (
    *("click", "rich.console", "rich.table", "rich.progress", "numpy", "onnx", "onnxruntime"),
    *("edge_infer.cli", "edge_infer.cli.output", "edge_infer.runtime.load", "edge_infer.runtime.session"),
    *("edge_infer_converters.cli", "edge_infer_converters.api"),
)


def serve() -> dict[str, Any]:
    """Fork for each request, and tell its exit status; return the request in the child."""
    for line in sys.stdin.buffer:
        child = os.fork()
        if child == 0:
            found: dict[str, Any] = json.loads(line)
            return found
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.buffer.write(b"%d\n" % status)
        sys.stdout.buffer.flush()
    os._exit(0)


def become(request: dict[str, Any], imported: dict[str, str]) -> None:
    """Be the process that was asked for.

    Args:
        request: What `warm_command` sent.
        imported: The variables that imports have set where they were not set before.
    """
    for number, path, mode in (
        (0, os.devnull, os.O_RDONLY),
        (1, request["out"], os.O_WRONLY | os.O_APPEND),
        (2, request["err"], os.O_WRONLY | os.O_APPEND),
    ):
        opened = os.open(path, mode)
        os.dup2(opened, number)
        os.close(opened)
    os.environ.clear()
    os.environ.update({**imported, **request["environment"]})
    os.chdir(request["folder"])
    sys.argv = ["edge-infer", *request["arguments"]]


def main() -> None:
    """Wait for commands."""
    before = set(os.environ)
    for name in _MODULES:
        with suppress(ImportError):
            importlib.import_module(name)
    imported = {name: value for name, value in os.environ.items() if name not in before}
    become(serve(), imported)
    from edge_infer.cli import main as command

    command()


if __name__ == "__main__":
    main()
