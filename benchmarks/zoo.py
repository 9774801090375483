"""What `convert` and `verify` make of real models by other people: one row for each model, and the sums.

    python benchmarks/zoo.py [FOLDER] [--only NAME]... [--quick] [--once] [--rows FILE]... [--json] [--write FILE]

FOLDER holds `.onnx`, `.tflite` and `.ort` files; without it `EDGE_INFER_ZOO` names one. Where it has a README.md with a
table of digests, files that are not those of the table are refused. Each command runs in a process
of its own, within four minutes and 8 GB. `--quick` takes six small models. `--write` also writes the table of all
models as a page of docs/reference; `--rows` takes the models of earlier runs from such a page, or from what `--json`
printed, and does not run them again; of a model that two of them have, the first file's row counts. So the table can be
made in parts: each with `--only` and `--write`, at last all of them with `--rows`.

- outcome: `convert` and then `verify`, both with defaults. A refusal counts where onnxruntime or LiteRT alone fail too.
- time and memory: `convert --calibration` with 64 drawn samples, in its process.
- beside: the bundle's bytes that are not in variants.
- same: the files of three conversions are equal byte for byte, the third made under load on all processors.
- smaller: the smallest variant kept, against the source; where it is above 75 %, the first of onnxruntime's
  quantize_dynamic and quantize_static (QDQ, by channel, the same 64 samples) that `verify` passes in the same bundle.
- reads: the files in TFLite that the readers in Python and JavaScript open.
- ways: which of `publish`, `slim` with its own test on a bare Python, and `export-page` fails on the bundle.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

from table import publish

from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import Variant
from tests.support import limited, real_models

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.limited import Finished

ROOT = Path(__file__).parents[1]
QUICK = (
    "cnn_mnist_pytorch.onnx",
    "dtln_1.onnx",
    "kws_f32.tflite",
    "resnet8_int8.tflite",
    "split_concat.tflite",
    "xgb_reg.onnx",
)
PACKAGES = ("onnxruntime", "ai-edge-litert", "numpy")
SAMPLES = 64
SMALLER = 0.75
_SECONDS = 240
_MB = 1e6
#: The variants that a bundle may hold beside 96 kB, and the share of them.
_BESIDE = (96_000, 0.3)

_PEER = """
import os
import sys
import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
kind = sys.argv[1]
source, target, samples = map(os.path.abspath, sys.argv[2:])
os.chdir(os.path.dirname(target))  # shape inference leaves a file where it fails
class Reader(CalibrationDataReader):
    def __init__(self):
        with np.load(samples) as archive:
            arrays = {name: archive[name] for name in archive.files}
        self.calls = iter([dict(zip(arrays, call)) for call in zip(*arrays.values())])
    def get_next(self):
        return next(self.calls, None)
if kind == "dynamic":
    quantize_dynamic(source, target, weight_type=QuantType.QInt8, per_channel=True)
else:
    quant_pre_process(source, target + ".pre")
    quantize_static(target + ".pre", target, Reader(), quant_format=QuantFormat.QDQ, per_channel=True)
