"""Read samples from a folder of `.npy` files or images, one sample in each file."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np

from edge_infer.errors import InputError, listed
from edge_infer.formats.input_files import IMAGES, read_image

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.tensors.tensor import TensorSpec


def read_folder(folder: Path, specs: tuple[TensorSpec, ...]) -> tuple[np.ndarray, str]:
    """Read all samples of a folder in the order of their names.

    Args:
        folder: Holds `.npy` files of the input's shape, with or without the first dimension, or images of its height
            and width. Nothing is resized. Values of images are 0 to 255 for `uint8`, and 0 to 1 for floats.
        specs: The model's inputs; there must be one.

    Returns:
        The samples, [samples, ...], and the sha256 of the files.

    Raises:
        InputError: The model has several inputs, or a file cannot be read or does not fit.
    """
    if len(specs) != 1:
        raise InputError(
            f"`{folder}` is a folder, which is for models of one input; this one takes "
            f"{listed([spec.name for spec in specs])}",
            hint="save them together: np.savez(FILE, NAME=array, ...)",
        )
    (spec,) = specs
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in (".npy", *IMAGES))
    if not files:
        raise InputError(f"`{folder}` holds no .npy file and no image", hint=f"images are {listed(list(IMAGES))}")
    digest = hashlib.sha256()
    samples: list[np.ndarray] = []
    for file in files:
        data = file.read_bytes()
        digest.update(f"{file.name}\0{len(data)}\0".encode())
        digest.update(data)
        sample = _read_array(file, spec) if file.suffix.lower() == ".npy" else _read_image(file, spec)
        if samples and sample.shape != samples[0].shape:
            raise InputError(
                f"`{file}` has shape {sample.shape}, `{files[0].name}` has {samples[0].shape}",
                hint="put samples of one shape into a folder",
            )
        samples.append(sample)
    return np.stack(samples), digest.hexdigest()


def _read_array(file: Path, spec: TensorSpec) -> np.ndarray:
    try:
        array: np.ndarray = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(f"`{file}` cannot be read: {error}", hint="pickled arrays are refused") from error
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
