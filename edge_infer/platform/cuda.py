"""Check whether CUDA works here (packages, driver, devices, libraries), and name the remedy.

ONNX Runtime lists its CUDA provider wherever the wheel carries it, and goes on with the CPU where it cannot load. So
what it needs is looked at first, in the order in which people meet it, each fault with its own words.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import CudaUnavailable

if TYPE_CHECKING:
    from pathlib import Path

_INSTALL = "pip install 'edge-infer[cuda]'"
_LIBRARIES = "pip install 'onnxruntime-gpu[cuda,cudnn]'"
# The CUDA driver's results that say more than that it failed: CUresult in cuda.h of CUDA 13.
_NO_DEVICE, _NOT_READY, _DRIVER_MISMATCH, _FORWARD_COMPATIBILITY = 100, 802, 803, 804
_INSTALL_AGAIN = "pip install --force-reinstall 'onnxruntime-gpu[cuda,cudnn]'"
_CUDNN = ("libcudnn",)
_TENSORRT = ("libnvinfer", "libnvonnxparser")
# The libraries of CUDA that are numbered as CUDA is: libcufft.so.12 belongs to CUDA 13, libcurand.so.10 to 12 and 13.
_NUMBERED_AS_CUDA = ("libcudart", "libcublas")
_NUMBERED_FREELY = ("libcufft", "libcurand", "libcusolver", "libcusparse", "libcupti", "libnvrtc", "libnvJitLink")
_MISSING = re.compile(r"(lib[\w+-]+)\.so\.(\d+)[\w.]*: cannot open shared object file(?!: Permission denied)")


class Driver(NamedTuple):
    """The NVIDIA driver: the newest CUDA that it runs, as (13, 0), and the names of the devices it shows."""

    version: tuple[int, int]
    devices: tuple[str, ...]


class Machine:
    """The drivers, devices and libraries that CUDA finds on a machine; tests plant faults in one of their own."""

    def distributions(self) -> set[str]:
        """Return which distributions of ONNX Runtime are installed."""
        names = ("onnxruntime", "onnxruntime-gpu")
        return {name for name in names if next(iter(metadata.Distribution.discover(name=name)), None) is not None}

    def driver(self) -> Driver:
        """Ask the NVIDIA driver what it can do.

        Raises:
            OSError: There is none.
            CudaUnavailable: There is one, and it does not start.
        """
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
        refusal = library.cuInit(0)
        if refusal:
            raise _refused_by_driver(refusal)
        number = ctypes.c_int()
        library.cuDriverGetVersion(ctypes.byref(number))
        version = (number.value // 1000, number.value % 1000 // 10)
        library.cuDeviceGetCount(ctypes.byref(number))
        names = []
        for index in range(number.value):
            name = ctypes.create_string_buffer(256)
            library.cuDeviceGetName(name, len(name), index)
            names.append(name.value.decode(errors="replace"))
        return Driver(version, tuple(names))

    def load(self, library: str) -> None:
        """Load a shared library.

        Raises:
            OSError: It, or one that it needs, cannot be loaded.
        """
        ctypes.CDLL(library)


_HERE = Machine()


@cache
def driver_here() -> Driver | CudaUnavailable:
    """Return this machine's driver, or why there is none; asked once in a process."""
    return driver_of(_HERE)


def why_not(libraries: Path, machine: Machine | None = None) -> CudaUnavailable | None:
    """Tell cheaply why CUDA cannot work here: packages, driver and devices, without loading CUDA's libraries.

    Args:
        libraries: ONNX Runtime's folder of shared libraries.
        machine: Where to look; None for this machine.

    Returns:
        The first fault; None where there is none.
    """
    fault = _package_fault(libraries, machine or _HERE)
    if fault is not None:
        return fault
    driver = driver_here() if machine is None else driver_of(machine)
    if isinstance(driver, CudaUnavailable):
        return driver
    built_for = built_for_cuda(libraries)
    if built_for is not None and driver.version[0] < built_for:
        return CudaUnavailable(
            f"The NVIDIA driver runs CUDA {driver.version[0]}.{driver.version[1]} at most, this onnxruntime-gpu needs "
            f"CUDA {built_for}",
            hint="install a newer driver (`nvidia-smi` shows its version), or an onnxruntime-gpu for your CUDA",
            fault="driver-too-old",
            expected=built_for,
            got=driver.version[0],
        )
    return None


def not_installed() -> CudaUnavailable:
    """Return the fault of a machine without ONNX Runtime."""
    return CudaUnavailable("The package onnxruntime-gpu is not installed", hint=_INSTALL, fault="not-installed")


def check(libraries: Path, index: int, *, provider: str = "cuda", machine: Machine | None = None) -> None:
    """Check all that CUDA needs on a device, its libraries too, which this loads.

    Args:
        libraries: ONNX Runtime's folder of shared libraries.
        index: The device's number.
        provider: `cuda` or `tensorrt`.
        machine: Where to look; None for this machine.

    Raises:
        CudaUnavailable: Something is missing or does not fit; `fault` says what in a word.
    """
    place = machine or _HERE
    fault = why_not(libraries, machine)
    if fault is not None:
        raise fault
    driver = driver_of(place)
    if isinstance(driver, Driver) and index >= len(driver.devices):
        shown = ", ".join(f"cuda:{i} is {name}" for i, name in enumerate(driver.devices))
        raise CudaUnavailable(
            f"There is no device `cuda:{index}`: {shown}",
            hint="CUDA_VISIBLE_DEVICES hides devices and numbers the others from 0"
            if os.environ.get("CUDA_VISIBLE_DEVICES") is not None
            else "nvidia-smi -L",
            fault="no-such-device",
            allowed=[f"cuda:{i}" for i in range(len(driver.devices))],
        )
    wanted = next(iter(sorted(libraries.glob(f"*onnxruntime_providers_{provider}*"))), None)
    if wanted is None:
        raise CudaUnavailable(
            f"This ONNX Runtime was built without the provider `{provider}`", hint=_INSTALL, fault="no-build"
        )
    try:
        place.load(str(wanted))
    except OSError as error:
        raise _library_fault(str(error), built_for_cuda(libraries), place) from error


