"""The reference of a bundle: what its data looked like when the model was made, in a few kilobytes.

A file of safetensors with `edges` (float32, 19 inner edges for each feature of numbers), `range` (float32, the lowest
and the highest), `directions` (int8, where vectors or images are watched) and `facts` (JSON): the groups of features
in their order, how many rows there were, and the counts of those bins that are not of equal mass.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import BundleError, UnsupportedError
from edge_infer.formats.safetensors import read_tensors, write_tensors
from edge_infer.platform.hashing import sha256
from edge_infer.tasks.values import flat
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.bundle.bundle import Bundle

#: Where it lies in a bundle.
PATH = "monitor/reference.safetensors"
VERSION = 1
#: The bins of a feature of numbers.
BINS = 20
#: The edge of the grey picture that stands for an image.
SIDE = 16
#: The categories that are counted by themselves.
MAX_CATEGORIES = 32
_TAKES = ("columns", "best", "vector", "image")
_MAX_FEATURES = 4096


class Group(NamedTuple):
    """Features that are taken from one tensor.

    Attributes:
        of: `inputs` or `outputs` of the model.
        tensor: The tensor's name.
        take: `columns` (each number of a row), `best` (the best class and its score), `vector` or `image` (projections
            of a row, or of a grey picture of it, on the directions).
        names: The features' names.
        scale: What a number is multiplied by before it is rounded to a whole one, for directions.
    """

    of: str
    tensor: str
    take: str
    names: list[str]
    scale: float = 0.0


class Feature(NamedTuple):
    """What is known of one feature.

    Attributes:
        name: Its name.
        edges: The inner edges of its bins; empty for one of categories.
        values: Its categories, as numbers; empty for one of numbers.
        counts: How many rows of the reference are in each bin, or of each category, and at last of others.
        missing: How many have no value.
        low: The lowest value.
        high: The highest.
        labels: What categories are called; empty where they are numbers.
    """

    name: str
    edges: list[float]
    values: list[float]
    counts: list[int]
    missing: int
    low: float
    high: float
    labels: list[str]


class Reference(NamedTuple):
    """A reference, read.

    Attributes:
        rows: How many rows it was made of.
        groups: Where features are taken from.
        features: Those of all groups, in order.
        directions: Of the groups that have some, one after the other: the whole numbers of each direction.
        digest: The sha256 of its file; counters name it.
    """

    rows: int
    groups: list[Group]
    features: list[Feature]
    directions: list[list[int]]
    digest: str


def reference_of(bundle: Bundle) -> Reference:
    """Read the reference of a bundle.

    Raises:
        UnsupportedError: It has none.
        BundleError: It is damaged.
    """
    path = (bundle.manifest.monitor or {}).get("reference")
    if path is None:
        raise UnsupportedError(
            f"`{bundle.manifest.name}` has no reference to compare with",
            hint="edge-infer monitor reference BUNDLE data.parquet",
        )
    return read_reference(bundle.read(path))


def write_reference(reference: Reference) -> bytes:
    """Write a reference; the same one always gives the same bytes."""
    numbers = [one for one in reference.features if not one.values]
    equal = reference.rows
    facts: dict[str, Any] = {
        "version": VERSION,
        "rows": reference.rows,
        "groups": [_group_json(group) for group in reference.groups],
        "counts": {
            one.name: one.counts
            for one in reference.features
            if one.values or one.counts != _equal(equal - one.missing)
        },
        "missing": {one.name: one.missing for one in reference.features if one.missing},
        "values": {one.name: one.values for one in reference.features if one.values},
        "labels": {one.name: one.labels for one in reference.features if one.labels},
    }
    text = json.dumps({key: value for key, value in facts.items() if value}, ensure_ascii=False, separators=(",", ":"))
    data = text.encode()
    tensors = {"facts": Tensor(data, DType.UINT8, (len(data),))}
    if numbers:
        tensors["edges"] = Tensor.from_list([one.edges for one in numbers], "float32")
        tensors["range"] = Tensor.from_list([[one.low, one.high] for one in numbers], "float32")
    if reference.directions:
        tensors["directions"] = Tensor.from_list(
            [number for one in reference.directions for number in one], "int8", None
        )
    return write_tensors(tensors)


def read_reference(data: bytes) -> Reference:
    """Read a reference.

    Raises:
        BundleError: It is damaged, or of another version.
    """
    try:
        tensors = read_tensors(data)
        facts = json.loads(bytes(tensors["facts"].data()))
        if facts["version"] != VERSION:
            raise BundleError(
                f"the reference of the monitor has version {facts['version']!r}, expected {VERSION}",
                hint="pip install --upgrade edge-infer",
            )
        return _parsed(facts, tensors, sha256(data))
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, OverflowError, RecursionError) as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError(
            f"the reference of the monitor is damaged: {type(error).__name__}: {error}",
            hint="edge-infer monitor reference BUNDLE DATA makes it again",
        ) from error


def _parsed(facts: dict[str, Any], tensors: dict[str, Tensor], digest: str) -> Reference:
    rows = _whole(facts["rows"])
    groups = [_group(one) for one in facts["groups"]]
    names = [name for group in groups for name in group.names]
    if len(set(names)) != len(names) or not 1 <= len(names) <= _MAX_FEATURES:
        raise ValueError("its features are none, too many, or of one name")
    edges = [float(one) for one in flat(tensors["edges"])] if "edges" in tensors else []
    ranges = [float(one) for one in flat(tensors["range"])] if "range" in tensors else []
    features, place = [], 0
    for name in names:
        values = [float(one) for one in facts.get("values", {}).get(name, [])]
        missing = _whole(facts.get("missing", {}).get(name, 0))
        counts = [_whole(one) for one in facts.get("counts", {}).get(name, _equal(rows - missing))]
        labels = [str(one) for one in facts.get("labels", {}).get(name, [])]
        if len(counts) != (len(values) + 1 if values else BINS) or (labels and len(labels) != len(values)):
            raise ValueError(f"feature {name!r} has {len(counts)} counts")
        own = [] if values else edges[place * (BINS - 1) : (place + 1) * (BINS - 1)]
        low, high = (0.0, 0.0) if values else ranges[2 * place : 2 * place + 2]
        if not values and (len(own) != BINS - 1 or not all(a <= b for a, b in pairwise(own))):
            raise ValueError(f"the edges of feature {name!r} are not in order")
        place += not values
        features.append(Feature(name, own, values, counts, missing, low, high, labels))
    if len(edges) != place * (BINS - 1):
        raise ValueError("it has edges of no feature")
    return Reference(rows, groups, features, _directions(groups, tensors), digest)


def _directions(groups: Sequence[Group], tensors: dict[str, Tensor]) -> list[list[int]]:
    count = sum(len(group.names) for group in groups if group.take in ("vector", "image"))
    if not count:
        return []
    numbers = [int(one) for one in flat(tensors["directions"])]
    width, rest = divmod(len(numbers), count)
    if rest or not width or any(group.take == "image" and width != SIDE * SIDE for group in groups):
        raise ValueError("the directions have another number of elements")
    return [numbers[i * width : (i + 1) * width] for i in range(count)]


def _group(entry: dict[str, Any]) -> Group:
    take, names = str(entry["take"]), entry["names"]
    if isinstance(names, int):
        if not 1 <= names <= 64:
            raise ValueError(f"{names} directions")
        names = [f"{entry['tensor']} {i + 1}" for i in range(names)]
    scale = float(entry.get("scale", 0))
    if take not in _TAKES or entry["of"] not in ("inputs", "outputs") or not all(isinstance(n, str) for n in names):
        raise ValueError(f"a group takes {take!r}")
    if take in ("vector", "image") and not 0 < scale < float("inf"):
        raise ValueError(f"a scale of {scale}")
    if take == "best" and len(names) != 2:
        raise ValueError("a group of the best class has two features")
    return Group(entry["of"], str(entry["tensor"]), take, list(names), scale)


def _group_json(group: Group) -> dict[str, Any]:
    entry: dict[str, Any] = {"of": group.of, "tensor": group.tensor, "take": group.take}
    if group.take in ("vector", "image"):
        return {**entry, "names": len(group.names), "scale": group.scale}
    return {**entry, "names": group.names}


def _equal(rows: int) -> list[int]:
    """Return the counts of bins of equal mass."""
    return [rows * (i + 1) // BINS - rows * i // BINS for i in range(BINS)]


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise ValueError(f"{value!r} is not a count")
    return value
