"""Check CUDA: the driver, the libraries and the packages that are missing."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from edge_infer.errors import CudaUnavailable
from edge_infer.platform import cuda
from edge_infer.tools.doctor.findings import Finding


def examine_cuda(libraries: Path | None = None, machine: cuda.Machine | None = None) -> list[Finding]:
    """Say whether ONNX Runtime can use an NVIDIA GPU here, device by device, or what keeps it from it.

    Args:
        libraries: ONNX Runtime's folder of shared libraries; None for the installed one.
        machine: Where to look; None for this machine.

    Returns:
        Nothing where there is neither a GPU nor a package for one.
    """
    if libraries is None:
        spec = find_spec("onnxruntime")
        if spec is None or spec.origin is None:
            return []
        libraries = Path(spec.origin).parent / "capi"
    place = machine or cuda.Machine()
    driver = cuda.driver_of(place)
    wants_cuda = "onnxruntime-gpu" in place.distributions()
    if isinstance(driver, CudaUnavailable):
        if driver.fault == "no-driver" and not wants_cuda:
            return []
        return [Finding("cuda.driver", "problem" if wants_cuda else "note", driver.message, driver.hint)]
    version = ".".join(map(str, driver.version))
    found = [Finding("cuda.driver", "ok", f"runs CUDA {version} at most: {', '.join(driver.devices)}")]
    try:
        cuda.check(libraries, 0, machine=place)
    except CudaUnavailable as fault:
        level = "problem" if wants_cuda else "warning"
        found.append(Finding("cuda.onnxruntime", level, fault.message, fault.hint))
    else:
        found.append(Finding("cuda.onnxruntime", "ok", "finds all the libraries that it needs"))
    return found
