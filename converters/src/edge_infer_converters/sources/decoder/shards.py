"""The weights of a folder: safetensors files, memory-mapped, read a few rows at a time."""

from __future__ import annotations

import mmap
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from edge_infer.errors import BundleError, ConversionError, UnsupportedModel, listed
from edge_infer.formats.safetensors import read_views
from edge_infer.tensors.dtypes import DType
from edge_infer_converters.sources.decoder.files import read_object

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from edge_infer.generation.weight_file import Encoding

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"
_DTYPES = {DType.FLOAT32: "<f4", DType.FLOAT16: "<f2", DType.BFLOAT16: "<u2"}
_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")


class StoredTensor(NamedTuple):
    """A tensor of a file.

    Attributes:
        array: Its values where the file is mapped: bfloat16 as the upper halves of float32; bytes of other types.
        dtype: What the file says they are.
    """

    array: np.ndarray
    dtype: DType

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.array.shape

    @property
    def is_float(self) -> bool:
        """Whether its values can be read: float32, float16 and bfloat16."""
        return self.dtype in _DTYPES

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Return some rows as float32."""
        part = np.ascontiguousarray(self.array[start:stop])
        if self.dtype is DType.BFLOAT16:
            return (part.astype(np.uint32) << 16).view(np.float32)
        return part.astype(np.float32)

    @property
    def native(self) -> Encoding | None:
        """None: the values have no blocks."""
        return None

    def blocks(self, start: int, stop: int, encoding: Encoding) -> tuple[bytes, bytes] | None:  # noqa: ARG002
        """Return None: the values have no blocks."""
        return None

    def transposed(self) -> StoredTensor:
        """Return the transpose; nothing is copied."""
        return self._replace(array=self.array.T)


class Shards:
    """The tensors of a folder by name; use it in a `with` statement.

    Args:
        folder: The folder.

    Raises:
        ConversionError: There are no weights, a file is missing or damaged, or a tensor stands in two files.
        UnsupportedModel: The weights are pickled.
    """

    def __init__(self, folder: Path) -> None:
        self.tensors: dict[str, StoredTensor] = {}
        self._maps: list[mmap.mmap] = []
        index = _read_index(folder)
        files = sorted({*index.values()}) if index is not None else [_single(folder)]
        for name in files:
            for tensor, stored in self._read(folder / name).items():
                if index is not None and index.get(tensor, name) != name:
                    continue  # as transformers: the index decides
                self.tensors[tensor] = stored
        lost = [] if index is None else [name for name in index if name not in self.tensors]
        if lost:
            raise ConversionError(
                f"`{folder / index[lost[0]] if index else folder}` lacks the tensor `{lost[0]}`, which "
                f"{INDEX_NAME} promises, and {len(lost) - 1} more",
                hint="download the file again",
            )

    @property
    def nbytes(self) -> int:
        """The size of all tensors."""
        return sum(one.array.nbytes for one in self.tensors.values())

    def forget_pages(self) -> None:
        """Give the memory of what was read back to the system, which reads it again from the file where it must."""
        for one in self._maps:
            if hasattr(mmap, "MADV_DONTNEED"):
                one.madvise(mmap.MADV_DONTNEED)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tensors.clear()
        for one in self._maps:
            with suppress(BufferError):  # a view of it is alive still: it is unmapped with that
                one.close()

    def _read(self, path: Path) -> dict[str, StoredTensor]:
        try:
            with path.open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError as error:
            raise ConversionError(
                f"`{path}` is missing: {INDEX_NAME} names it", hint="download the folder again, with all its files"
            ) from error
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise ConversionError(f"`{path}` cannot be read: {error}", hint="download the file again") from error
        self._maps.append(data)
        try:
            tensors = read_views(memoryview(data))
        except BundleError as error:
            raise ConversionError(f"`{path}`: {error.message}", hint="download the file again") from error
        return {name: _stored(path, name, tensor.dtype, tensor.shape, tensor.data) for name, tensor in tensors.items()}


def _stored(path: Path, name: str, dtype: DType, shape: tuple[int, ...], data: bytes | memoryview) -> StoredTensor:
    if dtype not in _DTYPES:
        # Masks and counters of old checkpoints are integers and never read: their bytes are enough.
        return StoredTensor(np.frombuffer(data, np.uint8), dtype)
    try:
        array = np.frombuffer(data, _DTYPES[dtype]).reshape(shape)
    except ValueError as error:
        raise ConversionError(f"`{path}`: tensor `{name}`: {error}", hint="download the file again") from error
    return StoredTensor(array, dtype)


def _read_index(folder: Path) -> Mapping[str, str] | None:
    """Return the file of each tensor by its name; None where there is one file only."""
    path = folder / INDEX_NAME
    if not path.is_file() or (folder / SINGLE_NAME).is_file():
        return None
    index = read_object(path).get("weight_map")
    if not isinstance(index, dict) or not index or not all(_is_name(one) for one in index.values()):
        raise ConversionError(
            f"`{path}`: `weight_map` is not an object of file names", hint="download the file again", field="weight_map"
        )
    return index


def _is_name(value: object) -> bool:
    """Tell whether a value names a file of the same folder."""
    return isinstance(value, str) and value.endswith(".safetensors") and Path(value).name == value


def _single(folder: Path) -> str:
    if (folder / SINGLE_NAME).is_file():
        return SINGLE_NAME
    found = sorted(path.name for path in folder.glob("*.safetensors"))
    if len(found) == 1:
        return found[0]
    if found:
        raise ConversionError(
            f"`{folder}` has {len(found)} files of weights ({listed(found[:4])}) and no {INDEX_NAME} that says which "
            "tensor is where",
            hint=f"download {INDEX_NAME} too",
        )
    if any((folder / name).is_file() for name in _PICKLES):
        raise UnsupportedModel(
            f"`{folder}` holds pickled weights ({_PICKLES[0]}), which run code when they are read",
            hint="save them again with transformers: model.save_pretrained(FOLDER, safe_serialization=True)",
        )
    raise ConversionError(f"`{folder}` has no {SINGLE_NAME}", hint="download the folder with its weights")
