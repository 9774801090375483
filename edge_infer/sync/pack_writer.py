"""Write packs: per tensor the cheapest of what `edge_infer.sync.pack` can read, chosen by size. Needs numpy.

Which codecs are tried follows from what `benchmarks/sync.py` measures: integers in the order of the floats, subtracted,
in byte planes, then zstd, are the smallest wherever weights have moved a little.
"""

from __future__ import annotations

import hashlib
import json
import struct
from typing import TYPE_CHECKING, NamedTuple

import zstandard

from edge_infer.formats.spans import Span, find_spans
from edge_infer.sync.chunks import cut
from edge_infer.sync.pack import COPY, MAGIC, MAX_PREFIX, MAX_STEP, Frame, Step
from edge_infer.sync.transforms import (
    CODECS,
    DIFFERENCES,
    FLOATS,
    GROUPED,
    INTEGERS,
    PLANES,
    RATIOS,
    RAW,
    RESCALED,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# A frame is closed when it is this long, so that a large tensor does not spoil the statistics of small ones.
_FRAME_BYTES = 2**20
# A shorter plane shares a block with its neighbours: a table of codes takes some hundred bytes.
_PLANE_BYTES = 2048
# A run of int8 codes that may have a ratio of scales of its own; what its step takes in the header, compressed.
_RUN_BYTES = 2048
_STEP_BYTES = 8
# Short steps are slow to decode: they must save a twentieth of the bytes.
_RUNS_GAIN = 0.95
# A decoder holds some times a step in memory, most where it sorts; shorter ones compress as well.
_PIECE_BYTES = 2**20
# Above this size a trial of a codec looks at the first bytes only.
_TRIAL_BYTES = 2**18


def write_pack(
    files: Mapping[str, bytes], old: Mapping[str, bytes] | None = None, names: Mapping[str, str] | None = None
) -> bytes:
    """Return the pack that makes files, from nothing or from the files of an older revision.

    Args:
        files: The new files by their path.
        old: The old ones; without them the pack is a full one.
        names: The sha256 of each old one as it lies on a device; None for that of its bytes.
    """
    writer = _Writer(dict(old or {}), names)
    entries = [
        {"path": path, "steps": [list(step) for step in writer.steps(path, dict(files))]} for path in sorted(files)
    ]
    frames, payload = writer.frames()
    header = {"files": entries, "bases": writer.bases, "frames": [list(frame) for frame in frames]}
    packed = zstandard.ZstdCompressor(level=19).compress(json.dumps(header, separators=(",", ":")).encode())
    return b"".join([MAGIC, struct.pack("<I", len(packed)), packed, *payload])


class _Old(NamedTuple):
    base: int
    offset: int
    data: memoryview


class _Writer:
    def __init__(self, old: dict[str, bytes], names: Mapping[str, str] | None) -> None:
        self._old = old
        paths = sorted(old)
        self.bases = [names[path] if names is not None else hashlib.sha256(old[path]).hexdigest() for path in paths]
        self._number = {path: i for i, path in enumerate(paths)}
        self._by_content: dict[bytes, _Old] = {}
        self._by_name: dict[tuple[str, str, int, int], _Old] = {}
        for path in paths:
            view = memoryview(old[path])
            for span, start, length in _pieces(find_spans(path, old), view):
                one = _Old(self._number[path], start, view[start : start + length])
                self._by_content.setdefault(_hash(one.data), one)
                if span is not None:
                    for where in (path, ""):
                        self._by_name.setdefault((where, span.name, span.width, span.length), one)
            if view:
                self._by_content.setdefault(_hash(view), _Old(self._number[path], 0, view))
        self._frames: list[Frame] = []
        self._payload: list[bytes] = []
        self._open: dict[int, list[bytes]] = {codec: [] for codec in CODECS}
        self._planes: dict[int, list[int]] = {codec: [] for codec in self._open}
        self._prefix = -1

    def steps(self, path: str, files: dict[str, bytes]) -> list[Step]:
        """Return the steps that make one file, and keep what they take from the streams."""
        data = memoryview(files[path])
        if not data:
            return []
        before = self._old.get(path)
        prefix = self._number[path] if before is not None and len(before) <= MAX_PREFIX else -1
        if prefix != self._prefix:
            self._close(RAW)
            self._prefix = prefix
        result: list[Step] = []
        whole = self._by_content.get(_hash(data))
        if whole is not None:
            return [Step(COPY, len(data), 1, whole.base, whole.offset)]
        for span, start, length in _pieces(find_spans(path, files), data):
            piece = data[start : start + length]
            same = self._by_content.get(_hash(piece))
            if same is not None:
                _append(result, Step(COPY, length, 1, same.base, same.offset))
            elif span is None:
                for step in self._literal(bytes(piece)):
                    _append(result, step)
            else:
                for step in self._tensor(path, span, piece):
                    _append(result, step)
        return result

    def _literal(self, data: bytes) -> list[Step]:
        pieces = [data[at : at + MAX_STEP] for at in range(0, len(data), MAX_STEP)]
        return [self._kept(Step(RAW, len(piece)), piece) for piece in pieces]

    def _tensor(self, path: str, span: Span, data: memoryview) -> Iterator[Step]:
        names = ((where, span.name, span.width, span.length) for where in (path, ""))
        old = next((self._by_name[name] for name in names if name in self._by_name), None)
        for at in range(0, len(data), MAX_STEP):
            new = bytes(data[at : at + MAX_STEP])
            before = b"" if old is None else bytes(old.data[at : at + MAX_STEP])
            if old is not None and new == before:
                yield Step(COPY, len(new), 1, old.base, old.offset + at)
                continue
            codec = _cheapest(span, new, before)
            if codec == RESCALED:
                pieces = _rescaled(new, before)
            else:
                pieces = [(min(_PIECE_BYTES, len(new) - i), span.width) for i in range(0, len(new), _PIECE_BYTES)]
            start = 0
            for length, width in pieces:
                step = Step(codec, length, width)
                if old is not None and codec in DIFFERENCES:
                    step = step._replace(base=old.base, offset=old.offset + at + start)
                end = start + length
                yield self._kept(step, encode(codec, width, new[start:end], before[start:end]))
                start = end

    def _kept(self, step: Step, data: bytes) -> Step:
        """Put what a step takes into its stream."""
        held = self._open[step.codec]
        if held and sum(map(len, held)) + len(data) > _FRAME_BYTES:
            self._close(step.codec)
        self._open[step.codec].append(data)
        width = 1 if step.codec in (RAW, RESCALED) else step.width
        self._planes[step.codec] += [len(data) // width] * width
        return step

    def _close(self, codec: int) -> None:
        data = b"".join(self._open[codec])
        self._open[codec] = []
        if not data:
            return
        base, packed = -1, _compressed(data, self._planes[codec], _level(codec, len(data)))
        self._planes[codec] = []
        if codec == RAW and self._prefix >= 0:
            patch = _patched(data, self._old[sorted(self._old)[self._prefix]])
            if len(patch) < len(packed):
                base, packed = self._prefix, patch
        self._frames.append(Frame(len(packed), len(data), base, codec))
        self._payload.append(packed)

    def frames(self) -> tuple[list[Frame], list[bytes]]:
        """Close all streams and return their frames with the bytes of each."""
        for codec in self._open:
            self._close(codec)
        return self._frames, self._payload


def _pieces(spans: list[Span], data: memoryview) -> Iterator[tuple[Span | None, int, int]]:
    """Yield the whole file in order, tensors and the chunks between them, each with offset and length."""
    at = 0
    for span in spans:
        yield from ((None, at + start, length) for start, length in cut(data[at : span.offset]))
        yield span, span.offset, span.length
        at = span.offset + span.length
    yield from ((None, at + start, length) for start, length in cut(data[at:]))


def _append(steps: list[Step], step: Step) -> None:
    """Add a step; one that goes on where the last one ended makes that one longer."""
    last = steps[-1] if steps else Step(PLANES, 0)
    length = last.length + step.length
    copies = last.codec == step.codec == COPY and (last.base, last.offset + last.length) == (step.base, step.offset)
    if copies or (last.codec == step.codec == RAW and last.width == step.width and length <= MAX_STEP):
        steps[-1] = last._replace(length=length)
    else:
        steps.append(step)


def _cheapest(span: Span, new: bytes, old: bytes) -> int:
    """Return the codec that makes a piece of a tensor smallest."""
    codecs = [RAW] if span.width == 1 else [RAW, PLANES]
    if old:
        codecs += [FLOATS, GROUPED] if span.is_float else [INTEGERS, RESCALED] if span.width == 1 else [INTEGERS]
    length = min(len(new), _TRIAL_BYTES)
    sizes = {}
    for codec in codecs:
        width = _ratio(new[:length], old[:length]) if codec == RESCALED else span.width
        data = encode(codec, width, new[:length], old[:length])
        planes = [] if codec == RAW else [length // span.width] * span.width
        sizes[codec] = len(_compressed(data, planes, 3))
    return min(codecs, key=lambda codec: sizes[codec])


def _ratio(new: bytes, old: bytes) -> int:
    """Estimate the ratio of the scales of int8 codes by least squares, over codes that are not clipped."""
    import numpy as np

    before, after = (np.frombuffer(one, "i1").astype(np.float64) for one in (old, new))
    free = (np.abs(after) < 127) & (np.abs(before) < 127)
    square = float(before[free] @ before[free])
    ratio = float(before[free] @ after[free]) / square if square else 1.0
    return min(max(round(ratio * 2**16), RATIOS[0]), RATIOS[-1])


def _rescaled(new: bytes, old: bytes) -> list[tuple[int, int]]:
    """Return (length, ratio) of the pieces of a tensor: one for all, or one for each run of codes if that is smaller.

    Weights with a scale for each channel have another ratio in each, and a channel's codes mostly lie together.
    """
    whole = [(len(new), _ratio(new, old))]
    runs = []
    for at in range(0, len(new), _RUN_BYTES):
        one = new[at : at + _RUN_BYTES], old[at : at + _RUN_BYTES]
        runs.append((len(one[0]), _ratio(*one)))

    def cost(pieces: list[tuple[int, int]]) -> int:
        encoded, at = [], 0
        for length, ratio in pieces:
            encoded.append(encode(RESCALED, ratio, new[at : at + length], old[at : at + length]))
            at += length
        return len(zstandard.ZstdCompressor(level=3).compress(b"".join(encoded))) + _STEP_BYTES * len(pieces)

    return runs if cost(runs) < _RUNS_GAIN * cost(whole) else whole


def _level(codec: int, size: int) -> int:
    if size <= 2**18:
        return 19
    return 3 if codec == PLANES else 12


def _compressed(data: bytes, planes: list[int], level: int) -> bytes:
    """Compress bytes, with a block for each long plane if that is smaller: a block has its own table of codes."""
    plain = zstandard.ZstdCompressor(level=level).compress(data)
    if max(planes, default=0) < _PLANE_BYTES or len(planes) < 2:
        return plain
    stream = zstandard.ZstdCompressor(level=level).compressobj(size=len(data))
    pieces, at, waiting = [], 0, 0
    for length in planes:
        pieces.append(stream.compress(data[at : at + length]))
        at, waiting = at + length, waiting + length
        if waiting >= _PLANE_BYTES:
            pieces.append(stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
            waiting = 0
    blocks = b"".join([*pieces, stream.flush()])
    return min(plain, blocks, key=len)


def _patched(data: bytes, prefix: bytes) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(
        19 if len(data) + len(prefix) <= 2**20 else 9, window_log=25, source_size=len(data) + len(prefix)
    )
    words = zstandard.ZstdCompressionDict(prefix, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return zstandard.ZstdCompressor(compression_params=parameters, dict_data=words).compress(data)


def _hash(data: memoryview) -> bytes:
    return hashlib.sha256(data).digest()
