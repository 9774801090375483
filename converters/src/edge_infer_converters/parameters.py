"""The options of the table as parameters of commands: `convert` takes all of them, `compile` those of a source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from edge_infer_converters.options import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer_converters.options import Option

_F = TypeVar("_F", bound="Callable[..., object]")


def parameters() -> list[click.Parameter]:
    """Return all options as click takes them."""
    return [click.Option([one.command_flag, one.name], **_settings(one)) for one in OPTIONS]


def takes(*names: str) -> Callable[[_F], _F]:
    """Return a decorator that gives a command the options of these names, in the order of the table."""

    def give(function: _F) -> _F:
        for one in reversed(OPTIONS):
            if one.name in names:
                function = click.option(one.command_flag, one.name, **_settings(one))(function)
        return function

    return give


def _settings(one: Option) -> dict[str, Any]:
    is_file, is_flag = one.type.startswith("FilePath"), one.type == "bool"
    kinds = {"float | None": click.FLOAT, "int | None": click.INT}
    kind = click.Choice(one.choices) if one.choices else click.Path(path_type=Path) if is_file else kinds.get(one.type)
    return {
        "default": None if one.repeats else one.default,
        "help": one.help,
        "is_flag": is_flag,
        "metavar": one.unit or None,
        "multiple": one.repeats,
        "show_default": not one.repeats and one.default is not None and (not is_flag or one.default),
        "type": click.BOOL if is_flag else kind,
    }
