"""Read a model's inputs from files: arrays, tables, images, sound and text.

A file is read as what the input is: its dtype, and of the shapes that the data can have the one that fits. Nothing is
resized, resampled or normalised, as models differ in how: a file that does not fit is an error.
"""

from __future__ import annotations

import csv
import json
import wave
import zlib
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from edge_infer.errors import InputError, did_you_mean, listed
from edge_infer.formats import safetensors
from edge_infer.tensors.arrays import EXTENDED, InputChecker, present
from edge_infer.tensors.dtypes import DType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy as np

    from edge_infer.tensors.tensor import Tensor, TensorSpec

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff")
READABLE = ".npy, .npz, .json, .safetensors, .bin, .csv, .txt, .wav, .png or .jpg"
# What Pillow calls an image of so many channels.
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
# What reading a file of another kind, or for an input of a type that numpy lacks, ends in.
_UNREADABLE = (ValueError, TypeError, OSError, EOFError, BadZipFile, zlib.error, RecursionError, csv.Error, wave.Error)
# WAV files hold integers of so many bytes, signed but for the first.
_WAV_WIDTHS = (1, 2, 3, 4)


def read_inputs(pairs: Sequence[str], specs: Sequence[TensorSpec]) -> dict[str, Tensor]:
    """Read the inputs of one call.

    Args:
        pairs: `NAME=FILE` for each input; for a model of one input the file alone will do.
        specs: The model's inputs.

    Returns:
        A tensor for each of them.

    Raises:
        InputError: A file or an input is missing, cannot be read or does not fit.
    """
    by_name = {spec.name: spec for spec in specs}
    feeds: dict[str, Any] = {}
    for pair in pairs:
        name, equals, file = pair.partition("=")
        if not equals and len(by_name) == 1:
            name, file = next(iter(by_name)), pair
        elif not equals:
            raise InputError(f"--input is `{pair}`, expected NAME=FILE", hint=f"NAME is one of {listed(list(by_name))}")
        if name not in by_name:
            raise InputError(
                f"The model has no input `{name}`",
                hint=did_you_mean(name, list(by_name)) or f"its inputs are {listed(list(by_name))}",
                input=name,
            )
        feeds[name] = read_input(Path(file), by_name[name])
    return present(InputChecker(specs)(feeds), "tensor")


def read_input(path: Path, spec: TensorSpec) -> Any:
    """Read one input from a file of any kind in `READABLE`.

    A table's first row may hold names; a column that has the input's name is taken alone. Values of images are 0 to
    255 for `uint8`, and 0 to 1 for floats; those of sound are as they are for integers, and -1 to 1 for floats.

    Raises:
        InputError: It is missing, cannot be read or does not fit.
    """
    if not path.is_file():
        hint = f"--input {spec.name}=FILE, {READABLE}"
        raise InputError(f"There is no file `{path}` for input `{spec.name}`", hint=hint, input=spec.name)
    read = _READERS.get(path.suffix.lower())
    if read is None:
        raise InputError(f"`{path}` has no known suffix; expected {READABLE}", input=spec.name)
    try:
        return read(path, spec)
    except _UNREADABLE as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"`{path}` cannot be read: {error}", input=spec.name) from error


def read_image(path: Path, spec: TensorSpec) -> np.ndarray:
    """Read an image in the layout of the input, channels first or last, whichever it has.

    Returns:
        [channels, height, width] or [height, width, channels]; 0 to 255 for `uint8`, and 0 to 1 for floats.

    Raises:
        InputError: It cannot be read, or the input does not have the shape of an image.
    """
    import numpy as np

    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise InputError(
            f"`{path}` is an image, and Pillow is not installed", hint='pip install "edge-infer[image]"'
        ) from error
    axis, channels = _channels(path, spec)
    try:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert(_MODES[channels]), np.uint8)
    except Image.DecompressionBombError as error:
        raise InputError(f"`{path}` is an image of too many pixels", hint="remove it, or save it smaller") from error
    except (OSError, UnidentifiedImageError, ValueError) as error:
        raise InputError(f"`{path}` cannot be read as an image: {error}", hint="remove it, or save it again") from error
    sample = pixels.reshape(*pixels.shape[:2], channels)
    sample = np.moveaxis(sample, 2, 0) if axis == 1 else sample
    if spec.dtype is DType.UINT8:
        return np.ascontiguousarray(sample)
    return np.ascontiguousarray(sample / 255, np.dtype(str(spec.dtype)))


