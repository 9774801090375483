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
    from collections.abc import Iterator, Mapping, Sequence
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
        ConversionError: There are no example inputs, the module does not run on them, neither exporter takes it, its
            export would keep a decision of the example inputs, or computes something else.
    """
    try:
        import onnxscript  # noqa: F401  torch.onnx needs it and says so late
        import torch
        from torch.jit import TracerWarning  # type: ignore[attr-defined]
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
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always", TracerWarning)
                    torch.onnx.export(module, (), str(path), kwargs=examples, dynamo=False, dynamic_axes=axes, **common)
            except Exception as older:
                raise ConversionError(
                    f"torch cannot export `{where}`: {first_line(newer)}; the older exporter: {first_line(older)}",
                    hint="torch.export.export(model, args) says more",
                ) from newer
            _refuse_baked([one for one in said if one.category is TracerWarning], where)
    _compare(module, examples, path, where)


def _refuse_baked(said: Sequence[warnings.WarningMessage], where: str) -> None:
    """Refuse a trace in which a decision or a value of the example inputs became a constant, with its place."""
    for one in said:
        message = str(one.message).strip().splitlines()[0].partition(". ")[0]
        raise ConversionError(
            f"Exporting `{where}` would keep what its example inputs decided at {one.filename}:{one.lineno}: {message}",
            hint="write the choice with torch.where or torch.cond",
        )


def _compare(module: Any, examples: Mapping[str, Any], path: Path, where: str) -> None:
    """Run the module and its export on several inputs, of other values and another batch, and refuse other numbers."""
    import numpy as np
    import onnxruntime
    import torch

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    taken = {one.name for one in session.get_inputs()}
    for label, call in _trials(examples).items():
        try:
            with torch.no_grad():
                outputs = _flat(module(**call))
        except Exception:  # the module itself has no answer there, such as for another batch
            continue
        try:
            found = session.run(None, {name: value.numpy() for name, value in call.items() if name in taken})
        except Exception as error:  # onnxruntime has many classes of its own
            raise ConversionError(f"The export of `{where}` does not run on {label}: {first_line(error)}") from error
        for index, (ours, theirs) in enumerate(zip(found, outputs, strict=True)):
            expected = theirs.numpy()
            scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=0))
            if ours.shape != expected.shape or not np.allclose(ours, expected, 1e-3, 1e-3 * scale, equal_nan=True):
                raise ConversionError(
                    f"The export of `{where}` differs from torch in output {index} on {label}",
                    hint="torch.export.export(model, args) says what it cannot follow",
                )


def _flat(result: Any) -> list[Any]:
    """Return the tensors of an answer in the order in which they are exported."""
    if isinstance(result, dict):
        return [one for value in result.values() for one in _flat(value)]
    if isinstance(result, (tuple, list)):
        return [one for value in result for one in _flat(value)]
    return [result]


def _trials(examples: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return inputs to compare on: the examples, floats of other signs and sizes, and a batch of three."""
    import torch

    floats = {n: v for n, v in examples.items() if v.is_floating_point()}
    trials = {"the example inputs": dict(examples)}
    if floats:
        trials["zeros"] = {**examples, **{n: torch.zeros_like(v) for n, v in floats.items()}}
        trials["ones"] = {**examples, **{n: torch.ones_like(v) for n, v in floats.items()}}
        trials["the negated example inputs"] = {**examples, **{n: -v for n, v in floats.items()}}
    batched = {n: v for n, v in examples.items() if v.ndim}
    if batched:
        trials["a batch of three"] = {**examples, **{n: torch.cat([v, v, v])[:3] for n, v in batched.items()}}
    return trials


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
