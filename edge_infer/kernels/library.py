"""The built kernels: the module for pages, and the shared library for this CPU."""

from __future__ import annotations

import ctypes
import os
import sys

from edge_infer.errors import BackendUnavailable, listed
from edge_infer.kernels.declarations import ABI
from edge_infer.platform.cpu import read_features

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_HERE = os.path.dirname(os.path.abspath(__file__))
_BUILT = os.path.join(_HERE, "built")
#: In a zip, out of which no library can be loaded, they lie beside it.
_BESIDE_ZIP = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(_HERE))), "kernels")
#: By the kernel's word for the CPU and the bits of this Python: a 64-bit kernel runs 32-bit programs too.
_MACHINES = {
    ("x86_64", 64): "x86_64",
    ("aarch64", 64): "aarch64",
    ("aarch64", 32): "armv7",
    ("armv8l", 32): "armv7",
    ("armv7l", 32): "armv7",
}
#: Instructions of Cortex-A7 and later, for which the 32-bit library is built; Cortex-A8 and A9 have no division.
_ARMV7_FEATURES = ("idiva", "neon", "vfpv4")
#: What later x86 processors name; the rest of x86-64-v3 and of AVX-512 that their files need comes with it.
_V3 = {"avx2"}
_VNNI = {"avx512f", "avx512_vnni"}
_CPUINFO = "/proc/cpuinfo"
_LOADED: list[Library] = []


def wasm_bytes() -> bytes:
    """Return the WebAssembly module that holds every kernel and imports nothing."""
    return _content("kernels.wasm")


def dot_bytes() -> bytes:
    """Return the module of kernels for processors with a dot product of bytes; it takes relaxed SIMD."""
    return _content("dot.wasm")


class Library:
    """A shared library of kernels.

    Args:
        path: Its file.

    Raises:
        BackendUnavailable: It does not load, or is of another version.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        name = os.path.basename(path)
        try:
            self._library = ctypes.CDLL(os.fspath(path))
            abi = int(self._library.edge_infer_kernels_abi())
        except (OSError, AttributeError) as error:
            raise BackendUnavailable(f"The kernels `{name}` do not load: {error}", hint="make kernels") from error
        if abi != ABI:
            raise BackendUnavailable(f"The kernels `{name}` are of version {abi}, expected {ABI}", hint="make kernels")
        self._run = self._library.edge_infer_run
        self._run.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)
        self._run.restype = None

    def run(self, image: int, calls: Sequence[tuple[str, int]]) -> None:
        """Run kernels in order, once; see `bind`."""
        self.bind(image, calls)()

    def bind(self, image: int, calls: Sequence[tuple[str, int]]) -> Callable[[], None]:
        """Return a function that runs kernels in order each time it is called.

        Nothing is checked: `formats.program.read_compiled` refuses calls that would leave the image.

        Args:
            image: The address of the image, a multiple of 16, which stays where it is.
            calls: Each kernel's name, and where its arguments lie in the image, in bytes.
        """
        names = {name for name, _ in calls}
        starts = {name: ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value for name in names}
        rows = (ctypes.c_void_p * (2 * len(calls)))(
            *(word for name, at in calls for word in (starts[name], image + at))
        )
        return lambda: self._run(image, rows, len(calls))


def machine_name() -> str:
    """Return what built files call this CPU: `x86_64`, `x86_64_v3`, `x86_64_vnni`, `aarch64` or `armv7`.

    Raises:
        BackendUnavailable: There are no files for this system or CPU.
    """
    name, bits = _machine(), 8 * ctypes.sizeof(ctypes.c_void_p)
    machine = _MACHINES.get((name.lower(), bits), "") if sys.platform == "linux" else ""
    if not machine:
        raise BackendUnavailable(
            f"There are no kernels for {sys.platform} on {name or 'this CPU'} with a {bits}-bit Python",
            hint="use Linux on x86_64, aarch64 or armv7",
        )
    missing = _missing_on_armv7() if name.lower() == "armv7l" else []
    if missing:
        raise BackendUnavailable(
            f"This CPU lacks {listed(missing)}, which the kernels for armv7 need",
            hint="use a Raspberry Pi 2 or later, or any Cortex-A7",
        )
    if machine != "x86_64":
        return machine
    features = {*read_features()}
    if features >= _VNNI:
        return "x86_64_vnni"
    return "x86_64_v3" if features >= _V3 else machine


def library_path(name: str) -> Path:
    """Return the file of the kernels of one purpose for this CPU, such as `vectors`.

    Raises:
        BackendUnavailable: There is none for this system or CPU.
    """
    from pathlib import Path  # with what it imports, 2 ms of a quick start that needs none

    return Path(_BUILT, f"{name}_linux_{machine_name()}.so")


def native_library() -> Library:
    """Return the shared library of compiled models for this CPU; the same object each time.

    Raises:
        BackendUnavailable: There is none for this system or CPU.
    """
    if not _LOADED:
        machine = machine_name().replace("_vnni", "_v3")  # no kernel of theirs gains by the later instructions
        folder = _BUILT if os.path.isdir(_BUILT) else _BESIDE_ZIP
        _LOADED.append(Library(os.path.join(folder, f"linux_{machine}.so")))
    return _LOADED[0]


def library_files(machine: str) -> dict[str, bytes]:
    """Return the shared libraries that a machine may load, by file name.

    Args:
        machine: `x86_64`, `aarch64` or `armv7`. A 64-bit ARM kernel runs 32-bit programs too.

    Raises:
        BackendUnavailable: There is none.
    """
    names = {"x86_64": ("x86_64", "x86_64_v3"), "aarch64": ("aarch64", "armv7"), "armv7": ("armv7",)}
    if machine not in names:
        raise BackendUnavailable(f"There are no kernels for {machine}", hint=f"use {listed(list(names))}")
    return {f"linux_{name}.so": _content(f"linux_{name}.so") for name in names[machine]}


def _content(name: str) -> bytes:
    with open(os.path.join(_BUILT, name), "rb") as file:
        return file.read()


def _machine() -> str:
    """Return what the kernel calls this CPU, as `platform.machine`, whose module takes a quick start 3 ms."""
    return os.uname().machine if hasattr(os, "uname") else ""


def _missing_on_armv7() -> list[str]:
    try:
        with open(_CPUINFO, encoding="utf-8", errors="replace") as file:
            words = file.read().split()
    except OSError:
        return []
    return [feature for feature in _ARMV7_FEATURES if feature not in words]
