"""Read samples from a folder of arrays or images, one sample in each file."""

from __future__ import annotations

import hashlib
import zlib
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np

from edge_infer.errors import InputError, listed
from edge_infer.formats.input_files import IMAGES, read_image

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.tensors.tensor import TensorSpec


#: The name under which a file may hold the right classes.
LABELS = "labels"


def read_folder(folder: Path, specs: tuple[TensorSpec, ...]) -> tuple[dict[str, list[np.ndarray]], str]:
    """Read all samples of a folder in the order of their names.

    Args:
        folder: Holds `.npz` files with an array for each input, and `labels` with the right class where all have it;
            for a model of one input `.npy` files or images of its height and width too. An array has its input's
            shape, with or without the first dimension, and sizes that are free may differ between samples. Nothing is
            resized. Values of images are 0 to 255 for `uint8`, and 0 to 1 for floats.
        specs: The model's inputs.

    Returns:
        The samples of each input, each without the first dimension, and of `labels`; and the sha256 of the files.

    Raises:
        InputError: A file cannot be read or does not fit.
    """
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in (".npy", ".npz", *IMAGES))
    if not files:
        raise InputError(
            f"`{folder}` holds no .npy or .npz file and no image", hint=f"images are {listed(list(IMAGES))}"
        )
    digest = hashlib.sha256()
    samples: dict[str, list[np.ndarray]] = {}
    for file in files:
        data = file.read_bytes()
        digest.update(f"{file.name}\0{len(data)}\0".encode())
        digest.update(data)
        found = _read_sample(file, specs)
        if samples and found.keys() != samples.keys():
            raise InputError(
                f"`{file}` has {listed(sorted(found))}, `{files[0].name}` has {listed(sorted(samples))}",
                hint=f"save `{LABELS}` in each file, or in none",
            )
        for name, sample in found.items():
            samples.setdefault(name, []).append(sample)
    return samples, digest.hexdigest()


def _read_sample(file: Path, specs: tuple[TensorSpec, ...]) -> dict[str, np.ndarray]:
    arrays = _read_arrays(file) if file.suffix.lower() == ".npz" else None
    if arrays is not None:
        missing = [spec.name for spec in specs if spec.name not in arrays]
        if missing:
            raise InputError(
                f"`{file}` has no array `{missing[0]}`; it has {listed(sorted(arrays))}",
                hint=f"save an array for each of {listed([spec.name for spec in specs])}",
                tensor=missing[0],
            )
        extra = sorted(arrays.keys() - {spec.name for spec in specs} - {LABELS})
        if extra:
            raise InputError(
                f"`{file}` has an array `{extra[0]}`, which is not an input; the inputs are "
                f"{listed([spec.name for spec in specs])}",
                hint="save the model's inputs alone",
                tensor=extra[0],
            )
        found = {spec.name: _sample(file, arrays[spec.name], spec) for spec in specs}
        if LABELS in arrays and LABELS not in found:
            found[LABELS] = arrays[LABELS].reshape(-1)[0] if arrays[LABELS].size == 1 else arrays[LABELS]
        return found
    if len(specs) != 1:
        raise InputError(
            f"`{file}` holds one input, and this model takes {listed([spec.name for spec in specs])}",
            hint="save them together: np.savez(FILE, NAME=array, ...)",
        )
    (spec,) = specs
    sample = _read_array(file, spec) if file.suffix.lower() == ".npy" else _read_image(file, spec)
    return {spec.name: sample}


def _read_arrays(file: Path) -> dict[str, np.ndarray]:
    try:
        with file.open("rb") as opened:
            return dict(np.load(opened, allow_pickle=False))
    except (OSError, ValueError, EOFError, TypeError, BadZipFile, zlib.error) as error:
        raise InputError(f"`{file}` cannot be read: {error}", hint="pickled arrays are refused") from error


def _read_array(file: Path, spec: TensorSpec) -> np.ndarray:
    try:
        array: np.ndarray = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"`{file}` cannot be read: {error}", hint="pickled arrays are refused") from error
    return _sample(file, array, spec)


def _sample(file: Path, array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    if array.ndim == len(spec.shape) and array.shape[:1] == (1,):
        array = array[0]
    if not _fits(array.shape, spec):
        raise _wrong_shape(file, array.shape, spec)
    return array


def _read_image(file: Path, spec: TensorSpec) -> np.ndarray:
    sample = read_image(file, spec)
    if not _fits(sample.shape, spec):
        raise _wrong_shape(file, sample.shape, spec)
    return sample


def _fits(shape: tuple[int, ...], spec: TensorSpec) -> bool:
    return spec.accepts((spec.shape[0] if spec.shape and isinstance(spec.shape[0], int) else 1, *shape))


def _wrong_shape(file: Path, shape: tuple[int, ...], spec: TensorSpec) -> InputError:
    wanted = ", ".join(map(str, spec.shape[1:]))
    return InputError(
        f"`{file}` has shape {shape}, expected ({wanted})",
        hint="resize and normalise samples as the model wants them, and save them as .npy",
        tensor=spec.name,
        expected=list(spec.shape[1:]),
        got=list(shape),
    )
