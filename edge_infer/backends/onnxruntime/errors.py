"""Translation of ONNX Runtime's exceptions into ours, each with a hint."""

from __future__ import annotations

from edge_infer.errors import DeviceLost, ExecutionError, InputError, OutOfMemory, UnsupportedModel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    ErrorClass = type[UnsupportedModel | ExecutionError]

# What ONNX Runtime's allocators and CUDA itself say when memory is short.
_NO_MEMORY = (
    "failed to allocate memory",
    "out of memory",
    "cuda failure 2",
    "bad_alloc",
    "is smaller than requested bytes",  # an arena with a bound (bfc_arena.cc)
)
# CUDA errors after which no call of the process succeeds any more: "sticky" ones of cudaError_t.
_LOST = (
    "cuda failure 46:",  # devices unavailable
    "cuda failure 214:",  # uncorrectable ECC error
    "cuda failure 700:",  # illegal address
    "cuda failure 702:",  # launch timeout
    "cuda failure 709:",  # context is destroyed
    "cuda failure 715:",  # illegal instruction
    "cuda failure 719:",  # launch failure
    "cuda failure 999:",  # unknown, as when the device has fallen off the bus
)


class translated:  # noqa: N801  it is used as a function
    """Turn ONNX Runtime's exceptions into ours: `with translated("run the model", ExecutionError):`."""

    def __init__(self, doing: str, error_class: ErrorClass) -> None:
        self._doing = doing
        self._error_class = error_class

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            ours = translate(error, self._doing, self._error_class)
            if ours is not error:
                raise ours from error


def translate(error: Exception, doing: str, error_class: ErrorClass) -> Exception:
    """Return our error for one of ONNX Runtime's; any other unchanged.

    Args:
        error: What was raised.
        doing: What onnxruntime could not do, as in `run the model`.
        error_class: What it is where the words tell nothing nearer.
    """
    kind = type(error)
    foreign = (RuntimeError, ValueError, TypeError, MemoryError)
    if isinstance(error, InputError) or not (kind.__module__.startswith("onnxruntime") or isinstance(error, foreign)):
        return error
    said = " ".join(str(error).split())
    text = said.split(": ", 2)[-1] if said.startswith("[ONNXRuntimeError]") else said
    return described(kind.__name__, text, doing, error_class)


def described(kind: str, text: str, doing: str, error_class: ErrorClass) -> UnsupportedModel | ExecutionError:
    """Return our error for a failure of the engine.

    Args:
        kind: The engine's name of it, such as `InvalidProtobuf`.
        text: What the engine says.
        doing: What onnxruntime could not do, as in `run the model`.
        error_class: What it is where the words tell nothing nearer.
    """
    message = f"onnxruntime cannot {doing}: {text}"
    lower = text.lower()
    if kind == "MemoryError" or any(words in lower for words in _NO_MEMORY):
        hint = "a smaller batch, a smaller variant (fp16, int8), or free memory: see `free -m`, on a GPU `nvidia-smi`"
        return OutOfMemory(message, hint=hint, engine_error=kind)
    if any(words in lower for words in _LOST):
        return DeviceLost(message, hint="restart the process; `nvidia-smi` and `dmesg` say more", engine_error=kind)
    return error_class(message, hint=_hint(kind, text), engine_error=kind)


def _hint(kind: str, text: str) -> str:
    if kind == "InvalidProtobuf" or "No graph was found" in text:
        return "the file is cut short or no ONNX model: fetch or export it again"
    if "opset" in text or "IR version" in text:
        return "pip install --upgrade onnxruntime, or export the model for an older opset"
    if "is not a registered function/op" in text:
        return "the model uses an operator that this engine lacks: export it without, or choose another backend"
    if "Could not find an implementation" in text:
        return "this engine lacks the operator for that dtype: try `backend='reference'`, or another precision"
    return ""
