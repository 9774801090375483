"""Weights that stay in the files beside a model: each is read when it is asked for, so that none need be in memory.

A model with more than protobuf's 2 GB has a graph whose large initializers have a name, a type and dimensions but no
values (`graphs.without_weights` makes such graphs too); the values are found here by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

from edge_infer.errors import ConversionError
from edge_infer_converters.passes.graphs import tensors_of

if TYPE_CHECKING:
    from pathlib import Path

    import onnxruntime

#: A smaller tensor is read at once: shapes and axes, which passes look at.
_LEAST_BYTES = 2**16
#: So that an engine can read any element where it lies.
_ALIGNMENT = 4096
_PART = 2**24
#: Two values of these types share a byte of a file, and numpy has no such arrays.
_HALF_BYTES = (TensorProto.UINT4, TensorProto.INT4)


class _Place(NamedTuple):
    """The place of a tensor: its file, where its bytes begin, its type and dimensions."""

    file: Path
    offset: int
    dtype: int
    dims: tuple[int, ...]


class WeightsInFiles(Mapping[str, TensorProto]):
    """The values of a model's large initializers, by name; see `read_apart`."""

    def __init__(self, places: Mapping[str, _Place]) -> None:
        self._places = dict(places)

    def __getitem__(self, name: str) -> TensorProto:
        found = self.array(name)
        place = self._places[name]
        return TensorProto(name=name, data_type=place.dtype, dims=place.dims, raw_data=found.tobytes())

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def array(self, name: str) -> np.ndarray:
        """Return a tensor as a view of its file."""
        place = self._places[name]
        dtype = helper.tensor_dtype_to_np_dtype(place.dtype)
        return np.memmap(place.file, dtype, "r", place.offset, place.dims)

    def nbytes(self, name: str) -> int:
        """Return the bytes of a tensor without reading it."""
        place = self._places[name]
        return prod(place.dims) * int(helper.tensor_dtype_to_np_dtype(place.dtype).itemsize)

    @property
    def total(self) -> int:
        """The bytes of all tensors."""
        return sum(map(self.nbytes, self))

    def dtype(self, name: str) -> int:
        """Return the ONNX type of a tensor."""
        return self._places[name].dtype

    def nan(self) -> list[str]:
        """Name the float tensors that hold NaN."""
        floats = (name for name in self if self.array(name).dtype.kind == "f")
        return [name for name in floats if any(np.isnan(part).any() for part in self._parts(name))]

    def give_to(self, options: onnxruntime.SessionOptions) -> list[object]:
        """Let a session read the tensors where they lie; return what must live as long as it."""
        import onnxruntime

        kept: list[object] = []
        for name in self:
            view = np.asarray(self.array(name))
            if view.dtype.kind == "V":  # bfloat16, which is none of numpy's own types
                value = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(view, self.dtype(name))
            else:
                value = onnxruntime.OrtValue.ortvalue_from_numpy(view)
            options.add_initializer(name, value)
            kept += (view, value)
        return kept

    def refer(self, model: onnx.ModelProto, location: str) -> onnx.ModelProto:
        """Return a copy whose large initializers refer to a file, as `write` writes it."""
        referring = onnx.ModelProto()
        referring.CopyFrom(model)
        offset = 0
        for tensor in referring.graph.initializer:
            if tensor.name not in self._places:
                continue
            offset += -offset % _ALIGNMENT
            tensor.data_location = TensorProto.EXTERNAL
            size = self.nbytes(tensor.name)
            for key, value in (("location", location), ("offset", str(offset)), ("length", str(size))):
                tensor.external_data.add(key=key, value=value)
            offset += size
        return referring

    def write(self, model: onnx.ModelProto, path: Path) -> None:
        """Write the values of a model's large initializers into a file, a part at a time."""
        with path.open("wb") as file:
            for tensor in model.graph.initializer:
                if tensor.name in self._places:
                    file.write(bytes(-file.tell() % _ALIGNMENT))
                    for part in self._parts(tensor.name):
                        file.write(part.tobytes())

    def _parts(self, name: str) -> Iterator[np.ndarray]:
        """Yield the elements in pieces, each from a view of its own: pages that were read may go again."""
        place, count = self._places[name], prod(self._places[name].dims)
        dtype = helper.tensor_dtype_to_np_dtype(place.dtype)
        for start in range(0, count, _PART):
            size = min(_PART, count - start)
            yield np.fromfile(place.file, dtype, size, offset=place.offset + start * dtype.itemsize)