def _channels(path: Path, spec: TensorSpec) -> tuple[int, int]:
    """Return on which axis of the input its channels are, and how many."""
    if len(spec.shape) == 4 and spec.dtype in (DType.UINT8, DType.FLOAT32, DType.FLOAT16):
        for axis in (1, 3):
            dim = spec.shape[axis]
            if isinstance(dim, int) and dim in _MODES:
                return axis, dim
    raise InputError(
        f"`{path}` is an image, and input `{spec}` is not: expected [n, c, h, w] or [n, h, w, c] with 1, 3 or 4 "
        "channels of uint8 or float",
        hint="save arrays: np.savez(FILE, NAME=array)",
        input=spec.name,
    )


def _image(path: Path, spec: TensorSpec) -> np.ndarray:
    return _fitted(path, spec, read_image(path, spec)[None])


def _json(path: Path, spec: TensorSpec) -> Any:
    document = json.loads(path.read_text("utf-8"))
    return _member(document, path, spec) if isinstance(document, dict) else document


def _bytes(path: Path, spec: TensorSpec) -> bytes:  # noqa: ARG001
    return path.read_bytes()


def _safetensors(path: Path, spec: TensorSpec) -> Any:
    return _member(safetensors.read_tensors(path.read_bytes()), path, spec)


def _npy(path: Path, spec: TensorSpec) -> Any:
    import numpy as np

    with path.open("rb") as file:
        loaded = np.load(file, allow_pickle=False)
        return loaded if isinstance(loaded, np.ndarray) else _member(dict(loaded), path, spec)


def _member(tensors: Mapping[str, Any], path: Path, spec: TensorSpec) -> Any:
    """Return the member that has the input's name, or the only one."""
    if spec.name in tensors:
        return tensors[spec.name]
    if len(tensors) == 1:
        return next(iter(tensors.values()))
    raise InputError(
        f"`{path}` holds {', '.join(tensors) or 'nothing'}, expected `{spec.name}`",
        hint=f"np.savez(FILE, {spec.name}=array)",
        input=spec.name,
    )


def _csv(path: Path, spec: TensorSpec) -> np.ndarray:
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
    if rows and spec.name in rows[0]:
        column = rows[0].index(spec.name)
        rows = [row[column : column + 1] for row in rows[1:]]
    elif len(rows) > 1 and spec.dtype is not DType.STRING and not any(map(_is_number, rows[0])):
        rows = rows[1:]  # names
    return _table(path, spec, rows)


def _text(path: Path, spec: TensorSpec) -> np.ndarray:
    """Read numbers between spaces, or for an input of strings the whole text as one."""
    text = path.read_text("utf-8-sig")
    if spec.dtype is DType.STRING:
        return _table(path, spec, [[text.rstrip("\r\n")]])
    return _table(path, spec, [line.split() for line in text.splitlines() if line.strip()])


def _table(path: Path, spec: TensorSpec, rows: list[list[str]]) -> np.ndarray:
    import numpy as np

    is_text = spec.dtype is DType.STRING
    wrong = None if is_text else next((cell for row in rows for cell in row if not _is_number(cell)), None)
    widths = {len(row) for row in rows}
    if wrong is None and len(widths) != 1:
        found = ", ".join(map(str, sorted(widths))) or "no"
        raise InputError(f"`{path}` has rows of {found} values, expected rows of one length", input=spec.name)
    if is_text:
        return _fitted(path, spec, np.array(rows, object))
    if wrong is not None:
        raise InputError(
            f"`{path}` holds {wrong[:40]!r}, and input `{spec}` takes numbers",
            hint="give numbers; a text as the numbers of its tokens",
            input=spec.name,
        )
    dtype = _numpy_dtype(path, spec)
    try:
        values = np.array([[int(cell) for cell in row] for row in rows] if dtype.kind in "iu" else rows)
        table = (values if dtype.kind in "iu" else values.astype(float)).astype(dtype)
        if dtype.kind in "iu" and (table != values).any():
            raise OverflowError(f"{values[table != values][0]} is out of its range")
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"`{path}` holds a value that is not of dtype {spec.dtype}: {error}", input=spec.name
        ) from error
    return _fitted(path, spec, table)


