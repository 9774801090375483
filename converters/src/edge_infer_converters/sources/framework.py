"""Run a model in the framework that made it: its own outputs are what an export, and every variant, is judged by."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_infer.errors import ConversionError
from edge_infer_converters.engine import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    Feeds = Mapping[str, np.ndarray]

#: How far an export may be from the framework: relative to the value, and to the largest value of the output.
_TOLERANCE = 1e-3
_NO_NUMBERS = "use sizes of the tensor instead of numbers, or --allow-baked"
_EXPORT_YOURSELF = "export it in another way, and convert that file: edge-infer convert model.onnx"
#: Labels may differ where two classes are as good.
_MIN_EQUAL = 0.98
#: By how much a free dimension other than the batch is larger in the second trial.
_LONGER = 3


class Framework(NamedTuple):
    """A model that its framework can run.

    Attributes:
        name: The framework's name.
        run: Returns the outputs for inputs by name, in the order of the export's outputs.
        examples: Inputs on which it runs.
        sizes: By input, the axes whose size an export must keep free, if the model itself does.
        notes: What the user should know of the export.
        draws: Whether the examples are rows that are worth more than random numbers: of known categories.
        advice: What to do where the export gives other numbers.
    """

    name: str
    run: Callable[[Feeds], Sequence[np.ndarray]]
    examples: Feeds
    sizes: Mapping[str, Sequence[int]] = {}
    notes: tuple[str, ...] = ()
    draws: bool = False
    advice: str = _EXPORT_YOURSELF


class FrameworkReference:
    """The model in its framework, with the names and types of its export.

    Args:
        framework: The model.
        outputs: The names of the export's outputs, with their types as numpy spells them.
    """

    def __init__(self, framework: Framework, outputs: Mapping[str, str]) -> None:
        self._framework = framework
        self._outputs = dict(outputs)

    def run(self, feeds: Feeds) -> dict[str, np.ndarray]:
        """Run the model once.

        Raises:
            ConversionError: The framework failed; the message is its own.
        """
        try:
            found = self._framework.run(feeds)
        except Exception as error:  # the user's model raises what it likes
            raise ConversionError(
                f"The model failed to run in {self._framework.name}: {first_line(error)}",
                hint="give inputs that it runs on: --calibration samples.npz",
            ) from error
        return {
            name: np.asarray(value, None if dtype == "string" else dtype)
            for (name, dtype), value in zip(self._outputs.items(), found, strict=True)
        }


def compare(framework: Framework, path: Path, where: str, *, allow_baked: bool = False) -> tuple[str, ...]:
    """Run a model and its export on several inputs, of other values and other sizes.

    Args:
        framework: The model.
        path: Its export, an `.onnx` file.
        where: What the user calls it.
        allow_baked: Whether a size that the export alone fixes is told instead of refused.

    Returns:
        What is told of it.

    Raises:
        ConversionError: The numbers differ, or the export fixes a size that the model leaves free.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    fixed = {one.name: [isinstance(size, int) for size in one.shape] for one in session.get_inputs()}
    notes: list[str] = []
    scales: dict[int, float] = {}  # the largest value of each output so far: zeros alone may give tiny ones
    for label, call, baked in _trials(framework, fixed):
        try:
            expected = framework.run(call)
        except Exception as error:  # the user's model raises what it likes
            if call is framework.examples:
                raise ConversionError(
                    f"`{where}` does not run on its example inputs in {framework.name}: {first_line(error)}",
                    hint="return example inputs that the model takes",
                ) from error
            continue  # the model itself has no answer there, such as for another size
        if baked:
            said = f"The export of `{where}` fixes {baked}, which {framework.name} does not"
            if not allow_baked:
                raise ConversionError(said, hint=_NO_NUMBERS)
            notes.append(said)
            continue
        try:
            found = session.run(None, {name: value for name, value in call.items() if name in fixed})
        except Exception as error:  # onnxruntime has many classes of its own
            said = f"The export of `{where}` does not run on {label}, as {framework.name} does: {first_line(error)}"
            if all(call[name].shape == value.shape for name, value in framework.examples.items()):
                raise ConversionError(said, hint=_EXPORT_YOURSELF) from error
            if not allow_baked:
                raise ConversionError(said, hint=_NO_NUMBERS) from error
            notes.append(said)
            continue
        for index, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
            scales[index] = max(scales.get(index, 0.0), _largest(np.asarray(theirs)))
            if not is_near(np.asarray(ours), np.asarray(theirs), scales[index]):
                again = framework.run(call)[index]
                if not is_near(np.asarray(again), np.asarray(theirs), scales[index]):
                    raise ConversionError(
                        f"`{where}` gives other numbers each time it is run in {framework.name}, in output {index}",
                        hint="take the random numbers as an input, or leave them out where it only answers",
                    )
                raise ConversionError(
                    f"The export of `{where}` differs from {framework.name} in output {index} on {label}",
                    hint=framework.advice,
                )
    return tuple(notes)


