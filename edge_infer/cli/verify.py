"""`edge-infer verify`: do all engines give the same numbers? The golden examples of a bundle say."""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import click

from edge_infer.backends.registry import get_backend
from edge_infer.bundle.bundle import Bundle
from edge_infer.cli import options, output
from edge_infer.cli.bisect import bisect, judged_way, other_way, show
from edge_infer.cli.engines import engines_for
from edge_infer.cli.judge import Judge, Row
from edge_infer.cli.on_host import verify_there
from edge_infer.cli.verify_chain import verify_chain
from edge_infer.cli.verify_generation import verify_generation
from edge_infer.errors import BackendError, EdgeInferError, InputError, UnsupportedModel
from edge_infer.formats.input_files import read_inputs
from edge_infer.generation.sequence_vectors import has_sequences
from edge_infer.parity.comparison import worst_of
from edge_infer.parity.verdict import Limits
from edge_infer.platform import allocator
from edge_infer.platform.fetch import is_url
from edge_infer.runtime.load import load
from edge_infer.runtime.selection import check_device, exact_engine
from edge_infer.tasks.vectors import read as read_vectors
from edge_infer.verify.pipelines import answers_row, page_rows, steps_row

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from edge_infer.bundle.variant import Variant
    from edge_infer.cli.bisect import Bisection
    from edge_infer.formats.safetensors import Example
    from edge_infer.parity.comparison import Parity
    from edge_infer.runtime.session import Session
    from edge_infer.tensors.tensor import Tensor
    from edge_infer.verify.pipelines import PipelineRow

    Outputs = list[dict[str, Tensor]]

# The precision of most bits first.
_BY_BITS = ("fp32", "fp16", "int8", "mixed", "int4")

_NOTHING_INSIDE = (
    "{way}: no inner value differs. What does, if anything, are its outputs, or nodes that the engine joins when inner "
    "values are not given out"
)


