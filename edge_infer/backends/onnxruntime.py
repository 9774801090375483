"""ONNX Runtime, natively: CPU and CUDA.

Where numpy is not imported a model on the CPU goes by the C interface (`onnxruntime_c.py`), which needs neither numpy
nor the Python binding. Elsewhere plain runs go through `InferenceSession.run`; kept tensors, `into` buffers and
prepared calls through IO binding, which skips the checks and allocations of a run (3.8 us against 10.7 us on an
identity model).
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from edge_infer.backends.base import Availability, Placement
from edge_infer.backends.onnxruntime_error import described
from edge_infer.dtypes import DType
from edge_infer.errors import BackendUnavailable, ExecutionError, InputError, UnsupportedError, UnsupportedModel
from edge_infer.platform import installed_version
from edge_infer.tensors import EngineTensor, Tensor, TensorSpec
from edge_infer.values import as_array, to_numpy, to_tensor

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from edge_infer.backends.base import Array, Runnable
    from edge_infer.errors import EdgeInferError
    from edge_infer.manifest import Variant

# ONNX Runtime's names of element types, and ONNX's numbers of those that numpy cannot carry into a session.
_DTYPES = {
    "tensor(float)": DType.FLOAT32,
    "tensor(double)": DType.FLOAT64,
    "tensor(float16)": DType.FLOAT16,
    "tensor(bfloat16)": DType.BFLOAT16,
    "tensor(int4)": DType.INT4,
    "tensor(uint4)": DType.UINT4,
    "tensor(int8)": DType.INT8,
    "tensor(uint8)": DType.UINT8,
    "tensor(int16)": DType.INT16,
    "tensor(uint16)": DType.UINT16,
    "tensor(int32)": DType.INT32,
    "tensor(uint32)": DType.UINT32,
    "tensor(int64)": DType.INT64,
    "tensor(uint64)": DType.UINT64,
    "tensor(bool)": DType.BOOL,
    "tensor(string)": DType.STRING,
}
_ONNX_TYPE = {DType.BFLOAT16: 16, DType.UINT4: 21, DType.INT4: 22}
_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


class OnnxRuntimeBackend:
    """The adapter of the `onnxruntime` package."""

    name = "onnxruntime"
    formats = ("onnx",)

    def availability(self) -> Availability:
        """Say whether `onnxruntime` is installed, and whether it brings CUDA; imports nothing."""
        if sys.platform == "emscripten":
            return Availability(False, reason="has no build for Pyodide; `ort-web` runs there")
        spec = find_spec("onnxruntime")
        if spec is None or spec.origin is None:
            from edge_infer.backends.onnxruntime_api import library_path

            if library_path() is not None:  # what `edge-infer slim` leaves of the package
                return Availability(True, ("cpu",))
            return Availability(False, reason="not installed", hint="pip install 'edge-infer[onnxruntime]'")
        libraries = Path(spec.origin).parent / "capi"
        has_cuda = any(libraries.glob("*onnxruntime_providers_cuda*"))
        return Availability(True, ("cpu", "cuda") if has_cuda else ("cpu",))

    def version(self) -> str:
        """Return the version of ONNX Runtime."""
        number = installed_version("onnxruntime", "onnxruntime", "onnxruntime-gpu")
        if number or not self.availability().ready:
            return number
        from edge_infer.backends.onnxruntime_api import load_api

        return load_api().version

    async def start(self) -> None:
        """Do nothing: it starts when it is imported."""

    def prepare(self, model: Path | bytes, variant: Variant, *, device: str, options: Mapping[str, str]) -> Runnable:
        """Load a model; see `Backend.prepare`."""
        unfit: EdgeInferError | None = None
        if device == "cpu" and "numpy" not in sys.modules:
            from edge_infer.backends.onnxruntime_c import load_model

            try:
                return load_model(model, variant, options)
            except (BackendUnavailable, UnsupportedError) as error:
                unfit = error
        try:
            import onnxruntime
        except ImportError as error:
            if unfit is not None:
                raise unfit from error
            raise BackendUnavailable(
                f"onnxruntime cannot be imported: {error}", hint="pip install --force-reinstall onnxruntime"
            ) from error
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 4  # fatal: what it says of an error comes with its exception
        for key, value in options.items():
            if key == "intra_op_threads":  # a field of its own, no session entry
                settings.intra_op_num_threads = int(value)
            else:
                settings.add_session_config_entry(key, value)
        kind, _, index = device.partition(":")
        providers: list[Any] = [(_PROVIDERS["cuda"], {"device_id": index or "0"})] if kind == "cuda" else []
        with _translated(f"load `{variant.file}`", UnsupportedModel):
            session = onnxruntime.InferenceSession(
                model if isinstance(model, bytes) else str(model),
                sess_options=settings,
                providers=[*providers, _PROVIDERS["cpu"]],
            )
        return OnnxRuntimeModel(session, kind)


class OnnxRuntimeModel:
    """A loaded ONNX Runtime session."""

    is_thread_safe = True

    def __init__(self, session: Any, device: str) -> None:
        self._session = session
        self.inputs = tuple(_spec(node) for node in session.get_inputs())
        self.outputs = tuple(_spec(node) for node in session.get_outputs())
        # Values that numpy cannot carry into or out of `InferenceSession.run` take the way of IO binding.
        self._needs_binding = any(spec.dtype in _ONNX_TYPE for spec in (*self.inputs, *self.outputs))
        providers = tuple(session.get_providers())
        used = "cuda" if _PROVIDERS["cuda"] in providers else "cpu"
        fallbacks = (
            () if used == device else (f"CUDA could not be started, so the CPU is used ({', '.join(providers)})",)
        )
        threads = session.get_session_options().intra_op_num_threads
        self.placement = Placement(used, threads, providers, fallbacks)

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model; see `Runnable.run`."""
        session = self._session
        if session is None:
            raise InputError("The session is closed", hint="load the model again")
        for name, value in feeds.items():
            if isinstance(value, Tensor):
                if self._needs_binding or value.location != "host":
                    break
                feeds = {**feeds, name: to_numpy(value)}
        else:
            if not (into or keep or self._needs_binding):
                try:
                    return dict(zip(outputs, session.run(outputs, feeds), strict=True))
                except Exception as error:
                    raise _translate(error, "run the model", ExecutionError) from error
        return self._run_bound(session, feeds, outputs, into, keep)

    def _run_bound(
        self,
        session: Any,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        into: Mapping[str, Array],
        keep: Collection[str],
    ) -> dict[str, Array]:
        import onnxruntime

        texts = [spec.name for spec in (*self.inputs, *self.outputs) if spec.dtype is DType.STRING]
        refused = [name for name in texts if name in feeds or name in keep]
        if refused:
            raise UnsupportedError(
                f"onnxruntime runs `{refused[0]}`, which is of strings, neither with kept tensors nor into buffers",
                hint="run it without `keep` and `into`",
                tensor=refused[0],
            )
        binding = session.io_binding()
        held = {name: _to_ort_value(value) for name, value in feeds.items()}
        with _translated("run the model", ExecutionError):
            for name, value in held.items():
                binding.bind_ortvalue_input(name, value)
            for name in outputs:
                target = into.get(name)
                if isinstance(target, OrtTensor):
                    binding.bind_ortvalue_output(name, target.value())
                elif target is not None:
                    binding.bind_ortvalue_output(name, onnxruntime.OrtValue.ortvalue_from_numpy(as_array(target)))
                else:
                    binding.bind_output(name, "cpu")
            session.run_with_iobinding(binding)
            values = dict(zip(outputs, binding.get_outputs(), strict=True))
        results: dict[str, Array] = {}
        for name, value in values.items():
            if name in into:
                results[name] = into[name]
            else:
                results[name] = OrtTensor(value) if name in keep else _from_ort_value(value)
        return results

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> OnnxRuntimeCall:
        """Make a call with an input buffer of each of these shapes; see `Runnable.bind`."""
        return OnnxRuntimeCall(self._session, self.inputs, self.outputs, shapes)

    def close(self) -> None:
        """Give back the session's memory."""
        self._session = None


