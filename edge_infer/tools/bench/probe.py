"""One process of a benchmark: load, first result, warm-up, calls; `python -m edge_infer.tools.bench.probe JSON`.

Its first line on stdout is written at the first result: whoever started it has the cold start, the interpreter's own
included. Its second line is a JSON object with the times of the calls. What the engines print goes to stderr.
"""

from __future__ import annotations

import sys
from time import perf_counter


def main(argument: str) -> None:
    """Run one way for some seconds.

    Args:
        argument: A JSON object: `source`, `backend`, `variant`, `device`, `threads` (or null), `seconds`, `pin` (CPU
            numbers, or null), `inputs` (a file of examples, or null for the bundle's own).
    """
    import json

    wishes = json.loads(argument)
    if wishes["pin"]:
        from edge_infer.platform.posix import bind_to_cpus

        bind_to_cpus(wishes["pin"])
    import edge_infer

    try:
        session = edge_infer.load(
            wishes["source"],
            backend=wishes["backend"],
            variant=wishes["variant"],
            device=wishes["device"],
            threads=wishes["threads"],
            strict=True,
        )
        from edge_infer.formats.safetensors import read_examples
        from edge_infer.tensors.dummy_inputs import dummy_inputs

        if wishes["inputs"]:
            from pathlib import Path

            examples = read_examples(Path(wishes["inputs"]).read_bytes())
        else:
            examples = session.bundle.examples()
        feeds = [dict(inputs) for inputs, _ in examples] or [dummy_inputs(session.inputs)]
        session.run(feeds[0])
    except edge_infer.EdgeInferError as error:
        sys.stdout.write(json.dumps(error.to_json()) + "\n")
        return
    sys.stdout.write("first\n")
    sys.stdout.flush()

    from edge_infer.platform.posix import resident_bytes
    from edge_infer.tensors.arrays import has_numpy, present
    from edge_infer.tools.bench.energy import read_energy_uj, used_uj

    feeds = [present(inputs, "numpy" if has_numpy() else "tensor") for inputs in feeds]
    report = session.report()
    times: list[float] = []
    _warm_up(lambda: session.run(feeds[0]), wishes["seconds"])
    before = read_energy_uj()
    started = perf_counter()
    until = started + wishes["seconds"]
    while not times or perf_counter() < until:
        feed = feeds[len(times) % len(feeds)]
        start = perf_counter()
        session.run(feed)
        times.append((perf_counter() - start) * 1000)
    energy = used_uj(before, read_energy_uj())
    answer = {
        "times_ms": times,
        "seconds": perf_counter() - started,
        "version": report.engine_version,
        "device": report.device,
        "threads": report.threads,
        "rss_bytes": resident_bytes(),
        "energy_uj": energy,
    }
    sys.stdout.write(json.dumps(answer) + "\n")


def _warm_up(call: object, seconds: float) -> None:
    """Call for a fifth of the time, at least three times: caches fill, clocks rise."""
    assert callable(call)
    until = perf_counter() + seconds / 5
    for count in range(1_000_000):
        if count >= 3 and perf_counter() > until:
            break
        call()


if __name__ == "__main__":
    main(sys.argv[1])