"""


@dataclass
class Row:
    """What became of one model.

    Attributes:
        name: The file.
        source_bytes: Its size.
        outcome: `ok`, `refused` where no engine runs it, or what failed, in one line.
        convert_s: Seconds of `convert --calibration`; None where it failed.
        peak_mb: The peak memory of its process.
        variants: The variants kept by default, with their sizes.
        beside_bytes: The bytes of the bundle beside its variants.
        same: Whether three conversions gave the same bytes; None where it was not tried.
        smallest: The smallest variant's share of the source.
        peer: What onnxruntime's quantizers make smaller that `verify` passes, where ours is not; else empty.
        reads: Why a reader does not open the TFLite file, empty where both do.
        tflite: For ONNX, why there is no TFLite file, or the signal-to-noise ratio of its float file in dB.
        verify_s: Seconds of `verify`.
        ways: Which way out of the bundle failed, and why; empty where none did, None where they were not tried.
    """

    name: str
    source_bytes: int
    outcome: str = ""
    convert_s: float | None = None
    peak_mb: float | None = None
    variants: dict[str, int] = field(default_factory=dict)
    beside_bytes: int | None = None
    same: bool | None = None
    smallest: float | None = None
    peer: str = ""
    reads: str = ""
    tflite: str = ""
    verify_s: float | None = None
    ways: str | None = None

    @property
    def is_beside_small(self) -> bool:
        """Whether the bytes beside the variants are few."""
        most, share = _BESIDE
        return (self.beside_bytes or 0) <= max(most, share * sum(self.variants.values()))


def measure(path: Path, place: Path, *, repeats: bool = True, peers: bool = True) -> Row:
    """Take one model through the commands.

    Args:
        path: The model.
        place: An empty folder to work in.
        repeats: Whether to convert it three times, to compare the bytes.
        peers: Whether to ask what onnxruntime's quantizers make of it.
    """
    row = Row(path.name, path.stat().st_size)
    bundle = place / "model.bundle"
    made = command("convert", path, "-o", bundle, "--json")
    if made.code != 0:
        row.outcome = _refusal(path, made)
    else:
        verified = command("verify", bundle, "--json")
        row.verify_s = verified.seconds
        row.outcome = "ok" if verified.code == 0 else f"verify: {_failed(verified)}"
    samples = _samples(path, place)
    if samples is not None:
        _calibrated(row, path, place, samples)
    if bundle.exists():
        _sizes(row, path, bundle)
        if repeats:
            row.same = _is_same(path, bundle, place)
            row.ways = _ways(bundle, place)
        if peers and samples is not None and path.suffix == ".onnx" and (row.smallest or 1) > SMALLER:
            row.peer = _peer(path, bundle, place, samples)
    row.reads = _reads(path, bundle)
    return row


def command(*arguments: str | Path) -> Finished:
    """Run `edge-infer` with these arguments in a process of its own, its caches in an empty folder."""
    with tempfile.TemporaryDirectory() as cache:
        return limited.run(
            (*real_models.EDGE_INFER, *map(str, arguments)), seconds=_SECONDS, env={"EDGE_INFER_CACHE": cache}
        )


def _said(done: Finished) -> str:
    if done.is_late:
        return f"more than {_SECONDS} s"
    return f"signal {-done.code}" if done.code < 0 else real_models.said_last(done.err)


def _refusal(path: Path, made: Finished) -> str:
    is_true = made.code == 1 and real_models.engine_alone(path).code != 0
    return f"{'refused' if is_true else 'convert'}: {_said(made)}"


def _failed(done: Finished) -> str:
    try:
        rows = json.loads(done.out)["rows"]
    except (ValueError, KeyError):
        return _said(done)
    return "; ".join(
        f"{row['variant']} on {row['backend']}: {row['reason']}" for row in rows if row["verdict"] == "fail"
    )


def _samples(path: Path, place: Path) -> Path | None:
    """Write 64 drawn samples of the model's inputs, or return None where its inputs are not known."""
    told = command("info", path, "--json")
    if told.code != 0:
        return None
    given = real_models.inputs(path.name)
    rng = np.random.default_rng(0)
    arrays = {
        spec["name"]: _draw(rng, spec, given.get(spec["name"], spec["shape"]))
        for spec in json.loads(told.out)["inputs"]
    }
    target = place / "samples.npz"
    np.savez(target, allow_pickle=False, **arrays)
    return target


def _draw(rng: np.random.Generator, spec: dict[str, Any], given: Any) -> np.ndarray[Any, Any]:
    dtype = np.dtype(spec["dtype"])
    if not isinstance(given, list):
        return np.full((SAMPLES, *(1 for _ in spec["shape"])), given, dtype)
    shape = (SAMPLES, *(dim if isinstance(dim, int) else 16 if axis else 1 for axis, dim in enumerate(given)))
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if dtype.itemsize == 1:
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    return rng.integers(0, 2, shape).astype(dtype)


def _calibrated(row: Row, path: Path, place: Path, samples: Path) -> None:
    done = command("convert", path, "-o", place / "calibrated.bundle", "--calibration", samples)
    row.peak_mb = done.peak_bytes / _MB
    if done.code == 0:
        row.convert_s = done.seconds
    elif row.outcome == "ok" or done.is_late:
        row.outcome = f"{row.outcome}; --calibration: {_said(done)}"


def _sizes(row: Row, path: Path, bundle: Path) -> None:
    document = json.loads((bundle / "manifest.json").read_text())
    sizes = {entry["path"]: entry["size"] for entry in document["files"]}
    row.variants = {one["id"]: sizes[one["file"]] for one in document["variants"]}
    whole = sum(file.stat().st_size for file in bundle.rglob("*") if file.is_file())
    row.beside_bytes = whole - sum({one["file"]: sizes[one["file"]] for one in document["variants"]}.values())
    row.smallest = min(row.variants.values()) / path.stat().st_size
    if path.suffix == ".onnx":
        quality = json.loads((bundle / "quality.json").read_text())
        near = quality["variants"].get("tflite/fp32", {}).get("sqnr_db", "")
        row.tflite = "exact" if near is None else f"{near:.0f} dB" if near else "none"


