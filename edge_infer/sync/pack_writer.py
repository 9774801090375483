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

from edge_infer.sync.pack import COPY, MAGIC, MAX_PREFIX, MAX_STEP, Frame, Step
from edge_infer.sync.spans import Span, find_spans
from edge_infer.sync.transforms import FLOATS, INTEGERS, PLANES, RAW, encode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# A frame is closed when it is this long, so that a large tensor does not spoil the statistics of small ones.
_FRAME_BYTES = 2**20
# Above this size a trial of a codec looks at the first bytes only.
_TRIAL_BYTES = 2**18


def write_pack(files: Mapping[str, bytes], old: Mapping[str, bytes] | None = None) -> bytes:
    """Return the pack that makes files, from nothing or from the files of an older revision.

    Args:
        files: The new files by their path.
        old: The old ones; without them the pack is a full one.
    """
    writer = _Writer(dict(old or {}))
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
    def __init__(self, old: dict[str, bytes]) -> None:
        self._old = old
        paths = sorted(old)
        self.bases = [hashlib.sha256(old[path]).hexdigest() for path in paths]
        self._number = {path: i for i, path in enumerate(paths)}
        self._by_content: dict[bytes, _Old] = {}
        self._by_name: dict[tuple[str, str, int, int], _Old] = {}
        for path in paths:
            view = memoryview(old[path])
            for span, length in _pieces(find_spans(path, old), len(view)):
                start = span.offset if span is not None else length[0]
                one = _Old(self._number[path], start, view[start : start + length[1]])
                self._by_content.setdefault(_hash(one.data), one)
                if span is not None:
                    for where in (path, ""):
                        self._by_name.setdefault((where, span.name, span.width, span.length), one)
            if view:
                self._by_content.setdefault(_hash(view), _Old(self._number[path], 0, view))
        self._frames: list[Frame] = []
        self._payload: list[bytes] = []
        self._open: dict[int, list[bytes]] = {codec: [] for codec in (RAW, PLANES, FLOATS, INTEGERS)}
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
        for span, (start, length) in _pieces(find_spans(path, files), len(data)):
            piece = data[start : start + length]
            same = self._by_content.get(_hash(piece))
            if same is not None:
                _append(result, Step(COPY, length, 1, same.base, same.offset))
            elif span is None:
                result += self._literal(bytes(piece))
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
            step = Step(codec, len(new), span.width)
            if old is not None and codec in (FLOATS, INTEGERS):
                step = step._replace(base=old.base, offset=old.offset + at)
            yield self._kept(step, encode(codec, span.width, new, before))

    def _kept(self, step: Step, data: bytes) -> Step:
        """Put what a step takes into its stream."""
        held = self._open[step.codec]
        if held and sum(map(len, held)) + len(data) > _FRAME_BYTES:
            self._close(step.codec)
        self._open[step.codec].append(data)
        return step

    def _close(self, codec: int) -> None:
        data = b"".join(self._open[codec])
        self._open[codec] = []
        if not data:
            return
        base, packed = -1, zstandard.ZstdCompressor(level=_level(codec, len(data))).compress(data)
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


def _pieces(spans: list[Span], size: int) -> Iterator[tuple[Span | None, tuple[int, int]]]:
    """Yield the whole file in order, tensors and what lies between them, each with (offset, length)."""
    at = 0
    for span in spans:
        if span.offset > at:
            yield None, (at, span.offset - at)
        yield span, (span.offset, span.length)
        at = span.offset + span.length
    if at < size:
        yield None, (at, size - at)


def _append(steps: list[Step], step: Step) -> None:
    """Add a step; a copy that goes on where the last one ended makes that one longer."""
    last = steps[-1] if steps else None
    if (
        last is not None
        and last.codec == step.codec == COPY
        and last.base == step.base
        and last.offset + last.length == step.offset
    ):
        steps[-1] = last._replace(length=last.length + step.length)
    else:
        steps.append(step)


def _cheapest(span: Span, new: bytes, old: bytes) -> int:
    """Return the codec that makes a piece of a tensor smallest."""
    codecs = [RAW] if span.width == 1 else [RAW, PLANES]
    if old:
        codecs += [INTEGERS] if not span.is_float else [FLOATS]
    length = min(len(new), _TRIAL_BYTES)
    trial = zstandard.ZstdCompressor(level=3)
    sizes = {codec: len(trial.compress(encode(codec, span.width, new[:length], old[:length]))) for codec in codecs}
    return min(codecs, key=lambda codec: sizes[codec])


def _level(codec: int, size: int) -> int:
    if size <= 2**18:
        return 19
    return 3 if codec in (PLANES, FLOATS) else 12


def _patched(data: bytes, prefix: bytes) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(
        19 if len(data) + len(prefix) <= 2**20 else 9, window_log=25, source_size=len(data) + len(prefix)
    )
    words = zstandard.ZstdCompressionDict(prefix, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return zstandard.ZstdCompressor(compression_params=parameters, dict_data=words).compress(data)


def _hash(data: memoryview) -> bytes:
    return hashlib.sha256(data).digest()
