"""Write the files of a model in C: its header, its weights, its kernels and its run."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_infer.kernels.declarations import KERNELS
from edge_infer_converters.writers.microcontroller import kernel_source
from edge_infer_converters.writers.microcontroller.kernel_source import Known
from edge_infer_converters.writers.microcontroller.layout import element_type, has_small_sums

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.formats.program import Program, ProgramTensor
    from edge_infer_converters.writers.microcontroller.layout import Array, Layer, Layout, Place

_WIDTH = 100
_WRITTEN = ("output", "scratch", "hidden", "cell", "state")
_C_TYPES = {"float32": "float", **{name: f"{name}_t" for name in ("int8", "uint8", "int16", "int32", "int64")}}
#: Pointers that the kernels read by their index; the others are `void *`.
_TYPED = ("bias", "multipliers", "shifts")


class End(NamedTuple):
    """An input or output.

    Attributes:
        tensor: What it is.
        name: Its function in C.
        kind: The type of its elements.
        size: How many there are.
        place: Where it lies in the arena.
    """

    tensor: ProgramTensor
    name: str
    kind: str
    size: int
    place: int


def ends(program: Program, layout: Layout, prefix: str) -> tuple[list[End], list[End]]:
    """Return the inputs and outputs of a model with their names in C."""

    def of(side: str, tensors: Sequence[ProgramTensor], places: list[int]) -> list[End]:
        return [
            End(
                one,
                f"{prefix}_{side}" + (f"_{number}" if len(tensors) > 1 else ""),
                _C_TYPES[one.dtype],
                prod(one.shape),
                places[number],
            )
            for number, one in enumerate(tensors)
        ]

    return of("input", program.inputs, layout.inputs), of("output", program.outputs, layout.outputs)


def header(prefix: str, source: str, layout: Layout, inputs: list[End], outputs: list[End]) -> str:
    """Return `PREFIX.h`: what a program includes."""
    guard = f"{prefix.upper()}_H"
    lines = [
        f"/* {comment(source)}, compiled to C by edge-infer.",
        "",
        f"     write to {inputs[0].name if inputs else ''}(), call {prefix}_run(), read from {outputs[0].name}()",
        "",
        "   They lie in the arena: a run may overwrite the inputs, and the next run overwrites the outputs. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f"#define {prefix.upper()}_ARENA_BYTES {layout.arena_bytes}",
    ]
    for side, group in (("in", inputs), ("out", outputs)):
        for one in group:
            shape = " x ".join(map(str, one.tensor.shape)) or "one number"
            lines += [
                "",
                f"/* `{comment(one.tensor.name)}`, {shape}. */",
                f"#define {one.name.upper()}_SIZE {one.size}",
            ]
            if one.tensor.scale:
                lines[-2] = lines[-2].replace(". */", ": real value = SCALE * (integer - ZERO). */")
                lines.append(f"#define {one.name.upper()}_SCALE {number(np.float32(one.tensor.scale))}")
                lines.append(f"#define {one.name.upper()}_ZERO {one.tensor.zero}")
            const = "" if side == "in" else "const "
            lines.append(f"{const}{one.kind} *{one.name}(void);")
    lines += ["", f"void {prefix}_run(void);"]
    if layout.state:
        lines += ["", "/* Start a stream: before the first run, and to forget what came before. */"]
        lines.append(f"void {prefix}_reset(void);")
    lines += ["", "#ifdef __cplusplus", "}", "#endif", "", "#endif"]
    return _text(lines)


def weights(prefix: str, layout: Layout) -> str:
    """Return `PREFIX_weights.h`: the constants."""
    lines = [f"/* The constants of {prefix}.c, which alone includes this file. */", ""]
    for one in layout.arrays:
        kind, size = one.kind, one.data.size
        if one.name.startswith(("nodes_", "votes_")):
            records, kind, size = _records(one)
        else:
            records = [number(value) for value in one.data.reshape(-1)]
        lines.append(f"static const {kind} {one.name}[{size}] = {{")
        lines += rows(records)
        lines += ["};", ""]
    return _text(lines[:-1])


def kernels(prefix: str, layout: Layout, way: str) -> str:
    """Return `PREFIX_kernels.h`: the kernels that the model calls."""
    lines = [f"/* The kernels of {prefix}.c, which alone includes this file: those that the model calls. */", ""]
    known = known_calls(layout, way)
    for name, layers in by_kernel(layout).items():
        lines += [*_struct(name, layers, known[name].common), ""]
    names = {layer.kernel: layer.call.kernel for layer in layout.layers}
    for block in kernel_source.needed(names, way, known):
        lines += [block, ""]
    return _text(lines[:-1])


def source(prefix: str, name: str, layout: Layout, inputs: list[End], outputs: list[End], way: str) -> str:
    """Return `PREFIX.c`: the arena, the arguments of each call, and the run."""
    body = kernels(prefix, layout, way)
    known = known_calls(layout, way)
    lines = [f"/* {comment(name)}, compiled to C by edge-infer. */", f'#include "{prefix}.h"', ""]
    lines += [f"#include <{one}>" for one in ("math.h", "string.h") if _needs(one, body, layout)]
    lines += [f'#include "{prefix}_kernels.h"', f'#include "{prefix}_weights.h"', ""]
    lines += [
        "/* The memory of all tensors: each has a place from its first call to its last one. */",
        f"static int64_t arena[{prefix.upper()}_ARENA_BYTES / 8];",
        "#define AT(place) ((uint8_t *)arena + (place))",
        "",
    ]
    for place, layer in enumerate(layout.layers):
        lines += [*_arguments(place, layer, known[layer.kernel].common), ""]
    for one in (*inputs, *outputs):
        const = "const " if one in outputs else ""
        lines += [f"{const}{one.kind} *{one.name}(void) {{ return ({const}{one.kind} *)AT({one.place}); }}", ""]
    lines.append(f"void {prefix}_run(void) {{")
    lines += [f"  {layer.kernel}(&layer_{place});" for place, layer in enumerate(layout.layers)]
    lines.append("}")
    if layout.state:
        lines += ["", f"void {prefix}_reset(void) {{"]
        for state in layout.state:
            if state.first is None:
                lines.append(f"  memset(AT({state.offset}), 0, {state.nbytes});")
            else:
                lines.append(f"  memcpy(AT({state.offset}), {state.first.name}, {state.nbytes});")
        lines.append("}")
    return _text(lines)


def known_calls(layout: Layout, way: str) -> dict[str, Known]:
    """Return what is known of the calls of each kernel; where there is one call, compilers see its integers."""
    found = {}
    for name, layers in by_kernel(layout).items():
        single = {bool(layer.call.integers.get("single")) for layer in layers}
        common = {
            key: value
            for key, value in layers[0].call.integers.items()
            if _is_short(value) and len(layers) > 1 and all(layer.call.integers[key] == value for layer in layers)
        }
        kept = kernel_source.may_be_constants(name, way, common)
        found[name] = Known(
            single.pop() if len(single) == 1 else None,
            all(has_small_sums(layer) for layer in layers),
            {key: common[key] for key in kept},
        )
    return found


def unfused(text: str) -> str:
    """Return a file of C that says itself what `-ffp-contract=off` says: Arduino gives a library no options."""
    first, rest = text.split("\n", 1)
    pragma = '#if defined(__GNUC__) && !defined(__clang__)\n#pragma GCC optimize("fp-contract=off")\n#endif'
    return f"{first}\n{pragma}\n{rest}"


def comment(text: str) -> str:
    """Return a text that ends no comment of C."""
    plain = text.encode("ascii", "replace").decode().replace("*/", "* /").replace("/*", "/ *")
    return "".join(one if one.isprintable() else "?" for one in plain.replace("\\", "/"))[:80]


def number(value: float | np.generic) -> str:
    """Return a number as C reads it back, bit for bit."""
    if isinstance(value, np.floating):
        if np.isnan(value):
            return "NAN"
        if np.isinf(value):
            return "HUGE_VALF" if value > 0 else "-HUGE_VALF"
        text = str(np.float32(value))
        return f"{text}f" if "." in text or "e" in text else f"{text}.0f"
    if value == -(2**31):
        return "INT32_MIN"
    return str(int(value))


def rows(items: list[str]) -> list[str]:
    """Return the lines of a list in C."""
    lines, line = [], " "
    for one in items:
        if len(line) + len(one) + 2 > _WIDTH:
            lines.append(line)
            line = " "
        line += f" {one},"
    return [*lines, line]


def _records(one: Array) -> tuple[list[str], str, int]:
    """Return the nodes or votes of trees as C structs, their type and their number."""
    if one.name.startswith("votes_"):
        pairs = one.data.reshape(-1, 2)
        floats = pairs[:, 1].copy().view(np.float32)
        records = [f"{{{target}, {number(weight)}}}" for target, weight in zip(pairs[:, 0], floats, strict=True)]
        return records, "struct vote", len(records)
    rows = one.data.reshape(-1, 3)
    thresholds = rows[:, 1].copy().view(np.float32)
    records = [
        f"{{-1, {{.first = {first}}}, {other}}}" if test == -1 else f"{{{test}, {{{number(threshold)}}}, {other}}}"
        for (test, first, other), threshold in zip(rows.tolist(), thresholds, strict=True)
    ]
    return records, "struct node", len(records)


def by_kernel(layout: Layout) -> dict[str, list[Layer]]:
    """Return the calls of each kernel by its name in C."""
    found: dict[str, list[Layer]] = {}
    for layer in layout.layers:
        found.setdefault(layer.kernel, []).append(layer)
    return found


def _struct(kernel: str, layers: list[Layer], common: Mapping[str, int]) -> list[str]:
    """Return the struct of a kernel's arguments, its integers as narrow as those of all calls allow."""
    lines = [f"struct {kernel}_call {{"]
    kernel = layers[0].call.kernel
    declared = KERNELS[kernel]
    for tensor in declared.tensors:
        const = "" if _is_written(kernel, tensor) else "const "
        kind = element_type(kernel, tensor) if tensor in _TYPED else "void"
        lines.append(f"  {const}{'int8_t' if tensor == 'shifts' else kind} *{tensor};")
    for kind, names in integer_kinds([one for one in declared.integers if one not in common], layers).items():
        if names:
            lines += _members(kind, names)
    if declared.floats:
        lines += _members("float", declared.floats)
    return [*lines, "};"]


