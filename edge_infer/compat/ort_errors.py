"""The exceptions of `onnxruntime.capi.onnxruntime_pybind11_state`, with the native text and code.

A native text reads `[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Invalid input name: b`; number and name are those of
OrtErrorCode in onnxruntime_c_api.h, the classes those of `onnxruntime_pybind_exceptions.cc`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from edge_infer.errors import EdgeInferError


class Fail(Exception):
    """The engine failed, and says no more than its text."""


class InvalidArgument(Exception):
    """An argument does not fit: a name, an element type, a shape."""


class NoSuchFile(Exception):
    """The model's file does not exist."""


class NoModel(Exception):
    """No model was loaded."""


class EngineError(Exception):
    """An execution provider failed."""


class RuntimeException(Exception):
    """The engine failed while it ran."""


class InvalidProtobuf(Exception):
    """The bytes are not an ONNX model."""


class ModelLoaded(Exception):
    """A model was loaded already."""


class NotImplemented(Exception):  # noqa: A001  the native package's name
    """The engine has no kernel for an operator."""


class InvalidGraph(Exception):
    """The model's graph is not valid."""


class EPFail(Exception):
    """An execution provider failed."""


class ModelLoadCanceled(Exception):
    """Loading was cancelled."""


class ModelRequiresCompilation(Exception):
    """The model must be compiled first."""


class NotFound(Exception):
    """Something that was asked for is not there."""


class DeviceReset(Exception):
    """The device was reset."""


_CLASSES: dict[int, tuple[str, type[Exception]]] = {
    1: ("FAIL", Fail),
    2: ("INVALID_ARGUMENT", InvalidArgument),
    3: ("NO_SUCHFILE", NoSuchFile),
    4: ("NO_MODEL", NoModel),
    5: ("ENGINE_ERROR", EngineError),
    6: ("RUNTIME_EXCEPTION", RuntimeException),
    7: ("INVALID_PROTOBUF", InvalidProtobuf),
    8: ("MODEL_LOADED", ModelLoaded),
    9: ("NOT_IMPLEMENTED", NotImplemented),
    10: ("INVALID_GRAPH", InvalidGraph),
    11: ("EP_FAIL", EPFail),
    12: ("MODEL_LOAD_CANCELED", ModelLoadCanceled),
    13: ("MODEL_REQUIRES_COMPILATION", ModelRequiresCompilation),
    14: ("NOT_FOUND", NotFound),
}


def ort_error(number: int, text: str) -> Exception:
    """Make the exception that the native package raises for an OrtErrorCode.

    >>> ort_error(2, "Invalid input name: b")
    InvalidArgument('[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Invalid input name: b')
    """
    name, error_class = _CLASSES.get(number, ("FAIL", Fail))
    return error_class(f"[ONNXRuntimeError] : {number} : {name} : {text}")


def absent(name: str, reason: str, package: str = "onnxruntime") -> Callable[..., object]:
    """Make a callable that stands for what cannot work in a page, and says why when it is called."""

    def refuse(*_: object, **__: object) -> object:
        raise NotImplementedError(f"{package}'s `{name}` cannot work in a page: {reason}")

    refuse.__name__ = refuse.__qualname__ = name
    return refuse


class NativeErrors:
    """Raises an engine's error as the exception that the native package raises for it, chained to the first."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from edge_infer.errors import BackendError

        if isinstance(error, BackendError):
            raise _native(error) from error


def _native(error: EdgeInferError) -> Exception:
    from edge_infer.errors import ExecutionError, UnsupportedModel

    number, text = error.details.get("ort_code"), error.details.get("ort_text")
    if isinstance(number, int) and number:
        return ort_error(number, str(text))
    if isinstance(error, UnsupportedModel):
        return NotImplementedError(str(error))
    return ort_error(6, str(error)) if isinstance(error, ExecutionError) else error
