"""Export a torch module: torch.onnx's exporter for exported programs, the older one where that fails.

The first axis of every input stays free, and the second of rows of integers: the length of a text. The newer exporter
folds batch normalization and keeps `Gelu` and `LayerNormalization` whole; the older one, which traces, knows some
models that it does not (convert.md A1).
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import logging
import sys
import warnings
from typing import TYPE_CHECKING, Any

from edge_infer.errors import ConversionError
from edge_infer_converters.sources.dynamic import axes_of, specs_of
from edge_infer_converters.sources.framework import Framework
from edge_infer_converters.sources.made import first_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from edge_infer_converters.sources.options import Dynamic

OPSET = 20


def takes(made: object) -> bool:
    """Tell whether an object is a torch module, alone or with example inputs."""
    return "torch" in sys.modules and isinstance(first_of(made), sys.modules["torch"].nn.Module)


def export(
    made: object,
    path: Path,
    where: str,
    opset: int | None = None,
    dynamic: Sequence[Dynamic] = (),
    *,
    allow_baked: bool = False,
) -> Framework:
    """Export a module with its example inputs.

    Args:
        made: A `torch.nn.Module`, a tuple of tensors or a dict of tensors by input name, and perhaps the names of more
            free axes by input, such as `{"x": {1: "time"}}`.
        path: The `.onnx` file to write.
        where: What the user calls it.
        opset: The operator set to write, or None for one that suits.
        dynamic: More dimensions that stay free.
        allow_baked: Whether what a trace keeps of the example inputs is told instead of refused.

    Returns:
        The module, to be compared with its export.

    Raises:
        ConversionError: There are no example inputs, the module does not run on them, neither exporter takes it, or its
            export would keep a decision of the example inputs.
    """
    try:
        import onnxscript  # noqa: F401  torch.onnx needs it and says so late
        import torch
    except ImportError as error:
        raise ConversionError(
            f"Exporting from torch needs {error.name}, which is not installed",
            hint='pip install "edge-infer-converters[torch]"',
        ) from error
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[1], (tuple, list, dict)):
        raise ConversionError(
            f"`{where}` returned a torch module without example inputs", hint="return model, (example,)"
        )
    module, given = made[:2]
    named_axes: Mapping[str, Mapping[int, str]] = made[2] if len(made) == 3 else {}
    module = module.eval()
    examples = _named(module, given, where)
    if any(not isinstance(value, torch.Tensor) for value in examples.values()):
        raise ConversionError(f"The example inputs of `{where}` are not all tensors", hint="return model, (tensor,)")
    # A batch of one would be taken for a constant.
    examples = {n: torch.cat([v, v]) if v.ndim and len(v) == 1 else v for n, v in examples.items()}
    try:
        with torch.no_grad():
            result = module(**examples)
    except Exception as error:  # the user's module raises what it likes
        raise ConversionError(
            f"`{where}` does not run on its example inputs: {error}",
            hint="return model, (tensor, ...) that `model(*tensors)` takes",
        ) from error
    names = output_names(result)
    free = {name: dict(free_axes(value)) for name, value in examples.items()}
    for name, axes in named_axes.items():
        _check_axes(name, axes, examples, where)
        free[name] = {**free.get(name, {}), **axes}
    for name, axes in axes_of(dynamic, specs_of(numbers_of(examples))).items():
        free[name] = {**axes, **free.get(name, {})}
    exported = _export(module, examples, free, path, where, names, opset, allow_baked=allow_baked)
    sizes = {name: list(axes) for name, axes in free.items() if name in examples}
    return Framework("torch", functools.partial(_run, module, examples), numbers_of(examples), sizes, exported)


def _check_axes(name: str, axes: Mapping[int, str], examples: Mapping[str, Any], where: str) -> None:
    """Refuse free axes of an input that is not there, or that it does not have."""
    if name not in examples or not all(0 <= axis < examples[name].ndim for axis in axes):
        raise ConversionError(
            f"`{where}` names the free axes {dict(axes)} of `{name}`, expected axes of "
            + ", ".join(f"`{one}` ({value.ndim} axes)" for one, value in examples.items()),
            hint='return model, (example,), {"' + next(iter(examples)) + '": {1: "time"}}',
        )


def free_axes(example: Any) -> dict[int, str]:
    """Return the axes that stay free: the first, and of rows of integers, which are texts, the second."""
    is_text = example.ndim == 2 and not example.is_floating_point() and not example.is_complex()
    return {0: "batch", **({1: "sequence"} if is_text else {})} if example.ndim else {}


def numbers_of(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return tensors as arrays."""
    return {name: value.detach().numpy() for name, value in tensors.items()}


