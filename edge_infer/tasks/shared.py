"""Steps that several pipelines begin with are done once for one raw input, as in a chain."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.tasks.steps import STEPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from edge_infer.bundle.manifest import Manifest
    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply, Step


class Beginning(NamedTuple):
    """The steps of a pipeline from the first to one of them.

    Attributes:
        key: The same for the steps of two pipelines that do the same: their parameters, the files that they read, and
            from the first tensor on the inputs of the model.
        arguments: What the caller may ask of them.
    """

    key: str
    arguments: frozenset[str]


def beginnings(steps: Sequence[Step], place: Place, manifest: Manifest) -> list[Beginning]:
    """Return the beginning that ends with each of some steps.

    Args:
        steps: The steps before a model.
        place: What they were prepared for.
        manifest: The bundle's.
    """
    found: list[Beginning] = []
    facts: list[Any] = []
    arguments: set[str] = set()
    for step in steps:
        facts.append(step.to_json())
        file = step.parameters.get("file")
        if isinstance(file, str) and file in manifest.files:
            facts.append(manifest.files[file].sha256)
        if STEPS[step.name].gives not in ("image", "sound"):
            facts.append([place.input, [spec.to_json() for spec in place.inputs.values()]])
        arguments |= {name for name, one in step.declared.items() if one.is_argument}
        found.append(Beginning(json.dumps(facts, sort_keys=True), frozenset(arguments)))
    return found


def common(pipelines: Iterable[Sequence[Beginning]]) -> frozenset[str]:
    """Return the keys that more than one pipeline has."""
    seen: set[str] = set()
    twice: set[str] = set()
    for each in pipelines:
        for one in each:
            (twice if one.key in seen else seen).add(one.key)
    return frozenset(twice)


class Shared:
    """What the first steps of pipelines made of raw inputs, in one run of a chain.

    Args:
        keys: The beginnings that are kept: those that more than one pipeline has.
    """

    def __init__(self, keys: frozenset[str]) -> None:
        self._keys = keys
        # The value is kept beside what was made of it, so that its place in memory is nobody else's.
        self._kept: dict[tuple[int, str, str], tuple[Any, Any, Item]] = {}
        #: How many steps were not done again.
        self.spared = 0

    def through(
        self, value: Any, steps: Sequence[Apply], beginnings: Sequence[Beginning], item: Item
    ) -> tuple[Any, Item]:
        """Do steps on a raw input, but for those that were done on it already.

        Args:
            value: The raw input.
            steps: The steps.
            beginnings: What they are up to each of them.
            item: What is known of the input; it may be changed.

        Returns:
            What the last step made, and what is known of the input now.
        """
        names = [(id(value), one.key, _asked(one, item.arguments)) for one in beginnings]
        start, made = 0, value
        for end in range(len(names), 0, -1):
            if names[end - 1] in self._kept:
                _, made, known = self._kept[names[end - 1]]
                start, item = end, known.copy(item.arguments)
                self.spared += end
                break
        for place in range(start, len(steps)):
            made = steps[place](made, item)
            if beginnings[place].key in self._keys:
                self._kept[names[place]] = (value, made, item.copy(item.arguments))
        return made, item


def _asked(beginning: Beginning, arguments: Mapping[str, Any]) -> str:
    return repr([(name, arguments[name]) for name in sorted(beginning.arguments) if arguments.get(name) is not None])
