"""The definition of a chain: what a bundle's manifest says in `chain`.

    {"version": 1,
     "inputs": {"image": "image"},
     "steps": [{"name": "faces", "do": "model", "bundle": "steps/faces", "from": "image", "with": {"threshold": 0.5}},
               {"name": "crops", "do": "crop", "from": {"image": "image", "boxes": "faces"}},
               {"name": "moods", "do": "model", "bundle": "steps/moods", "from": "crops", "cache": true}],
     "outputs": {"faces": "faces", "moods": "moods"}}

A step reads the chain's inputs and other steps by name; `clusters.label` is the output `label` of the step `clusters`.
The order of the steps is free: they run when what they read is there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.bundle.manifest import check_path
from edge_infer.chains.kinds import INPUTS, WORKS
from edge_infer.errors import ManifestError, did_you_mean, listed
from edge_infer.tasks.parameters import checked

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

#: The version of the format; another one is refused.
VERSION = 1
MAX_STEPS = 64
#: The name under which the only thing that a step reads goes where it says no other.
ONLY = "input"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_FIELDS = ("name", "do", "bundle", "index", "from", "with", "where", "cache", "server")


class Reference(NamedTuple):
    """What a step reads: an input of the chain or a step, and of a model's tensors one of them."""

    name: str
    field: str = ""

    def __str__(self) -> str:
        return f"{self.name}.{self.field}" if self.field else self.name


class ChainStep(NamedTuple):
    """One step of a chain, checked as far as it can be without its bundle.

    Attributes:
        name: Its name.
        do: What it does; one of `WORKS`.
        folder: Where its bundle or index lies inside the chain's; empty where it has none.
        reads: What it reads, by the name of what it takes.
        parameters: What `with` says, with the defaults where the bundle does not decide them.
        where: The filter of a search.
        is_cached: Whether its results are kept by the digest of what it read.
        server: The URL of the model on a server that computes it; empty to compute it here.
    """

    name: str
    do: str
    folder: str
    reads: dict[str, Reference]
    parameters: dict[str, Any]
    where: dict[str, Any] | None
    is_cached: bool
    server: str


class ChainDefinition(NamedTuple):
    """A chain.

    Attributes:
        inputs: The kinds of what the caller gives, by name.
        steps: The steps in an order in which each comes after what it reads.
        outputs: What the chain answers with: a reference, or several by name.
        vectors: The path of the file that proves it; None where there is none.
    """

    inputs: dict[str, str]
    steps: list[ChainStep]
    outputs: Reference | dict[str, Reference]
    vectors: str | None

    @property
    def answers(self) -> dict[str, Reference]:
        """The references of the outputs by name; of the only one without a name by an empty one."""
        return self.outputs if isinstance(self.outputs, dict) else {"": self.outputs}


def read_chain(document: Mapping[str, Any]) -> ChainDefinition:
    """Read the definition of a chain from the JSON of a manifest.

    Raises:
        ManifestError: It is of another version or wrong: a field, a name that is not there, a circle. The message names
            the step.
    """
    if document.get("version") != VERSION:
        raise ManifestError(
            f"chain: version {document.get('version')!r}, this edge-infer reads {VERSION}",
            hint="pip install --upgrade edge-infer",
            is_newer=True,
            got=document.get("version"),
        )
    inputs = _inputs(document.get("inputs"))
    entries = document.get("steps")
    if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_STEPS:
        raise ManifestError(f"chain: `steps` is not a list of 1 to {MAX_STEPS} steps")
    steps: dict[str, ChainStep] = {}
    for number, entry in enumerate(entries):
        step = _step(entry, f"chain.steps[{number}]")
        if step.name in steps or step.name in inputs:
            raise ManifestError(f"chain: two things are called `{step.name}`", hint="rename one", field=step.name)
        steps[step.name] = step
    known = [*inputs, *steps]
    for step in steps.values():
        for reference in step.reads.values():
            _check_name(reference, known, f"step `{step.name}` reads")
    outputs = _outputs(document.get("outputs", entries[-1]["name"]))
    for reference in outputs.values() if isinstance(outputs, dict) else (outputs,):
        _check_name(reference, known, "the chain answers with")
    vectors = document.get("vectors")
    if vectors is not None and not isinstance(vectors, str):
        raise ManifestError("chain: `vectors` is not the path of a file", got=vectors)
    return ChainDefinition(inputs, in_order(list(steps.values())), outputs, vectors)


def in_order(steps: Sequence[ChainStep]) -> list[ChainStep]:
    """Return steps so that each comes after those that it reads; else in the order in which they are written.

    Raises:
        ManifestError: Some of them read one another in a circle, which the message names.
    """
    left = {step.name: step for step in steps}
    done: list[ChainStep] = []
    while left:
        ready = next((one for one in left.values() if not any(ref.name in left for ref in one.reads.values())), None)
        if ready is None:
            raise _circle(left)
        done.append(left.pop(ready.name))
    return done


