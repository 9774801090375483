"""Measure the engines of the page in a real headless Chromium."""

from __future__ import annotations

import base64
from time import perf_counter
from typing import TYPE_CHECKING

from edge_infer.errors import EdgeInferError
from edge_infer.formats.safetensors import write_examples
from edge_infer.platform.fetch import is_url
from edge_infer.tools.bench.native import Failure, rows_of
from edge_infer.tools.bench.rows import Round

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.formats.safetensors import Example
    from edge_infer.runtime.selection import Choice
    from edge_infer.tools.bench.rows import Row

# The page's clock steps by 5 us at best, 100 us where it is not isolated: calls are timed in blocks of at least 5 ms.
_CODE = """
from time import perf_counter
import base64
import edge_infer
from edge_infer.formats.safetensors import read_examples
from edge_infer.tensors.dummy_inputs import dummy_inputs

session = edge_infer.load(url, backend=backend, variant=variant, device=device, strict=True, arrays="tensor")
examples = read_examples(base64.b64decode(given)) if given else session.bundle.examples()
feeds = [dict(inputs) for inputs, _ in examples] or [dummy_inputs(session.inputs)]
session.run(feeds[0])
"""
_LOOP = """
def _block(calls):
    start = perf_counter()
    for i in range(calls):
        session.run(feeds[i % len(feeds)])
    return perf_counter() - start

calls = 1
while (taken := _block(calls)) < 0.005:
    calls *= 2
until = perf_counter() + seconds / 5
while perf_counter() < until:
    _block(calls)
times, started, until = [], perf_counter(), perf_counter() + seconds
while not times or perf_counter() < until:
    times.append(_block(calls) * 1000 / calls)
report = session.report()
answer = {"times_ms": times, "calls": calls, "seconds": perf_counter() - started, "version": report.engine_version,
          "device": report.device, "threads": report.threads}
session.close()
answer
"""


def measure_in_page(
    bundle: Bundle,
    ways: Sequence[Choice],
    *,
    rounds: int,
    seconds: float,
    given: Sequence[Example] = (),
    progress: Callable[[], None] = lambda: None,
) -> tuple[list[Row], list[Failure]]:
    """Measure each way in as many fresh pages as there are rounds; the ways take turns.

    Cold start is that of the whole page: a fresh browser, Python, the engine, the model, the first result. Its files
    come from a server on this machine.
    """
    from edge_infer.server.app import create_app
    from edge_infer.server.http.in_thread import ServerThread
    from edge_infer.tools.browser.page import PagePython

    measured: list[list[Round]] = [[] for _ in ways]
    failed: dict[int, Failure] = {}
    inputs = base64.b64encode(write_examples(list(given))).decode() if given else ""
    model = bundle.manifest.name
    models = {} if is_url(bundle.location) else {model: bundle.location}
    with ServerThread(create_app(models)) as server:
        url = f"{server.url}/models/{model}" if models else bundle.location
        if models and bundle.is_bare:  # no manifest names its file
            url = f"{url}/{bundle.manifest.variants[0].file}"
        for _ in range(rounds):
            for place, way in enumerate(ways):
                if place not in failed:
                    try:
                        start = perf_counter()
                        with PagePython(server.url, webgpu=way.device == "webgpu") as page:
                            names = {
                                "url": url,
                                "backend": way.backend,
                                "variant": way.variant.id,
                                "device": way.device,
                                "seconds": seconds,
                                "given": inputs,
                            }
                            page.run(_CODE, names)
                            cold_ms = (perf_counter() - start) * 1000
                            answer = page.run(_LOOP, names)
                        measured[place].append(
                            Round(
                                cold_ms,
                                tuple(answer["times_ms"]),
                                answer["seconds"] / answer["calls"],
                                answer["version"],
                                answer["device"],
                                answer["threads"],
                                None,
                                None,
                            )
                        )
                    except EdgeInferError as error:
                        failed[place] = Failure(way.variant.id, way.backend, error.message)
                progress()
    return rows_of(bundle, ways, measured, failed)
