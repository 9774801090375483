"""Check the installed packages: conflicts, libraries for another processor, a Python without wheels."""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import NamedTuple

from edge_infer.tools.doctor.elf import architecture_of
from edge_infer.tools.doctor.files import ROOT, followed
from edge_infer.tools.doctor.findings import Finding

# All of these install the same folder `onnxruntime`: the last one installed has overwritten the others' files.
_ONNXRUNTIMES = (
    *("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml", "onnxruntime-rocm"),
    *("onnxruntime-training", "onnxruntime-qnn", "ort-nightly", "ort-nightly-gpu"),
)
# Where the engines keep their native libraries.
_LIBRARIES = ("onnxruntime/capi/*.so*", "ai_edge_litert/*.so*", "tflite_runtime/*.so*")
_SITES = ("usr/lib/python3*/*-packages", "usr/local/lib/python3*/*-packages")
# Where virtual environments lie, and what pip installs for one user.
_OTHER_SITES = tuple(f"{place}/lib/python3*/site-packages" for place in ("opt/*", "root/*", "home/*/*"))


class _Environment(NamedTuple):
    """A Python with its packages: the folders that they lie in, its processor, and its own folder where it has one."""

    sites: list[Path]
    architecture: str
    folder: str = ""


def examine_packages(root: Path = ROOT) -> list[Finding]:
    """Look at what is installed for this Python, or for the Pythons and virtual environments of another root."""
    own, *others = _environments(root)
    findings = [
        *_conflicts(own),
        *(
            finding._replace(what=f"in `{other.folder}` {finding.what}")
            for other in others
            for finding in _conflicts(other)
        ),
        *_python_without_wheels(own.architecture),
        *_externally_managed(root),
    ]
    if not findings:
        findings.append(Finding("packages", "ok", "no conflict among the engines' packages"))
    return findings


def _environments(root: Path) -> list[_Environment]:
    if root == ROOT:
        sites = [Path(place) for place in sys.path if place]
        return [_Environment(sites, architecture_of(Path(sys.executable)))]
    system = architecture_of(followed(root, "usr/bin/python3"))
    found = [_Environment(sorted(site for pattern in _SITES for site in root.glob(pattern)), system)]
    for site in sorted(site for pattern in _OTHER_SITES for site in root.glob(pattern)):
        folder = site.relative_to(root).parents[2]
        architecture = architecture_of(followed(root, f"{folder}/bin/python3")) or system
        found.append(_Environment([site], architecture, f"/{folder}"))
    return found


def _conflicts(environment: _Environment) -> list[Finding]:
    versions = _versions(environment.sites)
    return [
        *_doubled(versions),
        *_numpy_for_tflite(versions),
        *_foreign_libraries(environment.sites, environment.architecture),
    ]


def _versions(sites: list[Path]) -> dict[str, str]:
    """Return the versions of the distributions by name, without those whose metadata cannot be read."""
    versions: dict[str, str] = {}
    for found in distributions(path=[str(site) for site in sites]):
        try:
            name, version = found.metadata["Name"], found.version
        except ValueError:
            continue  # not UTF-8
        versions.setdefault((name or "").lower().replace("_", "-"), version)
    return versions


def _doubled(versions: dict[str, str]) -> list[Finding]:
    there = [name for name in _ONNXRUNTIMES if name in versions]
    if len(there) < 2:
        return []
    keep = "onnxruntime-gpu" if "onnxruntime-gpu" in there else there[0]
    named = " and ".join(f"{name} {versions[name]}" for name in there)
    return [
        Finding(
            "packages.onnxruntime",
            "problem",
            f"{named} are installed at once: they overwrite each other's files, and a GPU is lost without a word",
            f"pip uninstall -y {' '.join(there)} && pip install {keep}",
        )
    ]


def _numpy_for_tflite(versions: dict[str, str]) -> list[Finding]:
    numpy = versions.get("numpy", "")
    major = re.match(r"v?(\d{1,9})", numpy or "")
    if "tflite-runtime" not in versions or major is None or int(major[1]) < 2:
        return []
    return [
        Finding(
            "packages.tflite-runtime",
            "problem",
            f"tflite-runtime {versions['tflite-runtime']} is built for numpy 1, numpy {numpy} is installed: it cannot "
            "be imported",
            "pip install 'numpy<2', or pip install ai-edge-litert",
        )
    ]


def _foreign_libraries(sites: list[Path], own: str) -> list[Finding]:
    findings = []
    for site in sites:
        for pattern in _LIBRARIES:
            for library in sorted(site.glob(pattern)):
                built_for = architecture_of(library)
                if own and built_for and built_for != own:
                    package = library.relative_to(site).parts[0]
                    findings.append(
                        Finding(
                            f"packages.{package}",
                            "problem",
                            f"`{library.name}` is built for {built_for}, this Python is {own}",
                            f"pip install --force-reinstall {package.replace('_', '-')}",
                        )
                    )
                    break
    return findings


def _python_without_wheels(architecture: str) -> list[Finding]:
    if architecture != "armv7l":
        return []
    return [
        Finding(
            "python.architecture",
            "warning",
            "this Python is 32-bit ARM, for which onnxruntime and ai-edge-litert have no wheels",
            "install a 64-bit system; else pip install tflite-runtime (Python 3.11 at most) and use tflite variants",
        )
    ]


def _externally_managed(root: Path) -> list[Finding]:
    """Tell where pip refuses to install into the system's Python (PEP 668)."""
    if root == ROOT:
        import sysconfig

        marks = [] if sys.prefix != sys.base_prefix else [Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED"]
    else:
        marks = list(root.glob("usr/lib/python3*/EXTERNALLY-MANAGED"))
    if not any(mark.is_file() for mark in marks):
        return []
    return [
        Finding(
            "python.environment",
            "note",
            "the system manages this Python (PEP 668): pip refuses to install into it",
            "python3 -m venv --system-site-packages ~/edge && ~/edge/bin/pip install 'edge-infer[onnxruntime]'",
        )
    ]