@click.command()
@click.argument("source")
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME",
    help="Only this engine; may be repeated. Default: all here that have the device, but the slow `reference`.",
)
@click.option("--variant", "variants", multiple=True, metavar="ID", help="Only this variant; may be repeated.")
@click.option(
    "--device",
    default="auto",
    show_default=True,
    metavar="NAME",
    help="What the engines run on: auto, cpu, cuda, wasm or webgpu.",
)
@options.host
@options.inputs
@click.option("--bisect", "is_bisected", is_flag=True, help="Name the first node at which a disagreement starts.")
@click.option(
    "--against",
    metavar="NAME",
    help="With --bisect: an engine or a variant to compare with, whether the variant disagrees or not.",
)
@click.option("--atol", type=float, metavar="ERROR", help="Each value may be off by so much, and by --rtol beside it.")
@click.option("--rtol", type=float, metavar="SHARE", help="Each value may be off by this share of the source's.")
@click.option("--min-sqnr", "min_sqnr_db", type=float, metavar="DB", help="The least SQNR of each output.")
@click.option("--min-cosine", type=float, metavar="COSINE", help="The least cosine of each output.")
@click.option("--min-top1", type=float, metavar="SHARE", help="The least share of the same clear best classes.")
@options.as_json
def verify(
    source: str,
    backends: tuple[str, ...],
    variants: tuple[str, ...],
    device: str,
    host: str | None,
    wheel: Path | None,
    inputs: tuple[str, ...],
    is_bisected: bool,
    against: str | None,
    atol: float | None,
    rtol: float | None,
    min_sqnr_db: float | None,
    min_cosine: float | None,
    min_top1: float | None,
    as_json: bool,
) -> None:
    """Run a bundle's golden examples on every engine and compare with the outputs of its source.

    With --backend ort-web or litert-web the bundle runs in a real headless Chromium, served by a server of its own;
    with --device webgpu too, on Chromium's software adapter, which computes what a GPU does, slowly.
    With --input the fp32 variant on its exact engine says what is right, in the place of the golden outputs; of a
    bundle that has none, the variant of most bits, and the last line names it.
    Exits with 1 where an output of a variant disagrees: fp32 beyond 1e-4 of the rms or below 100 dB, fp16 below 50 dB,
    int8 below 20 dB (warned below 30) or more than one step from the exact engine, another clear top-1 answer, or a
    slice of which nothing is left. Probabilities near 0 are compared absolutely. A variant that was converted to less,
    or whose source is not that near to itself, is compared with what its manifest says of it; an integer variant also
    where it had more. --atol, --rtol, --min-sqnr, --min-cosine and --min-top1 outrank all these, which then only warn.

    Where the bundle has a pipeline, its vectors run too: the tensors that the steps make must be the same to the bit,
    and on each engine, those of a page too, the answers by label, score (.02) and overlap of boxes (.9).

    A model that generates text is asked the prompts of its vectors: the chat template must render the same text, the
    tokenizer give the same tokens, and the same new tokens must come out, the most likely ones and sampled ones. Of
    Whisper and T5 the first logits must be near, and the most likely tokens the same where they lead clearly, on each
    engine that --backend or --device chooses.

    With --host the variants run on another machine, which ssh reaches with a key: it needs Python 3.11 and nothing
    else, gets what `slim` makes, in a folder for this time only, and its answers are judged here.

    A chain runs the proofs of its steps' bundles, then its own answers must come out again.

    --bisect gives the inner values out and names the first node whose output differs: from native ONNX Runtime for
    another engine, else from the fp32 variant of the format. TFLite variants are bisected on native LiteRT,
    with which the calls of a compiled variant are compared.

    \b
    edge-infer verify digits.bundle
    edge-infer verify digits.bundle --variant onnx/int8 --bisect --against onnx/fp32
    edge-infer verify digits.bundle --min-cosine 0.99
    edge-infer verify digits.bundle --input seven.png
    edge-infer verify digits.bundle --backend ort-web --backend litert-web --json
    edge-infer verify digits.bundle --backend ort-web --device webgpu
    edge-infer verify digits.bundle --host pi@raspberrypi.local --wheel wheels
    """  # noqa: D301  click reads the \b
    if against is not None and not is_bisected:
        raise click.UsageError("--against needs --bisect")
    if host is None and wheel is not None:
        raise click.UsageError("--wheel needs --host")
    if host is not None and (backends or is_bisected or device not in ("auto", "cpu")):
        raise click.UsageError("--host runs on the processor there: leave --backend, --device and --bisect out")
    limits = Limits(atol, rtol, min_sqnr_db, min_cosine, min_top1)
    limits.check()
    device = check_device(device)
    with suppress(ImportError):
        import numpy  # noqa: F401  with it outputs are compared fast, and slice by slice
    bundle = Bundle.open(source)
    if any(file.size >= allocator.LARGE_BYTES for file in bundle.manifest.files.values()):
        allocator.return_large_blocks()
    if bundle.manifest.chain is not None:
        given = {"--variant": variants, "--input": inputs, "--bisect": is_bisected, "--host": host}
        given |= {"--atol, --rtol, --min-sqnr, --min-cosine or --min-top1": limits.is_set}
        refused = [flag for flag, value in given.items() if value]
        sys.exit(verify_chain(bundle, device, backends, refused, as_json=as_json))
    wanted = [bundle.manifest.variant(name) for name in variants] or list(bundle.manifest.variants)
    if has_sequences(bundle.manifest) or all(variant.format == "decoder" for variant in wanted):
        # An encoder and a decoder run on engines, all others by kernels of our own.
        engines = {} if has_sequences(bundle.manifest) else {"--backend": backends, "--device": device != "auto"}
        given = {**engines, "--input": inputs, "--bisect": is_bisected, "--host": host}
        given |= {"--atol, --rtol, --min-sqnr, --min-cosine or --min-top1": limits.is_set}
        refused = [flag for flag, value in given.items() if value]
        sys.exit(verify_generation(bundle, variants, backends, device, refused, as_json=as_json))
    wanted = [variant for variant in wanted if variant.format != "decoder"]
    truth, examples = _given(bundle, inputs) if inputs else ("the source", bundle.examples())
    if not examples:
        raise InputError(
            f"`{source}` has no golden examples to verify with",
            hint="edge-infer convert model.onnx -o model.bundle, or --input NAME=FILE",
        )
    rows: list[Row] = []
    in_pages: list[PipelineRow] = []
    if host is not None:
        rows = verify_there(Judge(bundle, host, examples, limits, is_given=bool(inputs)), host, wheel, wanted)
    for name in [] if host is not None else engines_for(backends, device, wanted):
        fitting = [variant for variant in wanted if variant.format in get_backend(name).formats]
        with output.progress(f"{name}: {len(fitting)} variants x {len(examples)} examples", len(fitting)) as advance:
            work = _run_in_page if get_backend(name).page_devices else _run_here
            judge = Judge(bundle, name, examples, limits, is_given=bool(inputs))
            rows += work(judge, device, fitting, partial(advance, 1))
            in_pages += judge.in_page
    pipelines = [] if inputs or host is not None else _pipelines(bundle, device, rows) + in_pages
    failed = [row for row in rows if row.verdict == "fail"]
    failed_pipelines = [row for row in pipelines if row.verdict == "fail"]
    found, not_bisected = _bisected(bundle, device, rows, examples, against) if is_bisected else ([], {})
    if as_json:
        output.data_json(
            {
                "bundle": f"{bundle.manifest.name}@{bundle.revision}",
                "examples": len(examples),
                "passed": not failed and not failed_pipelines,
                "rows": [row.to_json() for row in rows],
                **({"pipeline": [row.to_json() for row in pipelines]} if pipelines else {}),
                **({"bisections": [one.to_json() for one in found]} if is_bisected else {}),
            }
        )
    else:
        _show(rows)
        if pipelines:
            output.data("")
            _show_pipelines(pipelines)
        if found:
            output.data("")
            show(found)
    for what, error in not_bisected.items():
        output.warn(f"{what} is not bisected: {error.message}", error.hint)
    if is_bisected and not found and not not_bisected:
        output.talk("Nothing to bisect: no variant disagrees (--against compares nevertheless)")
    for one in found:
        if one.finding is None:
            output.talk(_NOTHING_INSIDE.format(way=one.way))
    judged = [row for row in rows if row.verdict != "skip"]
    output.talk(
        f"{len(judged) - len(failed)} of {len(judged)} agree with {truth} on "
        + ("the input" if inputs else "1 golden example" if len(examples) == 1 else f"{len(examples)} golden examples")
        + ("" if not failed else f"; {len(failed)} disagree")
        + ("" if len(judged) == len(rows) else f"; {len(rows) - len(judged)} cannot run there")
    )
    if pipelines:
        output.talk(
            f"{len(pipelines) - len(failed_pipelines)} of {len(pipelines)} agree with the vectors of the pipeline"
            + (f"; {len(failed_pipelines)} disagree" if failed_pipelines else "")
        )
    sys.exit(1 if failed or failed_pipelines else 0)


