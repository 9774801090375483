"""Describe a model in the Open Inference Protocol and Triton's extensions: metadata, configuration, statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.server.protocol.requests import describe

if TYPE_CHECKING:
    from edge_infer.bundle.manifest import Manifest
    from edge_infer.server.execution.loaded_model import LoadedModel
    from edge_infer.server.execution.statistics import Histogram

#: Steps of priority that a request may choose from.
_PRIORITY_LEVELS = 255


def format_of(manifest: Manifest) -> str:
    """Return the format of a model's first variant; `chain` of a chain, which has none of its own."""
    return manifest.variants[0].format if manifest.variants else "chain"


def metadata(name: str, format_: str, versions: list[str], specs: Manifest | LoadedModel) -> dict[str, Any]:
    """Describe a model's tensors: https://github.com/kserve/open-inference-protocol, Model Metadata."""
    return {
        "name": name,
        "versions": versions,
        "platform": f"edge-infer_{format_}",
        "inputs": describe(specs.inputs),
        "outputs": describe(specs.outputs),
    }


def configuration(model: LoadedModel) -> dict[str, Any]:
    """Describe how a model runs, as Triton's Model Configuration extension does; dims leave the batch out."""
    limits, size = model.batcher.limits, model.batcher.max_batch_size
    report = model.session.report()
    skip = 1 if size > 1 else 0

    def tensors(specs: Any, *, are_inputs: bool = False) -> list[dict[str, Any]]:
        return [
            {
                "name": entry["name"],
                "data_type": "TYPE_STRING" if entry["datatype"] == "BYTES" else f"TYPE_{entry['datatype']}",
                # Manifests do not say which axis is which.
                **({"format": "FORMAT_NONE"} if are_inputs else {}),
                "dims": entry["shape"][skip:],
            }
            for entry in describe(specs)
        ]

    document: dict[str, Any] = {
        "name": model.name,
        "platform": f"edge-infer_{format_of(model.session.bundle.manifest)}",
        "backend": report.engine,
        "version_policy": {"specific": {"versions": [model.version]}},
        "max_batch_size": size if size > 1 else 0,
        "input": tensors(model.inputs, are_inputs=True),
        "output": tensors(model.outputs),
        "parameters": {
            "device": {"string_value": report.device},
            "variant": {"string_value": model.variant_in_use},
            "fast_variant": {"string_value": model.fast.variant if model.fast else model.fast_reason},
            "pool": {"string_value": model.pool},
            "batching": {"string_value": model.probe.reason or f"measured: up to {size} rows"},
            "max_queue_size": {"string_value": str(limits.max_queue_size)},
        },
    }
    if size > 1:
        document["dynamic_batching"] = {
            "preferred_batch_size": [size],
            "max_queue_delay_microseconds": int(limits.max_delay_ms * 1000),
            "priority_levels": _PRIORITY_LEVELS,
            "default_queue_policy": {"max_queue_size": limits.max_queue_size, "allow_timeout_override": True},
        }
    return document


def statistics(model: LoadedModel) -> dict[str, Any]:
    """Give what was counted, as Triton's Statistics extension does; times in nanoseconds."""
    counts = model.statistics
    failed = sum(counts.failures.values()) + sum(counts.rejections.values())

    def duration(histogram: Histogram) -> dict[str, int]:
        return {"count": counts.requests, "ns": int(histogram.sum * 1e9)}

    nothing = {"count": 0, "ns": 0}
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": int(counts.last_inference * 1000),
        "inference_count": int(counts.batch_rows.sum),
        "execution_count": counts.batch_rows.count,
        "inference_stats": {
            "success": duration(counts.total),
            "fail": {"count": failed, "ns": int(counts.failure_s * 1e9)},
            "queue": {"count": counts.requests, "ns": int((counts.queue.sum + counts.batch_wait.sum) * 1e9)},
            "compute_input": nothing,
            "compute_infer": duration(counts.compute),
            "compute_output": duration(counts.serialization),
            "cache_hit": {"count": counts.cache_hits, "ns": 0},
            "cache_miss": {"count": counts.cache_misses, "ns": 0},
        },
        "batch_stats": [
            {
                "batch_size": rows,
                "compute_input": nothing,
                "compute_infer": {"count": count, "ns": int(seconds * 1e9)},
                "compute_output": nothing,
            }
            for rows, (count, seconds) in sorted(counts.batches.items())
        ],
    }
