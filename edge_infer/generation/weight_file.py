"""The weight file of a decoder: a safetensors file that the kernels read where it is mapped.

`__metadata__` holds the configuration as JSON. The tensor `program` tells the kernels what `generation.config` names
(`kernels.decoder_words`). Each tensor starts at a multiple of 16 bytes of the file: a tensor `pad.K` fills the hole
behind one whose bytes are no such multiple, as safetensors allows none. The last one is 64 bytes longer: the kernels
may read as much behind a tensor.
"""

from __future__ import annotations

import json
import math
import os
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from edge_infer.errors import BundleError, InputError, did_you_mean
from edge_infer.generation.config import BLOCK, DecoderConfig
from edge_infer.kernels import decoder_words as words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Encoding = Literal["f32", "f16", "int8", "int4"]
_BITS: dict[str, int] = {"f32": 32, "f16": 16, "int8": 8, "int4": 4}
_DTYPES: dict[str, str] = {"f32": "F32", "f16": "F16", "int8": "I8", "int4": "U8"}
#: Of a header.
MAX_HEADER_BYTES = 16 * 2**20
_NOT_OURS = "write it with `edge-infer convert`"


@dataclass(frozen=True, slots=True)
class Encoded:
    """A tensor as the weight file stores it.

    Args:
        encoding: Of its values; vectors are `f32`.
        shape: Of the tensor, not of its bytes: [rows, columns] of a matrix.
        values: Little-endian, rows first; of `int4` two to a byte, as `generation.config` says.
        scales: Float16 [rows, columns / 32] of `int8` and `int4`; None of the others.
    """

    encoding: Encoding
    shape: tuple[int, ...]
    values: bytes | bytearray | memoryview
    scales: bytes | bytearray | memoryview | None = None


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where a tensor lies in the file: its safetensors dtype and shape, and its bytes from the file's start."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int


