"""Options that several commands share, and the completion of what they print."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

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


def model_choice(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that choose how a bundle runs: `--device`, `--backend`, `--variant`."""
    return device(backend(variant(command)))
