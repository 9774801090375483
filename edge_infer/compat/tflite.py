"""The `Interpreter` of tflite_runtime and ai_edge_litert in a page; see `edge_infer.compat.install`.

The names, the results and the error texts are those of the native package; the engine is LiteRT.js, by `litert-web`.
"""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.backends.web.litert import LiteRTWebBackend
from edge_infer.compat.ort_errors import absent
from edge_infer.compat.ort_values import as_tensor, presented
from edge_infer.compat.tflite_details import detail_of
from edge_infer.errors import EdgeInferError, UnsupportedModel
from edge_infer.formats.tflite_tables import TfliteSignature, read_tables
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.backends.web.model import PageCall

__all__ = ["Interpreter", "InterpreterWithCustomOps", "OpResolverType", "SignatureRunner", "load_delegate"]

_NO_LIBRARIES = "WebAssembly loads no native libraries"
_ONE_KIND = "LiteRT.js has its own kernels and XNNPACK, and takes no others"
load_delegate = absent("load_delegate", _NO_LIBRARIES, "tflite_runtime")
InterpreterWithCustomOps = absent("InterpreterWithCustomOps", _ONE_KIND, "tflite_runtime")
Delegate = absent("Delegate", _NO_LIBRARIES, "tflite_runtime")
# Arguments of the native class that only ask for what happens here anyway where they have these values.
_ACCEPTED: dict[str, tuple[Any, ...]] = {
    "experimental_delegates": (None, [], ()),
    "experimental_preserve_all_tensors": (False,),
    "experimental_disable_delegate_clustering": (False,),
    "experimental_default_delegate_latest_features": (False,),
    "experimental_compress_quantization_zero_points": (False,),
    "experimental_disable_delegate_node_fusion": (False,),
    "experimental_force_delegate_node_profiling": (False,),
}


class OpResolverType(Enum):
    """Which kernels to use; in a page only the default."""

    AUTO = 0
    BUILTIN = 1
    BUILTIN_REF = 2
    BUILTIN_WITHOUT_DEFAULT_DELEGATES = 3


