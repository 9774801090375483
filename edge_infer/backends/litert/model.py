"""A model in a LiteRT interpreter: its runs, its prepared calls, and the floats that its integers stand for."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.backends.base import Placement, Runnable
from edge_infer.errors import ExecutionError, InputError, OutOfMemory, UnsupportedModel
from edge_infer.formats.tflite_tables import end_names, hidden_state
from edge_infer.tensors.arrays import fill, to_numpy
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from edge_infer.bundle.variant import Variant
    from edge_infer.tensors.tensor import Array


class LiteRTModel(Runnable):
    """A loaded LiteRT interpreter."""

    def __init__(
        self,
        interpreter_class: Any,
        content: bytes,
        variant: Variant,
        threads: int,
        *,
        is_float: bool = False,
        keeps_state: bool = False,
    ) -> None:
        self._make: Callable[[], Any] = lambda: interpreter_class(model_content=content, num_threads=threads)
        self._again: Callable[[], LiteRTModel] = lambda: LiteRTModel(
            interpreter_class, content, variant, threads, is_float=is_float, keeps_state=True
        )
        self._state = hidden_state(content)
        self.has_hidden_state = self._state != ""
        self._keeps_state = keeps_state
        self._has_run = False
        with _translated(f"load `{variant.file}`", UnsupportedModel):
            self._interpreter = self._make()
            is_ready = _allocate(self._interpreter)
            if not is_ready:
                self._interpreter = self._make()
            self._inputs, self._outputs = _named_details(self._interpreter)
        every = (*self._inputs.items(), *self._outputs.items())
        self._scales = {name: scale for name, detail in every if (scale := _scale(detail))} if is_float else {}
        self.inputs = tuple(_spec(name, detail, name in self._scales) for name, detail in self._inputs.items())
        self.outputs = tuple(_spec(name, detail, name in self._scales) for name, detail in self._outputs.items())
        self.placement = Placement("cpu", threads, ("LiteRT",))
        self._shapes = {name: tuple(detail["shape"]) for name, detail in self._inputs.items()} if is_ready else {}

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model; see `Runnable.run`. It has no memory of its own to keep tensors in: they are host tensors."""
        del keep
        arrays = {name: _quantized(_as_array(value), self._scales.get(name)) for name, value in feeds.items()}
        with _translated("run the model", ExecutionError):
            interpreter = self._started({name: array.shape for name, array in arrays.items()})
            for name, array in arrays.items():
                interpreter.set_tensor(self._inputs[name]["index"], array)
            self._has_run = True
            interpreter.invoke()
            results = {
                name: _dequantized(interpreter.get_tensor(self._outputs[name]["index"]), self._scales.get(name))
                for name in outputs
            }
        for name, target in into.items():
            fill(name, target, results[name])
            results[name] = target
        return results

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> LiteRTCall:
        """Make a call with its own interpreter for these shapes; see `Runnable.bind`."""

        def make() -> Any:
            interpreter = self._make()
            for name, shape in shapes.items():
                interpreter.resize_tensor_input(self._inputs[name]["index"], shape)
            interpreter.allocate_tensors()
            return interpreter

        with _translated("load the model for a prepared call", UnsupportedModel):
            return LiteRTCall(make, self._inputs, self._outputs, self._scales, self._state)

    def keeping_state(self) -> LiteRTModel:
        """Make a second model whose state stays from run to run; see `Runnable.keeping_state`."""
        return self._again()

    def close(self) -> None:
        """Give back the interpreter's memory."""
        self._interpreter = None

    def _started(self, shapes: Mapping[str, tuple[int, ...]]) -> Any:
        """Return the interpreter for these shapes, with the state that the run starts from."""
        if self._has_run and self._state and not self._keeps_state:
            if self._state == "resources":  # no interpreter resets these
                self._shapes = {}
                self._interpreter = self._make()
                self._interpreter.allocate_tensors()
                self._shapes = {name: tuple(detail["shape"]) for name, detail in self._inputs.items()}
            else:
                self._interpreter.reset_all_variables()
        elif self._has_run and self._keeps_state and shapes != self._shapes:
            raise InputError(
                f"The inputs of a stream have the shapes {dict(self._shapes)}, now {dict(shapes)}",
                hint="open another stream: the model keeps its state for one set of shapes",
            )
        self._resize(shapes)
        return self._interpreter

    def _resize(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Give the inputs their shapes; where one changes, the interpreter plans its memory anew."""
        for name, shape in shapes.items():
            if 0 in shape:
                raise InputError(
                    f"Input `{name}` has shape {shape}, which has no element: LiteRT cannot run on it",
                    hint="skip the call, or use an onnx variant",
                    input=name,
                )
        if shapes == self._shapes:
            return
        self._shapes = {}  # until all is allocated the interpreter fits no shape
        for name, shape in shapes.items():
            self._interpreter.resize_tensor_input(self._inputs[name]["index"], shape)
        self._interpreter.allocate_tensors()
        self._shapes = dict(shapes)


class LiteRTWithInnerValues(LiteRTModel):
    """A model whose outputs are all values, each under its name of `TFLiteFile.value_names`."""

    def __init__(self, interpreter_class: Any, content: bytes, *arguments: Any, **wishes: Any) -> None:
        super().__init__(interpreter_class, content, *arguments, **wishes)
        from edge_infer.formats import tflite

        file = tflite.read(content)
        names = file.value_names()
        details = {detail["index"]: detail for detail in self._interpreter.get_tensor_details()}
        made = dict.fromkeys(i for operator in file.operators for i in operator.outputs if i >= 0)
        inner = {names[i]: details[i] for i in made if names[i] not in self._outputs and i in details}
        self._outputs = {**self._outputs, **inner}
        self._scales.update({name: scale for name, detail in inner.items() if (scale := _scale(detail))})
        self.outputs += tuple(_spec(name, detail, name in self._scales) for name, detail in inner.items())


class LiteRTCall:
    """A run on an interpreter of its own with fixed shapes."""

    def __init__(
        self,
        make: Callable[[], Any],
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        scales: Mapping[str, _Scale],
        state: str,
    ) -> None:
        import numpy

        self._make = make
        self._state = state
        self._has_run = False
        interpreter = self._interpreter = make()
        self._copy = numpy.copyto
        self._scales = scales
        self._inputs = [(detail["index"], name) for name, detail in inputs.items()]
        self._outputs = [(detail["index"], name) for name, detail in outputs.items()]
        self.inputs: dict[str, Array] = {
            name: numpy.zeros_like(_dequantized(interpreter.get_tensor(index), scales.get(name)))
            for index, name in self._inputs
        }
        self.outputs: dict[str, Array] = {
            name: numpy.zeros_like(_dequantized(interpreter.get_tensor(index), scales.get(name)))
            for index, name in self._outputs
        }

    def write(self, name: str, value: Array) -> None:
        """Copy a value into an input buffer."""
        self._copy(self.inputs[name], _as_array(value))

    def run(self) -> None:
        """Run the model on what the buffers hold."""
        with _translated("run the model", ExecutionError):
            if self._has_run and self._state == "resources":
                self._interpreter = self._make()
            elif self._has_run and self._state:
                self._interpreter.reset_all_variables()
            self._has_run = True
            interpreter = self._interpreter
            for index, name in self._inputs:
                interpreter.set_tensor(index, _quantized(self.inputs[name], self._scales.get(name)))
            interpreter.invoke()
            for index, name in self._outputs:
                result = _dequantized(interpreter.get_tensor(index), self._scales.get(name))
                if result.shape == self.outputs[name].shape:
                    self._copy(self.outputs[name], result)
                else:
                    self.outputs = {**self.outputs, name: result}

    def close(self) -> None:
        """Give the interpreter and the buffers back."""
        self._interpreter = None
        self.inputs = {}
        self.outputs = {}


def _allocate(interpreter: Any) -> bool:
    """Plan the memory for the sizes of the file; False where a model with free dimensions does not run with these.

    A free dimension is stored as 1, which is too short for a convolution over frames of sound: the first run sets its
    size.
    """
    try:
        interpreter.allocate_tensors()
    except (RuntimeError, ValueError):
        if any(dim < 0 for one in interpreter.get_input_details() for dim in one["shape_signature"]):
            return False
        raise
    return True


def _named_details(interpreter: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the details of inputs and outputs by name, from the first signature where there is one."""
    signatures = interpreter.get_signature_list()
    if signatures:
        runner = interpreter.get_signature_runner(next(iter(signatures)))
        return dict(runner.get_input_details()), dict(runner.get_output_details())
    inputs, outputs = (
        dict(zip(end_names((detail["name"] for detail in side), kind), map(dict, side), strict=True))
        for kind, side in (("input", interpreter.get_input_details()), ("output", interpreter.get_output_details()))
    )
    return inputs, outputs


class _Scale(NamedTuple):
    """The meaning of an input's or output's integers: step * (integer - zero)."""

    step: float
    zero: int
    dtype: Any


def _scale(detail: Mapping[str, Any]) -> _Scale | None:
    step, zero = detail["quantization"]
    return _Scale(step, zero, detail["dtype"]) if step else None


def _quantized(array: Array, scale: _Scale | None) -> Any:
    if scale is None:
        return array
    import numpy

    limits = numpy.iinfo(scale.dtype)
    values = numpy.rint(numpy.asarray(array) / scale.step) + scale.zero
    return numpy.clip(values, limits.min, limits.max).astype(scale.dtype)


def _dequantized(array: Any, scale: _Scale | None) -> Any:
    if scale is None:
        return array
    import numpy

    return (array.astype(numpy.float32) - numpy.float32(scale.zero)) * numpy.float32(scale.step)


def _spec(name: str, detail: Mapping[str, Any], is_float: bool = False) -> TensorSpec:
    import numpy

    try:
        dtype = DType.FLOAT32 if is_float else DType.parse(numpy.dtype(detail["dtype"]).name)
    except InputError as error:
        raise UnsupportedModel(
            f"`{name}` is {detail['dtype']}, expected a tensor of a known dtype", tensor=name
        ) from error
    signature = detail.get("shape_signature")
    shape = signature if signature is not None and len(signature) == len(detail["shape"]) else detail["shape"]
    return TensorSpec(name, dtype, [int(dim) if dim >= 0 else f"{name}_{i}" for i, dim in enumerate(shape)])


def _as_array(value: Array) -> Array:
    return to_numpy(value.to_host()) if isinstance(value, Tensor) else value


@contextmanager
def _translated(doing: str, error_class: type[UnsupportedModel | ExecutionError]) -> Iterator[None]:
    """Turn the interpreter's exceptions into ours."""
    try:
        yield
    except (RuntimeError, ValueError, KeyError) as error:
        if isinstance(error, InputError):
            raise
        text = " ".join(str(error).split())
        if "failed to allocate" in text.lower() or "bad_alloc" in text:
            raise OutOfMemory(
                f"litert cannot {doing}: {text}", hint="a smaller batch, or a smaller variant", engine_error=text
            ) from error
        hint = ""
        if "ustom op" in text or "unresolved" in text:
            hint = "an operator of the model is not built into LiteRT"
        elif error_class is UnsupportedModel:
            hint = "the file is cut short or no TFLite model: fetch or convert it again"
        raise error_class(f"litert cannot {doing}: {text}", hint=hint, engine_error=type(error).__name__) from error
