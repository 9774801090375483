"""What ONNX Runtime says of a failure, in our words: the same from both of its bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edge_infer.errors import ExecutionError, UnsupportedModel


def described(
    kind: str, text: str, doing: str, error_class: type[UnsupportedModel | ExecutionError]
) -> UnsupportedModel | ExecutionError:
    """Return our error for a failure of the engine.

    Args:
        kind: The engine's name of it, such as `InvalidProtobuf`.
        text: What the engine says.
        doing: What was under way.
        error_class: The class of the error.
    """
    return error_class(f"onnxruntime cannot {doing}: {text}", hint=_hint(kind, text), engine_error=kind)


def _hint(kind: str, text: str) -> str:
    if kind == "InvalidProtobuf" or "No graph was found" in text:
        return "the file is cut short or no ONNX model: fetch or export it again"
    if "bad_alloc" in text or "Failed to allocate memory" in text or "MemoryError" in kind:
        return "there is too little memory: close other sessions, raise the limit, or use a smaller variant"
    if "opset" in text or "IR version" in text:
        return "pip install --upgrade onnxruntime, or export the model for an older opset"
    if "is not a registered function/op" in text:
        return "the model uses an operator that this engine lacks: export it without, or choose another backend"
    if "Could not find an implementation" in text:
        return "this engine lacks the operator for that dtype: try `backend='reference'`, or another precision"
    return ""
