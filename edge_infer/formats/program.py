"""The program of a compiled model, and its form in the WebAssembly module that holds it.

The custom section `edge_infer.program` is JSON: the tensors, the calls and where the image lies. The image's constants
are the module's last data segment. A page runs the module's `run`; natively the kernel library runs the same calls.

The kernels check nothing. So a file is read strictly: every byte that a call touches lies inside the image, and none
that it writes inside the constants.
"""

from __future__ import annotations

import json
from math import prod
from struct import unpack_from

from edge_infer.errors import UnsupportedModel
from edge_infer.formats import wasm
from edge_infer.kernels.declarations import ABI, BINARY, KERNELS, UNARY
from edge_infer.kernels.extents import alignment, are_apart, extents
from edge_infer.platform.records import Record
from edge_infer.tensors.dtypes import DType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    #: Which tensor of a call, its name, its first byte and that behind its last from its place on, what its place is a
    #: multiple of, and whether it is written. A tuple: each `Record` more takes a quick start time.
    Touched = tuple[int, str, int, int, int, bool]

#: The name of the custom section.
SECTION = "edge_infer.program"
#: The version of the section's fields.
VERSION = 1
#: The image starts at a multiple of this, and so does each tensor in it.
ALIGNMENT = 16
#: Images are smaller: places in them are 32-bit integers with a sign.
MAX_IMAGE_BYTES = 2**31
_MAX_TEXT_BYTES = 2**22
_MAX_RANK = 8
_WORD = 4
#: The arguments that a kernel writes.
_WRITTEN = ("output", "scratch", "hidden", "cell", "state")
#: By kernel others, which it reads elsewhere.
_ALSO_WRITTEN = {"quantize_rows": ("parameters",)}
#: By kernel the integers that name one of several operations, and how many there are.
_ENUMERATED = {"unary_float": ("operation", len(UNARY)), "binary_float": ("operation", len(BINARY))}
#: By kernel that was checked the name of each tensor, what its place is a multiple of, and whether it is written.
_RULES: dict[str, list[tuple[str, int, bool]]] = {}


class ProgramTensor(Record):
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


class ProgramState(Record):
    """Memory that a run leaves for the next one.

    Attributes:
        offset: Where it lies in the image, in bytes.
        nbytes: Its size.
        initial: Where its first value lies in the constants, in bytes; -1 where it is zeros.
    """

    offset: int
    nbytes: int
    initial: int


