"""The engine's shared library for a platform: this environment's, or out of a wheel of another."""

from __future__ import annotations

import platform
import zipfile
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from edge_infer.backends.onnxruntime.api import library_path
from edge_infer.errors import BackendUnavailable, InputError, listed

# The machine of an ELF file (System V ABI, `e_machine`): two bytes at 18, after the class and the byte order.
_MACHINES = {"x86_64": 62, "aarch64": 183}
PLATFORMS = tuple(_MACHINES)
_SYNONYMS = {"amd64": "x86_64", "arm64": "aarch64"}
_DOWNLOAD = "pip download onnxruntime --no-deps --only-binary=:all: --platform manylinux_2_28_{} -d {}"
_INSIDE = "onnxruntime/capi/"
# A wheel may say of a file that it is larger than all memory.
_MAX_LIBRARY_BYTES = 512 * 2**20


class Library(NamedTuple):
    """The engine for a platform: its bytes, and where they are from."""

    data: bytes
    source: str


def this_platform() -> str:
    """Return this machine's name among `PLATFORMS`, or what Python calls it."""
    name = platform.machine().lower()
    return _SYNONYMS.get(name, name)


def find_library(target: str, wheel: Path | None) -> Library:
    """Read onnxruntime's shared library.

    Args:
        target: One of `PLATFORMS`.
        wheel: A wheel of onnxruntime, or a folder that holds one for the target; None for the one installed here.

    Raises:
        BackendUnavailable: There is none.
        InputError: It is not a wheel of onnxruntime, or one for another machine.
    """
    if target not in PLATFORMS:
        raise InputError(f"Platform `{target}` is not known; choose from {listed(list(PLATFORMS))}")
    if wheel is None:
        if target != this_platform():
            raise InputError(
                f"The onnxruntime installed here is for {this_platform()}, not for {target}",
                hint=f"{_DOWNLOAD.format(target, 'wheels')} && edge-infer slim ... --platform {target} --wheel wheels",
            )
        path = library_path()
        if path is None:
            raise BackendUnavailable(
                "onnxruntime's shared library is not here", hint="pip install 'edge-infer[onnxruntime]'"
            )
        found = Library(Path(path).read_bytes(), path)
    else:
        found = _from_wheel(_wheel_for(target, wheel))
    check_elf(found.data[:20], target, found.source)
    return found


def check_elf(head: bytes, target: str, source: str) -> None:
    """Refuse a library that is none, or is for another machine.

    Raises:
        InputError: It is.
    """
    machine = int.from_bytes(head[18:20], "little")
    names = {number: name for name, number in _MACHINES.items()}
    if head[:4] != b"\x7fELF" or machine != _MACHINES[target]:
        got = names.get(machine, f"machine {machine}") if head[:4] == b"\x7fELF" else "no shared library"
        raise InputError(
            f"`{source}` is {got if got.startswith('no ') else f'for {got}'}, expected {target}",
            hint=f"--wheel onnxruntime-...-manylinux_..._{target}.whl",
            expected=target,
            got=got,
        )


def _wheel_for(target: str, place: Path) -> Path:
    if place.is_file():
        return place
    if not place.is_dir():
        raise InputError(f"There is no file or folder `{place}`", hint="--wheel is a wheel, or a folder of wheels")
    wheels = sorted(place.glob(f"onnxruntime-*{target}.whl"))
    if not wheels:
        raise InputError(
            f"`{place}` has no wheel of onnxruntime for {target}",
            hint=_DOWNLOAD.format(target, place),
        )
    return wheels[-1]


def _from_wheel(wheel: Path) -> Library:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                is_library = PurePosixPath(info.filename).name.startswith("libonnxruntime.so")
                if info.filename.startswith(_INSIDE) and is_library and info.file_size <= _MAX_LIBRARY_BYTES:
                    return Library(archive.read(info), f"{wheel.name}/{info.filename}")
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError) as error:
        raise InputError(f"`{wheel}` is not a wheel: {error}", hint="download it again") from error
    raise InputError(f"`{wheel}` has no {_INSIDE}libonnxruntime.so", hint="give a wheel of onnxruntime for Linux")
