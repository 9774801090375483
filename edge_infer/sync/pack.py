"""A pack: the files of a revision in one object, whole or as the difference to an older revision.

    8 bytes   b"EIPACK01"
    4 bytes   the header's length, little-endian
    header    JSON, compressed by zstd: {"files": [...], "bases": [...], "frames": [...]}
    frames    one after the other

A frame `[stored, length, base, codec]` is `stored` bytes that unpack to `length` bytes: by zstd, with the base file of
that number as its prefix (`zstd --patch-from`), -1 for none. Unpacked, the frames of one codec make one stream. A file
`{"path", "steps"}` is made by its steps, in order, a step being `[codec, length, width, base, offset]`: codec 0 copies
`length` bytes of the base file `base` (its sha256 is `bases[base]`) from `offset`; the others are those of
`edge_infer.sync.transforms`, take `length` bytes of their codec's stream, and for differences as many of the base. No
step but a copy is longer than 4 MiB, so that memory stays small. A pack without bases is a full one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.bundle.manifest import check_path
from edge_infer.bundle.sealed import Sealer, clear_size
from edge_infer.errors import DeltaError, ManifestError
from edge_infer.sync.transforms import CODECS, DIFFERENCES, decode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Literal, Protocol

    from edge_infer.bundle.keys import Key
    from edge_infer.sync.revision import File

    class Readable(Protocol):
        """What a file is read from at any offset; `IO[bytes]` is one."""

        def read(self, size: int = -1, /) -> bytes:
            """Return the next bytes."""

        def seek(self, offset: int, whence: int = 0, /) -> int:
            """Go to an offset."""

        def tell(self) -> int:
            """Return the offset of the next byte."""

        def close(self) -> None:
            """Close it."""

    class Base(Protocol):
        """Where a base file lies; a `Path` is one."""

        def open(self, mode: Literal["rb"], /) -> Readable:
            """Open it for reading."""


MAGIC = b"EIPACK01"
COPY = 0
#: The most bytes of one step or frame; a decoder needs a few times this much memory.
MAX_STEP = 4 * 2**20
#: A base file above this size is never a prefix: it would have to lie in memory.
MAX_PREFIX = 8 * 2**20
_MAX_HEADER = 64 * 2**20


class Step(NamedTuple):
    """How some bytes of a file are made."""

    codec: int
    length: int
    width: int = 1
    base: int = -1
    offset: int = 0


class Frame(NamedTuple):
    """Compressed bytes of the stream."""

    stored: int
    length: int
    base: int
    codec: int


def unpack(
    pack: Readable,
    files: Mapping[str, File],
    base: Callable[[str], Base],
    write: Callable[[str], Callable[[bytes | bytearray | memoryview], object]],
    key: Key | None = None,
) -> None:
    """Make the files of a pack.

    Args:
        pack: The pack, opened for reading at its start.
        files: The files that the revision promises, by path.
        base: Returns where the base file of a sha256 lies; raises `DeltaError` where there is none.
        write: Returns where the bytes of a path go.
        key: What the promised files are sealed by; None where they are in clear.

    Raises:
        DeltaError: The pack is malformed, or does not give exactly these files.
    """
    header = _read_header(pack)
    if {path for path, _ in header.files} != set(files) or len(header.files) != len(files):
        raise DeltaError("The pack holds other files than the revision")
    with contextlib.closing(_Streams(pack, header.frames, [base(digest) for digest in header.bases])) as streams:
        _make(header.files, files, streams, write, key)


def _make(
    made: list[tuple[str, list[Step]]],
    files: Mapping[str, File],
    streams: _Streams,
    write: Callable[[str], Callable[[bytes | bytearray | memoryview], object]],
    key: Key | None,
) -> None:
    for path, steps in made:
        promised = files[path]
        size = promised.size if key is None else clear_size(promised.size)
        if sum(step.length for step in steps) != size:
            raise DeltaError(f"The pack makes another size of `{path}`", path=path)
        sealer = None if key is None else Sealer(key, size)
        digest = hashlib.sha256()
        writer = write(path)
        for step in steps:
            for clear in streams.made(step):
                data = clear if sealer is None else sealer.feed(clear)
                digest.update(data)
                writer(data)
        if sealer is not None:
            rest = sealer.end()
            digest.update(rest)
            writer(rest)
        if digest.hexdigest() != promised.sha256:
            raise DeltaError(f"The pack does not give `{path}`: its sha256 is {digest.hexdigest()}", path=path)


class _Header(NamedTuple):
    files: list[tuple[str, list[Step]]]
    bases: list[str]
    frames: list[Frame]


def _read_header(pack: Readable) -> _Header:
    start = pack.read(12)
    if len(start) != 12 or start[:8] != MAGIC:
        raise DeltaError("This is not a pack of a version that this edge-infer reads", hint="pip install -U edge-infer")
    (size,) = struct.unpack("<I", start[8:])
    if size > _MAX_HEADER:
        raise DeltaError(f"The pack's header has {size} bytes, expected at most {_MAX_HEADER}")
    try:
        document = json.loads(_decompressed(pack.read(size), _MAX_HEADER, exactly=False))
        bases = [str(one) for one in document["bases"]]
        frames = [Frame(*_numbers(one, 4)) for one in document["frames"]]
        files = [
            (check_path(str(one["path"]), "pack"), [Step(*_numbers(step, 5)) for step in one["steps"]])
            for one in document["files"]
        ]
    except (ValueError, KeyError, TypeError, RecursionError, ManifestError) as error:
        raise DeltaError(f"The pack's header is malformed: {error}") from error
    for frame in frames:
        if (
            not (0 < frame.stored <= 2 * MAX_STEP and 0 < frame.length <= MAX_STEP and -1 <= frame.base < len(bases))
            or frame.codec not in CODECS
        ):
            raise DeltaError(f"The pack has a frame out of bounds: {list(frame)}")
    for _, steps in files:
        for step in steps:
            _check_step(step, len(bases))
    return _Header(files, bases, frames)


def _check_step(step: Step, bases: int) -> None:
    from_base = step.codec in (COPY, *DIFFERENCES)
    if (
        step.codec not in (COPY, *CODECS)
        or step.length <= 0
        or step.offset < 0
        or (step.codec != COPY and step.length > MAX_STEP)
        or (from_base and not 0 <= step.base < bases)
    ):
        raise DeltaError(f"The pack has a step out of bounds: {list(step)}")


def _numbers(entry: Any, count: int) -> list[int]:
    if not isinstance(entry, list) or len(entry) != count:
        raise ValueError(f"a {type(entry).__name__}, expected a list of {count} numbers")
    if any(type(one) is not int or abs(one) >= 2**53 for one in entry):
        raise ValueError(f"an entry with something else than {count} numbers below 2^53")
    return entry


class _Streams:
    def __init__(self, pack: Readable, frames: list[Frame], bases: list[Base]) -> None:
        self._bases = bases
        self._open: tuple[int, Readable | None] = (-1, None)
        self._size = 0
        at = pack.tell()
        self._streams = {codec: _Stream(pack, bases) for codec in CODECS}
        for frame in frames:
            self._streams[frame.codec].frames.append((at, frame))
            at += frame.stored
        if at > pack.seek(0, os.SEEK_END):
            raise DeltaError("The pack is cut short")

    def made(self, step: Step) -> Iterator[bytes | bytearray]:
        """Yield the bytes that a step makes."""
        if step.codec == COPY:
            for start in range(0, step.length, MAX_STEP):
                yield self._base(step, start, min(MAX_STEP, step.length - start))
            return
        old = self._base(step, 0, step.length) if step.codec in DIFFERENCES else b""
        yield decode(step.codec, step.width, self._streams[step.codec].take(step.length), old)

    def close(self) -> None:
        """Close the base file that is open."""
        if self._open[1] is not None:
            self._open[1].close()

    def _base(self, step: Step, start: int, length: int) -> bytes:
        number, file = self._open
        if file is None or number != step.base:  # one at a time: steps of one file mostly follow one another
            self.close()
            file = self._bases[step.base].open("rb")
            self._open = step.base, file
            self._size = file.seek(0, os.SEEK_END)
        if step.offset + step.length > self._size:
            raise DeltaError("The pack refers to bytes past the end of a base file")
        file.seek(step.offset + start)
        return file.read(length)


class _Stream:
    """The frames of one codec, unpacked when they are needed."""

    def __init__(self, pack: Readable, bases: list[Base]) -> None:
        self.frames: deque[tuple[int, Frame]] = deque()
        self._pack = pack
        self._bases = bases
        self._buffer = b""
        self._at = 0

    def take(self, length: int) -> bytes:
        """Return the next bytes of the stream."""
        pieces = []
        while length:
            if self._at == len(self._buffer):
                self._buffer, self._at = self._next_frame(), 0
            piece = self._buffer[self._at : self._at + length]
            self._at += len(piece)
            length -= len(piece)
            pieces.append(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _next_frame(self) -> bytes:
        if not self.frames:
            raise DeltaError("The pack has fewer frames than its steps need")
        at, frame = self.frames.popleft()
        prefix = b""
        if frame.base >= 0:
            with contextlib.closing(self._bases[frame.base].open("rb")) as file:
                prefix = file.read(MAX_PREFIX + 1)
            if len(prefix) > MAX_PREFIX:
                raise DeltaError("The pack needs a base file in memory that is too large")
        self._pack.seek(at)
        return _decompressed(self._pack.read(frame.stored), frame.length, exactly=True, prefix=prefix)


def _decompressed(data: bytes, limit: int, *, exactly: bool, prefix: bytes = b"") -> bytes:
    """Unpack one zstd frame that says its size, which must not be over the limit."""
    import zstandard

    try:
        size = zstandard.frame_content_size(data)
        if size < 0 or size > limit or (exactly and size != limit):
            raise DeltaError(f"The pack has a frame of {size} bytes, expected {limit}")
        words = zstandard.ZstdCompressionDict(prefix, dict_type=zstandard.DICT_TYPE_RAWCONTENT) if prefix else None
        result = zstandard.ZstdDecompressor(dict_data=words, max_window_size=2**27).decompress(
            data, max_output_size=size
        )
    except zstandard.ZstdError as error:
        raise DeltaError(f"The pack cannot be unpacked: {error}") from error
    if len(result) != size:
        raise DeltaError("The pack is cut short")
    return result
