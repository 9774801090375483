"""`post.top_k`: the best classes with their names."""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING

from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.post.outputs import reader
from edge_infer.tasks.values import flat

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {
    "tensor": Parameter("text", None),
    "top_k": Parameter("whole", 5, low=1, high=2**20, is_argument=True),
    # Classes whose score is not above it are left out.
    "threshold": Parameter("real", None, is_argument=True),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function: `[{"label", "score"}]`, the highest score first; of equal ones the lower class first."""
    read = reader(parameters["tensor"], place, "post.top_k")

    def apply(value: Any, item: Item) -> list[dict[str, Any]]:
        scores = list(flat(read(value)))
        place.check_labels(len(scores))
        least = item.argument("threshold", parameters["threshold"])
        above = [index for index, score in enumerate(scores) if least is None or score > least]
        best = nlargest(item.argument("top_k", parameters["top_k"]), above, key=scores.__getitem__)
        return [{"label": place.label(index), "score": float(scores[index])} for index in best]

    return apply