def _circle(left: Mapping[str, ChainStep]) -> ManifestError:
    path = [next(iter(left))]
    while path[-1] not in path[:-1]:
        path.append(next(ref.name for ref in left[path[-1]].reads.values() if ref.name in left))
    circle = path[path.index(path[-1]) :]
    return ManifestError(
        f"chain: the steps read one another in a circle: {' reads '.join(f'`{name}`' for name in circle)}",
        hint="let one of them read an input of the chain",
        field=circle[0],
    )


def _inputs(entry: Any) -> dict[str, str]:
    if not isinstance(entry, dict) or not entry:
        raise ManifestError('chain: `inputs` is not an object of kinds, such as {"image": "image"}')
    for name, kind in entry.items():
        if not _NAME.fullmatch(name):
            raise ManifestError(
                f"chain: the input `{name}` is not a name", hint="letters, digits, `_` and `-`", got=name
            )
        if kind not in INPUTS:
            raise ManifestError(f"chain: the input `{name}` is {kind!r}; choose from {listed([*INPUTS])}", field=name)
    return dict(entry)


def _outputs(entry: Any) -> Reference | dict[str, Reference]:
    if isinstance(entry, str):
        return _reference(entry, "chain.outputs")
    if not isinstance(entry, dict) or not entry:
        raise ManifestError('chain: `outputs` is neither a name nor an object of names, such as {"faces": "faces"}')
    return {name: _reference(one, f"chain.outputs[{name!r}]") for name, one in entry.items()}


def _reference(text: Any, where: str) -> Reference:
    name, dot, field = text.partition(".") if isinstance(text, str) else ("", "", "")
    if not _NAME.fullmatch(name) or (dot and not field):
        raise ManifestError(f"{where} is {text!r}, expected the name of an input or a step", got=text)
    return Reference(name, field)


def _check_name(reference: Reference, known: Sequence[str], said: str) -> None:
    if reference.name not in known:
        hint = did_you_mean(reference.name, [*known]) or f"there is {listed([*known])}"
        raise ManifestError(f"chain: {said} `{reference}`, which is not there", hint=hint, field=reference.name)


def _step(entry: Any, where: str) -> ChainStep:
    if not isinstance(entry, dict):
        raise ManifestError(f"{where} is not an object", got=entry)
    name, do = entry.get("name"), entry.get("do")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ManifestError(f"{where}: `name` is {name!r}, expected letters, digits, `_` and `-`", got=name)
    where = f"chain: step `{name}`"
    for field in entry:
        if field not in _FIELDS:
            hint = did_you_mean(field, [*_FIELDS]) or f"it may have {listed([*_FIELDS])}"
            raise ManifestError(f"{where} has the field `{field}`", hint=hint, field=field)
    if not isinstance(do, str) or do not in WORKS:
        hint = did_you_mean(str(do), [*WORKS]) or f"choose from {listed([*WORKS])}"
        raise ManifestError(f"{where} does {do!r}, which this edge-infer cannot", hint=hint, field=name)
    work = WORKS[do]
    is_cached, server, given = entry.get("cache", False), entry.get("server", ""), entry.get("with", {})
    if not isinstance(is_cached, bool):
        raise ManifestError(f"{where}: `cache` is {is_cached!r}, expected true or false", field=name)
    if not isinstance(server, str) or (server and "/v2/models/" not in server):
        raise ManifestError(f"{where}: `server` is {server!r}, expected http://HOST/v2/models/NAME", field=name)
    if server and do not in ("model", "tensors"):
        raise ManifestError(f"{where} does `{do}`, which no server does for it", hint="leave `server` out", field=name)
    if not isinstance(given, dict):
        raise ManifestError(f"{where}: `with` is not an object", field=name)
    if "where" in entry and (do != "search" or not isinstance(entry["where"], dict)):
        raise ManifestError(f"{where}: `where` is a filter of a search, an object", field=name)
    return ChainStep(
        name,
        do,
        _folder(entry, work.holds, where),
        _reads(entry.get("from"), do, where),
        dict(given) if work.parameters is None else checked(given, work.parameters, where),
        entry.get("where"),
        is_cached,
        server,
    )


def _folder(entry: Mapping[str, Any], holds: str, where: str) -> str:
    for field in ("bundle", "index"):
        if (field in entry) != (field == holds):
            said = f"lacks `{field}`" if field == holds else f"has `{field}`, which it does not take"
            raise ManifestError(f"{where} {said}", field=field)
    if not holds:
        return ""
    if not isinstance(entry[holds], str):
        raise ManifestError(f"{where}: `{holds}` is {entry[holds]!r}, expected a folder inside the chain", field=holds)
    return check_path(entry[holds], f"{where}: `{holds}`")


def _reads(entry: Any, do: str, where: str) -> dict[str, Reference]:
    """Read `from`: a name for what takes one thing, else an object."""
    takes = WORKS[do].takes
    if isinstance(entry, str):
        only = next(iter(takes)) if len(takes) == 1 and "*" not in takes else ONLY
        entry = {only: entry}
    if not isinstance(entry, dict) or not entry:
        raise ManifestError(f"{where}: `from` is neither a name nor an object of names", field="from")
    return {name: _reference(one, f"{where}: `from`") for name, one in entry.items()}