class WeightFile:
    """An open weight file, mapped into memory; it closes as a context manager or by `close`.

    Args:
        path: The file.

    Raises:
        BundleError: It is not a weight file, or its parts do not fit together.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        import mmap  # which Pyodide lacks

        self.path = Path(path)
        try:
            with self.path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if size < 16:
                    raise BundleError(f"`{self.path.name}` is not a weight file: {size} bytes", hint=_NOT_OURS)
                #: The whole file. It is a private mapping, as ctypes takes the address of writable memory only.
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        except OSError as error:
            raise BundleError(f"The weight file `{self.path}` cannot be read: {error}") from error
        try:
            self.config, self.tensors = read_header(self.data, size)
        except BundleError:
            self.data.close()
            raise
        place = self.tensors["program"]
        #: The words that the kernels read, little-endian int32.
        self.program = self.data[place.start : place.end]

    def check_whole(self) -> None:
        """Check that the file is as long as when it was mapped: reading what was cut off would end the process.

        Raises:
            BundleError: It was cut.
        """
        size = self.data.size()
        if size < len(self.data):
            raise BundleError(
                f"The weight file `{self.path}` was cut to {size} of {len(self.data)} bytes while it was in use",
                hint="replace a file that is in use by renaming another one over it; then load the model again",
            )

    def close(self) -> None:
        """Unmap the file. A second call does nothing."""
        self.data.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_header(data: Any, size: int) -> tuple[DecoderConfig, dict[str, StoredTensor]]:
    """Read a weight file's configuration and where its tensors lie.

    Args:
        data: The file, or its first bytes with the whole header.
        size: The bytes of the whole file.

    Raises:
        BundleError: The header is damaged, or names places that the file does not have.
    """
    length = int.from_bytes(bytes(data[:8]), "little")
    if length > min(MAX_HEADER_BYTES, size - 8):
        raise BundleError(f"Not a weight file: {size} bytes, header of {length}", hint=_NOT_OURS)
    try:
        header = json.loads(str(bytes(data[8 : 8 + length]), "utf-8"))
        note = header.pop("__metadata__")["decoder"]
        config = DecoderConfig.of(json.loads(note))
        tensors = {name: _stored(name, entry, 8 + length, size) for name, entry in header.items()}
        program = tensors["program"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BundleError(f"Not a weight file: {error}", hint=_NOT_OURS) from error
    if program.dtype != "I32" or program.start % words.ALIGNMENT or (program.end - program.start) % 4:
        raise BundleError(f"The weight file's `program` is {program.dtype} at {program.start}", hint=_NOT_OURS)
    return config, tensors


def _stored(name: str, entry: Mapping[str, Any], base: int, size: int) -> StoredTensor:
    start, end = entry["data_offsets"]
    shape = tuple(entry["shape"])
    if any(type(one) is not int or one < 0 for one in (start, end, *shape)) or not start <= end <= size - base:
        raise ValueError(f"tensor `{name}` is at {entry['data_offsets']} of {size - base} bytes")
    return StoredTensor(str(entry["dtype"]), shape, base + start, base + end)


def tensor_shapes(config: DecoderConfig) -> dict[str, tuple[tuple[int, ...], bool]]:
    """Return the shape of every tensor that a decoder may have, and whether it must be there."""
    hidden, q_size, kv_size = config.hidden_size, config.heads * config.head_size, config.kv_heads * config.head_size
    up_size, is_rope = config.mlp_size * (2 if config.gated else 1), config.positions == "rope"
    kinds = set(config.layer_kinds or (0,))
    rotary = (config.rotary_size // 2,)
    shapes: dict[str, tuple[tuple[int, ...], bool]] = {
        "embedding": ((config.vocab_size, hidden), True),
        "head": ((config.vocab_size, hidden), False),
        "head.bias": ((config.vocab_size,), False),
        "positions": ((config.context + config.position_offset, hidden), not is_rope),
        "rope.0": (rotary, is_rope and 0 in kinds),
        "rope.1": (rotary, is_rope and 1 in kinds),
        "final_norm.weight": ((hidden,), True),
        "final_norm.bias": ((hidden,), False),
    }
    parts: dict[str, tuple[tuple[int, ...], bool]] = {
        "attention_norm.weight": ((hidden,), True),
        "attention_norm.bias": ((hidden,), False),
        "attention_post_norm.weight": ((hidden,), False),
        "qkv.weight": ((q_size + 2 * kv_size, hidden), True),
        "qkv.bias": ((q_size + 2 * kv_size,), False),
        "q_norm.weight": ((config.head_size,), False),
        "k_norm.weight": ((config.head_size,), False),
        "attention_output.weight": ((hidden, q_size), True),
        "attention_output.bias": ((hidden,), False),
        "mlp_norm.weight": ((hidden,), not config.parallel),
        "mlp_norm.bias": ((hidden,), False),
        "mlp_post_norm.weight": ((hidden,), False),
        "up.weight": ((up_size, hidden), True),
        "up.bias": ((up_size,), False),
        "down.weight": ((hidden, config.mlp_size), True),
        "down.bias": ((hidden,), False),
    }
    for layer in range(config.layers):
        shapes |= {f"layers.{layer}.{name}": parts[name] for name in words.LAYER_TENSORS}
    return shapes


def write_weight_file(
    path: str | os.PathLike[str],
    config: DecoderConfig,
    tensors: Iterable[tuple[str, Encoded]],
    done: Callable[[], None] = lambda: None,
) -> None:
    """Write a weight file whole or not at all. The same tensors in the same order give the same bytes.

    Args:
        path: Where to write it.
        config: Of the decoder.
        tensors: Every tensor by its name in `generation.config`; optional ones may be absent.
        done: Called after each tensor that was written.

    Raises:
        InputError: A tensor is missing, unknown, there twice, or not of the configuration's shape.
        OSError: It cannot be written; what was there before is still there.
    """
    if config.layer_kinds and len(config.layer_kinds) != config.layers:
        raise InputError(f"The decoder has {len(config.layer_kinds)} layer_kinds for {config.layers} layers")
    shapes, given = tensor_shapes(config), dict[str, Encoded]()
    for name, tensor in tensors:
        if name in given:
            raise InputError(f"The decoder's tensor `{name}` is there twice", tensor=name)
        _check(name, tensor, shapes)
        given[name] = tensor
    missing = [name for name, (_, is_needed) in shapes.items() if is_needed and name not in given]
    if missing:
        raise InputError(f"The decoder lacks the tensor `{missing[0]}` and {len(missing) - 1} more", tensor=missing[0])
    chunks: list[tuple[str, str, tuple[int, ...], Any]] = []
    for name, tensor in given.items():
        shape = tensor.shape if tensor.encoding != "int4" else (tensor.shape[0], tensor.shape[1] // 2)
        chunks.append((name, _DTYPES[tensor.encoding], shape, tensor.values))
        if tensor.scales is not None:
            blocks = (tensor.shape[0], tensor.shape[1] // BLOCK)
            chunks.append((f"{name}.scales", "F16", blocks, tensor.scales))
    _write(Path(path), config, given, chunks, done)


def _write(
    path: Path,
    config: DecoderConfig,
    given: Mapping[str, Encoded],
    chunks: list[tuple[str, str, tuple[int, ...], Any]],
    done: Callable[[], None],
) -> None:
    count = len(words.FIELDS) + 3 * len(words.TENSORS) + config.layers * words.LAYER_WORDS
    header: dict[str, Any] = {"__metadata__": {"decoder": json.dumps(config.to_json(), separators=(",", ":"))}}
    header["program"] = {"dtype": "I32", "shape": [count], "data_offsets": [0, 4 * count]}
    places, reached, pads = dict[str, int](), 4 * count, 0

    def fill(more: int = 0) -> None:
        nonlocal reached, pads
        hole = -reached % words.ALIGNMENT + more
        if hole:
            header[f"pad.{pads}"] = {"dtype": "U8", "shape": [hole], "data_offsets": [reached, reached + hole]}
            reached, pads = reached + hole, pads + 1

    for name, dtype, shape, data in chunks:
        fill()
        places[name] = reached
        end = reached + memoryview(data).nbytes
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [reached, end]}
        reached = end
    fill(words.SLACK)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % words.ALIGNMENT)
    base = 8 + len(text)
    program = _program(config, given, {name: base + place for name, place in places.items()})
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text + program)
            for name, _, _, data in chunks:
                file.write(bytes(base + places[name] - file.tell()))
                file.write(memoryview(data).cast("B"))
                done()
            file.write(bytes(base + reached - file.tell()))
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def program_fields(config: DecoderConfig) -> bytes:
    """Return the first words of a decoder's program: those that its configuration says."""
    values: dict[str, Any] = config.to_json()
    values |= {"magic": words.MAGIC, "version": words.VERSION}
    values["words"] = len(words.FIELDS) + 3 * len(words.TENSORS) + config.layers * words.LAYER_WORDS
    values["norm"] = words.NORMS.index(config.norm)
    values["activation"] = words.ACTIVATIONS.index(config.activation)
    values["positions"] = words.POSITIONS.index(config.positions)
    return b"".join(struct.pack("<f" if name in words.FLOATS else "<i", values[name]) for name in words.FIELDS)


