"""Output shapes computed from input shapes, so that prepared calls keep their buffers."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.tensors.tensor import TensorSpec


def passed_through(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> frozenset[str]:
    """Return the outputs that are also inputs: ONNX Runtime gives them as other names of the caller's memory."""
    return frozenset({spec.name for spec in inputs} & {spec.name for spec in outputs})


def output_shapes(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], shapes: Mapping[str, tuple[int, ...]]
) -> list[tuple[TensorSpec, tuple[int, ...] | None]]:
    """Return each output with its shape, where the shapes of the inputs tell it, else None.

    A symbol that stands for two sizes, as where one input is broadcast to another, tells nothing. An output that is
    also an input has no shape here: ONNX Runtime hands the input on and leaves a buffer for the output untouched.
    """
    passed = passed_through(inputs, outputs)
    sizes: dict[str, set[int]] = {}
    for spec in inputs:
        for dim, size in zip(spec.shape, shapes[spec.name], strict=False):
            if isinstance(dim, str):
                sizes.setdefault(dim, set()).add(size)
    known = {dim: next(iter(found)) for dim, found in sizes.items() if len(found) == 1}
    result: list[tuple[TensorSpec, tuple[int, ...] | None]] = []
    for spec in outputs:
        dims = (known.get(dim) if isinstance(dim, str) else dim for dim in spec.shape)
        shape = tuple(dim for dim in dims if dim is not None)
        is_known = spec.shape and len(shape) == len(spec.shape) and spec.name not in passed
        result.append((spec, shape if is_known else None))
    return result