class Program(Record):
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
        is_row: Whether a run computes one sample of a free batch: every input and output has the batch first, and the
            samples do not depend on one another.
        state: The variables of the model: a stream keeps them from run to run.
        operators: Of each call the number of its operator in the source model, for `verify --bisect`; -1 for none.
            Files of before have none at all.
    """

    rounding: str
    image_bytes: int
    constant_bytes: int
    inputs: tuple[ProgramTensor, ...]
    outputs: tuple[ProgramTensor, ...]
    calls: tuple[tuple[str, int], ...]
    base: int = 0
    abi: int = 1
    is_row: bool = False
    state: tuple[ProgramState, ...] = ()
    operators: tuple[int, ...] = ()


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
    if program.is_row:
        document["row"] = True
    if program.state:
        document["state"] = [list(one) for one in program.state]
    if program.operators:
        document["operators"] = list(program.operators)
    return json.dumps(document, separators=(",", ":"))


def _tensor(tensor: ProgramTensor) -> dict[str, Any]:
    found: dict[str, Any] = {"name": tensor.name, "dtype": tensor.dtype, "shape": tensor.shape, "offset": tensor.offset}
    return {**found, "scale": tensor.scale, "zero": tensor.zero} if tensor.scale else found


class CompiledModel(Record):
    """The contents of a compiled model's file beside its code.

    Attributes:
        program: The calls, each of which was checked.
        constants: The start of the image: `program.constant_bytes` bytes, in the file's content.
    """

    program: Program
    constants: bytes | memoryview


class CallArguments(Record):
    """The arguments of one call: places of tensors in bytes, integers, floats, each by name."""

    tensors: dict[str, int]
    integers: dict[str, int]
    floats: dict[str, float]


def read_compiled(content: bytes, name: str = "the file") -> CompiledModel:
    """Read a compiled model, and check that its calls stay inside its image.

    Args:
        content: A file of `edge-infer compile`.
        name: What messages call it.

    Raises:
        UnsupportedModel: The content is not a compiled model, is damaged, or is of another version.
    """
    try:
        text, data = _parts(memoryview(content))
        document = json.loads(text)
        program = _program(document)
        base, constants = _segment(data)
        if base != program.base or len(constants) != program.constant_bytes:
            raise ValueError("its constants are not those of its program")
        _check_calls(program, constants)
    except (ValueError, RecursionError) as error:
        raise UnsupportedModel(
            f"`{name}` is not a compiled model that can run here: {error}",
            hint="edge-infer compile MODEL.tflite -o FOLDER",
        ) from error
    return CompiledModel(program, constants)


def call_arguments(constants: bytes | memoryview, kernel: str, place: int) -> CallArguments:
    """Return the arguments of a call of a checked program.

    Args:
        constants: The start of its image.
        kernel: The kernel's name.
        place: Where its arguments lie, in bytes.
    """
    declared = KERNELS[kernel]
    whole, floats = len(declared.tensors) + len(declared.integers), len(declared.floats)
    words = unpack_from(f"<{whole}i{floats}f", constants, place)
    return CallArguments(
        dict(zip(declared.tensors, words, strict=False)),
        dict(zip(declared.integers, words[len(declared.tensors) :], strict=False)),
        dict(zip(declared.floats, words[whole:], strict=False)),
    )


def _parts(content: memoryview) -> tuple[str, memoryview]:
    """Return the text of the custom section and the section of data."""
    text = data = None
    for kind, section in wasm.sections(content):
        if kind == wasm.DATA:
            data = section
        elif kind == wasm.CUSTOM and text is None:
            title, place = wasm.name(section)
            if title == SECTION:
                if len(section) - place > _MAX_TEXT_BYTES:
                    raise ValueError(f"its program takes more than {_MAX_TEXT_BYTES} bytes")
                text = str(section[place:], "utf-8")
    if text is None or data is None:
        raise ValueError(f"it has no section `{SECTION}`" if text is None else "it has no constants")
    return text, data


def _segment(section: memoryview) -> tuple[int, memoryview]:
    """Return the address and the bytes of the one data segment: `i32.const ADDRESS end`, then the bytes."""
    count, place = wasm.unsigned(section, 0)
    if count != 1 or bytes(section[place : place + 2]) != b"\x00\x41":
        raise ValueError("its constants are not one segment at a fixed address")
    base, place = wasm.signed(section, place + 2)
    size, start = wasm.unsigned(section, place + 1)
    if section[place] != 0x0B or start + size != len(section):
        raise ValueError("its constants are cut short")
    return base, section[start:]


def _program(document: Any) -> Program:
    if not isinstance(document, dict):
        raise ValueError("its program is not a JSON object")
    for key, known in (("version", VERSION), ("abi", ABI)):
        if document.get(key) != known:
            raise ValueError(f"its {key} is {document.get(key)!r}, expected {known}: compile it again")
    image = _whole(document, "image_bytes", MAX_IMAGE_BYTES - 1)
    constants = _whole(document, "constant_bytes", image)
    inputs, outputs = (_tensors(document, side, image) for side in ("inputs", "outputs"))
    for tensor in inputs:
        if tensor.offset < constants:
            raise ValueError(f"its input `{tensor.name}` lies in the constants")
    calls = document.get("calls")
    if not isinstance(calls, list):
        raise ValueError("its calls are not a list")
    for call in calls:
        if not isinstance(call, list) or len(call) != len(("kernel", "place")):
            raise ValueError(f"{json.dumps(call)[:80]} is not a kernel and a place")
        if not isinstance(call[0], str) or call[0] not in KERNELS:
            raise ValueError(f"{json.dumps(call)[:80]} is not a call of a kernel")
    base = _whole(document, "base", MAX_IMAGE_BYTES - 1 - image)
    rounding = document.get("rounding")
    if not isinstance(rounding, str):
        raise ValueError("its rounding is not a text")
    listed = tuple((call[0], _whole({"place": call[1]}, "place", constants)) for call in calls)
    is_row = document.get("row", False)
    if type(is_row) is not bool or (is_row and not all(one.shape[:1] == (1,) for one in (*inputs, *outputs))):
        raise ValueError("its `row` is not true with one sample in each input and output")
    state = _states(document.get("state", []), constants, image)
    if state and is_row:
        raise ValueError("it has state, and runs one sample of a batch")
    operators = document.get("operators", [])
    if not isinstance(operators, list) or len(operators) not in (0, len(listed)):
        raise ValueError("its operators are not one for each call")
    if not all(type(one) is int and -1 <= one < MAX_IMAGE_BYTES for one in operators):
        raise ValueError("its operators are not whole numbers")
    return Program(rounding, image, constants, inputs, outputs, listed, base, ABI, is_row, state, tuple(operators))


def _tensors(document: dict[str, Any], side: str, image: int) -> tuple[ProgramTensor, ...]:
    entries = document.get(side)
    if not isinstance(entries, list):
        raise ValueError(f"its {side} are not a list")
    found = []
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise ValueError(f"one of its {side} has no name")
        name, shape = entry["name"], entry.get("shape")
        if not isinstance(shape, list) or len(shape) > _MAX_RANK:
            raise ValueError(f"the shape of `{name}` is not a list of at most {_MAX_RANK} sizes")
        sizes = tuple(_whole({"size": size}, "size", MAX_IMAGE_BYTES) for size in shape)
        dtype = DType(str(entry.get("dtype")))
        if dtype is DType.STRING or dtype.bits < 8:
            raise ValueError(f"`{name}` is {dtype}")
        offset = _whole(entry, "offset", image)
        if offset + prod(sizes) * dtype.bits // 8 > image or offset % (dtype.bits // 8):
            raise ValueError(f"`{name}` lies outside of the image")
        scale, zero = entry.get("scale", 0.0), entry.get("zero", 0)
        if not isinstance(scale, (int, float)) or not 0 <= scale < float("inf") or type(zero) is not int:
            raise ValueError(f"the scale of `{name}` is not a positive number with a whole zero point")
        found.append(ProgramTensor(name, str(dtype), sizes, offset, float(scale), zero))
    names = {tensor.name for tensor in found}
    if len(names) < len(found):
        raise ValueError(f"two of its {side} have one name")
    return tuple(found)


def _states(entries: Any, constants: int, image: int) -> tuple[ProgramState, ...]:
    if not isinstance(entries, list):
        raise ValueError("its state is not a list")
    found = []
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != len(ProgramState._fields):
            raise ValueError(f"{json.dumps(entry)[:80]} is not a state")
        if not all(type(number) is int for number in entry):
            raise ValueError(f"{json.dumps(entry)[:80]} is not a state of whole numbers")
        one = ProgramState(*entry)
        is_inside = one.nbytes >= 0 and one.offset >= constants and one.offset + one.nbytes <= image
        if not is_inside or not (one.initial == -1 or 0 <= one.initial <= constants - one.nbytes):
            raise ValueError("a state lies outside of its memory")
        found.append(one)
    return tuple(found)


def _whole(document: dict[str, Any], key: str, most: int) -> int:
    value = document.get(key)
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"its {key} is {str(value)[:20]}, expected a whole number up to {most}")
    return value


def _check_calls(program: Program, constants: memoryview) -> None:
    """Refuse calls that would leave the image, or write into the constants.

    Layers are often alike but for their places: what the same integers touch is computed once.
    """
    known: dict[tuple[str, bytes], list[Touched]] = {}
    for kernel, place in program.calls:
        declared = KERNELS[kernel]
        if place % _WORD or place + _WORD * declared.words > len(constants):
            raise ValueError(f"the arguments of `{kernel}` lie outside of the constants")
        count = len(declared.tensors)
        behind = place + _WORD * count
        key = kernel, bytes(constants[behind : behind + _WORD * len(declared.integers)])
        if key not in known:
            known[key] = _touched(*key)
        _check_places(kernel, unpack_from(f"<{count}i", constants, place), known[key], program)


def _touched(kernel: str, numbers: bytes) -> list[Touched]:
    declared = KERNELS[kernel]
    words = unpack_from(f"<{len(declared.integers)}i", numbers)
    integers = dict(zip(declared.integers, words, strict=True))
    key, choices = _ENUMERATED.get(kernel, ("", 0))
    if key and not 0 <= integers[key] < choices:
        raise ValueError(f"`{kernel}` has no operation {integers[key]}")
    touched = extents(kernel, integers)
    if kernel not in _RULES:
        written = (*_WRITTEN, *_ALSO_WRITTEN.get(kernel, ()))
        _RULES[kernel] = [(name, alignment(kernel, name), name in written) for name in declared.tensors]
    return [
        (at, name, *touched[name], unit, is_written)
        for at, (name, unit, is_written) in enumerate(_RULES[kernel])
        if touched[name][0] != touched[name][1]
    ]


def _check_places(kernel: str, starts: tuple[int, ...], touched: list[Touched], program: Program) -> None:
    places = {}
    for at, name, low, high, unit, is_written in touched:
        start = starts[at]
        if start % unit:
            raise ValueError(f"the {name} of `{kernel}` lies between elements")
        first, end = places[name] = (start + low, start + high)
        if first < (program.constant_bytes if is_written else 0) or end > program.image_bytes:
            raise ValueError(f"the {name} of `{kernel}` lies outside of its memory")
    if not are_apart(kernel, places):
        raise ValueError(f"the tensors of `{kernel}` overlap")
