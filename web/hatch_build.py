"""Put the modules and pages into the wheel without comments and spaces, where esbuild is at hand."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PARTS = ("src", "demo", "studio")


class MinifyingHook(BuildHookInterface[BuilderConfig]):
    """Adds `src`, `demo` and `studio` to the wheel: the same files by the same names, each made small by itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Choose what goes into the wheel; an editable one reads the checkout."""
        if version == "editable":
            return
        root = Path(self.root)
        self._made = Path(tempfile.mkdtemp(prefix="edge-infer-web-"))
        source = root
        node = shutil.which("node")
        if node and (root / "node_modules" / "esbuild").is_dir():
            subprocess.run([node, root / "minify.js", self._made, *_PARTS], check=True)
            source = self._made
        else:
            self.app.display_warning("edge-infer-web: the pages keep their comments; `npm ci` brings esbuild")
        build_data["force_include"].update({str(source / part): f"edge_infer_web/{part}" for part in _PARTS})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was made."""
        del build_data, artifact_path
        if version != "editable":
            shutil.rmtree(self._made, ignore_errors=True)
