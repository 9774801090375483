"""The installed packages: two that overwrite each other, libraries of another processor, a Python without wheels."""

from __future__ import annotations

import sys
from importlib.metadata import distributions
from pathlib import Path

from edge_infer.doctor.elf import architecture_of
from edge_infer.doctor.files import ROOT
from edge_infer.doctor.findings import Finding

# All of these install the same folder `onnxruntime`: the last one installed has overwritten the others' files.
_ONNXRUNTIMES = (
    *("onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml", "onnxruntime-rocm"),
    *("onnxruntime-training", "onnxruntime-qnn", "ort-nightly", "ort-nightly-gpu"),
)
# Where the engines keep their native libraries.
_LIBRARIES = ("onnxruntime/capi/*.so*", "ai_edge_litert/*.so*", "tflite_runtime/*.so*")
_SITES = ("usr/lib/python3*/*-packages", "usr/local/lib/python3*/*-packages", "opt/*/lib/python3*/site-packages")


def examine_packages(root: Path = ROOT) -> list[Finding]:
    """Look at what is installed for this Python, or for the Pythons of another root."""
    sites = [Path(place) for place in sys.path if place] if root == ROOT else _sites(root)
    versions: dict[str, str] = {}
    for found in distributions(path=[str(site) for site in sites]):
        name = (found.metadata["Name"] or "").lower().replace("_", "-")
        versions.setdefault(name, found.version)
    findings = [
        *_doubled(versions),
        *_numpy_for_tflite(versions),
        *_foreign_libraries(sites, _python(root)),
        *_python_without_wheels(_python(root)),
        *_externally_managed(root),
    ]
    if not findings:
        findings.append(Finding("packages", "ok", "no conflict among the engines' packages"))
    return findings


def _sites(root: Path) -> list[Path]:
    return sorted(site for pattern in _SITES for site in root.glob(pattern) if site.is_dir())


def _python(root: Path) -> Path:
    return Path(sys.executable) if root == ROOT else root / "usr/bin/python3"


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
    if "tflite-runtime" not in versions or not numpy or int(numpy.partition(".")[0]) < 2:
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


def _foreign_libraries(sites: list[Path], python: Path) -> list[Finding]:
    own = architecture_of(python)
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


def _python_without_wheels(python: Path) -> list[Finding]:
    if architecture_of(python) != "armv7l":
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
