"""Read the processor of a program or shared library from its ELF header."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# e_machine of the ELF header, as Linux's include/uapi/linux/elf-em.h numbers it, by pip's word for the platform.
_MACHINES = {3: "i686", 40: "armv7l", 62: "x86_64", 183: "aarch64", 243: "riscv64"}


def architecture_of(path: Path) -> str:
    """Return `x86_64`, `aarch64`, `armv7l`, ...; empty where it is not an ELF file of a known machine."""
    try:
        with path.open("rb") as file:
            head = file.read(20)
    except OSError:
        return ""
    if len(head) < 20 or head[:4] != b"\x7fELF":
        return ""
    return _MACHINES.get(int.from_bytes(head[18:20], "big" if head[5] == 2 else "little"), "")
