"""What an update of weights moves: our delta against a full zstd download and `zstd --patch-from`, on the same files.

Bytes are exact and do not depend on the machine. The digits CNN is moved as a fine-tune moves it: relative steps of a
given size in every weight, in the last layer only, as fp16, or quantized to int8 per tensor after the move.

    python benchmarks/sync.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import platform
import struct
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

sys.path.insert(0, str(Path(__file__).parents[1]))

from edge_infer.sync.pack import unpack
from edge_infer.sync.pack_writer import write_pack
from edge_infer.sync.revision import File
from edge_infer.sync.spans import find_spans

DIGITS = Path(__file__).parents[1] / "examples/digits/digits.onnx"
PATH = "model.onnx"


def drifted(data: bytes, step: float, *, last_only: bool = False) -> bytes:
    """Move the float32 weights of a model by a relative step of this size."""
    random = np.random.default_rng(1)
    result = bytearray(data)
    spans = [span for span in find_spans(PATH, {PATH: data}) if span.is_float]
    for span in spans[-2:] if last_only else spans:
        values = np.frombuffer(data, "<f4", span.length // 4, span.offset)
        moved = (values * (1 + step * random.normal(size=values.shape))).astype("<f4")
        result[span.offset : span.offset + span.length] = moved.tobytes()
    return bytes(result)


def packed_as(data: bytes, dtype: str) -> bytes:
    """Write the weights of a model in another dtype, as safetensors; int8 with one scale for each tensor."""
    header: dict[str, Any] = {}
    body = b""
    for span in find_spans(PATH, {PATH: data}):
        values = np.frombuffer(data, "<f4", span.length // 4, span.offset)
        scale = np.abs(values).max() / 127
        array = values.astype("<f2") if dtype == "F16" else np.rint(values / scale).astype(np.int8)
        for name, one, kind in ((span.name, array, dtype), (f"{span.name}.scale", np.float32([scale]), "F32")):
            end = len(body) + one.nbytes
            header[name] = {"dtype": kind, "shape": list(one.shape), "data_offsets": [len(body), end]}
            body += one.tobytes()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def patch_from(new: bytes, old: bytes) -> int:
    """Return the bytes of `zstd -19 --patch-from`."""
    size = len(new) + len(old)
    parameters = zstandard.ZstdCompressionParameters.from_level(19, window_log=27, source_size=size)
    words = zstandard.ZstdCompressionDict(old, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return len(zstandard.ZstdCompressor(compression_params=parameters, dict_data=words).compress(new))


def decode_mb_s(pack: bytes, path: str, new: bytes, old: bytes) -> float:
    """Unpack, check the result, and return the speed in MB of the result for each second of CPU time."""
    made = bytearray()
    listed = {path: File(path, len(new), hashlib.sha256(new).hexdigest())}
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder, "base")
        base.write_bytes(old)
        start = time.process_time()
        unpack(io.BytesIO(pack), listed, lambda _digest: base, lambda _path: made.extend)
        seconds = time.process_time() - start
    assert made == new
    return len(new) / 1e6 / max(seconds, 1e-6)


def rows_of(name: str, path: str, new: bytes, old: bytes, target: float | None) -> list[dict[str, Any]]:
    """Measure one pair of files."""
    delta, full = write_pack({path: new}, {path: old}), write_pack({path: new})
    zstd = len(zstandard.ZstdCompressor(level=19).compress(new))
    patch = patch_from(new, old)
    ours = min(len(delta), len(full))
    share = ours / len(new)
    peers = {"zstd -19 of the whole file": zstd, "zstd -19 --patch-from": patch, "plain download": len(new)}
    speed = decode_mb_s(delta, path, new, old)
    return [
        {
            "name": name,
            "metric": "bytes moved",
            "ours": ours,
            "peer_name": peer_name,
            "peer": peer,
            "ratio": round(ours / peer, 4),
            "share": round(share, 4),
            "target": target,
            "met": None if target is None else share <= target,
            "spread": "exact",
            "decode_mb_s": round(speed, 1),
        }
        for peer_name, peer in peers.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="leave out the 64 MB file that shows the decoder's speed")
    arguments = parser.parse_args()

    first = DIGITS.read_bytes()
    metadata = first + b"\x1a\x04note"  # ModelProto.domain
    pairs: list[tuple[str, str, bytes, bytes, float | None]] = [
        ("metadata only", PATH, metadata, first, 8000 / len(metadata)),
        ("last layer moved, fp32", PATH, drifted(first, 1e-4, last_only=True), first, None),
    ]
    for step in (1e-5, 1e-4, 1e-3):
        moved = drifted(first, step)
        pairs.append((f"all moved by {step:g}, fp32", PATH, moved, first, 0.45 if step <= 1e-4 else None))
        for dtype, bound in (("F16", 0.32), ("I8", 0.14)):
            new, old = packed_as(moved, dtype), packed_as(first, dtype)
            name = f"all moved by {step:g}, {'fp16' if dtype == 'F16' else 'int8, own scales'}"
            pairs.append((name, "model.safetensors", new, old, bound if step <= 1e-4 else None))
    if not arguments.quick:
        values = np.random.default_rng(0).normal(size=16_000_000).astype("<f4")
        new_values = (values * (1 + 1e-5 * np.random.default_rng(1).normal(size=values.shape))).astype("<f4")
        text = json.dumps({"w": {"dtype": "F32", "shape": [16_000_000], "data_offsets": [0, 64_000_000]}}).encode()
        head = struct.pack("<Q", len(text)) + text
        pairs.append(
            ("64 MB moved by 1e-05", "w.safetensors", head + new_values.tobytes(), head + values.tobytes(), None)
        )
    rows = [row for pair in pairs for row in rows_of(*pair)]
    if arguments.json:
        versions = {"edge-infer": version("edge-infer"), "zstandard": version("zstandard"), "numpy": version("numpy")}
        print(json.dumps({"versions": versions, "cpu": platform.processor() or platform.machine(), "rows": rows}))
        return
    for row in rows:
        print(
            f"{row['name']:32} {row['ours']:>9} B {row['share']:>7.2%} of the file  {row['ratio']:.3f} x "
            f"{row['peer_name']:28} met {row['met']}  {row['decode_mb_s']} MB/s"
        )


if __name__ == "__main__":
    main()
