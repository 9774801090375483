"""The fields of the manifest's JSON, each checked as it is read: a `ManifestError` names the one that is wrong."""

from __future__ import annotations

from edge_infer.errors import ManifestError, listed
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import TensorSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence
    from typing import Any


def kind_of(value: Any) -> str:
    """Return what a JSON value is, in words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "a truth value", int: "a number", float: "a number"}
    return names.get(type(value), "nothing")


def object_of(value: Any, where: str) -> dict[str, Any]:
    """Return a value that must be an object."""
    if not isinstance(value, dict):
        raise ManifestError(f"{where} is {kind_of(value)}, expected an object")
    return value


def text_of(entry: Mapping[str, Any], field: str, where: str) -> str:
    """Return a field that must be a text, and not an empty one."""
    value = entry.get(field)
    if not isinstance(value, str) or not value:
        raise ManifestError(f"{where}: `{field}` is {kind_of(value)}, expected text", field=field)
    return value


def list_of(entry: Mapping[str, Any], field: str, where: str, *, optional: bool = False) -> list[Any]:
    """Return a field that must be a list; an empty one where it may be left out and is."""
    if optional and field not in entry:
        return []
    value = entry.get(field)
    if not isinstance(value, list):
        raise ManifestError(f"{where}: `{field}` is {kind_of(value)}, expected a list", field=field)
    return value


def member_of(value: Any, field: str, where: str, allowed: Sequence[str]) -> str:
    """Return a value of a field that must be one of some words."""
    if value not in allowed:
        raise ManifestError(
            f"{where}: `{field}` has {value!r}; choose from {listed(list(allowed))}", field=field, allowed=list(allowed)
        )
    return str(value)


def choice_of(entry: Mapping[str, Any], field: str, where: str, allowed: Sequence[str]) -> str:
    """Return a field that must be one of some words."""
    return member_of(text_of(entry, field, where), field, where, allowed)


def file_of(
    entry: Mapping[str, Any], field: str, where: str, files: Container[str], *, optional: bool = False
) -> str | None:
    """Return a field that must be a path among `files`; None where it may be left out and is."""
    if optional and field not in entry:
        return None
    path = text_of(entry, field, where)
    if path not in files:
        raise ManifestError(f"{where}: `{field}` names `{path}`, which is not in `files`", field=field, got=path)
    return path


def specs_of(entries: Any, where: str) -> list[TensorSpec]:
    """Parse a JSON list of tensor specs.

    Raises:
        ManifestError: It is none, or two tensors have one name.
    """
    if not isinstance(entries, list):
        raise ManifestError(f"{where} is {kind_of(entries)}, expected a list of tensor specs")
    specs: list[TensorSpec] = []
    for i, item in enumerate(entries):
        place = f"{where}[{i}]"
        entry = object_of(item, place)
        name = text_of(entry, "name", place)
        dtype = choice_of(entry, "dtype", place, tuple(str(member) for member in DType))
        shape = list_of(entry, "shape", place)
        for dim in shape:
            if isinstance(dim, bool) or not (isinstance(dim, str) or (isinstance(dim, int) and dim >= 0)):
                raise ManifestError(f"{place}: dimension {dim!r} is neither a number nor a symbol", got=dim)
        if any(name == other.name for other in specs):
            raise ManifestError(f"{place}: the name `{name}` is used twice", got=name)
        specs.append(TensorSpec(name, dtype, shape))
    return specs


def matches(pattern: str, text: str) -> bool:
    """Tell whether all of a text is as a pattern says."""
    from re import fullmatch  # with a manifest, whose `json` needs it too; a bare model file does without

    return fullmatch(pattern, text) is not None
