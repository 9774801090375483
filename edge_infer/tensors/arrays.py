"""Inputs of a session, checked against their specs, and its outputs, as numpy arrays or Tensors.

An input is never cast: a `numpy.ndarray` or a `Tensor` is taken unchanged, any other buffer is wrapped
without a copy, nested lists (which have no dtype) are packed in the spec's.
"""

from __future__ import annotations

import sys
from math import prod

from edge_infer.errors import InputError, did_you_mean, listed
from edge_infer.platform import installed
from edge_infer.tensors.dtypes import DType, dtype_of_buffer
from edge_infer.tensors.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from edge_infer.tensors.tensor import Array, TensorSpec

#: numpy has no such dtypes of its own; the package ml_dtypes adds them, one element in each byte or two.
EXTENDED = (DType.BFLOAT16, DType.INT4, DType.UINT4)
# DLPack's number of host memory (DLDeviceType in dlpack.h).
_HOST = 1
#: What `to_tensor` has read of numpy's dtypes: their names take numpy 6 us.
_DTYPE_OF: dict[Any, DType] = {}
_PLAIN = (int, float, str, bool, list, tuple)


def has_numpy() -> bool:
    """Tell whether numpy can be imported, without importing it."""
    return "numpy" in sys.modules or installed.origin_of("numpy") is not None