def _digests(bundle: Path) -> dict[str, str]:
    """Return the digest of each file that belongs to a bundle's revision; `quality.json` holds timings."""
    files = (file for file in bundle.rglob("*") if file.is_file() and file.name != "quality.json")
    return {str(file.relative_to(bundle)): sha256(file.read_bytes()).hexdigest() for file in files}


def _is_same(path: Path, bundle: Path, place: Path) -> bool | None:
    first = _digests(bundle)
    again = place / "again.bundle"
    if command("convert", path, "-o", again, "--json").code != 0:
        return False
    if _digests(again) != first:
        return False
    with limited.load_on_all():
        done = command("convert", path, "-o", again, "--json", "--force")
    return done.code == 0 and _digests(again) == first


def _ways(bundle: Path, place: Path) -> str:
    """Take a bundle to a device and a page; return which way failed and how, or an empty text."""
    store, keys, device = place / "store", place / "keys", place / "device"
    ways: list[tuple[str, list[tuple[str | Path, ...]]]] = [
        (
            "publish",
            [
                ("store", "keys", "init", store, "--keys", keys),
                ("publish", bundle, store, "--keys", keys),
            ],
        ),
        ("export-page", [("export-page", bundle, "-o", place / "page")]),
    ]
    formats = {one["format"] for one in json.loads((bundle / "manifest.json").read_text())["variants"]}
    if formats - {"tflite"}:  # LiteRT needs numpy: `slim` says so
        ways.append(("slim", [("slim", bundle, "-o", device)]))
    failed = []
    for name, commands in ways:
        for arguments in commands:
            done = command(*arguments)
            if done.code:
                failed.append(f"{name}: {_said(done)}")
                break
    if device.exists():
        done = limited.run((sys.executable, "-I", "-S", str(device), "--self-test"), seconds=60)
        if done.code:
            failed.append(f"slim --self-test: {_said(done)}")
    return "; ".join(failed)


def _peer(path: Path, bundle: Path, place: Path, samples: Path) -> str:
    """Return what onnxruntime makes smaller by 25 % that `verify` passes, or an empty text."""
    for kind in ("dynamic", "static"):
        target = place / f"peer_{kind}.onnx"
        arguments = (sys.executable, "-c", _PEER, kind, str(path), str(target), str(samples))
        done = limited.run(arguments, seconds=_SECONDS)
        if done.code or not target.is_file() or target.stat().st_size > SMALLER * path.stat().st_size:
            continue
        judged = place / "judged.bundle"
        shutil.rmtree(judged, ignore_errors=True)
        shutil.copytree(bundle, judged)
        _add(judged, target)
        if command("verify", judged, "--variant", "onnx/int8", "--backend", "onnxruntime", "--json").code == 0:
            return f"{kind} {target.stat().st_size / path.stat().st_size:.2f}"
    return ""


def _add(bundle: Path, model: Path) -> None:
    """Put a model into a bundle as its variant `onnx/int8`."""
    manifest = Manifest.from_bytes((bundle / "manifest.json").read_bytes())
    data = model.read_bytes()
    file = "onnx/model_peer.onnx"
    (bundle / file).parent.mkdir(exist_ok=True)
    (bundle / file).write_bytes(data)
    variants = [one for one in manifest.variants if one.id != "onnx/int8"]
    files = [*manifest.files.values(), FileEntry(file, len(data), sha256(data).hexdigest())]
    changed = Manifest(
        manifest.name,
        manifest.version,
        manifest.inputs,
        manifest.outputs,
        [*variants, Variant("onnx/int8", "onnx", "int8", file)],
        files,
        examples=manifest.examples,
        labels=manifest.labels,
    )
    (bundle / "manifest.json").write_bytes(changed.to_bytes())


