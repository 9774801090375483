"""The built kernels: the module for pages, and the shared library for this CPU."""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.errors import BackendUnavailable, listed
from edge_infer.kernels.declarations import ABI
from edge_infer.platform.cpu import read_processor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BUILT = Path(__file__).parent / "built"
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


def wasm_bytes() -> bytes:
    """Return the WebAssembly module that holds every kernel and imports nothing."""
    return (_BUILT / "kernels.wasm").read_bytes()


class Library:
    """A shared library of kernels.

    Args:
        path: Its file.

    Raises:
        BackendUnavailable: It does not load, or is of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._library = ctypes.CDLL(str(path))
            abi = int(self._library.edge_infer_kernels_abi())
        except (OSError, AttributeError) as error:
            raise BackendUnavailable(f"The kernels `{path.name}` do not load: {error}", hint="make kernels") from error
        if abi != ABI:
            raise BackendUnavailable(
                f"The kernels `{path.name}` are of version {abi}, expected {ABI}", hint="make kernels"
            )
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
        rows = (ctypes.c_void_p * (2 * len(calls)))()
        for i, (name, place) in enumerate(calls):
            rows[2 * i] = ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value
            rows[2 * i + 1] = image + place
        return lambda: self._run(image, rows, len(calls))


@cache
def native_library() -> Library:
    """Return the shared library for this CPU.

    Raises:
        BackendUnavailable: There is none for this system or CPU.
    """
    machine = machine_name()
    return Library(_BUILT / f"linux_{'x86_64_v3' if machine == 'x86_64_vnni' else machine}.so")


def library_path(name: str) -> Path:
    """Return the file of the kernels of one purpose for this CPU, such as `vectors`.

    Raises:
        BackendUnavailable: There is none for this system or CPU.
    """
    return _BUILT / f"{name}_linux_{machine_name()}.so"


def machine_name() -> str:
    """Return what built files call this CPU: `x86_64`, `x86_64_v3`, `x86_64_vnni`, `aarch64` or `armv7`.

    Raises:
        BackendUnavailable: There are no files for this system or CPU.
    """
    name, bits = platform.machine(), 8 * ctypes.sizeof(ctypes.c_void_p)
    machine = _MACHINES.get((name.lower(), bits), "") if sys.platform == "linux" else ""
    if not machine:
        raise BackendUnavailable(
            f"There are no kernels for {sys.platform} on {name or 'this CPU'} with a {bits}-bit Python",
            hint="use Linux on x86_64, aarch64 or armv7",
        )
    features = read_processor().features if machine == "x86_64" else ()
    if "avx2" in features:
        machine = "x86_64_vnni" if "avx512_vnni" in features else "x86_64_v3"
    missing = _missing_on_armv7() if name.lower() == "armv7l" else []
    if missing:
        raise BackendUnavailable(
            f"This CPU lacks {listed(missing)}, which the kernels for armv7 need",
            hint="use a Raspberry Pi 2 or later, or any Cortex-A7",
        )
    return machine


def _missing_on_armv7() -> list[str]:
    try:
        words = Path("/proc/cpuinfo").read_text("utf-8", "replace").split()
    except OSError:
        return []
    return [feature for feature in _ARMV7_FEATURES if feature not in words]