class InputChecker:
    """Checks the inputs of a run against the specs: names, dtypes, ranks, fixed dimensions.

    Args:
        specs: What the model expects.
        shapes: The exact shape of each input, for a prepared call.
        adopt: Takes a device's tensor of another library without a copy; None where the engine cannot.
    """

    def __init__(
        self,
        specs: Sequence[TensorSpec],
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        adopt: Callable[[Any], Tensor] | None = None,
    ) -> None:
        self._adopt = adopt
        self._specs = tuple((spec.name, spec) for spec in specs)
        #: The shape that each input must have, where only one is right.
        self._exact: dict[str, tuple[Any, ...]] = {spec.name: spec.shape for spec in specs if spec.is_fixed}
        self._exact.update(shapes or {})
        self._passed: dict[str, tuple[Any, Any]] = dict.fromkeys(dict(self._specs), (None, None))
        self._ndarray: Any = None

    def __call__(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Return the inputs, each a `numpy.ndarray` or a `Tensor` that fits its spec.

        Raises:
            InputError: One is missing, unknown, of another dtype or shape.
        """
        feeds: dict[str, Array] = {}
        ndarray = self._ndarray or self._find_ndarray()
        try:
            for name, spec in self._specs:
                value = inputs[name]
                if type(value) is ndarray:
                    # An array of the dtype and shape that the last check let through needs no second one.
                    dtype, shape = self._passed[name]
                    if value.dtype is not dtype or value.shape != shape:
                        self._check(spec, value.dtype.name, value.shape, value.dtype)
                        if value.dtype.kind == "O":
                            _check_texts(spec, value)
                        else:
                            self._passed[name] = (value.dtype, value.shape)
                    feeds[name] = value
                else:
                    tensor = value if isinstance(value, Tensor) else self._wrap(spec, value)
                    if tensor.dtype is not spec.dtype or tensor.shape != self._exact.get(name):
                        self._check(spec, str(tensor.dtype), tensor.shape)
                    feeds[name] = tensor
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise self._malformed(inputs) or error from None
        if len(inputs) != len(feeds):
            self.refuse_unknown(list(inputs))
        return feeds

    def _find_ndarray(self) -> Any:
        """Return `numpy.ndarray` if numpy has been imported: then, and only then, can a value be one."""
        self._ndarray = getattr(sys.modules.get("numpy"), "ndarray", None)
        return self._ndarray

    def refuse_unknown(self, names: Sequence[str]) -> None:
        """Raise for the first name that is not an input.

        Raises:
            InputError: There is one.
        """
        known = [name for name, _ in self._specs]
        for name in names:
            if name not in known:
                raise InputError(
                    f"Input `{name}` is not known; choose from {listed(known)}",
                    hint=did_you_mean(str(name), known),
                    input=str(name),
                    allowed=known,
                )

    def _malformed(self, inputs: Any) -> InputError | None:
        """Describe inputs that are not a mapping, or lack a name; None where the fault is elsewhere."""
        specs = dict(self._specs)
        known = list(specs)
        if not hasattr(inputs, "keys"):
            example = f'{{"{known[0]}": ...}}' if known else "{}"
            return InputError(
                f"Inputs are a {type(inputs).__name__}, expected a mapping from name to array",
                hint=f"session.run({example})",
                allowed=known,
            )
        missing = [name for name in known if name not in inputs]
        if not missing:
            return None
        unknown = [str(name) for name in inputs if name not in specs]
        if unknown:
            return InputError(
                f"Input `{unknown[0]}` is not known; choose from {listed(known)}",
                hint=did_you_mean(unknown[0], missing) or f"the model needs {specs[missing[0]]}",
                input=unknown[0],
                allowed=known,
            )
        spec = specs[missing[0]]
        return InputError(f"Input `{spec.name}` is missing", hint=f"the model needs {spec}", input=spec.name)

    def _check(self, spec: TensorSpec, dtype: str, shape: tuple[int, ...], numpy_dtype: Any = None) -> None:
        if dtype != spec.dtype and not (spec.dtype is DType.STRING and (dtype == "object" or dtype.startswith("str"))):
            raise _wrong_dtype(spec, dtype)
        if numpy_dtype is not None and not numpy_dtype.isnative:
            raise InputError(
                f"Input `{spec.name}` has the other byte order, expected this machine's",
                hint=f"pass `{spec.name}.astype('{spec.dtype}')`",
                input=spec.name,
            )
        exact = self._exact.get(spec.name)
        if shape != exact if exact is not None else not spec.accepts(shape):
            raise _wrong_shape(spec, exact, shape)

    def _wrap(self, spec: TensorSpec, value: Any) -> Tensor:
        if type(value) in _PLAIN:  # numpy's scalars are floats too, and have a dtype
            try:
                return Tensor.from_list(value, spec.dtype)
            except InputError as error:
                raise InputError(
                    f"Input `{spec.name}`: {error.message}", hint=f"expected {spec}", input=spec.name
                ) from error
        if spec.dtype is DType.STRING:
            raise InputError(
                f"Input `{spec.name}` is a {type(value).__name__}, expected texts in nested lists or a numpy array",
                input=spec.name,
            )
        if hasattr(value, "mask"):  # its buffer is the data behind the mask
            raise InputError(
                f"Input `{spec.name}` is a masked array, whose mask a model does not see",
                hint=f"pass `{spec.name}.filled(0)`",
                input=spec.name,
            )
        if self._adopt is not None and hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] != _HOST:
            return self._adopt(value)
        try:
            view = memoryview(value)
        except TypeError:
            hint = "pass `x.detach().cpu().numpy()`" if hasattr(value, "numpy") else f"expected {spec}"
            raise InputError(
                f"Input `{spec.name}` is a {type(value).__name__}, expected an array, a buffer or nested lists",
                hint=hint,
                input=spec.name,
            ) from None
        if isinstance(value, (bytes, bytearray)) and (spec.dtype is not DType.UINT8 or len(spec.shape) != 1):
            return Tensor(view, spec.dtype, _shape_of_bytes(spec, self._exact.get(spec.name), view.nbytes))
        dtype = dtype_of_buffer(view)
        if spec.dtype in (DType.FLOAT16, DType.BFLOAT16) and dtype is DType.UINT16 and not hasattr(value, "dtype"):
            dtype = spec.dtype  # the bits of half precision, as buffers that cannot say so carry them
        if dtype is None:
            raise _wrong_dtype(spec, f"buffer format {view.format!r}")
        return Tensor(view if view.c_contiguous else view.tobytes(), dtype, view.shape or ())


def _check_texts(spec: TensorSpec, value: Any) -> None:
    for element in value.flat:
        if not isinstance(element, str):
            raise InputError(f"Input `{spec.name}` has an element {element!r}, expected texts", input=spec.name)


def check_target(spec: TensorSpec, target: Any) -> None:
    """Check a buffer that an output is to be written into.

    Args:
        spec: The output.
        target: A `numpy.ndarray`, a `Tensor`, or another object with the buffer protocol.

    Raises:
        InputError: It has another dtype or shape, is read-only or not contiguous, or the output is of strings.
    """
    if spec.dtype is DType.STRING:
        raise InputError(f"Output `{spec.name}` is of strings, which go into no buffer", output=spec.name)
    if isinstance(target, Tensor):
        if target.location != "host":
            return
        view, dtype, shape = target.data(), str(target.dtype), target.shape
    else:
        try:
            view = memoryview(target)
        except (TypeError, ValueError):
            raise InputError(
                f"The buffer for output `{spec.name}` is a {type(target).__name__}",
                hint=f"numpy.empty(shape, '{spec.dtype}')",
                output=spec.name,
            ) from None
        own = getattr(target, "dtype", None)
        dtype = own.name if own is not None else str(dtype_of_buffer(view))
        shape = tuple(view.shape or ())
    if dtype != spec.dtype or not spec.accepts(shape):
        raise InputError(
            f"The buffer for output `{spec.name}` is {dtype}{list(shape)}, expected {spec}",
            hint=f"numpy.empty(shape, '{spec.dtype}')",
            output=spec.name,
        )
    if view.readonly or not view.c_contiguous:
        raise InputError(f"The buffer for output `{spec.name}` is read-only or not contiguous", output=spec.name)


def writable_bytes(name: str, target: Array, dtype: DType, shape: tuple[int, ...]) -> memoryview:
    """Check the buffer for an output and return its bytes.

    Raises:
        InputError: It is of another dtype or shape, read-only, or not contiguous.
    """
    got_dtype, got_shape = getattr(target, "dtype", dtype), tuple(getattr(target, "shape", shape))
    view = target.data() if isinstance(target, Tensor) else memoryview(target)
    if str(got_dtype) != dtype or got_shape != shape or view.nbytes != dtype.nbytes(shape):
        raise InputError(
            f"The buffer for output `{name}` is {got_dtype}{list(got_shape)}, expected {dtype}{list(shape)}",
            hint=f"edge_infer.Tensor(bytearray({dtype.nbytes(shape)}), '{dtype}', {shape})",
            output=name,
        )
    if view.readonly or not view.c_contiguous:
        raise InputError(f"The buffer for output `{name}` is read-only or not contiguous", output=name)
    return view.cast("B") if view.nbytes else memoryview(bytearray())  # Python casts no view of nothing


def as_array(target: Any) -> Any:
    """Return a checked buffer as a numpy array over the same memory."""
    import numpy

    return to_numpy(target) if isinstance(target, Tensor) else numpy.asarray(target)


def fill(name: str, target: Any, result: Any) -> None:
    """Copy a result into a checked buffer.

    Raises:
        InputError: The result has another shape than the buffer.
    """
    array = as_array(target)
    if array.shape != result.shape:
        raise InputError(
            f"The buffer for output `{name}` has shape {array.shape}, the result {result.shape}", output=name
        )
    array[...] = result


def present(results: dict[str, Array], arrays: str) -> dict[str, Array]:
    """Return outputs as the session's kind of array; tensors that stay in the engine stay tensors.

    Args:
        results: Each a `numpy.ndarray` or a `Tensor`.
        arrays: `numpy` or `tensor`.
    """
    if arrays == "numpy":
        for value in results.values():
            if isinstance(value, Tensor):
                break
        else:
            return results
        return {
            name: to_numpy(value) if isinstance(value, Tensor) and value.location == "host" else value
            for name, value in results.items()
        }
    return {name: value if isinstance(value, Tensor) else to_tensor(value) for name, value in results.items()}


def to_tensor(array: Any) -> Tensor:
    """Return a numpy array as a tensor over the same data.

    Raises:
        InputError: It has the dtype of no tensor; bytes, or other objects than texts, are none.
    """
    kind = array.dtype
    dtype = DType.STRING if kind.kind in "OUS" else _DTYPE_OF.get(kind)
    if dtype is None:
        dtype = _DTYPE_OF[kind] = DType.parse(kind.name)
    if dtype is DType.STRING or dtype.bits < 8:
        return Tensor.from_list(array.reshape(-1).tolist(), dtype).reshape(array.shape)
    if not array.flags.c_contiguous:
        array = array.copy()
    return Tensor(memoryview(array.reshape(-1).view("uint8")), dtype, array.shape)


def to_numpy(tensor: Tensor) -> Any:
    """Return a tensor as a numpy array over the same data; bfloat16 and 4-bit types stay tensors without ml_dtypes."""
    import numpy

    if tensor.dtype is DType.STRING:
        return numpy.array(tensor.reshape(-1).tolist(), dtype=object).reshape(tensor.shape)
    if tensor.dtype in EXTENDED:
        if installed.origin_of("ml_dtypes") is None:
            return tensor
        import ml_dtypes

        dtype = getattr(ml_dtypes, tensor.dtype)
        if tensor.dtype.bits < 8:
            return numpy.array(tensor.tolist(), dtype).reshape(tensor.shape)
        return numpy.frombuffer(tensor.data(), dtype).reshape(tensor.shape)
    return numpy.frombuffer(tensor.data(), str(tensor.dtype)).reshape(tensor.shape)


def _shape_of_bytes(spec: TensorSpec, exact: tuple[Any, ...] | None, nbytes: int) -> tuple[int, ...]:
    """Work out the shape of raw bytes: at most one dimension may be free."""
    shape = tuple(exact if exact is not None else spec.shape)
    free = [i for i, dim in enumerate(shape) if isinstance(dim, str)]
    known = prod(dim for dim in shape if isinstance(dim, int)) * spec.dtype.bits
    if len(free) == 1 and known and nbytes * 8 % known == 0:
        return (*shape[: free[0]], nbytes * 8 // known, *shape[free[0] + 1 :])
    if free or spec.dtype.nbytes(shape) != nbytes:
        raise InputError(
            f"Input `{spec.name}` has {nbytes} bytes, which do not tell its shape, expected {spec}",
            hint=f"edge_infer.Tensor(data, '{spec.dtype}', shape)",
            input=spec.name,
        )
    return shape


def _wrong_dtype(spec: TensorSpec, got: str) -> InputError:
    return InputError(
        f"Input `{spec.name}` has dtype {got}, expected {spec.dtype}",
        hint=f"pass `{spec.name}.astype('{spec.dtype}')`; nothing is cast by itself",
        input=spec.name,
        expected=str(spec.dtype),
        got=got,
    )


def _wrong_shape(spec: TensorSpec, exact: tuple[Any, ...] | None, got: tuple[int, ...]) -> InputError:
    want = exact if exact is not None else spec.shape
    text = "(" + ", ".join(map(str, want)) + ("," if len(want) == 1 else "") + ")"
    return InputError(
        f"Input `{spec.name}` has shape {got}, expected {text}",
        hint=_shape_hint(spec, want, got),
        input=spec.name,
        expected=list(want),
        got=list(got),
    )


def _shape_hint(spec: TensorSpec, want: tuple[Any, ...], got: tuple[int, ...]) -> str:
    name = spec.name
    if len(got) == len(want) - 1 and spec.accepts((1, *got)):
        return f"add the first dimension: `{name}.reshape(1, {', '.join(map(str, got))})`"
    if len(got) == len(want) == 4 and spec.accepts((got[0], got[3], got[1], got[2])):
        return f"the model takes channels first: `{name}.transpose(0, 3, 1, 2)`"
    if len(got) == len(want) == 4 and spec.accepts((got[0], got[2], got[3], got[1])):
        return f"the model takes channels last: `{name}.transpose(0, 2, 3, 1)`"
    return f"expected {len(want)} dimensions, got {len(got)}" if len(got) != len(want) else "names stand for any size"
