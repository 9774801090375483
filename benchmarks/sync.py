"""What an update of weights moves: our delta against full zstd, `zstd --patch-from` and chunking as Xet does it.

Bytes are exact and do not depend on the machine. Every peer packs the very same pair of files. Chunking is that of
Xet in kind: FastCDC of 8/64/128 kB, each chunk as it is, by lz4, or by lz4 over its bytes in groups of four, and 36
bytes of index for each chunk of the new file; in Python's `fastcdc`, not Xet's own hash.

    python benchmarks/sync.py [--quick] [--json] [--only install encrypted digits cnn mobilenet minilm large update]

The fine-tuned pairs need torch, MiniLM's an environment of its own (`sync_finetune.py` says how to make it); the
chunking peer needs `fastcdc` and `lz4`. What is missing is left out, and said. `--only` runs some groups, each of some
minutes at most. `update` pulls a model of `--update-mb` and needs six times as much room on the disk.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import zstandard

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import sync_models as models
from table import publish

from edge_infer.sync.pack import unpack
from edge_infer.sync.pack_writer import write_pack
from edge_infer.sync.revision import File

WEB = Path(__file__).parents[1] / "web"
GROUPS = ("install", "encrypted", *models.GROUPS, "update")
QUICK = ("install", "encrypted", "digits", "cnn")


def patch_from(new: bytes, old: bytes) -> int:
    """Return the bytes of `zstd -19 --patch-from`, of -9 above 16 MB."""
    size = len(new) + len(old)
    level = 19 if size < 2**24 else 9
    parameters = zstandard.ZstdCompressionParameters.from_level(level, window_log=27, source_size=size)
    words = zstandard.ZstdCompressionDict(old, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    return len(zstandard.ZstdCompressor(compression_params=parameters, dict_data=words).compress(new))


def chunked(new: bytes, old: bytes) -> int | None:
    """Return the bytes of the chunks that the old file lacks, and of the index; None where the peer is missing."""
    try:
        import lz4.block
        from fastcdc import fastcdc
    except ImportError:
        return None

    def chunks(data: bytes) -> list[bytes]:
        cuts = fastcdc(data, min_size=2**13, avg_size=2**16, max_size=2**17, fat=False)
        return [data[cut.offset : cut.offset + cut.length] for cut in cuts]

    known = {hashlib.sha256(chunk).digest() for chunk in chunks(old)}
    total = 0
    for chunk in chunks(new):
        total += 36
        digest = hashlib.sha256(chunk).digest()
        if digest not in known:
            known.add(digest)
            grouped = b"".join(chunk[i::4] for i in range(4))
            total += min(len(chunk), *(len(lz4.block.compress(one, store_size=False)) for one in (chunk, grouped)))
    return total


def decode_mb_s(pack: bytes, pair: models.Pair, folder: Path) -> float:
    """Unpack, check the result, and return the best speed of three in MB of the result for each second of CPU time."""
    listed = {pair.path: File(pair.path, len(pair.new), hashlib.sha256(pair.new).hexdigest())}
    base = folder / "base"
    base.write_bytes(pair.old)
    best = float("inf")
    for _ in range(3):
        pieces: list[bytes | bytearray] = []
        start = time.process_time()
        unpack(io.BytesIO(pack), listed, lambda _digest: base, lambda _path, pieces=pieces: pieces.append)
        best = min(best, time.process_time() - start)
        assert b"".join(pieces) == pair.new
    return len(pair.new) / 1e6 / max(best, 1e-6)


def decode_js_mb_s(pack: bytes, pair: models.Pair, folder: Path) -> float | None:
    """Return the speed of the page's decoder in Node; None where there is none."""
    if shutil.which("node") is None or not (WEB / "vendor/zstddec").is_dir():
        return None
    (folder / "pack").write_bytes(pack)
    (folder / "base").write_bytes(pair.old)
    files = [{"path": pair.path, "size": len(pair.new), "sha256": hashlib.sha256(pair.new).hexdigest()}]
    (folder / "files.json").write_text(json.dumps(files))
    script = Path(__file__).with_name("sync_decode.mjs")
    words = ["node", str(script), str(folder), f"{WEB.as_uri()}/"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["mb_s"])


def row(name: str, metric: str, ours: float, peer_name: str, peer: float, **more: Any) -> dict[str, Any]:
    """Make a row of the table."""
    plain: dict[str, Any] = {"target": None, "met": None, "spread": "exact"}
    return {
        "name": name, "metric": metric, "ours": ours, "peer_name": peer_name, "peer": peer,
        "ratio": round(ours / peer, 4) if peer else None, **plain, **more,
    }  # fmt: skip


