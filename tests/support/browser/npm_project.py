"""The npm package as a user has it: packed, and unpacked in the node_modules of a project."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[3]
WEB = ROOT / "web"


def run(*command: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    """Run a program that has to succeed; give what it printed."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def unpack_package(folder: Path, *installed: Path) -> Path:
    """Pack the package, and unpack it in `node_modules` of a folder; what others installed is linked, not downloaded.

    Args:
        folder: The project.
        *installed: Further folders with a node_modules.

    Returns:
        The folder of the package.
    """
    modules = folder / "node_modules"
    run("npm", "pack", "--silent", f"--pack-destination={folder}", str(WEB), cwd=folder)
    for other in (*installed, WEB):
        for package in (other / "node_modules").iterdir():
            target = modules / package.name
            if not package.name.startswith(".") and not target.exists():
                target.parent.mkdir(exist_ok=True)
                target.symlink_to(package)
    (packed,) = folder.glob("edge-infer-*.tgz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    packed.unlink()
    return (folder / "package").rename(modules / "edge-infer")