def tensors_of(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return arrays as tensors."""
    import numpy as np
    import torch

    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in arrays.items()}


def answer(module: Any, *arguments: Any, **keywords: Any) -> list[Any]:
    """Run a module without gradients; return its outputs as arrays, in the order in which they are exported."""
    import torch

    with torch.no_grad():
        return [one.detach().cpu().numpy() for one in flat(module(*arguments, **keywords))]


def _run(module: Any, examples: Mapping[str, Any], feeds: Mapping[str, Any]) -> list[Any]:
    """Run the module; inputs that its export does not have, because nothing reads them, are the examples."""
    return answer(module, **{**examples, **tensors_of(feeds)})


def _export(
    module: Any,
    examples: Mapping[str, Any],
    free: Mapping[str, Mapping[int, str]],
    path: Path,
    where: str,
    names: Sequence[str],
    opset: int | None,
    *,
    allow_baked: bool,
) -> tuple[str, ...]:
    """Export by the newer exporter, else by the older one; return what the user should know of it."""
    import torch
    from torch.jit import TracerWarning  # type: ignore[attr-defined]  # torch's types leave it out

    common: dict[str, Any] = {"input_names": list(examples), "output_names": names, "opset_version": opset or OPSET}
    # The size of a text is free where the model leaves it free, which `framework.compare` finds out.
    dims: dict[str, Any] = {"batch": torch.export.Dim("batch")}
    shapes = {
        name: {axis: dims.get(symbol, torch.export.Dim.AUTO) for axis, symbol in axes.items()}
        for name, axes in free.items()
    }
    with quiet():
        try:
            torch.onnx.export(
                module,
                kwargs=dict(examples),
                f=str(path),
                dynamo=True,
                dynamic_shapes=shapes,
                external_data=False,
                verbose=False,
                **common,
            )
            return ()
        except Exception as error:  # the exporters raise whatever their parts raise
            newer = error
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always", TracerWarning)
                axes = {
                    **{name: dict(axes) for name, axes in free.items() if axes},
                    **{name: {0: "batch"} for name in names},
                }
                torch.onnx.export(
                    module, (), str(path), kwargs=dict(examples), dynamo=False, dynamic_axes=axes, **common
                )
        except Exception as older:
            raise ConversionError(
                f"torch cannot export `{where}`: {first_line(newer)}; the older exporter: {first_line(older)}",
                hint="torch.export.export(model, args) says more",
            ) from newer
    baked = _baked([one for one in said if one.category is TracerWarning], where)
    if baked and not allow_baked:
        raise ConversionError(
            baked[0], hint="write the choice with torch.where or torch.cond, or insist: --allow-baked"
        )
    return (f"torch's newer exporter failed ({first_line(newer)}): the older one, which traces, took `{where}`", *baked)


def _baked(said: Sequence[warnings.WarningMessage], where: str) -> list[str]:
    """Tell in which places of a trace a decision or a value of the example inputs became a constant."""
    return [
        f"Exporting `{where}` would keep what its example inputs decided at {one.filename}:{one.lineno}: "
        + str(one.message).strip().splitlines()[0].partition(". ")[0]
        for one in said
    ]


def flat(result: Any) -> list[Any]:
    """Return the tensors of an answer in the order in which they are exported."""
    if isinstance(result, dict):
        return [one for value in result.values() for one in flat(value)]
    if isinstance(result, (tuple, list)):
        return [one for value in result for one in flat(value)]
    return [result]


def _named(module: Any, given: Any, where: str) -> Mapping[str, Any]:
    """Return the example inputs by the names of `forward`'s parameters."""
    parameters = list(inspect.signature(module.forward).parameters)
    if isinstance(given, dict):  # in the order of `forward`, in which the older exporter names them
        return {name: given[name] for name in (*parameters, *given) if name in given}
    if len(given) > len(parameters):
        raise ConversionError(
            f"`{where}` returned {len(given)} example inputs, `forward` takes {len(parameters)}",
            hint=f"return model, ({', '.join(parameters)},)",
            expected=len(parameters),
            got=len(given),
        )
    return dict(zip(parameters, given, strict=False))


def output_names(result: Any) -> list[str]:
    """Call the outputs as a dict does, else `output`, `output_1` ..."""
    if isinstance(result, dict):
        return [str(name) for name in result]
    count = len(result) if isinstance(result, (tuple, list)) else 1
    return ["output", *(f"output_{i}" for i in range(1, count))]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the exporters' talk from the terminal: what matters comes as an exception."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def first_line(error: Exception) -> str:
    """Return the first line of what an exporter says; the rest are stacks."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
