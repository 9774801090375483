"""Export a JAX function, or a module of Flax, by jax2onnx: https://github.com/enpasos/jax2onnx.

The first axis of every input stays free, and the second of rows of integers: the length of a text. Where the function
cannot be traced with free sizes it is traced with those of its examples, and the comparison with the function itself
says what that fixes.
"""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from edge_infer.errors import ConversionError
from edge_infer_converters.sources.dynamic import axes_of, specs_of
from edge_infer_converters.sources.framework import Framework
from edge_infer_converters.sources.made import libraries_of
from edge_infer_converters.sources.torch import OPSET, first_line, flat, output_names, quiet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from edge_infer_converters.sources.options import Dynamic

_RETURN = "return function, (example,)"


def takes(made: object) -> bool:
    """Tell whether an object is a function with example inputs, or a module of Flax, while JAX is in use."""
    function = made[0] if isinstance(made, tuple) and len(made) in (2, 3) else made
    return "jax" in sys.modules and (callable(function) if function is not made else "flax" in libraries_of(made))


def export(
    made: object, path: Path, where: str, opset: int | None = None, dynamic: Sequence[Dynamic] = ()
) -> Framework:
    """Export a function with its example inputs.

    Args:
        made: A function or a callable module, a tuple of arrays or a dict of arrays by input name, and perhaps the
            names of more free axes by input, such as `{"x": {1: "time"}}`.
        path: The `.onnx` file to write.
        where: What the user calls it.
        opset: The operator set to write, or None for one that suits.
        dynamic: More dimensions that stay free.

    Returns:
        The function, to be compared with its export.

    Raises:
        ConversionError: jax2onnx is not installed, there are no example inputs, the function does not run on them, or
            jax2onnx cannot export it.
    """
    if not isinstance(made, tuple) or not isinstance(made[1], (tuple, list, dict)):
        raise ConversionError(f"`{where}` returned a JAX function without example inputs", hint=_RETURN)
    function, given = made[:2]
    more: Mapping[str, Mapping[int, str]] = made[2] if len(made) == 3 else {}
    try:
        from jax2onnx import to_onnx
    except ImportError as error:
        raise ConversionError(
            f"Exporting from JAX needs {error.name}, which is not installed",
            hint='pip install "edge-infer-converters[jax]"',
        ) from error
    if "flax.nnx" in sys.modules and isinstance(function, sys.modules["flax.nnx"].Module):
        function.eval()
    examples = _examples(function, given, where)
    by_name = isinstance(given, dict)
    run = functools.partial(_run, function, list(examples), by_name)
    try:
        names = output_names(_call(function, list(examples), examples, by_name))
    except Exception as error:  # the user's function raises what it likes
        raise ConversionError(
            f"`{where}` does not run on its example inputs: {first_line(error)}",
            hint="of a Flax Linen module: return functools.partial(module.apply, variables), (example,)",
        ) from error
    names = [f"{name}_out" if name in examples else name for name in names]  # a name of ONNX has one value
    asked = axes_of(dynamic, specs_of(examples))
    free = {n: {**asked.get(n, {}), **_free(value), **more.get(n, {})} for n, value in examples.items()}
    said: list[str] = []
    for axes in _attempts(free):
        specs = [
            tuple(axes[name].get(axis, size) for axis, size in enumerate(value.shape))
            for name, value in examples.items()
        ]
        try:
            with quiet():
                exported = _traced(to_onnx, function, examples, specs, names, by_name, opset or OPSET)
            break
        except Exception as error:  # jax2onnx raises what its parts raise
            said.append(first_line(error))
    else:
        raise ConversionError(
            f"jax2onnx cannot export `{where}`: {said[-1]}",
            hint="write it with operations that https://enpasos.github.io/jax2onnx lists",
        )
    onnx.save(exported, path)
    notes = (f"jax2onnx could not keep all sizes free ({said[0]})",) if said else ()
    return Framework("jax", run, examples, {name: list(axes) for name, axes in free.items()}, notes)