def _program(config: DecoderConfig, given: Mapping[str, Encoded], places: Mapping[str, int]) -> bytes:
    """Return the words that the kernels read."""
    kinds = config.layer_kinds or (0,) * config.layers
    parts = [program_fields(config)]

    def add(name: str) -> None:
        tensor = given.get(name)
        row = (0, 0, 0)
        if tensor:
            scales = places.get(f"{name}.scales", 0) // words.ALIGNMENT
            row = (words.ENCODINGS.index(tensor.encoding), places[name] // words.ALIGNMENT, scales)
        parts.append(struct.pack("<3i", *row))

    for name in words.TENSORS:
        add(name)
    for layer in range(config.layers):
        parts.append(struct.pack("<i", kinds[layer]))
        for name in words.LAYER_TENSORS:
            add(f"layers.{layer}.{name}")
    return b"".join(parts)


def _check(name: str, tensor: Encoded, shapes: Mapping[str, tuple[tuple[int, ...], bool]]) -> None:
    if name not in shapes:
        raise InputError(f"Decoders have no tensor `{name}`", hint=did_you_mean(name, [*shapes]), tensor=name)
    expected = shapes[name][0]
    if tensor.encoding not in get_args(Encoding):
        raise InputError(f"`{name}` has the encoding `{tensor.encoding}`, expected one of {', '.join(_BITS)}")
    if tuple(tensor.shape) != expected:
        raise InputError(f"`{name}` has shape {list(tensor.shape)}, expected {list(expected)}", tensor=name)
    if len(expected) == 1 and tensor.encoding != "f32":
        raise InputError(f"`{name}` is a vector of {tensor.encoding}, expected f32", tensor=name)
    is_blocks = tensor.encoding in ("int8", "int4")
    if is_blocks and expected[1] % BLOCK:
        raise InputError(
            f"`{name}` has {expected[1]} columns, which blocks of {BLOCK} do not divide",
            hint="store it as f16 or f32",
            tensor=name,
        )
    sizes = {"values": (tensor.values, math.prod(expected) * _BITS[tensor.encoding] // 8)}
    if is_blocks or tensor.scales is not None:
        count = math.prod(expected) // BLOCK * 2 if is_blocks else 0
        sizes["scales"] = (tensor.scales if tensor.scales is not None else b"", count)
    for part, (data, wanted) in sizes.items():
        if (got := memoryview(data).nbytes) != wanted:
            raise InputError(f"`{name}` has {got} bytes of {part}, expected {wanted}", tensor=name)
