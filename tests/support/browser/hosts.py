"""JupyterLite and marimo themselves, as sites that ask nobody else: what `tests/hosts/make.sh` made, and Pyodide."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import zipfile
from pathlib import Path
from shutil import copy, copytree

_ROOT = Path(__file__).parents[3]
MADE = _ROOT / ".bench/hosts"
_NPM = _ROOT / "tests/hosts/node_modules"
_KERNEL = "@jupyterlite/pyodide-kernel-extension:kernel"


def jupyterlite_site(folder: Path) -> None:
    """Lay out what `jupyter lite build` wrote, with Pyodide and the wheels of its kernel under `/pyodide`."""
    copytree(MADE / "jupyterlite", folder)
    wheels = [*(MADE / "wheels/jupyterlite").glob("*.whl"), *folder.glob("extensions/@jupyterlite/*/static/pypi/*.whl")]
    kept = [wheel for wheel in wheels if not wheel.name.startswith("widgetsnbextension")]
    names = _pyodide(folder / "pyodide", _NPM / "pyodide-jupyterlite", kept, {})
    path = folder / "jupyter-lite.json"
    settings = json.loads(path.read_text())
    settings["jupyter-config-data"].setdefault("litePluginSettings", {})[_KERNEL] = {
        "pyodideUrl": "./pyodide/pyodide.mjs",
        "loadPyodideOptions": {"packages": names},
    }
    path.write_text(json.dumps(settings))


def marimo_site(folder: Path, notebook: str) -> None:
    """Export a notebook by `marimo export html-wasm`, with Pyodide and marimo's own packages under `/pyodide`.

    The two addresses are the attributes that `--offline` sets, which asks a mirror of Pyodide's whole distribution.
    """
    source = folder.parent / "notebook.py"
    source.write_text(notebook)
    command: list[str | Path] = [
        str(MADE / "venv/bin/marimo"),
        "-q",
        "export",
        "html-wasm",
        source,
        "-o",
        folder,
        "--mode",
        "run",
    ]
    # It asks uv for a ruff of its own version, which those that the Makefile sets do not allow.
    environment = {name: value for name, value in os.environ.items() if name not in ("UV_CONSTRAINT", "PIP_CONSTRAINT")}
    subprocess.run(command, check=True, capture_output=True, timeout=300, stdin=subprocess.DEVNULL, env=environment)
    names = [wheel.name.split("-")[0].lower().replace("_", "-") for wheel in (MADE / "wheels/marimo").glob("*.whl")]
    depends = [name for name in names if name != "marimo-base"]
    _pyodide(
        folder / "pyodide",
        _NPM / "pyodide-marimo",
        [*(MADE / "wheels/marimo").glob("*.whl")],
        {"marimo-base": depends},
    )
    page = folder / "index.html"
    told = '<marimo-wasm data-pyodide-index-url="pyodide/" data-pyodide-lockfile-url="pyodide/pyodide-lock.json"'
    text, count = re.subn("<marimo-wasm", told, page.read_text())
    assert count == 1, "marimo's page names its runtime otherwise"
    page.write_text(text)


def _pyodide(folder: Path, package: Path, wheels: list[Path], depends: dict[str, list[str]]) -> list[str]:
    folder.mkdir()
    for name in ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip"):
        copy(package / name, folder)
    lock = json.loads((package / "pyodide-lock.json").read_bytes())
    packages = {}
    for wheel in wheels:
        copy(wheel, folder)
        name, version = wheel.name.split("-")[:2]
        name = name.lower().replace("_", "-")
        with zipfile.ZipFile(wheel) as archive:
            tops = {entry.split("/")[0].removesuffix(".py") for entry in archive.namelist()}
        packages[name] = {
            "name": name,
            "version": version,
            "file_name": wheel.name,
            "install_dir": "site",
            "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
            "package_type": "package",
            "imports": sorted(top for top in tops if not top.endswith((".dist-info", ".data"))),
            "depends": depends.get(name, []),
            "unvendored_tests": False,
        }
    (folder / "pyodide-lock.json").write_text(json.dumps({**lock, "packages": packages}))
    return list(packages)
