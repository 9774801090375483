"""A step with its bundle, before anything is loaded: what it takes and gives, and how it is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from edge_infer.chains.kinds import WORKS, Kind
from edge_infer.errors import ManifestError, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.chains.definition import ChainStep
    from edge_infer.tasks.shared import Beginning, Shared


class Doing(Protocol):
    """A step that is ready to run."""

    #: What its pipeline begins with, for `Shared`; empty where it has none.
    beginnings: Sequence[Beginning]

    def run(self, values: Sequence[Mapping[str, Any]], shared: Shared) -> list[Any]:
        """Return the result for each set of single values that it reads."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...


class Opening(NamedTuple):
    """How steps are opened.

    Attributes:
        options: What `load` takes: `device`, `backend`, `threads`, ...
        opened: What other steps of the chain have open already, by the bundle's revision and what it is opened for.
    """

    options: Mapping[str, Any]
    opened: dict[tuple[str, str], Any]


class Described(NamedTuple):
    """A step with its bundle.

    Attributes:
        step: The step.
        takes: The kinds of what it reads, by name; an empty kind for any.
        optional: The names that may be left out; one of them has to be there.
        gives: The kind of what it makes of single values.
        identity: What its results depend on besides what it reads, for caches; the revision of its bundle among it.
        open: Loads what it needs.
        bundle: Its bundle; None where it has none.
    """

    step: ChainStep
    takes: Mapping[str, str]
    optional: tuple[str, ...]
    gives: Kind
    identity: Any
    open: Callable[[Opening], Doing]
    bundle: Bundle | None = None


def of_work(
    step: ChainStep, identity: Any, open_step: Callable[[Opening], Doing], bundle: Bundle | None = None
) -> Described:
    """Describe a step that takes and gives what its word says."""
    work = WORKS[step.do]
    return Described(
        step, work.takes, work.optional, Kind(work.gives, work.depth), [step.do, identity], open_step, bundle
    )


def kind_of(described: Described, kinds: Mapping[str, Kind]) -> tuple[Kind, dict[str, int]]:
    """Check what a step reads, and return the kind of what it makes and the depth of the lists that it reads.

    Args:
        described: The step.
        kinds: The kinds of the chain's inputs and of the steps before it.

    Raises:
        ManifestError: It reads too little, something that it does not take, or something of another kind.
    """
    step, takes = described.step, described.takes
    where = f"chain: step `{step.name}` ({step.do})"
    names = [name for name in takes if name != "*"]
    depths: dict[str, int] = {}
    for name, reference in step.reads.items():
        if name not in takes and "*" not in takes:
            raise ManifestError(f"{where} takes no `{name}`", hint=f"it takes {listed(names)}", field=name)
        found, wanted = kinds[reference.name], takes.get(name, takes.get("*", ""))
        if reference.field:
            if found.name != "tensors":
                raise ManifestError(
                    f"{where} reads `{reference}`, and `{reference.name}` gives {found}, which has no parts",
                    hint=f"read `{reference.name}`",
                    field=name,
                )
            found = Kind("tensor", found.depth)
        if wanted and found.name != wanted:
            raise ManifestError(
                f"{where} takes {wanted} as `{name}`, and `{reference}` gives {found}",
                hint=f"let it read what gives {wanted}",
                field=name,
                expected=wanted,
                got=str(found),
            )
        depths[name] = found.depth
    if described.optional:
        if not any(name in step.reads for name in described.optional):
            raise ManifestError(f"{where} reads none of {listed([*described.optional])}", field="from")
    else:
        for name in names:
            if name not in step.reads:
                raise ManifestError(f"{where} lacks `{name}` in `from`", hint=f"it takes {listed(names)}", field=name)
    return Kind(described.gives.name, max(depths.values(), default=0) + described.gives.depth), depths