class Interpreter:
    """A loaded model.

    Args:
        model_path: A file of Python's file system.
        model_content: The bytes of a `.tflite` file, instead of a path.
        num_threads: As natively; where the engine, when it started, got another number, this warns.
        experimental_op_resolver_type: Only `AUTO` and `BUILTIN` can work in a page.
        **kwargs: Other arguments of the native class; those that ask for something else than the default cannot work.

    Raises:
        ValueError: There is no such file, or it is not a TFLite model.
        NotImplementedError: An argument cannot work in a page.
    """

    def __init__(
        self,
        model_path: str | os.PathLike[str] | None = None,
        model_content: bytes | None = None,
        num_threads: int | None = None,
        experimental_op_resolver_type: OpResolverType = OpResolverType.AUTO,
        **kwargs: Any,
    ) -> None:
        for name, value in kwargs.items():
            if name not in _ACCEPTED:
                raise TypeError(f"Interpreter.__init__() got an unexpected keyword argument '{name}'")
            if not any(value is one or value == one for one in _ACCEPTED[name]):
                raise NotImplementedError(f"Interpreter's `{name}` cannot work in a page: {_ONE_KIND}")
        if experimental_op_resolver_type not in (OpResolverType.AUTO, OpResolverType.BUILTIN):
            raise NotImplementedError(
                f"Interpreter's `experimental_op_resolver_type` {experimental_op_resolver_type} cannot work in a page: "
                f"{_ONE_KIND}"
            )
        content = _read(model_path, model_content)
        self._tables = read_tables(content)
        try:
            self._model = LiteRTWebBackend().open(content)
            if self._model.has_hidden_state:  # natively it stays from one `invoke` to the next
                self._keep_state()
        except UnsupportedModel as error:
            raise ValueError(error.message) from error
        _warn_of_threads(num_threads, self._model.placement.threads)
        self._specs = {spec.name: spec for spec in (*self._model.inputs, *self._model.outputs)}
        signature = self._signature_of_engine()
        # The engine calls tensors by the names of the first signature, the interpreter by number.
        self._inputs = {number: name for name, number in signature.inputs.items()}
        self._outputs = {number: name for name, number in signature.outputs.items()}
        self._shapes = {number: self._tables.tensors[number].shape for number in self._inputs}
        self._call: PageCall | None = None
        self._fed: dict[int, Tensor] = {}
        self._results: dict[int, Tensor] = {}

    def _signature_of_engine(self) -> TfliteSignature:
        if self._tables.signatures:
            return self._tables.signatures[0]
        tensors = self._tables.tensors
        sides = [
            {tensors[number].name: number for number in side} for side in (self._tables.inputs, self._tables.outputs)
        ]
        return TfliteSignature("serving_default", *sides)

    # -- what it is --

    def get_input_details(self) -> list[dict[str, Any]]:
        """Describe the inputs: `name`, `index`, `shape`, `shape_signature`, `dtype` and the quantization."""
        return [self._detail(number) for number in self._tables.inputs]

    def get_output_details(self) -> list[dict[str, Any]]:
        """Describe the outputs as `get_input_details` does the inputs."""
        return [self._detail(number) for number in self._tables.outputs]

    def get_tensor_details(self, subgraph_index: int = 0) -> list[dict[str, Any]]:
        """Describe all tensors of the main subgraph as the file does; inner ones cannot be read."""
        if subgraph_index != 0:
            raise NotImplementedError(f"Subgraph {subgraph_index} cannot be described in a page: only the main one, 0")
        return [self._detail(number) for number in range(len(self._tables.tensors))]

    def get_signature_list(self) -> dict[str, dict[str, list[str]]]:
        """Return the signatures: the names of inputs and outputs by key."""
        return {
            one.key: {"inputs": sorted(one.inputs), "outputs": sorted(one.outputs)} for one in self._tables.signatures
        }

    def get_signature_runner(self, signature_key: str | None = None) -> SignatureRunner:
        """Return a callable that takes and gives tensors by the names of a signature."""
        signatures = self._tables.signatures
        if signature_key is None:
            if len(signatures) != 1:
                raise ValueError(
                    "SignatureRunner needs a single signature, or the name of one: "
                    f"the model has {len(signatures)}: {[one.key for one in signatures]}"
                )
            return SignatureRunner(self, signatures[0])
        for place, one in enumerate(signatures):
            if one.key == signature_key:
                if place:
                    raise NotImplementedError(f'Signature "{signature_key}" cannot work in a page: only the first one')
                return SignatureRunner(self, one)
        raise ValueError(f'Invalid signature_key provided: "{signature_key}".')

    def _detail(self, number: int) -> dict[str, Any]:
        shape = self._results[number].shape if number in self._results else self._shapes.get(number)
        return detail_of(self._tables.tensors[number], number, shape)

    # -- running --

    def resize_tensor_input(self, input_index: int, tensor_size: Sequence[int], strict: bool = False) -> None:
        """Give an input another shape; `allocate_tensors` is needed after it.

        Raises:
            NotImplementedError: A dimension that the file fixes would change; natively only `strict` forbids that.
        """
        if input_index not in self._inputs:
            raise ValueError(
                f"Invalid tensor index {input_index} exceeds max tensor index {len(self._tables.tensors) - 1}"
            )
        shape = tuple(int(dim) for dim in tensor_size)
        signature = self._tables.tensors[input_index].signature
        for axis, (dim, fixed) in enumerate(zip(shape, signature, strict=False)):
            if dim == fixed or fixed == -1:
                continue
            if strict:
                raise RuntimeError(
                    f"Attempting to resize dimension {axis} of tensor {input_index} with value {fixed} to {dim}. "
                    "ResizeInputTensorStrict only allows mutating unknown dimensions identified by -1."
                )
            raise NotImplementedError(
                f"Dimension {axis} of input {input_index} cannot be {dim} in a page: the file fixes it to {fixed}, and "
                "LiteRT.js follows the file; convert the model with a free dimension"
            )
        if len(shape) != len(signature):
            raise NotImplementedError(
                f"Input {input_index} cannot get the rank {len(shape)} in a page: it has {len(signature)}"
            )
        self._shapes[input_index] = shape
        self._release()

    def allocate_tensors(self) -> None:
        """Make room for the tensors. Where an input has another shape than the file's, the model is compiled for it."""
        if self._call is not None:
            return
        try:
            shapes = {name: self._shapes[number] for number, name in self._inputs.items()}
            self._call = self._model.bind(shapes)
            # The shapes of outputs with free dimensions are known after a run.
            if any(not self._specs[name].is_fixed for name in self._outputs.values()):
                self._run()
                if self._model.has_hidden_state:
                    self._call.close()
                    self._keep_state()
                    self._call = self._model.bind(shapes)
        except EdgeInferError as error:
            raise RuntimeError(error.message) from error
        for number, name in self._outputs.items():
            if number not in self._results:
                spec = self._specs[name]
                shape = tuple(int(dim) for dim in spec.shape)
                self._results[number] = Tensor(bytearray(spec.dtype.nbytes(shape)), spec.dtype, shape)

    def set_tensor(self, tensor_index: int, value: Any) -> None:
        """Copy an array into an input; of the input's own type and shape."""
        if tensor_index not in self._inputs:
            self._check_index(tensor_index)
            raise NotImplementedError(f"Tensor {tensor_index} cannot be set in a page: it is not an input")
        if self._call is None:
            raise ValueError("Cannot set tensor: Tensor is unallocated. Try calling allocate_tensors() first")
        name = self._inputs[tensor_index]
        tensor = as_tensor(value)
        dtype, shape = self._specs[name].dtype, self._shapes[tensor_index]
        if tensor.dtype != dtype:
            raise ValueError(
                f"Cannot set tensor: Got value of type {str(tensor.dtype).upper()} but expected type "
                f"{str(dtype).upper()} for input {tensor_index}, name: {self._tables.tensors[tensor_index].name} "
            )
        if len(tensor.shape) != len(shape):
            raise ValueError(
                "Cannot set tensor: Dimension mismatch. "
                f"Got {len(tensor.shape)} but expected {len(shape)} for input {tensor_index}."
            )
        for axis, (got, expected) in enumerate(zip(tensor.shape, shape, strict=True)):
            if got != expected:
                raise ValueError(
                    f"Cannot set tensor: Dimension mismatch. Got {got} but expected {expected} "
                    f"for dimension {axis} of input {tensor_index}."
                )
        self._call.write(name, tensor)
        self._fed[tensor_index] = Tensor(bytearray(tensor.data()), dtype, shape)

    def invoke(self) -> None:
        """Run the model on what was set."""
        if self._call is None:
            raise RuntimeError("Invoke called on model that is not ready.")
        try:
            self._run()
        except EdgeInferError as error:
            raise RuntimeError(error.message) from error

    def _run(self) -> None:
        call = self._call
        assert call is not None
        call.run()
        self._results = {number: call.outputs[name] for number, name in self._outputs.items()}

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> Any:
        """Copy an output, or an input, out of the engine: a numpy array where numpy can be imported, else a Tensor."""
        self._check_index(tensor_index)
        if subgraph_index != 0 or tensor_index not in (*self._inputs, *self._outputs):
            raise NotImplementedError(
                f"Tensor {tensor_index} cannot be read in a page: LiteRT.js gives inputs and outputs out, and no others"
            )
        if self._call is None:
            raise ValueError("Tensor data is null. Run allocate_tensors() first")
        if tensor_index in self._results:
            found = self._results[tensor_index]
            return presented(Tensor(bytearray(found.data()), found.dtype, found.shape))
        spec, shape = self._specs[self._inputs[tensor_index]], self._shapes[tensor_index]
        given = self._fed.get(tensor_index)
        data = bytearray(given.data() if given is not None else spec.dtype.nbytes(shape))
        return presented(Tensor(data, spec.dtype, shape))

    def _check_index(self, number: int) -> None:
        if not 0 <= number < len(self._tables.tensors):
            raise ValueError(f"Invalid tensor index {number} exceeds max tensor index {len(self._tables.tensors) - 1}")

    def tensor(self, tensor_index: int) -> Any:
        """Not in a page."""
        raise NotImplementedError(
            f"`Interpreter.tensor({tensor_index})` cannot work in a page: the engine has a memory of its own, which "
            "Python cannot see; use get_tensor and set_tensor"
        )

    def reset_all_variables(self) -> None:
        """Do what it does natively to the models that LiteRT.js loads: nothing.

        It resets variable tensors, which LiteRT.js refuses, and no resource variables (VAR_HANDLE).
        """

    def _keep_state(self) -> None:
        first = self._model
        self._model = first.keeping_state()
        first.close()

    def _release(self) -> None:
        if self._call is not None:
            self._call.close()
        self._call = None
        self._fed, self._results = {}, {}

    def __del__(self) -> None:
        if hasattr(self, "_results"):
            self._release()
            self._model.close()


