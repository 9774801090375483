"""Import a user's function by its name `package.module:function`."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable


def import_function(path: str) -> Callable[..., Any]:
    """Import `module:function`; modules of the current folder are found.

    Raises:
        InputError: There is no such module or function, or the module raises.
    """
    module_name, _, name = path.partition(":")
    if (folder := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = import_module(module_name)
    except Exception as error:  # the user's module raises what it likes
        raise InputError(
            f"`{path}` cannot be imported: {type(error).__name__}: {error}",
            hint="run in the folder of the module, or set PYTHONPATH",
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        known = sorted(word for word in vars(module) if callable(vars(module)[word]) and not word.startswith("_"))
        raise InputError(f"Module `{module_name}` has no function `{name}`", hint=did_you_mean(name, known))
    found: Callable[..., Any] = function
    return found
