"""The C of the kernels: blocks of text, of which a model takes those that it names.

A file of `source/` is a list of blocks with empty lines between them, none inside. A block defines a function, a struct
or a macro, and is taken where another one taken, or a call, has its name in it. Kernels that take no vectors have one
source with those of compiled models: `edge_infer/kernels/source`, whose macros are written out here.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from edge_infer import kernels as own_kernels
from edge_infer.kernels.declarations import KERNELS
from edge_infer_converters.writers.microcontroller import macros

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

#: The blocks that are of microcontrollers alone.
FOLDER = Path(__file__).parent / "source"
_SHARED_FOLDER = Path(own_kernels.__path__[0]) / "source"
#: In the order in which their blocks are written.
_FILES = (
    *("arithmetic", "windows", "columns", "pool", "elementwise", "softmax", "copy", "gather", "resize", "lstm"),
    *("hybrid", "svdf", "trees", "rows"),
)
#: Files of the kernels of compiled models; a block that a file of ours has too is left out of them.
SHARED = (*("pool", "elementwise", "softmax", "copy", "gather", "resize", "lstm", "hybrid", "svdf", "trees", "rows"),)
#: What their macros and their own words are in plain C.
_PLAIN = (
    (r"^(?:KERNEL|COLD)\((\w+)\)", r"static void \1(const struct \1_call *a)"),
    (r"^INLINE ", "static "),
    (r"AT\(([^,]+), (\w+)\)\[", r"((\1 *)a->\2)["),
    (r"AT\(([^,]+), (\w+)\) ([+-])", r"(\1 *)a->\2 \3"),
    (r"AT\([^,]+, (\w+)\)", r"a->\1"),
    (r"^typedef double double4 .*\n?", ""),
    (r"\bdouble4\b", "double"),
    (r"\b__builtin_sqrtf\b", "sqrtf"),
    (r"\brounded_one\b", "rounded"),
    (r"\bmove\((.*), ([^,]+)\);", r"memcpy(\1, (uint32_t)\2);"),
)
#: The file of each way to compute int8 convolutions; both have blocks of the same names.
_OF_WAY = {"size": "windows", "speed": "columns"}
_DEFINED = re.compile(
    r"^(?:static [\w\s*]+?[\s*](\w+)\(|struct (\w+) \{|#define (\w+)|enum \{ ([\w, ]+) \};)", re.MULTILINE
)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w+")
#: A function that takes the arguments of a kernel's calls, and an integer among them.
_TAKES = re.compile(r"const struct (\w+)_call \*a[^{]*\{\n")
_INTEGER = re.compile(r"\ba->(\w+)")
_RESULT = re.compile(r"RESULT\(([^,]+), ([^)]+)\)")
#: The same of a multiplier and a shift that lie in variables.
_SCALED = re.compile(r"SCALED\(([^)]+)\)")
_BOUNDS = "a->output_zero, a->low, a->high)"
#: What an int8 kernel makes of the sum of a channel, by the end of the kernel's name in the program.
_ROUNDED = rf"float_result(\1, a->multipliers[\2], {_BOUNDS}"
_FIXED = rf"fixed_result(\1, a->multipliers[\2], a->shifts[\2], {_BOUNDS}"
_SMALL = _FIXED.replace("fixed_result", "small_result")
_ONCE = _FIXED.replace("fixed_result", "once_result")
_EITHER = rf"a->single ? {_ONCE}\n : {_FIXED}"
#: Rows of a matrix that are computed one by one, without columns of int16.
_FEW_ROWS = 2


class Block(NamedTuple):
    """A piece of C.

    Attributes:
        text: The block.
        names: What it defines.
        words: The names that it may need.
    """

    text: str
    names: tuple[str, ...]
    words: frozenset[str]


@cache
def blocks(way: str) -> tuple[Block, ...]:
    """Return all blocks in their order.

    Args:
        way: `size` or `speed`: how int8 convolutions are computed.
    """
    found: dict[str, Block] = {}
    for name in _FILES:
        if name in _OF_WAY.values() and name != _OF_WAY[way] and way == "size":
            continue
        ours = {_names(text): text for text in _texts(FOLDER / f"{name}.c")}
        # Ours stands where the shared one would, behind what it calls.
        shared = [ours.pop(_names(text), text) for text in _shared(name)]
        for text in (*ours.values(), *shared):
            names = _names(text)
            block = Block(text, names, frozenset(_WORD.findall(_COMMENT.sub("", text))))
            for one in names:  # a later file replaces a block of an earlier one
                found.pop(one, None)
                found[one] = block
    return tuple({id(block): block for block in found.values()}.values())


def _texts(path: Path) -> list[str]:
    return path.read_text().strip().split("\n\n") if path.is_file() else []


def _names(text: str) -> tuple[str, ...]:
    return tuple(word for match in _DEFINED.findall(text) for part in match for word in part.split(", ") if word)


def _shared(name: str) -> list[str]:
    """Return the blocks of a file of the kernels of compiled models, as this folder would have them."""
    if name not in SHARED:
        return []
    text = macros.expanded((_SHARED_FOLDER / f"{name}.c").read_text().partition('#include "vectors.h"\n')[2])
    for pattern, plain in _PLAIN:
        text = re.sub(pattern, plain, text, flags=re.MULTILINE)
    return [one.strip("\n") for one in text.split("\n\n") if one.strip()]


def c_name(kernel: str, integers: Mapping[str, int], way: str) -> str:
    """Return the name in C of the kernel of a call.

    A convolution has one rounding in a model, which its name leaves out. For speed a fully connected layer has a kernel
    of its own, and so has a depthwise convolution of 3 by 3 taps.
    """
    if not kernel.startswith(("convolution_int8", "depthwise_int8")):
        return kernel
    is_connected = (
        integers["kernel_height"] == 1
        and integers["kernel_width"] == 1
        and integers["output_width"] == 1
        and integers["input_width"] == 1
        and integers["stride_height"] == 1
        and integers["output_height"] == integers["input_height"]
        and integers["output_height"] < _FEW_ROWS
    )
    if way == "speed" and is_connected and kernel.startswith("convolution"):
        return "connected_int8"
    is_three = integers["kernel_height"] == integers["kernel_width"] == 3
    is_near = integers["dilation_height"] == integers["dilation_width"] == 1
    if way == "speed" and kernel == "depthwise_int8_fixed" and is_three and is_near:
        return "depthwise_3x3_int8"
    return kernel.removesuffix("_fixed")


class Known(NamedTuple):
    """What is known of all calls of a kernel.

    Attributes:
        single: Whether the sums of all channels are rounded once, or None where that differs.
        is_small: Whether all sums are less than 2^30, and shifted to the right.
        common: The integers that all calls have in common.
    """

    single: bool | None = None
    is_small: bool = False
    common: Mapping[str, int] = MappingProxyType({})


def needed(kernels: Mapping[str, str], way: str, known: Mapping[str, Known]) -> list[str]:
    """Return the blocks that kernels need, in their order.

    Args:
        kernels: By their names in C the names in the program.
        way: `size` or `speed`.
        known: By their names in C what is known of their calls.
    """
    results = {}
    for name, kernel in kernels.items():
        if kernel.startswith(("convolution_int8", "depthwise_int8")):
            one = known.get(name, Known())
            twice = _SMALL if one.is_small else _FIXED
            is_asked = one.single is None and "single" in KERNELS[kernel].integers
            fixed = _EITHER.replace(_FIXED, twice) if is_asked else _ONCE if one.single else twice
            results[name] = fixed if kernel.endswith("_fixed") else _ROUNDED
    wanted = set(kernels)
    texts: dict[int, str] = {}
    everything = blocks(way)
    while True:
        more = [block for block in everything if wanted.intersection(block.names) and id(block) not in texts]
        if not more:
            break
        for block in more:
            text = block.text
            for name in block.names:
                if name in results:
                    text = _with_result(text, results[name])
            text = _with_common(text, known)
            texts[id(block)] = text
            wanted |= set(_WORD.findall(_COMMENT.sub("", text)))
    return [texts[id(block)] for block in everything if id(block) in texts]


def may_be_constants(kernel: str, way: str, names: Collection[str]) -> list[str]:
    """Return which integers may be constants of a kernel's functions: those whose names they use for nothing else."""
    found = {*names}
    for block in blocks(way):
        takes = _TAKES.search(block.text)
        if takes is not None and takes[1] == kernel:
            code = _COMMENT.sub("", block.text)
            found -= {name for name in found if re.search(rf"(?<!->)\b{name}\b", code)}
    return [name for name in names if name in found]