def integer_kinds(integers: Sequence[str], layers: Sequence[Layer]) -> dict[str, list[str]]:
    """Return which integers of some calls are members of 32 bits in C, and which of 16."""
    found: dict[str, list[str]] = {"int32_t": [], "int16_t": []}
    for name in integers:
        is_short = all(_is_short(layer.call.integers[name]) for layer in layers)
        found["int16_t" if is_short else "int32_t"].append(name)
    return found


def _is_short(value: int) -> bool:
    return -(2**15) <= value < 2**15


def _members(kind: str, names: Sequence[str]) -> list[str]:
    return kernel_source.wrapped(f"  {kind}", [*names], ";")


def _is_written(kernel: str, tensor: str) -> bool:
    return tensor in _WRITTEN or (kernel == "quantize_rows" and tensor == "parameters")


def _arguments(place: int, layer: Layer, common: Mapping[str, int]) -> list[str]:
    """Return the arguments of a call; what is 0, absent or the same in all calls is left out."""
    call = layer.call
    output = call.tensors["output"]
    made = "" if output is None else f", `{comment(output.value.name)}`"
    items = []
    for name, where in layer.tensors.items():
        if where is not None:
            kind = "int8_t" if name == "shifts" else element_type(call.kernel, name)
            items.append(f".{name} = {_pointer(where, kind if name in _TYPED else None)}")
    items += [f".{name} = {number(value)}" for name, value in call.integers.items() if value and name not in common]
    items += [f".{name} = {number(np.float32(value))}" for name, value in call.floats.items() if value]
    lines = [f"/* {call.operator}{made} */"]
    lines.append(f"static const struct {layer.kernel}_call layer_{place} = {{")
    return [*lines, *rows(items), "};"]


def _pointer(where: Place, kind: str | None) -> str:
    if where.array is None:
        return f"AT({where.offset})"
    if not where.offset:
        return where.array.name
    return f"(const {kind or 'void'} *)((const uint8_t *){where.array.name} + {where.offset})"


def _needs(include: str, body: str, layout: Layout) -> bool:
    words = {"math.h": ("sqrtf(", "HUGE_VAL", "NAN"), "string.h": ("memcpy(", "memset(")}[include]
    floats = [value for layer in layout.layers for value in layer.call.floats.values()]
    tables = [one.data for one in layout.arrays if one.kind == "float"]
    has_infinity = include == "math.h" and not all(np.isfinite(one).all() for one in (*tables, np.array(floats)))
    return any(word in body for word in words) or has_infinity or (include == "string.h" and bool(layout.state))


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def quoted(label: str) -> str:
    """Return a text as C has it, in ASCII."""
    return (
        '"' + "".join(chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in label.encode()) + '"'
    )
