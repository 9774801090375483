"""Options that several commands share, and the check that a command's extra is installed."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge_infer.errors import EdgeInferError
from edge_infer.formats.input_files import READABLE

if TYPE_CHECKING:
    from collections.abc import Callable

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of tables.")
device = click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="What to run on: auto, cpu, cuda, cuda:1, wasm or webgpu.",
)
backend = click.option("--backend", default=None, metavar="NAME", help="The engine; `edge-infer backends` lists them.")
variant = click.option("--variant", default=None, metavar="ID", help="The variant, such as onnx/int8.")
inputs = click.option(
    "--input",
    "-i",
    "inputs",
    multiple=True,
    metavar="NAME=FILE",
    help=f"An input's file: {READABLE}; may be repeated. The file alone will do for a model of one input.",
)


def host(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name another machine: `--host`, `--wheel`."""
    place = click.option("--host", default=None, metavar="USER@ADDRESS", help="Another machine, which ssh reaches.")
    wheel = click.option(
        "--wheel",
        default=None,
        type=click.Path(path_type=Path),
        help="With --host: a wheel of onnxruntime for it, or a folder with one; default: the one installed here.",
    )
    return place(wheel(command))


def model_choice(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose how a bundle runs: `--device`, `--backend`, `--variant`."""
    return device(backend(variant(command)))


# The extras that commands need, and the modules by which each is found. All but `serve` need a server for pages only.
_SERVER = ("starlette", "httptools", "websockets", "msgspec", "prometheus_client")
_EXTRAS = {
    "browser": (*_SERVER, "playwright"),
    "server": _SERVER,
    "sync": ("tuf", "securesystemslib", "cryptography", "zstandard"),
}


def require_extra(extra: str) -> None:
    """Check that an extra is installed before a command begins its work.

    Raises:
        EdgeInferError: A package of it is missing.
    """
    missing = [name for name in _EXTRAS[extra] if find_spec(name) is None]
    if missing:
        raise EdgeInferError(f"Not installed: {', '.join(missing)}", hint=f"pip install 'edge-infer[{extra}]'")


def missing_extra(error: ModuleNotFoundError) -> EdgeInferError | None:
    """Return the error for a package of an extra that a command could not import; None for any other module."""
    package = (error.name or "").partition(".")[0]
    extra = next((extra for extra, names in _EXTRAS.items() if package in names), None)
    if extra is None:
        return None
    return EdgeInferError(f"Not installed: {package}", hint=f"pip install 'edge-infer[{extra}]'")
