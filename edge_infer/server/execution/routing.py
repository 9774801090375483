"""Pools of workers, and the table that says which requests they run."""

from __future__ import annotations

import re
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import InputError, did_you_mean, listed
from edge_infer.server.execution.version_order import version_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The pool of all requests that no route names.
DEFAULT_POOL = "default"
_COMPARED = {">=": ge, "<=": le, ">": gt, "<": lt}
_BOUND = re.compile(r"(>=|<=|>|<)\s*([^\s<>=,]+)")


class Pool(NamedTuple):
    """Workers that share a queue for each model.

    Attributes:
        workers: How many batches run at once; 0 for one per CPU, at most four.
        device: What models run on there, as `edge_infer.load` takes it; empty for the server's own.
        memory_limit_mb: The most memory of the device that its models take together, in MiB, and with them those of
            the other pools on that device; 0 for no bound.
    """

    workers: int = 0
    device: str = ""
    memory_limit_mb: int = 0


class Route(NamedTuple):
    """A line of the table: what is None fits everything.

    Attributes:
        pool: Where such requests run.
        model: A model's name.
        version: A model's version, as the request names it, or a range of them: `>=4`, or `>=4,<6`.
        tenant: The name of whoever asks.
    """

    pool: str
    model: str | None = None
    version: str | None = None
    tenant: str | None = None


class VersionRange:
    """The versions that a text names: one, or those between bounds, of which numbers count by their value.

    Args:
        text: `4`, or bounds with commas between them: `>=4`, `>=4,<6`.

    Raises:
        InputError: It has the signs of a range and is none.

    >>> [version for version in ("3", "4", "10") if version in VersionRange(">=4")]
    ['4', '10']
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._bounds = []
        if not {"<", ">", ","} & set(text):
            return
        for piece in text.split(","):
            found = _BOUND.fullmatch(piece.strip())
            if found is None:
                raise InputError(f"`{text}` is not a range of versions", hint='version = ">=4", or ">=4,<6"')
            self._bounds.append((_COMPARED[found[1]], version_order(found[2])))

    def __contains__(self, version: object) -> bool:
        """Tell whether it has a version."""
        if not self._bounds or not isinstance(version, str):
            return version == self._text
        order = version_order(version)
        return all(compared(order, bound) for compared, bound in self._bounds)


class RoutingTable:
    """The first line that fits a request says where it runs.

    Args:
        pools: The pools by name; the default one is added where it is missing.
        routes: The lines.

    Raises:
        InputError: A line names a pool that there is not.

    >>> table = RoutingTable({"gold": Pool(1)}, [Route("gold", tenant="shop")])
    >>> table.pool_of("digits", None, "shop"), table.pool_of("digits", None, "")
    ('gold', 'default')
    """

    def __init__(self, pools: Mapping[str, Pool] | None = None, routes: Sequence[Route] = ()) -> None:
        self.pools: dict[str, Pool] = {DEFAULT_POOL: Pool(), **(pools or {})}
        self.routes = tuple(routes)
        self._versions = [VersionRange(route.version) if route.version is not None else None for route in routes]
        for route in routes:
            if route.pool not in self.pools:
                known = list(self.pools)
                raise InputError(
                    f"A route names the pool `{route.pool}`; there is {listed(known)}",
                    hint=did_you_mean(route.pool, known) or f"[pools.{route.pool}]",
                )

    def pool_of(self, model: str, version: str | None, tenant: str) -> str:
        """Return the pool that runs a request."""
        for route, versions in zip(self.routes, self._versions, strict=True):
            if (
                route.model in (None, model)
                and route.tenant in (None, tenant)
                and (versions is None or (version is not None and version in versions))
            ):
                return route.pool
        return DEFAULT_POOL
