"""Operators' keys and models of two versions."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from tests.support.server.bundles import bundle_files, onnx_model, write_bundle

if TYPE_CHECKING:
    from pathlib import Path


def digest(key: str) -> str:
    return f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"


def two_versions(root: Path) -> list[Path]:
    files = bundle_files("tiny", onnx_model("Neg"))
    manifest = json.loads(files["manifest.json"])
    manifest["version"] = "2"
    files["manifest.json"] = json.dumps(manifest).encode()
    return [write_bundle(root / "1", bundle_files()), write_bundle(root / "2", files)]
