"""Read the bytes of an ONNX file, and the weights that lie in files beside it."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from edge_infer.errors import ConversionError, listed
from edge_infer_converters.engine import first_line
from edge_infer_converters.passes.graphs import tensors_of
from edge_infer_converters.passes.weights_in_files import WeightsInFiles, nbytes_in_files, read_apart
from edge_infer_converters.sources.foreign import refuse

#: What protobuf can hold in one message; larger models have their weights in files beside them.
MAX_BYTES = 2**31 - 1


def missing(path: Path) -> ConversionError:
    """Return the error of a model file that is not there."""
    return ConversionError(
        f"There is no file `{path}`", hint="give an .onnx, .ort, .pt, .pt2, .keras, .h5 or .tflite file"
    )


def parse(path: Path) -> onnx.ModelProto:
    """Read a file as a message; weights in files beside it are not read.

    Raises:
        ConversionError: The file is missing, too large, cut short, or of another kind.
    """
    refuse(path)
    try:
        if path.is_file():
            check_size(path, path.stat().st_size)
        data = path.read_bytes()
    except IsADirectoryError:
        raise ConversionError(
            f"`{path}` is a folder, expected an .onnx file", hint=f"edge-infer convert {path}/model.onnx"
        ) from None
    except FileNotFoundError:
        raise ConversionError(f"There is no file `{path}`", hint=_near(path)) from None
    except OSError as error:
        raise ConversionError(f"`{path}` cannot be read: {error.strerror}") from error
    if not data:
        raise ConversionError(f"`{path}` is empty, expected an ONNX model", hint="export or download it again")
    try:
        return onnx.load_model_from_string(data)
    except DecodeError as error:
        raise ConversionError(
            f"`{path}` is not an ONNX model, or is cut short: its {len(data)} bytes cannot be parsed",
            hint="export or download it again",
            got=len(data),
        ) from error


def check_size(path: Path, nbytes: int) -> None:
    """Refuse a model of so many bytes where one message cannot hold them."""
    if nbytes > MAX_BYTES:
        raise ConversionError(
            f"`{path}` has {nbytes} bytes with its weights, expected at most {MAX_BYTES}",
            hint="save it with its weights beside it: onnx.save(model, path, save_as_external_data=True)",
            got=nbytes,
        )


def load_external(proto: onnx.ModelProto, path: Path) -> tuple[int, WeightsInFiles | None]:
    """Read the weights that lie in files beside the model; those of more than 2 GB stay there.

    Returns:
        Their size in bytes, and where they lie if they were not read.
    """
    names = {
        entry.value
        for tensor in tensors_of(proto.graph)
        if tensor.data_location == onnx.TensorProto.EXTERNAL
        for entry in tensor.external_data
        if entry.key == "location"
    }
    folder = path.resolve().parent
    for name in names:
        target = (folder / name).resolve()
        if Path(name).is_absolute() or not target.is_relative_to(folder):
            raise ConversionError(
                f"`{path}` keeps weights in `{name}`, which leaves its folder: refused",
                hint="save it again with its weights beside it",
                got=name,
            )
        if not target.is_file():
            raise ConversionError(
                f"`{path}` keeps weights in `{name}`, which is missing", hint=f"put it into `{folder}`", got=name
            )
    nbytes = sum((folder / name).stat().st_size for name in names)
    if path.stat().st_size + nbytes > MAX_BYTES:  # protobuf cannot hold it, and memory need not
        nbytes = sum(nbytes_in_files(tensor) for tensor in tensors_of(proto.graph))
        return nbytes, read_apart(proto, folder, path.name) or None
    if names:
        try:
            onnx.load_external_data_for_model(proto, str(folder))
        except (OSError, ValueError, RuntimeError, onnx.checker.ValidationError) as error:
            raise ConversionError(
                f"The weights of `{path}` cannot be read: {first_line(error)}", hint="copy or export them again"
            ) from error
    return nbytes, None


def _near(path: Path) -> str:
    """Name a model beside a file that is not there: the one that is spelt most like it, else the first few."""
    models = {place.stem: place.name for place in sorted(path.parent.glob("*.onnx"))}
    close = get_close_matches(path.stem, models, n=1)
    if close:
        return f"did you mean `{models[close[0]]}`?"
    return (
        f"in that folder: {listed(list(models.values())[:3])}"
        if models
        else "edge-infer convert model.onnx -o model.bundle"
    )