class SignatureRunner:
    """A model called by the names of a signature; made by `Interpreter.get_signature_runner`."""

    def __init__(self, interpreter: Interpreter, signature: TfliteSignature) -> None:
        self._interpreter = interpreter
        self._signature = signature

    def __call__(self, **kwargs: Any) -> dict[str, Any]:
        """Run the model; an input of another shape than before is resized.

        Args:
            **kwargs: A value for each input, by name.

        Returns:
            The outputs by name.
        """
        inputs = self._signature.inputs
        if len(kwargs) != len(inputs):
            raise ValueError(
                "Invalid number of inputs provided for running a SignatureDef, "
                f"expected {len(inputs)} vs provided {len(kwargs)}"
            )
        interpreter = self._interpreter
        tensors = {}
        for name, value in kwargs.items():
            if name not in inputs:
                raise ValueError(f"Invalid Input name ({name}) for SignatureDef")
            tensor = tensors[inputs[name]] = as_tensor(value)
            if tuple(tensor.shape) != interpreter._shapes[inputs[name]]:
                interpreter.resize_tensor_input(inputs[name], tensor.shape)
        interpreter.allocate_tensors()
        for number, tensor in tensors.items():
            interpreter.set_tensor(number, tensor)
        interpreter.invoke()
        return {name: interpreter.get_tensor(number) for name, number in self._signature.outputs.items()}

    def get_input_details(self) -> dict[str, dict[str, Any]]:
        """Describe the inputs by name."""
        return self._details(self._signature.inputs)

    def get_output_details(self) -> dict[str, dict[str, Any]]:
        """Describe the outputs by name."""
        return self._details(self._signature.outputs)

    def _details(self, side: Mapping[str, int]) -> dict[str, dict[str, Any]]:
        return {name: {**self._interpreter._detail(number), "name": name} for name, number in side.items()}


def _read(path: str | os.PathLike[str] | None, content: bytes | None) -> bytes:
    if content is not None and path is not None:
        raise ValueError("Can't both provide `model_path` and `model_content`")
    if content is not None:
        return bytes(content)
    if path is None:
        raise ValueError("`model_path` or `model_content` must be specified.")
    if not Path(path).is_file():
        raise ValueError(f"Could not open '{os.fspath(path)}'.")
    return Path(path).read_bytes()


def _warn_of_threads(asked: int | None, used: int) -> None:
    if asked is None or asked == used:
        return
    if asked < 1:
        raise ValueError("num_threads should >= 1")
    from warnings import warn

    warn(f"num_threads is {asked}, but the engine of this page started with {used}", UserWarning, stacklevel=3)
