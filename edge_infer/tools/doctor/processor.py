"""Check the processor: its int8 instructions, the share of it that may be used, and the thread settings."""

from __future__ import annotations

import os
from math import ceil
from typing import TYPE_CHECKING

from edge_infer.platform.cpu import read_affinity, read_processor, read_quota
from edge_infer.tools.doctor.files import ROOT, text_of
from edge_infer.tools.doctor.findings import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edge_infer.platform.cpu import Processor


def examine_processor(root: Path = ROOT, environment: Mapping[str, str] | None = None) -> list[Finding]:
    """Look at the processor, its quota and affinity, and the variables that set threads.

    Args:
        root: Where facts are read.
        environment: The variables; None for those of this process.
    """
    processor = read_processor(root)
    if not processor.cpus:
        return [Finding("cpu", "note", "nothing is known of the processor: no /proc/cpuinfo")]
    name = processor.model or "a processor without a known name"
    said = f"{name}, {processor.cpus} CPU{'s' if processor.cpus > 1 else ''}, {' '.join(processor.features) or 'plain'}"
    usable = _usable(processor, root)
    findings = [Finding("cpu.model", "ok", said), _int8(processor), _threads(processor, root, usable)]
    return [*findings, *_variables(os.environ if environment is None else environment, usable), *_governor(root)]


def _usable(processor: Processor, root: Path) -> float:
    limits = [processor.cpus, read_affinity(root), read_quota(root)]
    return min(limit for limit in limits if limit is not None)


def _int8(processor: Processor) -> Finding:
    features = processor.features
    if processor.has_dot_product:
        return Finding(
            "cpu.int8", "ok", "sums int8 products in one exact instruction: int8 variants are right and fast"
        )
    if "asimd" in features or "neon" in features:
        return Finding(
            "cpu.int8",
            "note",
            "has no dotprod: int8 variants are right, but may be no faster than fp32",
            "edge-infer tune BUNDLE",
        )
    if processor.saturates:
        return Finding(
            "cpu.int8",
            "warning",
            "has no VNNI: plain int8 kernels saturate; bundles ask onnxruntime for the precise, slower ones",
            "edge-infer tune BUNDLE",
        )
    return Finding(
        "cpu.int8",
        "warning",
        "has neither AVX2 nor NEON: engines use their slowest kernels, and some wheels do not start at all",
        "edge-infer tune BUNDLE; choose a smaller model",
    )


def _threads(processor: Processor, root: Path, usable: float) -> Finding:
    if usable >= processor.cpus:
        return Finding("cpu.threads", "ok", f"all {processor.cpus} CPUs may be used")
    quota = read_quota(root)
    by = "its control group's quota" if quota is not None and quota <= usable else "its affinity"
    threads = max(1, ceil(usable))
    return Finding(
        "cpu.threads",
        "warning" if usable < 1 else "note",
        f"this process may use {usable:g} of {processor.cpus} CPUs, by {by}; edge-infer uses {threads} thread"
        + ("s" if threads > 1 else ""),
        f"OMP_NUM_THREADS={threads} for other libraries; or raise the quota (systemd: CPUQuota=, docker: --cpus)",
    )


def _variables(environment: Mapping[str, str], usable: float) -> list[Finding]:
    findings = []
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        value = environment.get(name, "")
        if value.isdecimal() and int(value) > max(1, ceil(usable)):
            findings.append(
                Finding(
                    "cpu.variables",
                    "warning",
                    f"{name}={value}, but {usable:g} CPUs may be used: the threads wait for one another",
                    f"export {name}={max(1, ceil(usable))}",
                )
            )
    return findings


def _governor(root: Path) -> list[Finding]:
    path = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
    if text_of(root / path) != "powersave":
        return []
    return [
        Finding(
            "cpu.governor",
            "warning",
            "the frequency governor is `powersave`: the processor may stay at its lowest clock",
            "echo ondemand | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor",
        )
    ]