def _pipelines(bundle: Bundle, device: str, rows: Sequence[Row]) -> list[PipelineRow]:
    """Run the pipeline's vectors on the engines of the rows that run here."""
    vectors = read_vectors(bundle)
    if vectors is None:
        return []
    found = [steps_row(bundle, vectors)]
    here = [row for row in rows if row.engine and not get_backend(row.backend).page_devices]
    with output.progress(f"Pipeline: {len(here)} variants x {len(vectors.cases)} inputs", len(here)) as advance:
        for row in here:
            variant = bundle.manifest.variant(row.variant)
            found.append(answers_row(bundle, vectors, variant, row.backend, device))
            advance(1)
    return found


def _show_pipelines(rows: Sequence[PipelineRow]) -> None:
    output.table(
        ["pipeline", "engine", "verdict"],
        [
            (row.variant, row.backend or "-", f"{row.verdict}: {row.reason}" if row.reason else row.verdict)
            for row in rows
        ],
    )


def _given(bundle: Bundle, inputs: Sequence[str]) -> tuple[str, list[Example]]:
    """Read the inputs of one call, and run the variant that says what is right for them on its exact engine.

    It is the one of most bits; of several the first that gives the golden outputs to the bit, as the source's own file
    does. Returns what to call it, too.
    """
    here = [variant for variant in bundle.manifest.variants if variant.precision in _BY_BITS and _is_ready(variant)]
    if not here:
        raise InputError(
            f"`{bundle.manifest.name}` has no variant that runs on its exact engine here, so nothing says what is "
            "right for other inputs",
            hint='pip install "edge-infer[onnxruntime]" or "edge-infer[litert]", or leave --input out: the golden '
            "examples hold their outputs",
        )
    most = min(_BY_BITS.index(variant.precision) for variant in here)
    best = [variant for variant in here if _BY_BITS.index(variant.precision) == most]
    golden = bundle.examples()[:1] if len(best) > 1 and most else []
    variant = next((one for one in best if golden and _gives(bundle, one, *golden[0])), best[0])
    with _exact(bundle, variant) as session:
        feeds = read_inputs(inputs, session.inputs)
        answer = session.run(feeds)
    return variant.id, [(feeds, answer)]


def _is_ready(variant: Variant) -> bool:
    exact = exact_engine(variant.format)
    return bool(exact) and get_backend(exact).availability().ready


def _exact(bundle: Bundle, variant: Variant) -> Session:
    backend = exact_engine(variant.format)
    return load(bundle, backend=backend, variant=variant.id, device="cpu", strict=True, arrays="tensor")