def is_near(ours: np.ndarray, theirs: np.ndarray, scale: float | None = None) -> bool:
    """Tell whether an output of an export is what the framework gives, within what rounding may do.

    Args:
        ours: The output of the export.
        theirs: That of the framework.
        scale: The largest value of this output; that of `theirs` by default.
    """
    if ours.shape != theirs.shape:
        return False
    if ours.dtype.kind != "f":
        return not ours.size or float((ours == theirs).mean()) >= _MIN_EQUAL
    theirs = theirs.astype(np.float64)
    scale = _largest(theirs) if scale is None else scale
    return bool(np.allclose(ours, theirs, _TOLERANCE, _TOLERANCE * scale, equal_nan=True))


def _largest(values: np.ndarray) -> float:
    """Return the largest size of a number; 0 for texts and where none is finite."""
    return float(np.abs(values[np.isfinite(values)]).max(initial=0)) if values.dtype.kind in "biuf" else 0.0


def _trials(framework: Framework, fixed: Mapping[str, Sequence[bool]]) -> list[tuple[str, Feeds, str]]:
    """Return inputs to compare on, each with what it is, and with the size in it that the export fixes."""
    examples = framework.examples
    floats = {name: value for name, value in examples.items() if value.dtype.kind == "f"}
    trials: list[tuple[str, Feeds, str]] = [("the example inputs", examples, "")]
    if floats:
        trials.append(("zeros", {**examples, **{name: np.zeros_like(value) for name, value in floats.items()}}, ""))
        trials.append(("ones", {**examples, **{name: np.ones_like(value) for name, value in floats.items()}}, ""))
        trials.append(
            (
                "the negated example inputs",
                {**examples, **{n: np.negative(value, out=np.empty_like(value)) for n, value in floats.items()}},
                "",
            )
        )
    batched = {name: value for name, value in examples.items() if value.ndim and 0 in framework.sizes.get(name, (0,))}
    if batched:
        wider = {name: np.resize(value, (len(value) + 1, *value.shape[1:])) for name, value in batched.items()}
        baked = next((f"the batch of `{n}` to {len(batched[n])}" for n in wider if n in fixed and fixed[n][0]), "")
        trials.append((f"a batch of {len(next(iter(wider.values())))}", {**examples, **wider}, baked))
    sizes = {
        (axis, examples[name].shape[axis])
        for name, axes in framework.sizes.items()
        for axis in axes
        if axis and axis < examples[name].ndim
    }
    for axis, size in sorted(sizes):
        longer, baked = dict(examples), ""
        for name, axes in framework.sizes.items():
            if axis in axes and axis < examples[name].ndim and examples[name].shape[axis] == size:
                longer[name] = np.take(examples[name], np.arange(size + _LONGER) % size, axis)
                if name in fixed and fixed[name][axis]:
                    baked = f"axis {axis} of `{name}` to {size}"
        trials.append((f"a size of {size + _LONGER} along axis {axis}", longer, baked))
    return trials
