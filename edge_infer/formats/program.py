"""The program of a compiled model, and its form in the WebAssembly module that holds it.

The custom section `edge_infer.program` is JSON: the tensors, the calls and where the image lies. The image's constants
are the module's last data segment. A page runs the module's `run`; natively the kernel library runs the same calls.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

#: The name of the custom section.
SECTION = "edge_infer.program"
#: The version of the section's fields.
VERSION = 1
#: The image starts at a multiple of this, and so does each tensor in it.
ALIGNMENT = 16


class ProgramTensor(NamedTuple):
    """An input or output of a program.

    Attributes:
        name: Its name in the source model.
        dtype: As numpy spells it.
        shape: Its fixed dimensions.
        offset: Where it lies in the image, in bytes.
        scale: The scale of its integers, 0.0 for floats and integers that stand for themselves.
        zero: The integer that stands for 0.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    scale: float = 0.0
    zero: int = 0


class Program(NamedTuple):
    """The calls of a compiled model and the memory that they need.

    Attributes:
        rounding: How integers are rounded: `litert`, `reference` or `tflm`.
        image_bytes: The size of the image: constants, then the arena.
        constant_bytes: The size of the constants at its start, the calls' arguments among them.
        inputs: The tensors that a run reads.
        outputs: The tensors that a run leaves.
        calls: Each kernel's name and where its arguments lie in the image, in bytes, in the order of a run.
        base: The address of the image in the module's memory.
        abi: `kernels.declarations.ABI` of the library that it was compiled for.
    """

    rounding: str
    image_bytes: int
    constant_bytes: int
    inputs: tuple[ProgramTensor, ...]
    outputs: tuple[ProgramTensor, ...]
    calls: tuple[tuple[str, int], ...]
    base: int = 0
    abi: int = 1


def to_json(program: Program) -> str:
    """Return the text of the custom section."""
    document: dict[str, Any] = {
        "version": VERSION,
        "abi": program.abi,
        "rounding": program.rounding,
        "base": program.base,
        "image_bytes": program.image_bytes,
        "constant_bytes": program.constant_bytes,
        "inputs": [_tensor(one) for one in program.inputs],
        "outputs": [_tensor(one) for one in program.outputs],
        "calls": [[kernel, place] for kernel, place in program.calls],
    }
    return json.dumps(document, separators=(",", ":"))


def _tensor(tensor: ProgramTensor) -> dict[str, Any]:
    found: dict[str, Any] = {"name": tensor.name, "dtype": tensor.dtype, "shape": tensor.shape, "offset": tensor.offset}
    return {**found, "scale": tensor.scale, "zero": tensor.zero} if tensor.scale else found
