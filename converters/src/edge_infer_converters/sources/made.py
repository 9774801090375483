"""The object that a user's function returned: its model, and the libraries of its class."""

from __future__ import annotations


def first_of(made: object) -> object:
    """Return the model: the object itself, or the first of a tuple."""
    return made[0] if isinstance(made, tuple) and made else made


def libraries_of(made: object) -> set[str]:
    """Name the top-level packages of the model's class and its bases."""
    return {base.__module__.partition(".")[0] for base in type(first_of(made)).__mro__}
