"""Load a model that is in memory into ONNX Runtime: a large one by a file, since as bytes it is copied four times."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from edge_infer_converters.engine import make_session
from edge_infer_converters.passes.graphs import nbytes_of, without_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    import onnx
    import onnxruntime

    from edge_infer_converters.passes.weights_in_files import WeightsInFiles

#: From this size on a model is not copied where that can be avoided.
LARGE_BYTES = 2**24
_WEIGHTS = "weights.bin"
#: So that an engine can read any element where it lies.
_ALIGNMENT = 64
_LARGEST_GAP = 4096


def session_of(
    model: onnx.ModelProto, name: str, *, optimised: bool = False, in_files: WeightsInFiles | None = None
) -> onnxruntime.InferenceSession:
    """Load a model into ONNX Runtime as `engine.make_session` does; it may change afterwards.

    Args:
        model: The model.
        name: What to call it in an error.
        optimised: Whether the engine may join and replace nodes.
        in_files: The values of its initializers that have none.

    Raises:
        UnsupportedModel: ONNX Runtime refuses it.
    """
    if in_files is not None:
        with TemporaryDirectory() as folder:
            path = Path(folder, "model.onnx")
            path.write_bytes(in_files.refer(model, _WEIGHTS).SerializeToString())
            with Path(folder, _WEIGHTS).open("wb") as file:  # the engine asks for it, and never reads it
                file.truncate(in_files.total + len(in_files) * _LARGEST_GAP)
            return make_session(str(path), name, optimised=optimised, is_large=True, in_files=in_files)
    if nbytes_of(model) < LARGE_BYTES:
        return make_session(model.SerializeToString(), name, optimised=optimised)
    with TemporaryDirectory() as folder:
        return make_session(stored_apart(model, Path(folder)), name, optimised=optimised, is_large=True)


def stored_apart(model: onnx.ModelProto, folder: Path) -> str:
    """Write a model into a folder, its large weights into a file of their own; return the path of the model."""
    light, large = referring(model, _WEIGHTS)
    write_values(large, folder / _WEIGHTS)
    path = folder / "model.onnx"
    path.write_bytes(light.SerializeToString())
    return str(path)


def referring(model: onnx.ModelProto, location: str) -> tuple[onnx.ModelProto, list[onnx.TensorProto]]:
    """Return a copy whose large initializers refer to a file, and these; `write_values` writes the file."""
    from onnx import TensorProto

    light, large = without_weights(model)
    stored = {tensor.name: tensor for tensor in light.graph.initializer}
    offset = 0
    for tensor in large:
        offset += -offset % _ALIGNMENT
        size = len(tensor.raw_data) if tensor.HasField("raw_data") else len(_bytes_of(tensor))
        stored[tensor.name].data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", str(offset)), ("length", str(size))):
            stored[tensor.name].external_data.add(key=key, value=value)
        offset += size
    return light, large


def write_values(tensors: Sequence[onnx.TensorProto], path: Path) -> None:
    """Write the values of tensors into a file, as `referring` says where they lie."""
    with path.open("wb") as file:
        for tensor in tensors:
            file.write(bytes(-file.tell() % _ALIGNMENT))
            file.write(_bytes_of(tensor))


def _bytes_of(tensor: onnx.TensorProto) -> bytes:
    from onnx import numpy_helper

    return tensor.raw_data if tensor.HasField("raw_data") else numpy_helper.to_array(tensor).tobytes()
