"""Tensors as bytes: the safetensors format, read and written without numpy.

The format (https://huggingface.co/docs/safetensors) is 8 bytes of header length, a JSON header that gives each
tensor's dtype, shape and byte range, and the data. It knows neither strings nor 4-bit integers; these are stored as
`U8` and named in the header's `__metadata__` as `dtype:dim,dim`: 4-bit values packed two to a byte, strings each as
4 bytes of length and UTF-8, like BYTES in the Open Inference Protocol.

Golden examples of a bundle are one such file, `examples/golden.safetensors`, whose tensors are called
`inputs/000/NAME` and `outputs/000/NAME`. Two more notes stand in its `__metadata__`: `drawn:START:dtype:dim,dim` of a
random input, whose values `tensors.drawn` makes and of which no byte is stored, and `picked:dim,dim` of an output of
that shape, of which `tensors.picked` has taken elements.
"""

from __future__ import annotations

import json
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from edge_infer.errors import BundleError, InputError
from edge_infer.tensors.drawn import DrawnTensor, draw
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.picked import PickedTensor
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NAMES = {
    DType.FLOAT32: "F32",
    DType.FLOAT64: "F64",
    DType.FLOAT16: "F16",
    DType.BFLOAT16: "BF16",
    DType.INT8: "I8",
    DType.UINT8: "U8",
    DType.INT16: "I16",
    DType.UINT16: "U16",
    DType.INT32: "I32",
    DType.UINT32: "U32",
    DType.INT64: "I64",
    DType.UINT64: "U64",
    DType.BOOL: "BOOL",
}
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}
#: The limit that the reference implementation sets.
_MAX_HEADER_BYTES = 100 * 10**6


_T = TypeVar("_T")


class TensorView(NamedTuple):
    """A tensor where its file lies: its bytes are those of the file, and none is copied."""

    dtype: DType
    shape: tuple[int, ...]
    data: memoryview


#: In front of each request and answer on a stream (docs/guide/serve.md): the client's number of the request, the bytes
#: of JSON that follow, and the bytes of tensors behind the JSON, all little-endian.
FRAME = Struct("<III")


def write_tensors(tensors: Mapping[str, Tensor], *, aligned: bool = False) -> bytes:
    """Write tensors as one safetensors file. The same tensors always give the same bytes.

    Args:
        tensors: The tensors by name.
        aligned: Whether tensors of larger elements come first, so that each begins at a multiple of its element's
            bytes; they are sorted by name alone else.
    """
    return _write(tensors, {}, aligned=aligned)