def nbytes_in_files(tensor: TensorProto) -> int:
    """Return how many bytes a tensor has outside of its model, -1 where its type or dimensions are not possible."""
    if tensor.data_location != TensorProto.EXTERNAL:
        return 0
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except KeyError:
        return -1
    if dtype.hasobject or min(tensor.dims, default=0) < 0:
        return -1
    count = int(prod(tensor.dims))
    return (count + 1) // 2 if tensor.data_type in _HALF_BYTES else count * int(dtype.itemsize)


def read_apart(model: onnx.ModelProto, folder: Path, name: str) -> WeightsInFiles:
    """Take the references to large external tensors out of a model, in place, and return where their values lie.

    Small ones are read.

    Args:
        model: A model as it was parsed.
        folder: The folder that its files lie in, none of which leads out of it.
        name: What to call it in an error.

    Raises:
        ConversionError: A tensor lies outside its file, has values of 4 bits, or is in a subgraph.
    """
    places: dict[str, _Place] = {}
    sizes: dict[Path, int] = {}
    outer = ((tensor, True) for tensor in model.graph.initializer)
    inner = (
        (tensor, False) for tensor in tensors_of(model.graph)
    )  # which are external still, once the others were read
    for tensor, is_outer in chain(outer, inner):
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        file = folder / entries.get("location", "")
        offset = int(entries.get("offset") or 0) if (entries.get("offset") or "0").isdecimal() else -1
        held = sizes.setdefault(file, file.stat().st_size)
        size = nbytes_in_files(tensor)
        told = entries.get("length") or "0"  # which a file may leave out
        if told != "0" and told != str(size) and size >= 0:
            raise ConversionError(
                f"`{tensor.name}` of `{name}` has the dimensions {list(tensor.dims)}, which take {size} bytes; its "
                f"file keeps {told} for it",
                hint="copy or export the model again",
            )
        if size < 0:
            raise ConversionError(
                f"`{tensor.name}` of `{name}` has the type {tensor.data_type} and the dimensions {list(tensor.dims)}, "
                "which no file of weights has",
                hint="copy or export the model again",
            )
        if offset < 0 or offset + size > held:
            raise ConversionError(
                f"`{tensor.name}` of `{name}` has {size} bytes at {offset} of `{file.name}`, which has {held}",
                hint="copy or export the weights again",
            )
        tensor.ClearField("data_location")
        del tensor.external_data[:]
        if size >= _LEAST_BYTES and not is_outer:
            raise ConversionError(
                f"`{tensor.name}` of `{name}` has {size} bytes inside a subgraph, and the model more than 2 GB in all: "
                "such weights are not read apart",
                hint="export it without If, Loop and Scan around large weights",
            )
        if size >= _LEAST_BYTES and tensor.data_type in _HALF_BYTES:
            raise ConversionError(
                f"`{tensor.name}` of `{name}` has weights of 4 bits, and the model more than 2 GB in all: such weights "
                "are not read apart",
                hint="convert it before its weights are quantized",
            )
        if size >= _LEAST_BYTES:
            places[tensor.name] = _Place(file, offset, tensor.data_type, tuple(tensor.dims))
        else:
            with file.open("rb") as stream:
                stream.seek(offset)
                tensor.raw_data = stream.read(size)
    return WeightsInFiles(places)


def with_values(model: onnx.ModelProto, weights: WeightsInFiles, but: set[str]) -> onnx.ModelProto:
    """Return a copy in which all initializers but these have their values."""
    filled = onnx.ModelProto()
    filled.CopyFrom(model)
    for tensor in filled.graph.initializer:
        if tensor.name in weights and tensor.name not in but:
            tensor.CopyFrom(weights[tensor.name])
    return filled


class Stored(Mapping[str, TensorProto]):
    """The initializers of a graph by name; those without values are found elsewhere, each when it is asked for."""

    def __init__(self, graph: onnx.GraphProto, apart: Mapping[str, TensorProto]) -> None:
        self._own = {tensor.name: tensor for tensor in graph.initializer}
        self._apart = apart

    def __getitem__(self, name: str) -> TensorProto:
        return self._apart.get(name, self._own[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)