def rows_of(pair: models.Pair, folder: Path) -> list[dict[str, Any]]:
    """Measure one pair of files."""
    delta = write_pack({pair.path: pair.new}, {pair.path: pair.old})
    # Weights hardly compress: where a delta is this small, no full pack is smaller.
    ours = len(delta)
    if ours > 0.3 * len(pair.new):
        ours = min(ours, len(write_pack({pair.path: pair.new})))
    level = 19 if len(pair.new) < 2**24 else 9
    zstd, patch = len(zstandard.ZstdCompressor(level=level).compress(pair.new)), patch_from(pair.new, pair.old)
    share = {"share": round(ours / len(pair.new), 4)}
    target, met = (None, None) if pair.target is None else (round(pair.target), ours <= pair.target)
    rows = [row(pair.name, "bytes moved", ours, "the whole file", len(pair.new), **share, target=target, met=met)]
    rows.append(row(pair.name, "bytes moved", ours, f"zstd -{level}", zstd, **share))
    rows.append(row(pair.name, "bytes moved", ours, "zstd --patch-from", patch, **share))
    xet = chunked(pair.new, pair.old)
    if xet is not None:
        rows.append(row(pair.name, "bytes moved", ours, "64 kB chunks, Xet-style", xet, **share))
    best = min(zstd, patch, ours)
    limit = 1.02 * best + 4000
    rows.append(
        row(pair.name, "bytes over the best", ours, "best of all", best, target=round(limit), met=ours <= limit)
    )
    kind = "int8" if "int8" in pair.name else "fp16" if "fp16" in pair.name else "fp32"
    is_large = len(pair.new) > 10**7
    targets = {"fp32": 90, "int8": 400, "fp16": None}
    speed = decode_mb_s(delta, pair, folder)
    wanted = targets[kind] if is_large else None  # small files measure the start, not the speed
    met = None if wanted is None else speed >= wanted
    rows.append(
        row(pair.name, "decode, MB/s of CPU time", round(speed, 1), "-", 0, target=wanted, met=met, spread="best of 3")
    )
    page = decode_js_mb_s(delta, pair, folder) if is_large else None
    if page is not None:
        rows.append(
            row(
                pair.name,
                "decode in JavaScript, MB/s",
                round(page, 1),
                "Python",
                round(speed, 1),
                target=100,
                met=page >= 100,
                spread="best of 5",
            )
        )
    return rows


def first_install() -> list[dict[str, Any]]:
    """Measure the full pack of the fp32 model."""
    data = (models.DIGITS / "digits.onnx").read_bytes()
    ours, zstd = len(write_pack({models.MODEL: data})), len(zstandard.ZstdCompressor(level=19).compress(data))
    target = round(0.86 * len(data))
    share = {"share": round(ours / len(data), 4)}
    name, met = "first install, fp32", ours <= target
    return [
        row(name, "bytes moved", ours, "the whole file", len(data), **share, target=target, met=met),
        row(name, "bytes moved", ours, "zstd -19", zstd, **share),
    ]


def encrypted(folder: Path, megabytes: int, rounds: int) -> list[dict[str, Any]]:
    """Install encrypted weights and the same in clear, in turn; then one layer of them anew, by delta."""
    import sync_encrypted

    done, pulls = sync_encrypted.measure(folder, megabytes, rounds)
    name, low, high = f"encrypted, {megabytes} MB fp32", min(done.ratios), max(done.ratios)
    bytes_target, cpu_target = round(1.1 * done.bytes_clear), 1.3
    ours, clear = (round(sync_encrypted.median(one), 4) for one in (done.cpu_s, done.cpu_clear_s))
    spread = f"{low:.2f} to {high:.2f} in {rounds} rounds"
    of_cpu = {"target": cpu_target, "met": done.ratio <= cpu_target, "spread": spread}
    install = row(f"first install, {name}", "CPU time, s", ours, "in clear", clear, **of_cpu)
    return [
        row(
            f"first install, {name}", "bytes moved", done.bytes_sealed, "in clear", done.bytes_clear,
            target=bytes_target, met=done.bytes_sealed <= bytes_target,
        ),
        install | {"ratio": round(done.ratio, 4)},
        row(
            f"one layer, {name}", "bytes moved", pulls["sealed delta"].bytes_moved,
            "in clear", pulls["clear delta"].bytes_moved,
        ),
    ]  # fmt: skip


def whole_update(megabytes: int) -> list[dict[str, Any]]:
    """Pull a large model by delta, in a process of its own, with all checks: its speed and its memory."""
    script = Path(__file__).with_name("sync_update.py")
    done = subprocess.run(
        [sys.executable, str(script), str(megabytes)], capture_output=True, text=True, check=True, timeout=1200
    )
    found = json.loads(done.stdout)
    name, speed, memory = f"whole update of {megabytes} MB fp32", found["mb_s"], found["memory_mb"]
    return [
        row(name, "MB/s of CPU time", speed, "-", 0, target=50, met=speed >= 50, spread="1 run"),
        row(name, "peak memory, MB", memory, "-", 0, target=100, met=memory < 100, spread="1 run"),
        row(name, "bytes moved", found["moved"], "the full pack", found["full"]),
    ]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--quick", action="store_true", help="leave out the large networks and files, which show speed and memory"
    )
    parser.add_argument("--only", nargs="+", choices=GROUPS, metavar="GROUP", help=f"run some of {', '.join(GROUPS)}")
    parser.add_argument("--update-mb", type=int, default=2048, help="the size of the model of the whole update")
    arguments = parser.parse_args()

    chosen = arguments.only or (QUICK if arguments.quick else GROUPS)
    rows = []
    for group in chosen:
        with tempfile.TemporaryDirectory() as folder:
            if group == "install":
                rows += first_install()
            elif group == "encrypted":
                for megabytes in (4,) if arguments.quick else (4, 32, 128):
                    rows += encrypted(Path(folder, str(megabytes)), megabytes, 3 if arguments.quick else 7)
            elif group == "update":
                rows += whole_update(arguments.update_mb)
            else:
                for pair in models.pairs(group, Path(folder)):
                    rows += rows_of(pair, Path(folder))
    names = ("edge-infer", "zstandard", "numpy", "torch", "onnx", "onnxruntime", "fastcdc", "lz4")
    publish(rows, (), as_json=arguments.json, versions={name: _version(name) for name in names})
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    print(f"({memory:.0f} MB of memory for all of it)", file=sys.stderr)


if __name__ == "__main__":
    main()
