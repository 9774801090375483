"""`tensors`: a bundle without a pipeline, fed with tensors by the names of its inputs; many in one run where it can."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.chains.steps.described import Described, Opening, of_work
from edge_infer.chains.steps.sessions import open_session
from edge_infer.errors import InputError, ManifestError, listed
from edge_infer.tasks.prepared_steps import can_batch, joined, row_of
from edge_infer.tensors.arrays import to_tensor
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.chains.definition import ChainStep
    from edge_infer.tasks.shared import Beginning, Shared

#: The most rows of one run.
_MOST = 256


def describe(step: ChainStep, bundle: Bundle) -> Described:
    """Describe the step.

    Raises:
        ManifestError: The model has other inputs than are fed.
    """
    known = [spec.name for spec in bundle.manifest.inputs]
    if sorted(step.reads) != sorted(known):
        raise ManifestError(
            f"chain: step `{step.name}` feeds {listed(sorted(step.reads))}, the model takes {listed(sorted(known))}",
            hint='"from": {"NAME OF THE INPUT": "STEP"}',
            expected=sorted(known),
            got=sorted(step.reads),
        )
    return of_work(step, bundle.revision, lambda opening: _Tensors(step, bundle, opening), bundle)


class _Tensors:
    beginnings: Sequence[Beginning] = ()

    def __init__(self, step: ChainStep, bundle: Bundle, opening: Opening) -> None:
        key = (bundle.revision, f"session {step.server}")
        if key not in opening.opened:
            opening.opened[key] = open_session(step, bundle, opening.options)
        self.session = opening.opened[key]
        self._specs = {spec.name: spec for spec in self.session.inputs}
        self._most = _MOST if can_batch(self.session.inputs, self.session.outputs) else 1

    def run(self, values: Sequence[Mapping[str, Any]], shared: Shared) -> list[Any]:  # noqa: ARG002
        found: list[Any] = []
        rows = [{name: self._row(name, tensor) for name, tensor in one.items()} for one in values]
        for group in self._groups(rows):
            feeds = {name: joined([row[name] for row in group], self._specs[name], 0) for name in self._specs}
            outputs = self.session.run(feeds)
            for i in range(len(group)):
                is_many = self._most > 1
                found.append({name: row_of(one, i) if is_many else one for name, one in outputs.items()})
        return found

    def close(self) -> None:
        """Give back nothing: the chain closes what its steps share."""

    def _row(self, name: str, value: Any) -> Tensor:
        spec = self._specs[name]
        tensor: Tensor = value if isinstance(value, Tensor) else to_tensor(value)
        if tensor.dtype is not spec.dtype:
            raise InputError(f"input `{spec}` is given {tensor.dtype}", hint="let another step make it", input=name)
        # A model without a free first dimension, and a caller's array, give one row as a batch of one.
        if self._most > 1 and len(tensor.shape) == len(spec.shape) and tensor.shape[0] == 1:
            return tensor.reshape(*tensor.shape[1:])
        return tensor

    def _groups(self, rows: list[dict[str, Tensor]]) -> list[list[dict[str, Tensor]]]:
        """Cut rows into runs: those that stand beside one another and have the same shapes."""
        groups: list[list[dict[str, Tensor]]] = []
        for row in rows:
            last = groups[-1] if groups else []
            is_alike = last and all(last[0][name].shape == one.shape for name, one in row.items())
            if is_alike and len(last) < self._most:
                last.append(row)
            else:
                groups.append([row])
        return groups
