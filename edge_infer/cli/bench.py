"""`edge-infer bench`: measure the speed of a bundle on the engines of this machine and compare with an older run."""

from __future__ import annotations

import json
import platform
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge_infer.backends.registry import get_backend
from edge_infer.bundle.bundle import Bundle
from edge_infer.cli import options, output
from edge_infer.cli.bench_generation import bench_generation
from edge_infer.cli.on_host import measure_there
from edge_infer.errors import InputError
from edge_infer.formats.input_files import read_inputs
from edge_infer.platform.cpu import is_emulated
from edge_infer.platform.posix import allowed_cpus
from edge_infer.runtime.load import load
from edge_infer.runtime.measurements import machine
from edge_infer.runtime.options import LoadOptions
from edge_infer.runtime.selection import Choice, worth_measuring

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.formats.safetensors import Example
    from edge_infer.tools.bench.compare import Change
    from edge_infer.tools.bench.native import Failure
    from edge_infer.tools.bench.rows import Row
    from edge_infer.tools.doctor.heat import Heat

FORMAT = 1


def _share(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Return a share written as `10%` or `0.1`."""
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 100:
        raise click.BadParameter(f"{text!r} is not a share; write 10% or 0.1", context, option)
    return share


@click.command()
@click.argument("source")
@click.option(
    "--backend", "backends", multiple=True, metavar="NAME", help="Only this engine; may be repeated. Default: all here."
)
@click.option("--variant", "variants", multiple=True, metavar="ID", help="Only this variant; may be repeated.")
@options.device
@click.option(
    "--threads", type=click.IntRange(1), metavar="N", help="Threads of one operator. Default: as `load` does."
)
@options.host
@click.option("--pin", metavar="CPU,...", help="Bind the processes to these CPUs, such as 0 or 2,3.")
@options.inputs
@click.option(
    "--rounds",
    default=5,
    show_default=True,
    type=click.IntRange(1, 100),
    metavar="N",
    help="How many fresh processes each way gets.",
)
@click.option(
    "--seconds",
    default=0.5,
    show_default=True,
    type=click.FloatRange(0, 600, min_open=True),
    metavar="S",
    help="How many seconds each process calls, after its warm-up.",
)
@click.option(
    "--compare",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="OLD.json",
    help="The file that --json wrote before, to compare with.",
)
@click.option(
    "--fail-above",
    callback=_share,
    metavar="SHARE",
    help="With --compare: 10% lets a figure be 10% worse. Default: the spread.",
)
@options.as_json
def bench(
    source: str,
    backends: tuple[str, ...],
    variants: tuple[str, ...],
    device: str,
    threads: int | None,
    host: str | None,
    wheel: Path | None,
    pin: str | None,
    inputs: tuple[str, ...],
    rounds: int,
    seconds: float,
    compare: Path | None,
    fail_above: float | None,
    as_json: bool,
) -> None:
    """Measure cold start, latency, throughput and memory of a bundle.

    SOURCE is a bundle (folder, .zip or URL), or a .onnx or .tflite file.

    A model that generates text is measured by the tokens of each second: of a prompt, and of the answer behind it.

    Each way (an engine with a variant) runs in fresh processes, which take turns; with --backend ort-web in fresh pages
    of a headless Chromium. It is called with the golden examples, with --input, or with zeros. Spread is half the
    distance of the quartiles over the median, between the processes. Exits with 1 where --compare finds a figure worse
    than before beyond the spread.

    With --host another machine is measured, which ssh reaches with a key; it needs Python 3.11 and nothing else.

    \b
    edge-infer bench digits.bundle
    edge-infer bench digits.bundle --input image=seven.npy
    edge-infer bench digits.bundle --backend ort-web --json > old.json
    edge-infer bench digits.bundle --backend ort-web --compare old.json --fail-above 10%
    edge-infer bench digits.bundle --host pi@raspberrypi.local --wheel wheels --json > pi.json
    """  # noqa: D301  click reads the \b
    if fail_above is not None and compare is None:
        raise click.UsageError("--fail-above needs --compare")
    if host is None and wheel is not None:
        raise click.UsageError("--wheel needs --host")
    if host is not None and (backends or pin is not None or device not in ("auto", "cpu")):
        raise click.UsageError("--host runs on the processor there: leave --backend, --device and --pin out")
    from edge_infer.tools.bench.compare import compare_rows
    from edge_infer.tools.bench.in_page import measure_in_page
    from edge_infer.tools.bench.native import measure_native
    from edge_infer.tools.doctor.heat import read_heat

    bundle = Bundle.open(source)
    decoders = [one for one in bundle.manifest.variants if one.format == "decoder" and one.id in (variants or [one.id])]
    if decoders:
        asked: dict[str, object] = {
            "--backend": backends,
            "--pin": pin,
            "--threads": threads,
            "--input": inputs,
            "--compare": compare,
            "--host": host,
            "--device": device != "auto",
        }
        refused = [name for name, value in asked.items() if value]
        bench_generation(bundle, decoders, refused, rounds=rounds, seconds=seconds, as_json=as_json)
        return
    given = _given(bundle, inputs) if inputs else []
    older = None if compare is None else _read(compare)
    cpus = _cpus(pin)
    if host is None:
        native, in_page = _ways(bundle, backends, variants, device, threads)
    else:
        native, in_page = [], []
    if in_page and (pin is not None or threads is not None):
        raise click.UsageError("--threads and --pin do nothing in a page: measure its engines without them")
    before = read_heat()
    rows: list[Row] = []
    failed: list[Failure] = []
    with output.progress("Measuring", (len(native) + len(in_page)) * rounds) as advance:
        for ways, is_page in ((native, False), (in_page, True)):
            if ways and is_page:
                found, lost = measure_in_page(
                    bundle, ways, rounds=rounds, seconds=seconds, given=given, progress=partial(advance, 1)
                )
            elif ways:
                found, lost = measure_native(
                    bundle, ways, rounds=rounds, seconds=seconds, pin=cpus, given=given, progress=partial(advance, 1)
                )
            else:
                continue
            rows += found
            failed += lost
    place = None
    if host is not None:
        wanted = [bundle.manifest.variant(name) for name in variants] or list(bundle.manifest.variants)
        rows, failed, place = measure_there(
            bundle, host, wheel, wanted, given, rounds=rounds, seconds=seconds, threads=threads
        )
        place = {**place, "host": host, "is_emulated": bool(place.get("is_emulated"))}
    machine_ = place or _machine()
    changes = [] if older is None else compare_rows(older[1], rows, fail_above)
    if as_json:
        output.data_json(
            {
                "format": FORMAT,
                "bundle": bundle.label,
                "machine": machine_,
                "pinned_to": cpus,
                "heat": {"before": before._asdict(), "after": read_heat()._asdict()},
                "rows": [row._asdict() for row in rows],
                "failed": [one._asdict() for one in failed],
                "changes": [change._asdict() for change in changes],
            }
        )
    else:
        _show(rows, machine_)
        if host is None:
            _show_heat(before, read_heat())
        if changes:
            output.data("")
            _show_changes(changes)
    for one in failed:
        output.warn(f"{one.variant} by {one.backend} does not work here: {one.reason}")
    sys.exit(_judge(machine_, changes, older, failed, rows))


def _given(bundle: Bundle, inputs: Sequence[str]) -> list[Example]:
    """Read the inputs of a call; a bare model tells its specs once it is loaded."""
    if bundle.manifest.inputs:
        return [(read_inputs(inputs, bundle.manifest.inputs), {})]
    with load(bundle) as session:
        return [(read_inputs(inputs, session.inputs), {})]


def _ways(
    bundle: Bundle, backends: Sequence[str], variants: Sequence[str], device: str, threads: int | None
) -> tuple[list[Choice], list[Choice]]:
    """Return the ways to measure: natively, and in the page."""
    pages = [name for name in backends if get_backend(name).page_devices]
    wanted = [bundle.manifest.variant(name) for name in variants]
    natives = [name for name in backends if name not in pages]
    native: list[Choice] = []
    engines: list[str | None] = [*natives] if backends else [None]
    chosen: list[str | None] = [*variants] or [None]
    for name in engines:
        for one in chosen:
            native += worth_measuring(bundle.manifest, LoadOptions(device, name, one))

    native = [way._replace(threads=threads if get_backend(way.backend).takes_threads else None) for way in native]
    in_page = []
    place = {"auto": "wasm", "cpu": "wasm"}.get(device, device)
    if pages and place not in ("wasm", "webgpu"):
        raise InputError(f"Backend `{pages[0]}` does not run on device `{device}`", hint="--device wasm or webgpu")
    for name in pages:
        fitting = [one for one in wanted or bundle.manifest.variants if one.format in get_backend(name).formats]
        in_page += [Choice(one, name, place) for one in fitting]
    if not native and not in_page:
        raise InputError(
            f"None of these engines reads a variant of `{bundle.manifest.name}`", hint="edge-infer backends"
        )
    return native, in_page


def _cpus(pin: str | None) -> list[int]:
    if pin is None:
        return []
    allowed = allowed_cpus()
    try:
        cpus = sorted({int(part) for part in pin.split(",")})
    except ValueError:
        cpus = [-1]
    if not set(cpus) <= allowed:
        known = ", ".join(map(str, sorted(allowed))) or "none: this system cannot bind processes"
        raise click.UsageError(f"--pin is `{pin}`, expected numbers among {known}")
    return cpus


def _read(path: Path) -> tuple[dict[str, Any], list[Row]]:
    """Read what `--json` wrote."""
    from edge_infer.tools.bench.rows import row_from_json

    try:
        document = json.loads(path.read_bytes())
        if document["format"] != FORMAT:
            raise ValueError(f"it has format {document['format']}, expected {FORMAT}")
        return dict(document["machine"]), [row_from_json(entry) for entry in document["rows"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            f"`{path}` is not a benchmark: {error}", hint=f"edge-infer bench BUNDLE --json > {path}"
        ) from error


def _judge(
    place: dict[str, Any],
    changes: list[Change],
    older: tuple[dict[str, Any], list[Row]] | None,
    failed: list[Failure],
    rows: list[Row],
) -> int:
    """Say how it ended; return the exit status."""
    if older is not None and {**older[0], "is_emulated": False} != {**place, "is_emulated": False}:
        output.warn("The older figures are of another machine: the ratios say nothing about the software")
        return int(not rows)
    if older is not None and not changes:
        output.warn("The older figures have none of these ways", "run the same --backend, --variant and --threads")
        return 1
    worse = [change for change in changes if change.is_worse]
    for change in worse:
        output.warn(
            f"{change.variant} by {change.backend}: {change.metric} is {change.ratio:.2f} of what it was, allowed is "
            f"{change.allowed:.2f}"
        )
    output.talk(
        f"Measured {len(rows)} way{'' if len(rows) == 1 else 's'}"
        + (f", {len(failed)} do not work here" if failed else "")
    )
    return int(bool(worse) or not rows)


def _machine() -> dict[str, Any]:
    """Describe this machine, and whether it is only imitated: then its times say nothing of the real one's."""
    return {**machine(), "is_emulated": is_emulated(platform.machine())}


def _show(rows: Sequence[Row], place: dict[str, Any]) -> None:
    emulated = ", emulated: not a speed" if place.get("is_emulated") else ""
    figures = ["threads", "size", "cold ms", "p50 ms", "p99 ms", "calls/s", "spread", "rss", "mJ"]
    output.table(
        ["variant", "engine", "device", *figures],
        [
            (
                row.variant,
                f"{row.backend} {row.version}",
                f"{row.device}{emulated}",
                row.threads or "own",
                output.size(row.size_bytes),
                f"{row.cold_ms:.0f}",
                f"{row.p50_ms:.3g}",
                f"{row.p99_ms:.3g}",
                f"{row.per_s:.0f}",
                f"{row.spread:.1%}",
                "-" if row.rss_bytes is None else output.size(row.rss_bytes),
                "-" if row.energy_mj is None else f"{row.energy_mj:.2g}",
            )
            for row in rows
        ],
        right=figures,
    )


def _show_heat(before: Heat, after: Heat) -> None:
    if before.temperature_c is not None and after.temperature_c is not None:
        output.talk(
            f"The processor was at {before.temperature_c:.0f} degrees before and at {after.temperature_c:.0f} after"
        )
    if after.throttled is not None and after.throttled & 0xF:
        output.warn("The device was throttled while it was measured", "edge-infer doctor")


def _show_changes(changes: list[Change]) -> None:
    output.table(
        ["variant", "engine", "figure", "old", "new", "ratio", "allowed", ""],
        [
            (
                change.variant,
                change.backend,
                change.metric,
                f"{change.old:.4g}",
                f"{change.new:.4g}",
                f"{change.ratio:.2f}",
                f"{change.allowed:.2f}",
                "worse" if change.is_worse else "",
            )
            for change in changes
        ],
        right=["old", "new", "ratio", "allowed"],
    )
