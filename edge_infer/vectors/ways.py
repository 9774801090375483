"""Which ways to compute a search work here, and queries as all of them take them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from edge_infer.errors import BackendUnavailable, EdgeInferError
from edge_infer.platform.host import in_browser
from edge_infer.tensors.arrays import has_numpy
from edge_infer.vectors.arithmetic import Query
from edge_infer.vectors.plain import Plain

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.vectors.arithmetic import Arithmetic


def encode_query(vector: Any, dimension: int, metric: str) -> Query:
    """Encode a query.

    Raises:
        InputError: It is of another length, has a number that is not finite, or is zero where it needs a direction.
    """
    plain = Plain()
    rows = plain.rows([vector], dimension)
    if metric == "cosine":
        rows = plain.normalize(rows)
    codes, scale = plain.encode(rows)
    return Query(memoryview(rows[0]), codes, float(memoryview(scale).cast("f")[0]))


@cache
def best_arithmetic() -> Arithmetic:
    """Return the quickest way that works here: our kernel, else numpy, else plain Python."""
    return next(iter(arithmetics().values()))


def arithmetics() -> dict[str, Arithmetic]:
    """Return every way that works here by its name, the quickest first."""
    found: dict[str, Arithmetic] = {"plain": Plain()}
    if has_numpy():
        try:
            from edge_infer.vectors.numeric import Numeric
        except ImportError:  # a page that loaded numpy has the package without this file
            pass
        else:
            found = {"numpy": Numeric(), **found}
    if in_browser():
        from edge_infer.vectors.page import Page

        try:
            return {"kernel": Page(next(iter(found.values()))), **found}
        except EdgeInferError:  # no worker, or a page without the kernels' file
            return found
    try:
        from edge_infer.vectors.native import Native

        return {"kernel": Native(next(iter(found.values()))), **found}
    except (ImportError, BackendUnavailable):  # a system without kernels, or a Python without ctypes
        return found
