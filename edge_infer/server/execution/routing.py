"""Pools of workers, and the table that says which requests they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import InputError, did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The pool of all requests that no route names.
DEFAULT_POOL = "default"


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
        version: A model's version, as the request names it.
        tenant: The name of whoever asks.
    """

    pool: str
    model: str | None = None
    version: str | None = None
    tenant: str | None = None


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
        for route in routes:
            if route.pool not in self.pools:
                known = list(self.pools)
                raise InputError(
                    f"A route names the pool `{route.pool}`; there is {listed(known)}",
                    hint=did_you_mean(route.pool, known) or f"[pools.{route.pool}]",
                )

    def pool_of(self, model: str, version: str | None, tenant: str) -> str:
        """Return the pool that runs a request."""
        for route in self.routes:
            if (
                route.model in (None, model)
                and route.tenant in (None, tenant)
                and (route.version is None or route.version == version)
            ):
                return route.pool
        return DEFAULT_POOL
