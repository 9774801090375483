"""Export a torch module: torch.onnx's exporter for exported programs, the older one where that fails.

The first axis of every input stays free. The newer exporter folds batch normalization and keeps `Gelu` and
`LayerNormalization` whole; the older one, which traces, knows some models that it does not (convert.md A1).
"""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import sys
import warnings
from typing import TYPE_CHECKING, Any

from edge_infer.errors import ConversionError
from edge_infer_converters.sources.made import first_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

OPSET = 20


def takes(made: object) -> bool:
    """Tell whether an object is a torch module, alone or with example inputs."""
    return "torch" in sys.modules and isinstance(first_of(made), sys.modules["torch"].nn.Module)


def export(made: object, path: Path, where: str, opset: int | None = None) -> None:
    """Export a module with its example inputs.

    Args:
        made: A `torch.nn.Module`, and a tuple of tensors or a dict of tensors by input name.
        path: The `.onnx` file to write.
        where: What the user calls it.
        opset: The operator set to write, or None for one that suits.

    Raises:
        ConversionError: There are no example inputs, the module does not run on them, or neither exporter takes it.
    """
    try:
        import onnxscript  # noqa: F401  torch.onnx needs it and says so late
        import torch
    except ImportError as error:
        raise ConversionError(
            f"Exporting from torch needs {error.name}, which is not installed",
            hint='pip install "edge-infer-converters[torch]"',
        ) from error
    if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[1], (tuple, list, dict)):
        raise ConversionError(
            f"`{where}` returned a torch module without example inputs", hint="return model, (example,)"
        )
    module, given = made
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
    names = _output_names(result)
    batch = torch.export.Dim("batch")
    free: dict[str, Any] = {name: {0: batch} if value.ndim else {} for name, value in examples.items()}
    common: dict[str, Any] = {"input_names": list(examples), "output_names": names, "opset_version": opset or OPSET}
    with quiet():
        try:
            torch.onnx.export(
                module,
                kwargs=examples,
                f=str(path),
                dynamo=True,
                dynamic_shapes=free,
                external_data=False,
                verbose=False,
                **common,
            )
        except Exception as newer:  # the exporters raise whatever their parts raise
            axes = {name: {0: "batch"} for name in (*(n for n, v in examples.items() if v.ndim), *names)}
            try:
                torch.onnx.export(module, (), str(path), kwargs=examples, dynamo=False, dynamic_axes=axes, **common)
            except Exception as older:
                raise ConversionError(
                    f"torch cannot export `{where}`: {first_line(newer)}; the older exporter: {first_line(older)}",
                    hint="torch.export.export(model, args) says more",
                ) from newer


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


def _output_names(result: Any) -> list[str]:
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
