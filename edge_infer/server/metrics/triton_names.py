"""The counts under the names that Triton gives them: docs/user_guide/metrics.md of triton-inference-server/server.

Triton's counters have no `_total` at the end, which `prometheus_client` adds to each, so they are written here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from edge_infer.server.execution.loaded_model import LoadedModel

#: Triton's reasons of failures; what is in none of these is `OTHER`.
_REASONS = {
    "REJECTED": frozenset(("queue_full", "over_share", "deadline_exceeded", "shutting_down")),
    "CANCELED": frozenset(("client_left",)),
    "BACKEND": frozenset(("execution_error", "device_lost", "out_of_memory")),
}
_OTHER = "OTHER"
_US = 1e6
_COUNTERS: tuple[tuple[str, str, Callable[[LoadedModel], float]], ...] = (
    ("request_success", "Requests answered", lambda model: model.statistics.requests),
    ("count", "Rows inferred", lambda model: model.statistics.batch_rows.sum),
    ("exec_count", "Batches run", lambda model: model.statistics.batch_rows.count),
    (
        "request_duration_us",
        "From requests' headers to their answers",
        lambda model: model.statistics.total.sum * _US,
    ),
    (
        "queue_duration_us",
        "Waiting for a worker and for others to join the batch",
        lambda model: (model.statistics.queue.sum + model.statistics.batch_wait.sum) * _US,
    ),
    ("compute_input_duration_us", "Always 0: part of the compute time here", lambda _model: 0),
    ("compute_infer_duration_us", "Running the batch", lambda model: model.statistics.compute.sum * _US),
    ("compute_output_duration_us", "Writing the answer", lambda model: model.statistics.serialization.sum * _US),
)


def triton_text(models: Iterable[LoadedModel]) -> bytes:
    """Write the counts in the text format of Prometheus; a version that several pools run is one series."""
    versions: dict[tuple[str, str], list[LoadedModel]] = {}
    for model in models:
        versions.setdefault((model.name, model.version), []).append(model)
    lines: list[str] = []

    def family(name: str, kind: str, text: str) -> str:
        name = f"nv_inference_{name}"
        lines.extend((f"# HELP {name} {text}", f"# TYPE {name} {kind}"))
        return name

    for name, text, value in _COUNTERS:
        name = family(name, "counter", text)
        for version, parts in versions.items():
            lines.append(f"{name}{_labels(*version)} {sum(map(value, parts)):.15g}")
    name = family("request_failure", "counter", "Requests that failed")
    for version, parts in versions.items():
        for reason, count in _failures(parts).items():
            lines.append(f"{name}{_labels(*version, reason)} {count}")
    name = family("pending_request_count", "gauge", "Requests that wait")
    for version, parts in versions.items():
        lines.append(f"{name}{_labels(*version)} {sum(len(model.batcher) for model in parts)}")
    return "".join(f"{line}\n" for line in lines).encode()


def _failures(parts: list[LoadedModel]) -> dict[str, int]:
    found = dict.fromkeys((*_REASONS, _OTHER), 0)
    for model in parts:
        for counts in (model.statistics.failures, model.statistics.rejections):
            for code, count in counts.items():
                found[next((reason for reason, codes in _REASONS.items() if code in codes), _OTHER)] += count
    return found


def _labels(model: str, version: str, reason: str = "") -> str:
    found = {"model": model, "reason": reason, "version": version}
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in found.items() if value) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