def _write(tensors: Mapping[str, Tensor], notes: Mapping[str, str], *, aligned: bool = False) -> bytes:
    """Write tensors; of those that are drawn, by their notes, no byte."""
    header: dict[str, Any] = {}
    metadata: dict[str, str] = {}
    chunks: list[bytes | memoryview] = []
    offset = 0
    names = sorted(tensors)
    if aligned:
        names.sort(key=lambda name: -tensors[name].dtype.nbytes((1,)))
    for name in names:
        tensor = tensors[name].to_host()
        stored, shape = _NAMES.get(tensor.dtype), list(tensor.shape)
        data: bytes | memoryview = tensor.data()
        if name in notes:
            metadata[name] = notes[name]
            if notes[name].startswith("drawn:"):
                stored, shape, data = "U8", [0], b""
        elif stored is None:
            metadata[name] = f"{tensor.dtype}:{','.join(map(str, shape))}"
            data = write_strings(tensor) if tensor.dtype is DType.STRING else data
            stored, shape = "U8", [len(data)]
        header[name] = {"dtype": stored, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        chunks.append(data)
        offset += len(data)
    if metadata:
        header["__metadata__"] = metadata
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return b"".join((len(text).to_bytes(8, "little"), text, *chunks))


def read_tensors(data: bytes | memoryview) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file; they share the bytes that were given.

    It refuses what the reference implementation refuses (safetensors 0.8, `SafeTensors::deserialize`): each byte of the
    data belongs to one tensor. It also refuses a header that says a key twice, or does not begin with `{`.

    Raises:
        BundleError: It is not such a file: a length, an offset or a dtype is wrong.
    """
    return _read(data, _read_one)


def read_views(data: memoryview) -> dict[str, TensorView]:
    """Read where the tensors of a file lie, such as one that is mapped into memory; as strict as `read_tensors`.

    Raises:
        BundleError: It is not such a file: a length, an offset, a shape or a dtype is wrong.
    """
    return _read(data, _view)


def _view(name: str, entry: dict[str, Any], _note: str | None, body: memoryview) -> TensorView:
    start, end = entry["data_offsets"]
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"tensor `{name}` is of {entry['dtype']!r}")
    found = TensorView(_DTYPES[entry["dtype"]], tuple(entry["shape"]), body[start:end])
    needed = found.dtype.nbytes(found.shape)
    if needed != end - start:
        raise ValueError(f"tensor `{name}` of shape {entry['shape']} takes {needed} bytes, got {end - start}")
    return found


def _read(
    data: bytes | memoryview, read_one: Callable[[str, dict[str, Any], str | None, memoryview], _T]
) -> dict[str, _T]:
    view = memoryview(data)
    length = int.from_bytes(view[:8], "little")
    if len(view) < 8 or length > min(_MAX_HEADER_BYTES, len(view) - 8):
        raise BundleError(f"Not a safetensors file: {len(view)} bytes, header of {length}", got=len(view))
    try:
        header, metadata = _header(str(view[8 : 8 + length], "utf-8"))
        body = view[8 + length :]
        _check_spans(header, len(body))
        return {name: read_one(name, entry, metadata.get(name), body) for name, entry in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BundleError(f"Not a safetensors file: {error}") from error


def _header(text: str) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Read the entries of the tensors, and the metadata."""
    if not text.startswith("{"):
        raise ValueError(f"the header begins with {text[:1]!r}, expected '{{'")
    header = json.loads(text, object_pairs_hook=_once, parse_constant=_refused)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(note, str) for note in metadata.values()):
        raise ValueError("`__metadata__` holds something else than texts")
    for name, entry in header.items():
        if not isinstance(entry, dict) or not entry.keys() >= {"dtype", "shape", "data_offsets"}:
            raise ValueError(f"the entry of `{name}` lacks a dtype, a shape or data_offsets")
        numbers = [*entry["shape"], *entry["data_offsets"]]
        is_list = isinstance(entry["shape"], list) and isinstance(entry["data_offsets"], list)
        # A bool is an int to Python.
        if not is_list or len(entry["data_offsets"]) != 2 or any(type(one) is not int or one < 0 for one in numbers):
            raise ValueError(f"the shape or the data_offsets of `{name}` are not whole numbers from 0 on")
    return header, metadata


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("the header says a key twice")
    return found


def _refused(name: str) -> None:
    raise ValueError(f"the header holds {name}")


def _check_spans(header: Mapping[str, dict[str, Any]], size: int) -> None:
    """Refuse tensors that overlap, and bytes that belong to none."""
    reached = 0
    for (start, end), name in sorted((tuple(entry["data_offsets"]), name) for name, entry in header.items()):
        if start != reached or end < start:
            raise ValueError(f"tensor `{name}` spans bytes {start} to {end}, expected {reached} on")
        reached = end
    if reached != size:
        raise ValueError(f"the tensors take {reached} of {size} bytes")


def _read_one(name: str, entry: dict[str, Any], note: str | None, body: memoryview) -> Tensor:
    start, end = entry["data_offsets"]
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"tensor `{name}` is of {entry['dtype']!r}")
    dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
    part = body[start:end]
    if note is None:
        return Tensor(part, dtype, shape)
    kind, _, dims = note.partition(":")
    dtype, shape = DType.parse(kind), _dims(dims)
    return Tensor(read_strings(part) if dtype is DType.STRING else part, dtype, shape)


