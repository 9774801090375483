"""Link a program to the kernels: one WebAssembly module that holds code, weights and the calls, and imports nothing.

No compiler is needed: the kernels are a module already (`edge_infer/kernels/built`). The linker takes it apart by the
binary format (https://webassembly.github.io/spec/core/binary), empties the kernels that are not called, and appends
the function `run`, the constants as a data segment and the program as a custom section. A second custom section may
hold a module with one of the kernels once more, for browsers on processors with a dot product of bytes. `run` then
calls that kernel by the first place of an exported table, into which whoever loads the file may put the other one
(`compiled.js` of the page does).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import ConversionError
from edge_infer.formats import wasm
from edge_infer.formats.program import SECTION, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edge_infer.formats.program import Program

_TYPES, _FUNCTIONS, _TABLES, _MEMORY, _GLOBALS, _EXPORTS, _ELEMENTS, _CODE = 1, 3, 4, 5, 6, 7, 9, 10
_FUNCTION, _TABLE, _MEMORY_KIND = 0, 1, 2
_PAGE = 65536
#: The custom section with a module for processors with a dot product of bytes.
DOT_SECTION = "edge_infer.dot"
_ALIGNMENT = 64
#: One place for a function.
_ONE_PLACE = b"\x01\x70\x00\x01"
#: A function without locals whose only instruction is `unreachable`.
_EMPTY = b"\x00\x00\x0b"
_NO_RESULT = b"\x60\x00\x00"


class _Export(NamedTuple):
    name: str
    kind: int
    number: int


def link(library: bytes, program: Program, constants: bytes, dot: bytes | None = None) -> bytes:
    """Write the module of a program.

    Args:
        library: The module of all kernels: it exports each, its memory and the global `__heap_base`.
        program: The calls; `base` is set here.
        constants: The start of the image: arguments and weights.
        dot: A module with one kernel once more, for processors with a dot product of bytes. It stands in the file of
            a program that calls this kernel; without it in none.

    Raises:
        ConversionError: The library lacks a kernel, or is not a module that can be linked.
    """
    try:
        sections = _sections(library)
        exports = {one.name: one for one in _exports(sections[_EXPORTS])}
        heap = _global_value(sections[_GLOBALS], exports["__heap_base"].number)
        bodies, functions = _bodies(sections[_CODE]), _numbers(sections[_FUNCTIONS])
        types = _function_types(sections[_TYPES])
    except (KeyError, IndexError, ValueError) as error:
        raise ConversionError(f"The module of the kernels cannot be read: {error}", hint="make kernels") from error
    missing = sorted({kernel for kernel, _ in program.calls} - exports.keys())
    if missing:
        raise ConversionError(f"The module of the kernels has no `{missing[0]}`", hint="make kernels")
    base = -(-heap // _ALIGNMENT) * _ALIGNMENT
    called = {exports[kernel].number for kernel, _ in program.calls}
    kernels = {one.number for one in exports.values() if one.kind == _FUNCTION}
    bodies = [_EMPTY if index in kernels - called else body for index, body in enumerate(bodies)]
    exchanged = None if dot is None else next((k for k, _ in program.calls if k in _functions(dot)), None)
    calls = {kernel: b"\x10" + _unsigned(exports[kernel].number) for kernel, _ in program.calls}
    ends = [
        _name("memory") + bytes([_MEMORY_KIND]) + _unsigned(exports["memory"].number),
        _name("run") + bytes([_FUNCTION]) + _unsigned(len(bodies)),
    ]
    elements = b""
    if exchanged is not None:
        number = exports[exchanged].number
        calls[exchanged] = b"\x41\x00\x11" + functions[number] + b"\x00"  # call_indirect, by the place 0 of table 0
        ends.append(_name("table") + bytes([_TABLE, 0]))
        elements = _vector([b"\x00\x41\x00\x0b" + _vector([_unsigned(number)])])
    run = b"".join(
        b"\x41" + _signed(base) + b"\x41" + _signed(base + place) + calls[kernel] for kernel, place in program.calls
    )
    new = {
        wasm.CUSTOM: _name(SECTION) + to_json(program._replace(base=base)).encode(),
        _TYPES: _vector([*types, _NO_RESULT]),
        _FUNCTIONS: _vector([*functions, _unsigned(len(types))]),
        _TABLES: b"" if exchanged is None else _ONE_PLACE,
        _MEMORY: _vector([b"\x00" + _unsigned(-(-(base + program.image_bytes) // _PAGE))]),
        _GLOBALS: sections[_GLOBALS],
        _EXPORTS: _vector(ends),
        _ELEMENTS: elements,
        _CODE: _vector([_unsigned(len(body)) + body for body in [*bodies, b"\x00" + run + b"\x0b"]]),
        wasm.DATA: _vector([b"\x00\x41" + _signed(base) + b"\x0b" + _unsigned(len(constants)) + constants]),
    }
    others = [] if dot is None or exchanged is None else [(wasm.CUSTOM, _name(DOT_SECTION) + dot)]
    return wasm.MAGIC + b"".join(
        bytes([kind]) + _unsigned(len(data)) + data for kind, data in [*new.items(), *others] if data
    )


def _functions(module: bytes) -> set[str]:
    """Return the functions that a module exports."""
    return {one.name for one in _exports(_sections(module)[_EXPORTS]) if one.kind == _FUNCTION}


def _sections(module: bytes) -> dict[int, bytes]:
    found = dict(wasm.sections(module))
    if wasm.DATA in found:
        raise ValueError("it has data of its own")
    return found


def _exports(section: bytes) -> Iterable[_Export]:
    count, place = wasm.unsigned(section, 0)
    for _ in range(count):
        name, place = wasm.name(section, place)
        kind = section[place]
        index, place = wasm.unsigned(section, place + 1)
        yield _Export(name, kind, index)


def _global_value(section: bytes, index: int) -> int:
    """Return the value of a global: each is a type, whether it changes, and `i32.const N end`."""
    count, place = wasm.unsigned(section, 0)
    for i in range(count):
        if section[place + 2] != 0x41:
            raise ValueError("a global is not an i32")
        value, place = wasm.signed(section, place + 3)
        place += 1
        if i == index:
            return value
    raise ValueError("there is no global `__heap_base`")


def _bodies(section: bytes) -> list[bytes]:
    """Cut the section of functions' code into bodies, each after its size."""
    count, place = wasm.unsigned(section, 0)
    found = []
    for _ in range(count):
        size, place = wasm.unsigned(section, place)
        found.append(section[place : place + size])
        place += size
    return found


