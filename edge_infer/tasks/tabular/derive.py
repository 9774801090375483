"""`tabular.derive`: other columns in the place of those that were given, each computed from them by an expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.tabular.columns import check_missing
from edge_infer.tasks.tabular.evaluation import evaluate
from edge_infer.tasks.tabular.expression_tree import check
from edge_infer.tasks.tabular.table import Table, check_names

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

_STEP = "tabular.derive"
PARAMETERS = {
    "names": Parameter("texts"),
    # An expression for each name: a number, null, or a list of a word and what it takes: `["/", ["col", "debt"], 2]`.
    "expressions": Parameter("expressions"),
    # The new columns of which a value may be missing or infinite.
    "nullable": Parameter("texts", []),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that computes the columns; a row whose value is missing where it must be there is rejected.

    Raises:
        ManifestError: There is not one expression for each name, one is none, or `nullable` names no column.
    """
    names, trees, nullable = parameters["names"], parameters["expressions"], set(parameters["nullable"])
    check_names(_STEP, names, sorted(nullable), expressions=trees)
    needed = [sorted(check(tree, f"pipeline: `{_STEP}` of `{name}`")) for name, tree in zip(names, trees, strict=True)]

    def apply(table: Table, item: Item) -> Table:  # noqa: ARG001
        made = Table({}, table.rows, is_row=table.is_row)
        made.rejected = table.rejected
        for name, tree, columns in zip(names, trees, needed, strict=True):
            given = {one: table.column(one, _STEP) for one in columns}
            made.columns[name] = evaluate(tree, given, table.rows)
            check_missing(made.columns[name], name, made, is_nullable=name in nullable)
        return made

    return apply