def _read_golden(name: str, entry: dict[str, Any], note: str | None, body: memoryview) -> Tensor:
    """Read a tensor of golden examples. Only theirs may be drawn: no other file may ask for memory by a note."""
    kind, _, rest = (note or "").partition(":")
    if kind == "drawn":
        start, dtype, dims = rest.split(":")
        return draw(DType.parse(dtype), _dims(dims), int(start))
    if kind != "picked":
        return _read_one(name, entry, note, body)
    part = _read_one(name, entry, None, body)
    picked = PickedTensor(part.data(), part.dtype, part.shape)
    picked.whole = _dims(rest)
    if len(picked.shape) != len(picked.whole) or any(n > of for n, of in zip(picked.shape, picked.whole, strict=True)):
        raise ValueError(f"tensor `{name}` of shape {picked.shape} is said to be a part of {rest}")
    return picked


def _note(tensor: Tensor) -> str:
    if isinstance(tensor, DrawnTensor):
        return f"drawn:{tensor.start}:{tensor.dtype}:{','.join(map(str, tensor.shape))}"
    return f"picked:{','.join(map(str, tensor.whole))}" if isinstance(tensor, PickedTensor) else ""


def _dims(text: str) -> tuple[int, ...]:
    return tuple(int(dim) for dim in text.split(",") if dim)


def write_strings(tensor: Tensor) -> bytes:
    """Write a tensor of strings flat, each as 4 little-endian bytes of length and its UTF-8 bytes."""
    encoded = [str(text).encode() for text in tensor.reshape(-1)]
    return b"".join(len(text).to_bytes(4, "little") + text for text in encoded)


def read_strings(data: bytes | memoryview) -> list[str]:
    """Read what `write_strings` wrote.

    Raises:
        InputError: A length runs over the end, or the text is not UTF-8.
    """
    found: list[str] = []
    offset = 0
    while offset < len(data):
        end = offset + 4 + int.from_bytes(data[offset : offset + 4], "little")
        if offset + 4 > len(data) or end > len(data):
            raise InputError(
                f"String {len(found)} runs over the end of its {len(data)} bytes",
                hint="each text is its length in 4 bytes, little-endian, and its UTF-8",
            )
        try:
            found.append(str(data[offset + 4 : end], "utf-8"))
        except UnicodeDecodeError as error:
            raise InputError(f"String {len(found)} is not UTF-8: {error}", hint="encode texts as UTF-8") from error
        offset = end
    return found


Example = tuple[dict[str, Tensor], dict[str, Tensor]]


def write_examples(examples: list[Example]) -> bytes:
    """Write golden examples, each (inputs, outputs) by tensor name, as one file."""
    tensors = {}
    for i, sides in enumerate(examples):
        for side, named in zip(("inputs", "outputs"), sides, strict=True):
            tensors.update({f"{side}/{i:03}/{name}": tensor for name, tensor in named.items()})
    return _write(tensors, {name: note for name, tensor in tensors.items() if (note := _note(tensor))})


def read_examples(data: bytes | memoryview) -> list[Example]:
    """Read the golden examples that `write_examples` wrote.

    Raises:
        BundleError: It is not such a file.
    """
    examples: dict[int, Example] = {}
    for key, tensor in _read(data, _read_golden).items():
        side, _, rest = key.partition("/")
        index, _, name = rest.partition("/")
        if side not in ("inputs", "outputs") or not index.isdecimal() or not name:
            raise BundleError(f"Golden examples hold a tensor `{key}`, expected `inputs/000/NAME`", got=key)
        examples.setdefault(int(index), ({}, {}))[0 if side == "inputs" else 1][name] = tensor
    return [examples[i] for i in sorted(examples)]
