"""The health of a device as one JSON object for fleet monitoring."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import edge_infer
from edge_infer.bundle.bundle import Bundle
from edge_infer.errors import EdgeInferError
from edge_infer.platform.cpu import read_processor, usable_cpus
from edge_infer.tools.doctor.files import ROOT, text_of
from edge_infer.tools.doctor.heat import read_heat
from edge_infer.tools.doctor.machine import examine_machine
from edge_infer.tools.doctor.room import read_memory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def read_status(folders: Sequence[Path] = (), root: Path = ROOT) -> dict[str, Any]:
    """Describe this device.

    Args:
        folders: Folders of models: those that `pull` and `watch` fill, those that models are dropped into, or bundles.
        root: Where facts of the machine are read.

    Returns:
        `healthy`, `problems` and `warnings` as `edge-infer doctor` finds them, `models`, `temperature_c`, `throttled`
        (the bits of a Raspberry Pi's firmware), `uptime_s`, `memory_available_bytes`, `processor`, `cpus`, `time`.
        What nothing tells is null.
    """
    findings = examine_machine(root)
    models = [_model(folder) for folder in folders]
    heat = read_heat(root)
    problems = [f"{one.check}: {one.what}" for one in findings if one.level == "problem"]
    problems += [f"{model['folder']}: {model['error']}" for model in models if model["error"]]
    return {
        "healthy": not problems,
        "problems": problems,
        "warnings": [f"{one.check}: {one.what}" for one in findings if one.level == "warning"],
        "models": models,
        "edge_infer": edge_infer.__version__,
        "processor": read_processor(root).model,
        "cpus": usable_cpus(),
        "temperature_c": heat.temperature_c,
        "throttled": heat.throttled,
        "memory_available_bytes": read_memory(root)[0],
        "uptime_s": _uptime_s(root),
        "time": round(time.time(), 3),
    }


def _model(folder: Path) -> dict[str, Any]:
    """Describe the version in a folder, and when it came: seconds since 1970."""
    found: dict[str, Any] = {"folder": str(folder), "model": None, "version": None, "revision": None}
    found |= {"updated": None, "error": ""}
    try:
        record = folder / "active.json"
        place = folder
        if record.is_file():  # a folder that `pull` fills
            active = json.loads(record.read_bytes())["record"]["active"]
            manifest = next(file["sha256"] for file in active["files"] if file["path"] == "manifest.json")
            place = folder / "versions" / manifest
            found["updated"] = record.stat().st_mtime
        elif (folder / "current").is_symlink():  # a folder that models are dropped into
            place = (folder / "current").resolve()
            found["updated"] = (folder / "current").lstat().st_mtime
        else:
            found["updated"] = folder.stat().st_mtime
        bundle = Bundle.open(place)
        found |= {"model": bundle.manifest.name, "version": bundle.manifest.version, "revision": bundle.revision}
    except EdgeInferError as error:
        found["error"] = error.message
    except (OSError, ValueError, KeyError, TypeError, StopIteration) as error:
        found["error"] = f"no model can be read: {error}"
    return found


def _uptime_s(root: Path) -> float | None:
    try:
        return float(text_of(root / "proc/uptime").split()[0])
    except (ValueError, IndexError):
        return None