def _with_common(text: str, known: Mapping[str, Known]) -> str:
    """Write the integers that all calls have in common as constants of the functions that read them."""
    found = _TAKES.search(text)
    if found is None or found[1] not in known:
        return text
    common = known[found[1]].common
    names = dict.fromkeys(name for name in _INTEGER.findall(_COMMENT.sub("", text)) if name in common)
    if not names:
        return text
    for name in names:
        text = re.sub(rf"\ba->{name}\b", name, text)
    lines = wrapped("  const int32_t", [f"{name} = {common[name]}" for name in names], ";")
    if not re.search(r"\ba->", text):
        lines.append("  (void)a;")
    return text.replace(found[0], found[0] + "\n".join(lines) + "\n", 1)


def wrapped(start: str, items: list[str], end: str) -> list[str]:
    """Return a list in C, in lines of at most 110 columns."""
    lines, line = [], start
    for place, item in enumerate(items):
        comma = "" if place == len(items) - 1 else ","
        if len(line) + len(item) > 108:
            lines.append(line)
            line = "   "
        line += f" {item}{comma}"
    return [*lines, line + end]


def _with_result(text: str, result: str) -> str:
    """Write the rounding of a kernel into it, in lines of at most 120 columns."""
    lines = []
    local = result.replace("a->multipliers[\\2]", "multiplier").replace("a->shifts[\\2]", "shift")
    for line in text.split("\n"):
        made = _RESULT.sub(result, _SCALED.sub(local, line))
        if made == line:
            lines.append(line)
            continue
        first, *rest = made.split("\n")
        indent = " " * (len(line) - len(line.lstrip()) + 4)
        if not rest and len(first) > 120:
            head, _, tail = first.partition(" = ")
            first, rest = f"{head} =", [tail]
        lines += [first, *(indent + one.strip() for one in rest)]
    return "\n".join(lines)
