"""Calibration and evaluation inputs, and how they are read from a file, a folder or a function.

A `CalibrationSet` holds single calls, each a mapping from input name to array. Files hold one array for each input,
samples along the first axis; each call takes one sample where the model's first dimension is free.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from edge_infer.errors import BundleError, InputError, did_you_mean, listed
from edge_infer.formats import safetensors
from edge_infer.tensors.dtypes import DType
from edge_infer_converters.data.folders import LABELS, read_folder
from edge_infer_converters.data.functions import import_function

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from edge_infer.tensors.tensor import Tensor, TensorSpec
    from edge_infer_converters.data.detections import Detections

    #: The inputs of one call, by name.
    Feeds = dict[str, np.ndarray]
    #: The samples of each input, by name: along the first axis of an array, or a list where their shapes differ.
    Samples = Mapping[str, np.ndarray | list[np.ndarray]]

#: The origin of drawn inputs.
RANDOM = "random"
#: How many samples are taken of a function that yields them without end.
MAX_FUNCTION_CALLS = 4096


@dataclass(frozen=True, slots=True)
class CalibrationSet:
    """Inputs for single calls, and where they come from.

    Attributes:
        calls: The inputs of each call, by name.
        classes: The right class of each call's samples, or None where the file names none.
        origin: The file's name, `random`, or `made-up sentences`.
        sha256: The sha256 of the file, empty for inputs that were not given.
        starts: Of random inputs where in the cycle of `tensors.drawn` each starts, by call and name, and -1 where
            nothing was drawn; empty for others.
        detections: The objects of each call's image, and what reads detections of outputs; None for other data.
    """

    calls: tuple[Feeds, ...]
    classes: np.ndarray | None
    origin: str
    sha256: str = ""
    starts: tuple[Mapping[str, int], ...] = ()
    detections: Detections | None = None

    def __str__(self) -> str:
        return (
            f"{len(self.calls)} random samples"
            if self.origin == RANDOM
            else f"{len(self.calls)} samples of {self.origin}"
        )

    @property
    def is_made_up(self) -> bool:
        """Whether the inputs were drawn or written here, and not given."""
        return not self.sha256

    @property
    def is_judged(self) -> bool:
        """Whether somebody says what is right: the classes, or the objects."""
        return self.classes is not None or self.detections is not None

    def first(self, count: int) -> CalibrationSet:
        """Return the first calls only."""
        if count >= len(self.calls):
            return self
        per_call = 0 if self.classes is None else len(self.classes) // len(self.calls)
        classes = None if self.classes is None else self.classes[: count * per_call]
        detections = None if self.detections is None else self.detections.first(count)
        calls, starts = self.calls[:count], self.starts[:count]
        return CalibrationSet(calls, classes, self.origin, self.sha256, starts, detections)

    def spread(self, count: int) -> CalibrationSet:
        """Return some calls without labels, evenly spread over all of them: data are often sorted by class."""
        if count >= len(self.calls):
            return self
        places = [len(self.calls) * i // count for i in range(count)]
        starts = tuple(self.starts[place] for place in places) if self.starts else ()
        return CalibrationSet(tuple(self.calls[place] for place in places), None, self.origin, self.sha256, starts)


def read_set(path: str | os.PathLike[str], specs: Sequence[TensorSpec]) -> CalibrationSet:
    """Read inputs from a `.npz`, `.npy` or `.safetensors` file, a folder, or a function.

    Args:
        path: The file; a folder of samples (`folders.read_folder`); or `package.module:function` that
            gives or yields a mapping from input name to the array of one sample, the first dimension left out.
            A `.npz` or `.safetensors` holds an array for each input under its name, and may hold
            `labels`, the right class of each sample; a `.npy` is the only input of a model.
        specs: The model's inputs.

    Raises:
        InputError: The file cannot be read, or its arrays do not fit the specs; the message names which and how.
    """
    place = Path(path)
    arrays: Samples
    if _is_function(place):
        arrays, digest = _from_function(str(path), specs)
    elif place.is_dir():
        samples, digest = read_folder(place, tuple(specs))
        arrays = {name: _joined(one) for name, one in samples.items()}
    else:
        arrays = _read_arrays(place, specs)
        digest = hashlib.sha256(place.read_bytes()).hexdigest()
    return _checked_set(arrays, specs, place, digest)


def _checked_set(arrays: Samples, specs: Sequence[TensorSpec], place: Path, digest: str) -> CalibrationSet:
    """Check arrays against the specs, and cut them into calls."""
    names = [spec.name for spec in specs]
    for spec in specs:
        if spec.name not in arrays:
            raise InputError(
                f"`{place}` has no array `{spec.name}`; it has {listed(sorted(arrays))}",
                hint=did_you_mean(spec.name, sorted(arrays)) or f"save it with an array for each of {listed(names)}",
                tensor=spec.name,
            )
    extra = sorted(set(arrays) - set(names) - {LABELS})
    if extra:
        raise InputError(
            f"`{place}` has an array `{extra[0]}`, which is not an input; the inputs are {listed(names)}",
            hint=did_you_mean(extra[0], names),
            tensor=extra[0],
        )
    for name in names:
        _check_finite(arrays[name], name, place)
    split = {spec.name: _split(arrays[spec.name], spec, place) for spec in specs}
    counts = {name: len(parts) for name, parts in split.items()}
    if len(set(counts.values())) > 1:
        said = ", ".join(f"`{name}` {count}" for name, count in counts.items())
        raise InputError(
            f"The arrays of `{place}` have different numbers of samples: {said}",
            hint="give each input the same number of samples, along the first axis",
        )
    count = next(iter(counts.values()), 0)
    if count == 0:
        raise InputError(f"`{place}` holds no sample", hint=f"np.savez({place.name!r}, {names[0]}=samples)")
    calls = tuple({name: parts[i] for name, parts in split.items()} for i in range(count))
    given = arrays[LABELS] if LABELS in arrays and LABELS not in names else None
    if isinstance(given, list):
        raise InputError(
            f"`{LABELS}` of `{place}` has another shape in each sample, expected one integer",
            hint=f"save the index of the right class for each sample: {LABELS}=5",
            tensor=LABELS,
        )
    classes = given
    if classes is not None and (classes.ndim != 1 or classes.dtype.kind not in "iu" or len(classes) % count):
        raise InputError(
            f"`{LABELS}` of `{place}` has dtype {classes.dtype} and shape {classes.shape}, expected {count} integers",
            hint=f"save the index of the right class for each sample: {LABELS}=classes",
            tensor=LABELS,
        )
    return CalibrationSet(calls, classes, place.name, digest)


def _is_function(path: Path) -> bool:
    """Tell whether this names `package.module:function` and no file."""
    module, colon, name = str(path).partition(":")
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _from_function(path: str, specs: Sequence[TensorSpec]) -> tuple[Samples, str]:
    """Take samples from the user's generator: mappings from input name to the array of one sample.

    A model of one input takes bare arrays too. At most `MAX_FUNCTION_CALLS` are taken of a generator that goes on.
    """
    found: dict[str, list[np.ndarray]] = {}
    function = import_function(path)
    try:
        for count, given in enumerate(islice(function(), MAX_FUNCTION_CALLS)):
            sample = given if isinstance(given, dict) else {specs[0].name: given}
            if count and sample.keys() != found.keys():
                raise InputError(
                    f"`{path}` gave {listed(sorted(sample))} after {listed(sorted(found))}",
                    hint="yield the same inputs each time",
                )
            for name, value in sample.items():
                found.setdefault(name, []).append(np.asarray(value))
    except InputError:
        raise
    except Exception as error:  # the user's code raises what it likes
        raise InputError(
            f"`{path}` raised {type(error).__name__}: {error}",
            hint="it is called without arguments, and yields {input_name: array} for each sample",
        ) from error
    if not found:
        raise InputError(f"`{path}` gave no sample", hint="yield {input_name: array} for each")
    digest = hashlib.sha256()
    arrays = {name: _joined(values) for name, values in found.items()}
    for name, samples in arrays.items():
        for one in samples if isinstance(samples, list) else [samples]:
            digest.update(f"{name}{one.dtype}{one.shape}".encode())
            digest.update(one.tobytes())
    return arrays, digest.hexdigest()


def _joined(samples: list[np.ndarray]) -> np.ndarray | list[np.ndarray]:
    """Return samples along the first axis of one array; where their shapes differ as they are."""
    is_even = len({sample.shape for sample in samples}) == 1
    return np.stack(samples) if is_even else samples


def _read_arrays(path: Path, specs: Sequence[TensorSpec]) -> Mapping[str, np.ndarray]:
    if not path.is_file():
        raise InputError(
            f"There is no file `{path}`",
            hint="name an .npz, .npy or .safetensors file, a folder, or package.module:function",
        )
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        if path.suffix == ".npy":
            if len(specs) != 1:
                raise InputError(
                    f"`{path}` holds one array, the model takes {listed([spec.name for spec in specs])}",
                    hint="save them together: np.savez(FILE, NAME=array, ...)",
                )
            return {specs[0].name: np.load(path, allow_pickle=False)}
        if path.suffix == ".safetensors":
            return {name: _to_array(tensor) for name, tensor in safetensors.read_tensors(path.read_bytes()).items()}
    except InputError:
        raise
    except (OSError, ValueError, EOFError, KeyError, BundleError) as error:
        raise InputError(f"`{path}` cannot be read: {error}", hint="pickled arrays are refused") from error
    except Exception as error:  # zipfile and zlib have errors of their own
        raise InputError(
            f"`{path}` cannot be read: {error}", hint="write it again: np.savez(FILE, NAME=array)"
        ) from error
    raise InputError(
        f"`{path}` has the suffix `{path.suffix}`; choose from `.npz`, `.npy`, `.safetensors`", got=path.suffix
    )


def _check_finite(array: np.ndarray | list[np.ndarray], name: str, path: Path) -> None:
    if isinstance(array, list):
        for one in array:
            _check_finite(one, name, path)
    elif array.dtype.kind == "f" and not np.isfinite(array).all():
        where = ", ".join(map(str, np.argwhere(~np.isfinite(array))[0].tolist()))
        count = int((~np.isfinite(array)).sum())
        raise InputError(
            f"`{name}` of `{path}` holds {count} values that are NaN or infinite, the first at [{where}]",
            hint="leave these samples out",
            tensor=name,
        )


def _to_array(tensor: Tensor) -> np.ndarray:
    if tensor.dtype is DType.STRING:
        return np.array(tensor.tolist(), dtype=object).reshape(tensor.shape)
    if tensor.dtype in (DType.BFLOAT16, DType.INT4, DType.UINT4):
        raise ValueError(f"numpy has no type {tensor.dtype}")
    return np.frombuffer(tensor.data(), dtype=str(tensor.dtype)).reshape(tensor.shape)


def _split(array: np.ndarray | list[np.ndarray], spec: TensorSpec, path: Path) -> list[np.ndarray]:
    """Cut samples into the inputs of single calls."""
    if isinstance(array, list):
        return [call for one in array for call in _split(one[None], spec, path)]
    wanted = "object" if spec.dtype is DType.STRING else str(spec.dtype)
    if array.dtype.kind == "U" and spec.dtype is DType.STRING:
        array = array.astype(object)
    if array.dtype != np.dtype(wanted):
        raise InputError(
            f"`{spec.name}` of `{path}` has dtype {array.dtype}, expected {spec.dtype}",
            hint=f'save it with `{spec.name}=x.astype("{wanted}")`',
            tensor=spec.name,
        )
    rank = len(spec.shape)
    if array.ndim == rank + 1 and spec.accepts(array.shape[1:]):
        return [
            np.asarray(one, array.dtype) for one in array
        ]  # the first axis counts calls; of numbers it gives scalars
    if array.ndim == rank and rank and spec.accepts((_rows(spec), *array.shape[1:])):
        rows = _rows(spec)
        if len(array) % rows == 0:
            return [array[start : start + rows] for start in range(0, len(array), rows)]
    shape = f"(samples, {', '.join(map(str, spec.shape[1:]))})" if spec.shape else "(samples,)"
    raise InputError(
        f"`{spec.name}` of `{path}` has shape {array.shape}, expected {shape}",
        hint="the first axis counts samples, the others are those of the input",
        tensor=spec.name,
        expected=list(spec.shape),
        got=list(array.shape),
    )


def _rows(spec: TensorSpec) -> int:
    """How many rows one call takes: one where that is free."""
    first = spec.shape[0]
    return first if isinstance(first, int) and first > 0 else 1
