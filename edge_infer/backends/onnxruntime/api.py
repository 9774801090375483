"""ONNX Runtime's C interface through ctypes: the functions that `c.py` calls, without numpy.

`OrtGetApiBase` leads to `OrtApi`, a struct of function pointers. Its order never changes: a version of the interface
only adds at the end, which static assertions in `onnxruntime_c_api.cc` hold (entry 101 is the last of version 1, 149
of version 5). The numbers below are those of version 5, which every release since 1.5 has; `load_api` proves some of
them before any is trusted with a model.
"""

from __future__ import annotations

import ctypes
import os
import sys
from _thread import allocate_lock, start_new_thread
from time import sleep

from edge_infer.errors import BackendUnavailable
from edge_infer.platform.installed import origin_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_API_VERSION = 5
_P = ctypes.c_void_p
_SIZE = ctypes.c_size_t
_INT = ctypes.c_int

# name: (index in OrtApi, argument types). All but the releases and the two that read a status return a status.
_FUNCTIONS: dict[str, tuple[int, tuple[Any, ...]]] = {
    "CreateStatus": (0, (_INT, ctypes.c_char_p)),
    "CreateEnv": (3, (_INT, ctypes.c_char_p, _P)),
    "CreateSession": (7, (_P, ctypes.c_char_p, _P, _P)),
    "CreateSessionFromArray": (8, (_P, _P, _SIZE, _P, _P)),
    "Run": (9, (_P, _P, _P, _P, _SIZE, _P, _SIZE, _P)),
    "CreateSessionOptions": (10, (_P,)),
    "SetSessionLogSeverityLevel": (22, (_P, _INT)),
    "SetIntraOpNumThreads": (24, (_P, _INT)),
    "SessionGetInputCount": (30, (_P, _P)),
    "SessionGetOutputCount": (31, (_P, _P)),
    "SessionGetInputTypeInfo": (33, (_P, _SIZE, _P)),
    "SessionGetOutputTypeInfo": (34, (_P, _SIZE, _P)),
    "SessionGetInputName": (36, (_P, _SIZE, _P, _P)),
    "SessionGetOutputName": (37, (_P, _SIZE, _P, _P)),
    "CreateTensorAsOrtValue": (48, (_P, _P, _SIZE, _INT, _P)),
    "CreateTensorWithDataAsOrtValue": (49, (_P, _P, _SIZE, _P, _SIZE, _INT, _P)),
    "GetTensorMutableData": (51, (_P, _P)),
    "FillStringTensor": (52, (_P, _P, _SIZE)),
    "GetStringTensorDataLength": (53, (_P, _P)),
    "GetStringTensorContent": (54, (_P, _P, _SIZE, _P, _SIZE)),
    "CastTypeInfoToTensorInfo": (55, (_P, _P)),
    "GetOnnxTypeFromTypeInfo": (56, (_P, _P)),
    "GetTensorElementType": (60, (_P, _P)),
    "GetDimensionsCount": (61, (_P, _P)),
    "GetDimensions": (62, (_P, _P, _SIZE)),
    "GetSymbolicDimensions": (63, (_P, _P, _SIZE)),
    "GetTensorTypeAndShape": (65, (_P, _P)),
    "CreateCpuMemoryInfo": (69, (_INT, _INT, _P)),
    "AllocatorFree": (76, (_P, _P)),
    "GetAllocatorWithDefaultOptions": (78, (_P,)),
    "AddSessionConfigEntry": (130, (_P, ctypes.c_char_p, ctypes.c_char_p)),
}
_GET_ERROR_CODE, _GET_ERROR_MESSAGE = 1, 2
_RELEASES = {"Status": 93, "Session": 95, "Value": 96, "TypeInfo": 98, "TensorInfo": 99, "SessionOptions": 100}
# Those that take long; they release Python's lock, the others are quicker with it.
_SLOW = ("CreateEnv", "CreateSession", "CreateSessionFromArray", "Run")

#: `OrtErrorCode` by number, as the Python binding names its exceptions and its messages.
_KINDS = (
    ("Fail", "FAIL"),
    ("Fail", "FAIL"),
    ("InvalidArgument", "INVALID_ARGUMENT"),
    ("NoSuchFile", "NO_SUCHFILE"),
    ("NoModel", "NO_MODEL"),
    ("EngineError", "ENGINE_ERROR"),
    ("RuntimeException", "RUNTIME_EXCEPTION"),
    ("InvalidProtobuf", "INVALID_PROTOBUF"),
    ("ModelLoaded", "MODEL_LOADED"),
    ("NotImplemented", "NOT_IMPLEMENTED"),
    ("InvalidGraph", "INVALID_GRAPH"),
    ("EPFail", "EP_FAIL"),
)
_LOG_FATAL = 4  # what the engine says of an error comes with its status
_FLOAT = 1