def _gives(bundle: Bundle, variant: Variant, feeds: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> bool:
    """Tell whether a variant gives golden outputs to the bit."""
    try:
        with _exact(bundle, variant) as session:
            found = session.run(feeds)
    except EdgeInferError:
        return False
    return all(name in found and found[name].tolist() == value.tolist() for name, value in wanted.items())


def _bisected(
    bundle: Bundle, device: str, rows: list[Row], examples: list[Example], against: str | None
) -> tuple[list[Bisection], dict[str, EdgeInferError]]:
    """Bisect what disagrees, or all rows where there is something to compare them with."""
    found: list[Bisection] = []
    refused: dict[str, EdgeInferError] = {}
    wanted = [row for row in rows if row.verdict != "skip" and (against is not None or row.verdict == "fail")]
    with output.progress(f"Bisecting {len(wanted)} variants", len(wanted)) as advance:
        for row in wanted:
            way = judged_way(bundle.manifest.variant(row.variant), row.backend, device)
            try:
                other = other_way(bundle, way, against)
                if other == way and len(wanted) > 1:
                    continue  # the one that the others are compared with
                found.append(bisect(bundle, way, other, examples))
            except BackendError as error:
                refused[str(way)] = error
            advance(1)
    return found, refused


def _run_here(judge: Judge, device: str, variants: list[Variant], done: Callable[[], None]) -> list[Row]:
    rows = []
    for variant in variants:
        try:
            with load(
                judge.bundle, backend=judge.engine, variant=variant.id, device=device, strict=True, arrays="tensor"
            ) as session:
                results = [session.run(inputs) for inputs, _ in judge.examples]
            rows.append(judge.row(variant, get_backend(judge.engine).version(), results))
        except EdgeInferError as error:
            rows.append(judge.failure(variant, error))
        done()
    return rows


def _run_in_page(judge: Judge, device: str, variants: list[Variant], done: Callable[[], None]) -> list[Row]:
    from edge_infer.server.app import create_app
    from edge_infer.server.http.in_thread import ServerThread
    from edge_infer.tools.browser.page import PagePython

    rows = []
    model, location = judge.bundle.manifest.name, judge.bundle.location
    models = {} if is_url(location) else {model: location}
    with ServerThread(create_app(models)) as server, PagePython(server.url, webgpu=device == "webgpu") as page:
        url = f"{server.url}/models/{model}" if models else location
        for variant in variants:
            try:
                engine, results = page.run_examples(url, judge.engine, variant.id, device, judge.given)
                rows.append(judge.row(variant, engine, results))
            except UnsupportedModel as error:
                # What the GPU of this machine cannot compute, it does not compute wrongly.
                rows.append(judge.failure(variant, error, "skip" if device == "webgpu" else "fail"))
            except EdgeInferError as error:
                rows.append(judge.failure(variant, error))
            done()
        vectors = None if judge.given else read_vectors(judge.bundle)
        if vectors is not None:
            names = [row.variant for row in rows if row.engine]
            judge.in_page = page_rows(
                vectors, names, judge.engine, lambda variant: page.run_vectors(url, judge.engine, variant, device)
            )
    return rows


def _show(rows: list[Row]) -> None:
    lines = []
    for row in rows:
        engine = f"{row.backend} {row.engine}".strip()
        steps = _number(math.nan if row.steps is None else row.steps, ".2f")
        verdict = f"{row.verdict}: {row.reason}" if row.reason else row.verdict
        worst = worst_of(row.outputs.values()) if row.outputs else None
        lines.append((row.variant, engine, *_figures(worst), steps, verdict))
        if len(row.outputs) > 1:
            lines += [("", f"  {name}", *_figures(one), "", "") for name, one in row.outputs.items()]
    figures = ["max err / rms", "sqnr dB", "cosine", "top-1"]
    output.table(["variant", "engine", *figures, "steps", "verdict"], lines, right=[*figures, "steps"])


def _figures(parity: Parity | None) -> tuple[str, str, str, str]:
    """Write what was measured of an output; 8- and 16-bit integers in their steps."""
    if parity is None:
        return "-", "-", "-", "-"
    largest = f"{parity.steps:.0f} steps" if parity.steps else _number(parity.max_err, ".1e")
    sqnr_db = "exact" if parity.sqnr_db == math.inf and not parity.steps else _number(parity.sqnr_db, ".1f")
    return largest, sqnr_db, _number(parity.cosine, ".6f"), _number(parity.top1, ".3f")


def _number(value: float, style: str) -> str:
    return "-" if math.isnan(value) else format(value, style)