def _traced(
    to_onnx: Any,
    function: Any,
    examples: Mapping[str, np.ndarray],
    specs: Sequence[tuple[int | str, ...]],
    names: Sequence[str],
    by_name: bool,
    opset: int,
) -> onnx.ModelProto:
    """Let jax2onnx trace the function with these sizes, its types being those of the examples."""
    import jax
    import jax.export

    scope = jax.export.SymbolicScope()
    symbols = {one for spec in specs for one in spec if isinstance(one, str)}
    sizes = {one: jax.export.symbolic_shape(one, scope=scope)[0] for one in sorted(symbols)}
    structures = [
        jax.ShapeDtypeStruct(tuple(sizes[one] if isinstance(one, str) else one for one in spec), value.dtype)
        for spec, value in zip(specs, examples.values(), strict=True)
    ]
    order = list(examples)

    def traced(*arrays: Any) -> Any:
        return tuple(flat(_call(function, order, dict(zip(order, arrays, strict=True)), by_name)))

    made: onnx.ModelProto = to_onnx(
        traced,
        structures,
        opset=opset,
        input_names=order,
        output_names=list(names),
        enable_double_precision=any(value.dtype == np.float64 for value in examples.values()),
    )
    return made


def _call(function: Any, order: Sequence[str], arrays: Mapping[str, Any], by_name: bool) -> Any:
    return function(**arrays) if by_name else function(*(arrays[name] for name in order))


def _run(function: Any, order: Sequence[str], by_name: bool, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Run the function itself; return its outputs in the order in which they are exported."""
    return [np.asarray(one) for one in flat(_call(function, order, feeds, by_name))]


def _examples(function: Any, given: Any, where: str) -> dict[str, np.ndarray]:
    """Return the example inputs by name, in the types that JAX gives them.

    Raises:
        ConversionError: An example is not an array of numbers.
    """
    import jax.numpy as jnp

    named = dict(given) if isinstance(given, dict) else dict(zip(_names(function, len(given)), given, strict=True))
    examples: dict[str, np.ndarray] = {}
    for name, value in named.items():
        kind = type(value).__name__
        try:
            examples[name] = np.asarray(jnp.asarray(value))
        except (TypeError, ValueError):
            examples[name] = np.empty(0, object)
        else:
            kind = f"of {examples[name].dtype}" if examples[name].dtype.kind == "V" else kind
        if examples[name].dtype.kind not in "biuf":
            raise ConversionError(
                f"The example input `{name}` of `{where}` is {kind}, expected an array of numbers that numpy has",
                hint="bind keys and trees of parameters: return functools.partial(function, parameters), (example,)",
            )
        if examples[name].ndim and len(examples[name]) == 1:  # a batch of one would be taken for a constant
            examples[name] = np.concatenate([examples[name]] * 2)
    return examples


def _names(function: Any, count: int) -> list[str]:
    """Call the inputs as the function calls its positional parameters, else `input`, `input_1` ..."""
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        found = [one.name for one in inspect.signature(function).parameters.values() if one.kind in plain]
    except (TypeError, ValueError):
        found = []
    return found[:count] if len(found) >= count else ["input", *(f"input_{i}" for i in range(1, count))]


def _free(example: np.ndarray) -> dict[int, str]:
    is_text = example.ndim == 2 and example.dtype.kind in "iu"
    return {0: "batch", **({1: "sequence"} if is_text else {})} if example.ndim else {}


def _attempts(free: Mapping[str, Mapping[int, str]]) -> list[dict[str, dict[int, str]]]:
    """Return the free axes to try to keep: all, the batch alone, none."""
    every = {name: dict(axes) for name, axes in free.items()}
    batch = {name: {axis: one for axis, one in axes.items() if axis == 0} for name, axes in every.items()}
    none: dict[str, dict[int, str]] = {name: {} for name in every}
    return [one for at, one in enumerate((every, batch, none)) if one not in (every, batch, none)[:at]]