class OrtError(Exception):
    """A status that is not OK: its kind, as the Python binding names it, and what the engine says."""

    def __init__(self, code: int, message: str) -> None:
        self.kind, name = _KINDS[code] if code < len(_KINDS) else ("Fail", f"CODE_{code}")
        self.text = f"{name} : {' '.join(message.split())}"
        super().__init__(self.text)


class Api:
    """The functions of one loaded library; each is called by its name in C.

    Attributes:
        version: What the library says of itself.
        memory: What host memory is called.
        allocator: Whose memory names of inputs and outputs are.
    """

    def __init__(self, library: str) -> None:
        base = _loaded(library).OrtGetApiBase
        base.restype = ctypes.POINTER(_P * 2)
        get_api, get_version = base().contents
        self.version: str = ctypes.CFUNCTYPE(ctypes.c_char_p)(get_version)().decode()
        table = ctypes.CFUNCTYPE(ctypes.POINTER(_P), ctypes.c_uint32)(get_api)(_API_VERSION)
        if not table:
            raise BackendUnavailable(
                f"`{os.path.basename(library)}` {self.version} has no interface of version {_API_VERSION}",
                hint="pip install --upgrade onnxruntime",
            )
        self._error_code = ctypes.PYFUNCTYPE(_INT, _P)(table[_GET_ERROR_CODE])
        self._error_message = ctypes.PYFUNCTYPE(ctypes.c_char_p, _P)(table[_GET_ERROR_MESSAGE])
        self._releases = {name: ctypes.PYFUNCTYPE(None, _P)(table[index]) for name, index in _RELEASES.items()}
        self.release_value = self._releases["Value"]
        self._table = table
        self._functions: dict[str, Any] = {}
        self._environment = _InThread(lambda: self.make("CreateEnv", _LOG_FATAL, b"edge-infer"))
        self._test()
        self.run = self._function("Run")
        # The same without types: it takes ctypes objects, which it need not convert (0.3 us of a call's 2.3).
        self.run_made: Any = ctypes.CFUNCTYPE(_P)(table[_FUNCTIONS["Run"][0]])
        self.memory = self.make("CreateCpuMemoryInfo", 1, 0)  # OrtArenaAllocator, OrtMemTypeDefault
        self.allocator = self.make("GetAllocatorWithDefaultOptions")

    def wait(self) -> None:
        """Wait for the environment, whether it could be made or not."""
        self._environment.wait()

    @property
    def env(self) -> Any:
        """The environment that all sessions share; whoever asks first may have to wait for it."""
        return self._environment.result()

    def _function(self, name: str) -> Any:
        """Return a function, with the types of its arguments from its first use on."""
        made = self._functions.get(name)
        if made is None:
            index, arguments = _FUNCTIONS[name]
            kind = ctypes.CFUNCTYPE if name in _SLOW else ctypes.PYFUNCTYPE
            made = self._functions[name] = kind(_P, *arguments)(self._table[index])
        return made

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises:
            OrtError: It did not return OK.
        """
        status = self._function(name)(*arguments)
        if status:
            self.fail(status)

    def make(self, name: str, *arguments: Any) -> Any:
        """Call a function whose last argument is where it writes a pointer, and return that."""
        made = _P()
        self.call(name, *arguments, ctypes.byref(made))
        return made.value

    def count(self, name: str, *arguments: Any) -> int:
        """Call a function whose last argument is where it writes a number, and return that."""
        made = ctypes.c_size_t()
        self.call(name, *arguments, ctypes.byref(made))
        return made.value

    def release(self, kind: str, pointer: Any) -> None:
        """Give back an object of the library."""
        self._releases[kind](pointer)

    def fail(self, status: Any) -> None:
        """Raise what a status says, and give it back.

        Raises:
            OrtError: Always.
        """
        try:
            message = self._error_message(status) or b""
            raise OrtError(self._error_code(status), message.decode("utf-8", "replace"))
        finally:
            self.release("Status", status)

    def _test(self) -> None:
        """Prove that the table is what this file takes it for: a status and a tensor say what they were made of."""
        try:
            status = self._function("CreateStatus")(7, b"edge-infer")
            if self._error_code(status) != 7 or self._error_message(status) != b"edge-infer":
                raise OrtError(1, "a status does not say what it was made of")
            self.release("Status", status)
            self.memory = self.make("CreateCpuMemoryInfo", 1, 0)
            data, dims = (ctypes.c_float * 6)(), (ctypes.c_int64 * 2)(2, 3)
            value = self.make("CreateTensorWithDataAsOrtValue", self.memory, data, 24, dims, 2, _FLOAT)
            info = self.make("GetTensorTypeAndShape", value)
            found = (ctypes.c_int64 * 2)()
            self.call("GetDimensions", info, found, 2)
            right = (
                self.make("GetTensorMutableData", value) == ctypes.addressof(data)
                and self.count("GetTensorElementType", info) == _FLOAT
                and self.count("GetDimensionsCount", info) == 2
                and list(found) == [2, 3]
            )
            self.release("TensorInfo", info)
            self.release_value(value)
            options = self.make("CreateSessionOptions")
            self.call("AddSessionConfigEntry", options, b"session.x64quantprecision", b"1")
            self.release("SessionOptions", options)
        except OrtError as error:
            raise _wrong_table(self.version) from error
        if not right:
            raise _wrong_table(self.version)


def _wrong_table(version: str) -> BackendUnavailable:
    return BackendUnavailable(
        f"The C interface of onnxruntime {version} is not the one that edge-infer knows",
        hint="pip install --upgrade edge-infer",
    )


def _loaded(library: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(library)
    except OSError as error:
        text = str(error)
        hint = "pip install --force-reinstall onnxruntime"
        if "ELF" in text or "wrong architecture" in text or "cannot open shared object" in text:
            from platform import machine

            hint = f"it is built for another machine than this {machine()}, or lacks a library: {hint}"
        raise BackendUnavailable(f"onnxruntime's library cannot be loaded: {text}", hint=hint) from error


def library_path() -> str | None:
    """Find the shared library: the one beside the package, where `edge-infer slim` puts it, else the wheel's.

    Imports nothing of it. Returns None where there is none.
    """
    if sys.platform != "linux":
        return None
    home = os.path.abspath(__file__)
    for _ in range(4):  # out of backends/onnxruntime/ of this package
        home = os.path.dirname(home)
    beside = os.path.join(home if os.path.isdir(home) else os.path.dirname(home), "libonnxruntime.so")  # beside a zip
    if os.path.isfile(beside):
        return beside
    package = origin_of("onnxruntime")
    if package is None:
        return None
    folder = os.path.join(os.path.dirname(package), "capi")
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return next((os.path.join(folder, name) for name in names if name.startswith("libonnxruntime.so")), None)


_LOCK = allocate_lock()
_LOADED: list[Api] = []


def load_api() -> Api:
    """Load the library; the same `Api` each time. Of two threads that ask at once, one waits for the other.

    Raises:
        BackendUnavailable: There is none, it cannot be loaded, or its interface is another.
    """
    api = _begun()
    api.wait()
    return api


def _begun() -> Api:
    """Return the library, whose environment may still be in the making."""
    with _LOCK:
        if not _LOADED:
            library = library_path()
            if library is None:
                raise BackendUnavailable(
                    "onnxruntime's shared library is not here", hint="pip install 'edge-infer[onnxruntime]'"
                )
            _LOADED.append(Api(library))
        return _LOADED[0]


class HeadStart:
    """Loads the library and lets its environment be made, while the process goes on to what else it needs.

    The environment registers every operator that there is, which is half of the time to a first result and holds no
    lock of Python's. Leaving the `with` waits for it: a process that ended in the middle of it would crash.
    """

    def __enter__(self) -> None:
        try:
            self._api: Api | None = _begun()
        except BackendUnavailable:  # whoever needs the library is told why there is none
            self._api = None

    def __exit__(self, *_: object) -> None:
        if self._api is not None:
            self._api.wait()


class _InThread:
    """A call that another thread makes; this one where no thread can be had."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._lock = allocate_lock()
        self._result: Any = None
        self._error: BaseException | None = None
        self._lock.acquire()
        try:
            start_new_thread(self._run, ())
        except RuntimeError:
            self._run()
        else:
            sleep(0)  # hands Python's lock to the other thread, which else gets it at the end of a time slice

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error
        finally:
            self._lock.release()

    def wait(self) -> None:
        """Wait until the call has ended."""
        with self._lock:
            pass

    def result(self) -> Any:
        """Return what the call returned, or raise what it raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._result
