"""`edge-infer verify` of a model that generates text: the tokens of its vectors must come out here."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from edge_infer.backends.registry import get_backend
from edge_infer.cli import output
from edge_infer.cli.engines import engines_for
from edge_infer.errors import InputError
from edge_infer.generation.encoder_decoder import sequence_definition
from edge_infer.generation.sequence_vectors import has_sequences
from edge_infer.platform.fetch import is_url
from edge_infer.verify.generation import GenerationRow, generation_rows, sequence_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.bundle.variant import Variant


def verify_generation(
    bundle: Bundle,
    variants: Sequence[str],
    backends: Sequence[str],
    device: str,
    refused: Sequence[str],
    *,
    as_json: bool,
) -> int:
    """Run the vectors of a bundle and print what came out.

    Args:
        bundle: The bundle.
        variants: The ids of those to run; empty for all.
        backends: Engines of a model with an encoder and a decoder; empty for all that have the device.
        device: What they run on.
        refused: Options that were given and do not apply.
        as_json: Whether to print JSON.

    Returns:
        The exit status: 1 where other tokens came out, or nothing could be compared.

    Raises:
        InputError: There are such options, or no such engine.
        BundleError: The file of vectors is damaged.
    """
    if refused:
        raise InputError(
            f"{' and '.join(refused)} compare tensors, and `{bundle.manifest.name}` generates text",
            hint=f"edge-infer verify {bundle.location}",
            options=list(refused),
        )
    wanted = [bundle.manifest.variant(name) for name in variants] or list(bundle.manifest.variants)
    if has_sequences(bundle.manifest):
        rows = _sequence_rows(bundle, wanted if variants else _decoders(bundle), backends, device)
    else:
        with output.progress(f"{len(wanted)} variants", len(wanted)) as advance:
            rows = generation_rows(bundle, wanted, partial(advance, 1))
    return _show(bundle, rows, as_json=as_json)


def _decoders(bundle: Bundle) -> list[Variant]:
    return [bundle.manifest.variant(name) for name in sequence_definition(bundle.manifest).encoders]


def _sequence_rows(
    bundle: Bundle, wanted: Sequence[Variant], backends: Sequence[str], device: str
) -> list[GenerationRow]:
    rows = []
    for name in engines_for(backends, device, wanted):
        fitting = [one.id for one in wanted if one.format in get_backend(name).formats]
        with output.progress(f"{name}: {len(fitting)} variants", len(fitting)) as advance:
            if get_backend(name).page_devices:
                rows += _in_page(bundle, fitting, name, device, partial(advance, 1))
            else:
                rows += sequence_rows(bundle, fitting, partial(advance, 1), backend=name, device=device)
    return rows


def _in_page(
    bundle: Bundle, variants: Sequence[str], backend: str, device: str, done: Callable[[], None]
) -> list[GenerationRow]:
    from edge_infer.server.app import create_app
    from edge_infer.server.http.in_thread import ServerThread
    from edge_infer.tools.browser.page import PagePython

    model, location = bundle.manifest.name, bundle.location
    models = {} if is_url(location) else {model: location}
    with ServerThread(create_app(models)) as server, PagePython(server.url, webgpu=device == "webgpu") as page:
        url = f"{server.url}/models/{model}" if models else location

        def ask(variant: str) -> str:
            return page.run_generation(url, backend, variant, device)

        return sequence_rows(bundle, variants, done, backend=backend, ask=ask)


def _show(bundle: Bundle, rows: Sequence[GenerationRow], *, as_json: bool) -> int:
    passed = [row for row in rows if row.verdict == "ok"]
    failed = [row for row in rows if row.verdict == "fail"]
    if as_json:
        output.data_json(
            {
                "bundle": f"{bundle.manifest.name}@{bundle.revision}",
                "passed": bool(passed) and not failed,
                "generation": [row.to_json() for row in rows],
            }
        )
    else:
        lines = [
            (
                *(row.variant, row.backend or "kernels", str(row.vectors), str(row.tokens)),
                f"{row.verdict}: {row.reason}" if row.reason else "ok",
            )
            for row in rows
        ]
        output.table(["variant", "engine", "prompts", "tokens", "verdict"], lines, right=["prompts", "tokens"])
    output.talk(f"{len(passed)} of {len(rows)} variants generate the tokens of their vectors")
    if not passed and not failed:
        output.warn("Nothing proves the generation: there are no vectors", "edge-infer convert FOLDER writes them")
    return 0 if passed and not failed else 1