def _numpy_dtype(path: Path, spec: TensorSpec) -> np.dtype[Any]:
    """Return an input's element type as numpy's.

    Raises:
        InputError: It has none.
    """
    import numpy as np

    if spec.dtype in EXTENDED:
        raise InputError(
            f"`{path}` cannot be read as {spec.dtype}, which numpy lacks",
            hint=f"--input {spec.name}=FILE.safetensors",
            input=spec.name,
        )
    return np.dtype(str(spec.dtype))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _wav(path: Path, spec: TensorSpec) -> np.ndarray:
    """Read integer PCM, which is what Python's `wave` reads."""
    import numpy as np

    with wave.open(str(path), "rb") as file:
        width, channels = file.getsampwidth(), file.getnchannels()
        raw = file.readframes(file.getnframes())
    if width not in _WAV_WIDTHS:
        raise InputError(f"`{path}` has samples of {width} bytes, expected 1 to 4", hint="save it as 16-bit PCM")
    raw = raw[: len(raw) // (width * channels) * width * channels]
    if width == 1:
        whole = np.frombuffer(raw, np.uint8).astype(np.int32) - 128
    elif width == 3:  # each in the upper bytes of an int32, and back
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        whole = wide.view("<i4")[:, 0] >> 8
    else:
        whole = np.frombuffer(raw, f"<i{width}")
    dtype = _numpy_dtype(path, spec)
    if dtype.kind == "f":
        samples = (whole / float(1 << (8 * width - 1))).astype(dtype)
    elif dtype.kind == "i" and dtype.itemsize >= width:
        samples = whole.astype(dtype)
    else:
        raise InputError(
            f"`{path}` holds {8 * width}-bit sound, and input `{spec}` takes {spec.dtype}",
            hint="save arrays: np.savez(FILE, NAME=array)",
            input=spec.name,
        )
    return _fitted(path, spec, samples.reshape(-1, channels).T)


def _fitted(path: Path, spec: TensorSpec, array: np.ndarray) -> np.ndarray:
    """Return an array in the first of its shapes that the input takes.

    Raises:
        InputError: It takes none.
    """
    for shape in _shapes(array.shape, spec):
        if prod(shape) == array.size and spec.accepts(shape):
            return array.reshape(shape)
    raise InputError(
        f"`{path}` has shape {list(array.shape)}, which input `{spec}` does not take",
        hint="nothing is resized here: resize and normalise it as the model wants it, and save that",
        input=spec.name,
        expected=list(spec.shape),
        got=list(array.shape),
    )


def _shapes(shape: tuple[int, ...], spec: TensorSpec) -> Iterator[tuple[int, ...]]:
    """Give the shapes in which an input may want the same values: its own, with other 1s, each row a sample."""
    yield shape
    sizes = tuple(dim for dim in shape if dim != 1)
    ones = len(spec.shape) - len(sizes)
    for before in range(ones, -1, -1):
        yield (1,) * before + sizes + (1,) * (ones - before)
    yield (shape[0], *(dim for dim in spec.shape[1:] if isinstance(dim, int)))


_READERS: dict[str, Callable[[Path, TensorSpec], Any]] = {
    ".json": _json,
    ".bin": _bytes,
    ".safetensors": _safetensors,
    ".npy": _npy,
    ".npz": _npy,
    ".csv": _csv,
    ".txt": _text,
    ".wav": _wav,
    **dict.fromkeys(IMAGES, _image),
}
