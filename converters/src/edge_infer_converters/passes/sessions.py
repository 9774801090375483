"""Load a model that is in memory into ONNX Runtime: a large one by a file, since as bytes it is copied four times."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from edge_infer_converters.engine import make_session
from edge_infer_converters.passes.graphs import nbytes_of, without_weights

if TYPE_CHECKING:
    import onnx
    import onnxruntime

#: From this size on a model is not copied where that can be avoided.
LARGE_BYTES = 2**24
_WEIGHTS = "weights.bin"
#: So that an engine can read any element where it lies.
_ALIGNMENT = 64


def session_of(model: onnx.ModelProto, name: str, *, optimised: bool = False) -> onnxruntime.InferenceSession:
    """Load a model into ONNX Runtime as `engine.make_session` does; it may change afterwards.

    Raises:
        UnsupportedModel: ONNX Runtime refuses it.
    """
    if nbytes_of(model) < LARGE_BYTES:
        return make_session(model.SerializeToString(), name, optimised=optimised)
    with TemporaryDirectory() as folder:
        return make_session(stored_apart(model, Path(folder)), name, optimised=optimised, is_large=True)


def stored_apart(model: onnx.ModelProto, folder: Path) -> str:
    """Write a model into a folder, its large weights into a file of their own; return the path of the model."""
    from onnx import TensorProto, numpy_helper

    light, large = without_weights(model)
    stored = {tensor.name: tensor for tensor in light.graph.initializer}
    with (folder / _WEIGHTS).open("wb") as file:
        for tensor in large:
            data = tensor.raw_data if tensor.HasField("raw_data") else numpy_helper.to_array(tensor).tobytes()
            file.write(bytes(-file.tell() % _ALIGNMENT))
            place = {"location": _WEIGHTS, "offset": str(file.tell()), "length": str(len(data))}
            stored[tensor.name].data_location = TensorProto.EXTERNAL
            for key, value in place.items():
                stored[tensor.name].external_data.add(key=key, value=value)
            file.write(data)
    path = folder / "model.onnx"
    path.write_bytes(light.SerializeToString())
    return str(path)