def _reads(path: Path, bundle: Path) -> str:
    """Return which reader does not open which TFLite file, or an empty text."""
    files = [path] if path.suffix == ".tflite" else []
    files += sorted(bundle.rglob("*.tflite")) if bundle.exists() else []
    failed = []
    for file in files:
        script = ROOT / "benchmarks/zoo_tflite.mjs"
        for reader, arguments in (
            ("JavaScript", ("node", str(script), str(file))),
            ("Python", (*real_models.EDGE_INFER, "info", str(file))),
        ):
            done = limited.run(arguments, seconds=60, memory_bytes=16 * 10**9)
            if done.code:
                failed.append(f"{reader}, {file.name}: {real_models.said_last(done.err)}")
    return "; ".join(failed)


def sums(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the rows of the issue's table: each figure over all models, with its target."""
    times = [row.convert_s for row in rows if row.convert_s is not None]
    peaks = [row.peak_mb for row in rows if row.peak_mb is not None]
    made = [row for row in rows if row.variants]
    tried = [row for row in made if row.same is not None]
    files = [row for row in rows if row.name.endswith(".tflite")]
    onnx = [row for row in made if row.name.endswith(".onnx")]
    explained = real_models.listed("no_tflite")

    def share(metric: str, good: int, of: int) -> dict[str, Any]:
        return {"name": "all", "metric": metric, "ours": good, "target": of, "met": good == of}

    def least(metric: str, value: float, target: float) -> dict[str, Any]:
        return {"name": "all", "metric": metric, "ours": value, "target": target, "met": value <= target}

    found = [
        share(
            "converted and verified, or refused truly",
            sum(row.outcome == "ok" or row.outcome.startswith("refused") for row in rows),
            len(rows),
        ),
        least("peak of convert --calibration, MB", max(peaks, default=0), 1200),
        least("median time of convert --calibration, s", statistics.median(times) if times else 0, 15),
        least("longest convert --calibration, s", max(times, default=0), 180),
        share("few bytes beside the variants", sum(row.is_beside_small for row in made), len(made)),
        share("same bytes in three conversions", sum(bool(row.same) for row in tried), len(tried)),
        share(
            "published, exported as a page, and slim where not TFLite alone",
            sum(row.ways == "" for row in made),
            sum(row.ways is not None for row in made),
        ),
        share("smaller by 25 % where onnxruntime is", sum(not row.peer for row in onnx), len(onnx)),
        share("TFLite opened by both readers", sum(not row.reads for row in files), len(files)),
        share(
            "ONNX written as TFLite at >= 90 dB, those below apart",
            sum(row.tflite == "exact" or (row.tflite.endswith("dB") and int(row.tflite[:-3]) >= 90) for row in onnx),
            sum(row.name not in explained for row in onnx),
        ),
    ]
    return [one for one in found if one["target"]]


def page(rows: Sequence[Row], sum_rows: Sequence[dict[str, Any]], left_out: Sequence[str] = ()) -> str:
    """Return the page of docs/reference: the sums, a line for each model, and the models that were not run."""
    lines = [
        "<!-- Written by `make zoo`; do not edit. -->",
        "# Real models",
        "",
        f"{len(rows)} models out of public repositories, unchanged, through `convert` and `verify` with defaults, and",
        "through `convert --calibration` with 64 drawn samples. [benchmarks/zoo.py](../../benchmarks/zoo.py) says",
        "what each column is. Times are those of the machine that wrote this page.",
        "",
        "| over all models | measured | target | met |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {one['metric']} | {one['ours']:.4g} | {one['target']} | {'yes' if one['met'] else 'NO'} |"
        for one in sum_rows
    ]
    lines += ["", *table(sorted(rows, key=lambda row: row.name))]
    if all(row.same is None for row in rows):
        lines += [
            "",
            "Each was converted once (`--once`): whether three conversions give the same bytes was not compared.",
        ]
    names = {row.name for row in rows}
    reasons = {name: why for name, why in real_models.listed("no_tflite").items() if name in names}
    if reasons:
        lines += ["", "Without a float TFLite file at 90 dB or more:", ""]
        lines += [f"- `{name}`: {why}." for name, why in sorted(reasons.items())]
    if left_out:
        lines += ["", f"Not run: {', '.join(f'`{name}`' for name in left_out)}."]
    return "\n".join(lines) + "\n"


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of a table in Markdown, one for each model."""
    lines = [
        "| model | kB | outcome | variants kept, share of source | convert s | MB | beside kB | same | ways | TFLite |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        kept = ", ".join(f"{name} {size / row.source_bytes:.2f}" for name, size in row.variants.items())
        cells = (
            f"`{row.name}`",
            f"{row.source_bytes / 1000:.0f}",
            row.outcome.replace("|", "/")[:160],
            (kept or "-") + (f"; onnxruntime: {row.peer}" if row.peer else ""),
            _number(row.convert_s),
            _number(row.peak_mb),
            _number(None if row.beside_bytes is None else row.beside_bytes / 1000)
            + ("" if row.is_beside_small else " !"),
            "-" if row.same is None else "yes" if row.same else "NO",
            "-" if row.ways is None else row.ways.replace("|", "/")[:160] or "yes",
            row.tflite or ("not read" if row.reads else "read" if row.name.endswith(".tflite") else "-"),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def earlier(file: Path, folder: Path) -> list[Row]:
    """Return the rows of an earlier run.

    Args:
        file: A page that `--write` wrote, whose numbers are rounded, or what `--json` printed.
        folder: Where the models are.
    """
    if file.suffix == ".json":
        return [Row(**row) for row in json.loads(file.read_text())["models"]]
    lines = [line.strip("| ").split(" | ") for line in file.read_text().splitlines() if line.startswith("| `")]
    return [_row_of(cells, folder) for cells in lines]


def _row_of(cells: Sequence[str], folder: Path) -> Row:
    name, _, outcome, kept, seconds, peak, beside, same, *ways, tflite = cells  # pages before 2026-11-26 have no ways
    row = Row(name.strip("`"), (folder / name.strip("`")).stat().st_size, outcome)
    row.convert_s, row.peak_mb = (None if one == "-" else float(one) for one in (seconds, peak))
    kept, _, row.peer = kept.partition("; onnxruntime: ")
    shares = {} if kept == "-" else dict(one.rsplit(" ", 1) for one in kept.split(", "))
    row.variants = {variant: round(float(share) * row.source_bytes) for variant, share in shares.items()}
    row.smallest = min(map(float, shares.values()), default=None)
    row.beside_bytes = None if beside == "-" else round(float(beside.split()[0]) * 1000)
    row.same = {"yes": True, "NO": False}.get(same)
    row.ways = {"-": None, "yes": ""}.get(ways[0], ways[0]) if ways else None
    if name.strip("`").endswith(".onnx"):
        row.tflite = "" if tflite == "-" else tflite
    else:
        row.reads = "a reader does not open it" if tflite == "not read" else ""
    return row


def main() -> None:
    """Measure the models of a folder, and print what became of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="default: what EDGE_INFER_ZOO names")
    parser.add_argument("--only", action="append", metavar="NAME", help="only the models whose name holds this")
    parser.add_argument("--quick", action="store_true", help="six small models, each converted twice")
    parser.add_argument("--once", action="store_true", help="convert once: the bytes of conversions are not compared")
    parser.add_argument(
        "--rows",
        action="append",
        type=Path,
        metavar="FILE",
        default=[],
        help="models of earlier runs, from a page or --json",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--write", type=Path, metavar="FILE", help="also write the table of all models as a page")
    asked = parser.parse_args()
    folder = asked.folder or real_models.folder()
    if folder is None:
        parser.error("name the folder of the models, or set EDGE_INFER_ZOO")
    changed = real_models.foreign(folder)
    if changed:
        parser.error(f"not the files of {folder / 'README.md'}, by their sha256: {', '.join(changed)}; copy them anew")
    known: dict[str, Row] = {}
    for file in asked.rows:
        for row in earlier(file, folder):
            known.setdefault(row.name, row)
    rows = list(known.values())
    waiting = [path.name for path in real_models.paths(folder) if path.name not in known]
    for path in real_models.paths(folder):
        if path.name in known:
            continue
        if (asked.quick and path.name not in QUICK) or (
            asked.only and not any(part in path.name for part in asked.only)
        ):
            continue
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as place:
            repeats = not (asked.quick or asked.once)
            rows.append(measure(path, Path(place), repeats=repeats, peers=not asked.quick))
        sys.stderr.write(f"{path.name}: {rows[-1].outcome} ({time.perf_counter() - began:.0f} s)\n")
        sys.stderr.flush()
        waiting.remove(path.name)
        if asked.write:  # after each: a run that is ended early leaves what it has seen
            asked.write.write_text(page(rows, sums(rows), waiting))
    found = sums(rows)
    if asked.write:
        asked.write.write_text(page(rows, found, waiting))
    if not asked.json:
        print("\n".join(table(rows)) + "\n")
    publish(found, PACKAGES, as_json=asked.json, beside={"models": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()