class OnnxRuntimeCall:
    """A run through IO binding over numpy buffers that are used again."""

    def __init__(
        self,
        session: Any,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        import numpy

        self._session = session
        self._binding = session.io_binding()
        #: The engine knows these by address only: they must live as long as the binding, whatever happens outside.
        self._buffers: dict[str, Array] = {}
        self._bound: list[Array] = []
        self.outputs: dict[str, Array] = {}
        for spec in inputs:
            self._refuse_unbindable(spec)
            buffer = numpy.zeros(shapes[spec.name], str(spec.dtype))
            self._binding.bind_input(spec.name, "cpu", 0, buffer.dtype.type, buffer.shape, buffer.ctypes.data)
            self._buffers[spec.name] = buffer
        self.inputs: Mapping[str, Array] = MappingProxyType(self._buffers)
        self._fill = {name: buffer.__setitem__ for name, buffer in self._buffers.items()}
        sizes = {
            dim: size
            for spec in inputs
            for dim, size in zip(spec.shape, shapes[spec.name], strict=True)
            if isinstance(dim, str)
        }
        #: Outputs whose shape the inputs do not tell: the engine allocates them anew at each run.
        self._allocated: list[str] = []
        for spec in outputs:
            self._refuse_unbindable(spec)
            known = (sizes.get(dim) if isinstance(dim, str) else dim for dim in spec.shape)
            shape = tuple(dim for dim in known if dim is not None)
            if spec.shape and len(shape) == len(spec.shape):
                buffer = numpy.zeros(shape, str(spec.dtype))
                self._binding.bind_output(spec.name, "cpu", 0, buffer.dtype.type, shape, buffer.ctypes.data)
                self.outputs[spec.name] = buffer
                self._bound.append(buffer)
            else:
                self._binding.bind_output(spec.name, "cpu")
                self._allocated.append(spec.name)
        self._order = [spec.name for spec in outputs]
        self._run = session.run_with_iobinding

    @staticmethod
    def _refuse_unbindable(spec: TensorSpec) -> None:
        if spec.dtype in _ONNX_TYPE or spec.dtype is DType.STRING:
            raise InputError(
                f"`{spec.name}` is {spec.dtype}, which a prepared call does not take", hint="call `session.run`"
            )

    def write(self, name: str, value: Array) -> None:
        """Copy a value into an input buffer."""
        if isinstance(value, Tensor):
            value = to_numpy(value.to_host())
        self._fill[name](..., value)

    def run(self) -> None:
        """Run the model on what the buffers hold."""
        if self._allocated:
            for name in self._allocated:
                self._binding.bind_output(name, "cpu")  # else the buffer of the last run would have to fit
        try:
            self._run(self._binding)
        except Exception as error:
            raise _translate(error, "run the model", ExecutionError) from error
        if self._allocated:
            values = dict(zip(self._order, self._binding.get_outputs(), strict=True))
            self.outputs = {**self.outputs, **{name: values[name].numpy() for name in self._allocated}}

    def close(self) -> None:
        """Give the buffers back."""
        self._binding.clear_binding_inputs()
        self._binding.clear_binding_outputs()
        self._buffers.clear()
        self._fill.clear()
        self._bound.clear()
        self.outputs = {}


class OrtTensor(EngineTensor):
    """An output that stays in ONNX Runtime's memory."""

    def __init__(self, value: Any) -> None:
        super().__init__(_DTYPES[value.data_type()], value.shape())
        self._value = value

    def value(self) -> Any:
        """Return the `onnxruntime.OrtValue` behind it.

        Raises:
            InputError: The tensor was closed.
        """
        if self._value is None:
            raise InputError("The tensor is closed: its memory was given back", hint="keep it open until it is read")
        return self._value

    def to_host(self) -> Tensor:
        """Copy the data to host memory; see `EngineTensor.to_host`."""
        host = _from_ort_value(self.value())
        return host if isinstance(host, Tensor) else to_tensor(host)

    def close(self) -> None:
        """Give back the engine's memory."""
        self._value = None


def _spec(node: Any) -> TensorSpec:
    dtype = _DTYPES.get(node.type)
    if dtype is None:
        raise UnsupportedModel(
            f"`{node.name}` is a {node.type}, expected a tensor of a known dtype",
            hint="a classifier of scikit-learn gives sequences of maps: convert it with `options={'zipmap': False}`"
            if "map" in node.type
            else "",
            tensor=node.name,
        )
    dims = [dim if dim is not None else f"{node.name}_{i}" for i, dim in enumerate(node.shape)]
    # Its API shows a scalar and a tensor of unknown rank alike: no dimensions.
    return TensorSpec(node.name, dtype, dims, is_rank_known=bool(dims))


def _to_ort_value(value: Array) -> Any:
    import ctypes

    import onnxruntime

    make = onnxruntime.OrtValue
    if isinstance(value, OrtTensor):
        return value.value()
    if isinstance(value, Tensor):
        value = value.to_host()
        if value.dtype not in _ONNX_TYPE:
            return make.ortvalue_from_numpy(to_numpy(value))
    elif value.dtype.name not in _ONNX_TYPE:
        return make.ortvalue_from_numpy(value)
    tensor = value if isinstance(value, Tensor) else to_tensor(value)
    ort_value = make.ortvalue_from_shape_and_type(list(tensor.shape), _ONNX_TYPE[tensor.dtype])
    ctypes.memmove(ort_value.data_ptr(), bytes(tensor.data()), tensor.nbytes)
    return ort_value


def _from_ort_value(value: Any) -> Array:
    dtype = _DTYPES[value.data_type()]
    if dtype not in _ONNX_TYPE:
        return value.numpy()
    import ctypes

    shape = tuple(value.shape())
    return Tensor(bytearray(ctypes.string_at(value.data_ptr(), dtype.nbytes(shape))), dtype, shape)


@contextmanager
def _translated(doing: str, error_class: type[UnsupportedModel | ExecutionError]) -> Iterator[None]:
    """Turn ONNX Runtime's exceptions into ours."""
    try:
        yield
    except Exception as error:
        raise _translate(error, doing, error_class) from error


def _translate(error: Exception, doing: str, error_class: type[UnsupportedModel | ExecutionError]) -> Exception:
    kind = type(error)
    if not (kind.__module__.startswith("onnxruntime") or isinstance(error, (RuntimeError, ValueError, TypeError))):
        return error
    if isinstance(error, InputError):
        return error
    said = " ".join(str(error).split())
    text = said.split(": ", 2)[-1] if said.startswith("[ONNXRuntimeError]") else said
    return described(kind.__name__, text, doing, error_class)
