"""Lists of values to the single values in them and back: what lets a step of one value run on lists in one go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def spread(values: Mapping[str, Any], depths: Mapping[str, int], name: str) -> tuple[list[dict[str, Any]], Any]:
    """Return the single values, and the shape that `gather` puts results into.

    The outermost lists belong together, then those inside them; what is a single value by then goes to each member.

    Args:
        values: What a step reads, by name.
        depths: How deep the lists of each are: 0 for one value.
        name: The step's name, for errors.

    Raises:
        InputError: Two lists that belong together have different lengths.

    >>> spread({"text": "a", "hit": ["x", "y"]}, {"text": 0, "hit": 1}, "rank")
    ([{'text': 'a', 'hit': 'x'}, {'text': 'a', 'hit': 'y'}], [0, 1])
    """
    found: list[dict[str, Any]] = []

    def walk(here: Mapping[str, Any], left: Mapping[str, int]) -> Any:
        lists = [one for one, depth in left.items() if depth]
        if not lists:
            found.append(dict(here))
            return len(found) - 1
        lengths = {one: len(here[one]) for one in lists}
        if len(set(lengths.values())) > 1:
            said = ", ".join(f"{length} of `{one}`" for one, length in lengths.items())
            raise InputError(f"step `{name}` reads lists of different lengths: {said}", hint="let it read one list")
        inner = {one: depth - (one in lists) for one, depth in left.items()}
        return [
            walk({one: value[i] if one in lists else value for one, value in here.items()}, inner)
            for i in range(lengths[lists[0]])
        ]

    shape = walk(values, depths)
    return found, shape


def gather(shape: Any, results: Sequence[Any]) -> Any:
    """Return results in the shape of what they were made of."""
    return results[shape] if isinstance(shape, int) else [gather(one, results) for one in shape]
