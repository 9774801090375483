"""Link a program to the kernels: one WebAssembly module that holds code, weights and the calls, and imports nothing.

No compiler is needed: the kernels are a module already (`edge_infer/kernels/built`). The linker takes it apart by the
binary format (https://webassembly.github.io/spec/core/binary), empties the kernels that are not called, and appends
the function `run`, the constants as a data segment and the program as a custom section.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import ConversionError
from edge_infer.formats import wasm
from edge_infer.formats.program import SECTION, to_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from edge_infer.formats.program import Program

_TYPES, _FUNCTIONS, _TABLES, _MEMORY, _GLOBALS, _EXPORTS, _CODE = 1, 3, 4, 5, 6, 7, 10
_FUNCTION, _MEMORY_KIND = 0, 2
_PAGE = 65536
_ALIGNMENT = 64
#: A function without locals whose only instruction is `unreachable`.
_EMPTY = b"\x00\x00\x0b"
_NO_RESULT = b"\x60\x00\x00"


class _Export(NamedTuple):
    name: str
    kind: int
    number: int


def link(library: bytes, program: Program, constants: bytes) -> bytes:
    """Write the module of a program.

    Args:
        library: The module of all kernels: it exports each, its memory and the global `__heap_base`.
        program: The calls; `base` is set here.
        constants: The start of the image: arguments and weights.

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
    run = b"".join(
        b"\x41" + _signed(base) + b"\x41" + _signed(base + place) + b"\x10" + _unsigned(exports[kernel].number)
        for kernel, place in program.calls
    )
    memory = exports["memory"].number
    new = {
        wasm.CUSTOM: _name(SECTION) + to_json(program._replace(base=base)).encode(),
        _TYPES: _vector([*types, _NO_RESULT]),
        _FUNCTIONS: _vector([*functions, _unsigned(len(types))]),
        _TABLES: sections.get(_TABLES, b""),
        _MEMORY: _vector([b"\x00" + _unsigned(-(-(base + program.image_bytes) // _PAGE))]),
        _GLOBALS: sections[_GLOBALS],
        _EXPORTS: _vector(
            [
                _name("memory") + bytes([_MEMORY_KIND]) + _unsigned(memory),
                _name("run") + bytes([_FUNCTION]) + _unsigned(len(bodies)),
            ]
        ),
        _CODE: _vector([_unsigned(len(body)) + body for body in [*bodies, b"\x00" + run + b"\x0b"]]),
        wasm.DATA: _vector([b"\x00\x41" + _signed(base) + b"\x0b" + _unsigned(len(constants)) + constants]),
    }
    return wasm.MAGIC + b"".join(bytes([kind]) + _unsigned(len(data)) + data for kind, data in new.items() if data)


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