def built_for_cuda(libraries: Path) -> int | None:
    """Return the major version of CUDA that an onnxruntime-gpu was built for; None where it does not say."""
    try:
        text = (libraries / "build_and_package_info.py").read_text("utf-8")
    except OSError:
        return None
    found = re.search(r"^cuda_version\s*=\s*['\"](\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


def _package_fault(libraries: Path, machine: Machine) -> CudaUnavailable | None:
    if any(libraries.glob("*onnxruntime_providers_cuda*")):
        return None
    if len(machine.distributions()) > 1:
        return CudaUnavailable(
            "onnxruntime and onnxruntime-gpu are both installed and have overwritten each other: CUDA is gone",
            hint=f"pip uninstall -y onnxruntime onnxruntime-gpu && {_INSTALL}",
            fault="two-packages",
        )
    return CudaUnavailable(
        "The package onnxruntime has no CUDA",
        hint=f"pip uninstall -y onnxruntime && {_INSTALL}",
        fault="no-build",
    )


def driver_of(machine: Machine) -> Driver | CudaUnavailable:
    """Return a machine's driver, or why there is none that shows a device."""
    try:
        driver = machine.driver()
    except OSError as error:
        return CudaUnavailable(
            f"There is no NVIDIA driver ({str(error).partition(':')[0]} cannot be loaded)",
            hint="install it until `nvidia-smi` works; a container also wants `docker run --gpus all`",
            fault="no-driver",
        )
    except CudaUnavailable as fault:
        return fault
    return driver if driver.devices else _refused_by_driver(_NO_DEVICE)


def _refused_by_driver(code: int) -> CudaUnavailable:
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if code == _NO_DEVICE and hidden is not None:
        return CudaUnavailable(
            f"The NVIDIA driver shows no device: CUDA_VISIBLE_DEVICES is `{hidden}`",
            hint="unset CUDA_VISIBLE_DEVICES",
            fault="no-device",
        )
    what, hint, fault = {
        _NO_DEVICE: ("shows no device", "nvidia-smi -L; a container wants `docker run --gpus all`", "no-device"),
        _NOT_READY: ("is not ready yet", "systemctl status nvidia-fabricmanager", "driver-not-ready"),
        _DRIVER_MISMATCH: (
            "and its library are of different versions, as after an update",
            "restart the machine",
            "driver-mismatch",
        ),
        _FORWARD_COMPATIBILITY: (
            "is older than the CUDA compatibility package, which this device does not support",
            "install a newer driver and remove the package cuda-compat",
            "driver-too-old",
        ),
    }.get(code, ("does not start", "nvidia-smi; dmesg | grep NVRM", "driver-failed"))
    return CudaUnavailable(f"The NVIDIA driver {what} (CUDA error {code})", hint=hint, fault=fault, number=code)


def _library_fault(said: str, built_for: int | None, machine: Machine) -> CudaUnavailable:
    """Explain why the provider's library cannot be loaded: the loader names the one that is missing, or its fault."""
    found = _MISSING.search(said)
    if found is None:
        return _broken(said, "use a newer system, or an older onnxruntime-gpu" if "GLIBC" in said else _INSTALL_AGAIN)
    name, major = found[1], int(found[2])
    whole = f"{name}.so.{major}"
    if name.startswith(_TENSORRT):
        return CudaUnavailable(
            f"TensorRT is not installed: {whole} is missing", hint=f"pip install tensorrt-cu{built_for or 13}",
            fault="no-tensorrt",
        )  # fmt: skip
    if name.startswith(_NUMBERED_FREELY):
        wanted = "CUDA" if built_for is None else f"CUDA {built_for}"
        return CudaUnavailable(
            f"A part of {wanted} is not installed: {whole} is missing", hint=_LIBRARIES, fault="no-cuda"
        )
    if not name.startswith((*_CUDNN, *_NUMBERED_AS_CUDA)):
        return _broken(said, f"apt-file search {whole}, and install its package")
    part = "cuDNN" if name.startswith(_CUDNN) else "CUDA"
    other = _other_version(name, major, machine)
    if other is not None:
        return CudaUnavailable(
            f"{part} {other} is installed, this onnxruntime-gpu needs {part} {major}: {whole} is missing",
            hint=_LIBRARIES,
            fault=f"{part.lower()}-mismatch",
            expected=major,
            got=other,
        )
    return CudaUnavailable(
        f"{part} {major} is not installed: {whole} is missing", hint=_LIBRARIES, fault=f"no-{part.lower()}"
    )


def _broken(said: str, hint: str) -> CudaUnavailable:
    return CudaUnavailable(
        f"ONNX Runtime's CUDA provider cannot be loaded: {said}", hint=hint, fault="libraries-broken"
    )


def _other_version(name: str, major: int, machine: Machine) -> int | None:
    """Return the version of a library that is here instead of the one that is missing."""
    for other in (major - 1, major + 1, major - 2):
        try:
            machine.load(f"{name}.so.{other}")
        except OSError:
            continue
        return other
    return None