def _numbers(section: bytes) -> list[bytes]:
    """Cut a section of numbers, each of which it keeps as it is written."""
    count, place = wasm.unsigned(section, 0)
    found = []
    for _ in range(count):
        _, end = wasm.unsigned(section, place)
        found.append(section[place:end])
        place = end
    return found


def _function_types(section: bytes) -> list[bytes]:
    """Cut the section of types: each is 0x60, the types of the arguments, those of the results."""
    count, place = wasm.unsigned(section, 0)
    found = []
    for _ in range(count):
        end = place + 1
        for _ in range(2):
            size, end = wasm.unsigned(section, end)
            end += size
        found.append(section[place:end])
        place = end
    return found


def _vector(items: list[bytes]) -> bytes:
    return _unsigned(len(items)) + b"".join(items)


def _name(text: str) -> bytes:
    return _unsigned(len(text.encode())) + text.encode()


def _unsigned(value: int) -> bytes:
    found = bytearray()
    while True:
        value, byte = value >> 7, value & 127
        found.append(byte | (128 if value else 0))
        if not value:
            return bytes(found)


def _signed(value: int) -> bytes:
    found = bytearray()
    while True:
        value, byte = value >> 7, value & 127
        is_last = (value == 0 and not byte & 64) or (value == -1 and bool(byte & 64))
        found.append(byte | (0 if is_last else 128))
        if is_last:
            return bytes(found)
