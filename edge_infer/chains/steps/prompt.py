"""`prompt`: a text from a template, with what other steps made in the place of their names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edge_infer.chains.steps.described import Described, of_work
from edge_infer.errors import InputError, ManifestError, did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.chains.definition import ChainStep
    from edge_infer.tasks.shared import Beginning, Shared

_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")


def describe(step: ChainStep, bundle: Bundle) -> Described:  # noqa: ARG001
    """Describe the step.

    Raises:
        ManifestError: The template names what the step does not read, or does not name what it reads.
    """
    named = _PLACE.findall(step.parameters["template"])
    for name in named:
        if name not in step.reads:
            hint = did_you_mean(name, [*step.reads]) or f"it reads {listed([*step.reads])}"
            raise ManifestError(f"chain: step `{step.name}`: nothing is read as `{{{name}}}`", hint=hint, field=name)
    for name in step.reads:
        if name not in named:
            raise ManifestError(
                f"chain: step `{step.name}`: the template has no place `{{{name}}}`",
                hint="leave it out of `from`",
                field=name,
            )
    return of_work(step, step.parameters, lambda _opening: _Prompt(step))


class _Prompt:
    beginnings: Sequence[Beginning] = ()

    def __init__(self, step: ChainStep) -> None:
        self._parameters = step.parameters

    def run(self, values: Sequence[Mapping[str, Any]], shared: Shared) -> list[Any]:  # noqa: ARG002
        return [self._filled(one) for one in values]

    def close(self) -> None:
        pass

    def _filled(self, read: Mapping[str, Any]) -> str:
        p = self._parameters
        return _PLACE.sub(
            lambda place: text_of(place[1], read[place[1]], p["max_characters"], p["separator"]), p["template"]
        )


def text_of(name: str, value: Any, most: int, separator: str) -> str:
    """Return a value as text: a text itself, of hits `[1] ...` for each, of labels their names, of speech its text.

    Args:
        name: The place in the template, for errors.
        value: What stands there.
        most: The most characters.
        separator: What stands between hits.

    Raises:
        InputError: It has no text.
    """
    if isinstance(value, str):
        return value[:most]
    rows = value if isinstance(value, list) and all(isinstance(one, dict) for one in value) else None
    if rows is not None and all("metadata" in one for one in rows):
        return _numbered(rows, most, separator)
    if rows is not None and all(isinstance(one.get("label"), str) for one in rows):
        return ", ".join(one["label"] for one in rows)[:most]
    for field in ("answer", "text"):
        if isinstance(value, dict) and isinstance(value.get(field), str):
            return str(value[field])[:most]
    raise InputError(f"`{name}` has no text for the template", hint="let it read texts, hits or labels", input=name)


def _numbered(hits: Sequence[Mapping[str, Any]], most: int, separator: str) -> str:
    """Return the texts of hits with their numbers, as many whole ones as there is room for, at least one."""
    parts: list[str] = []
    left = most
    for number, hit in enumerate(hits, 1):
        part = f"[{number}] {hit['text'] or ''}"
        if parts and len(part) > left:
            break
        parts.append(part[:most])
        left -= len(part) + len(separator)
    return separator.join(parts)
