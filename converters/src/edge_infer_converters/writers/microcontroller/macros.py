"""Write out the macros of a C file, so that readers of a model's kernels see loops."""

from __future__ import annotations

import re

_DEFINITION = re.compile(r"^#define (\w+)\(([^)]*)\) +\\\n((?:.*\\\n)*.*)\n", re.MULTILINE)


def expanded(text: str) -> str:
    """Return a text with each use of its macros of several lines as what it stands for, and without their definitions.

    A macro may use those that were defined before it.

    Args:
        text: C, in which no comment or text of a use has brackets that stand alone.
    """
    found = [(match[1], _listed(match[2]), _lines(match[3])) for match in _DEFINITION.finditer(text)]
    text = _DEFINITION.sub("", text)
    for name, parameters, body in reversed(found):
        use = re.compile(rf"^( *)((?:.*[^\w\n])?){name}\(", re.MULTILINE)
        while match := use.search(text):
            end, arguments = _arguments(text, match.end(), len(parameters))
            lines = _filled(body, dict(zip(parameters, arguments, strict=True)), len(match[1]))
            text = text[: match.start()] + match[1] + match[2] + "\n".join(lines).lstrip() + text[end:]
    return text


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",")]


def _lines(body: str) -> list[str]:
    return [line.rstrip(" \\") for line in body.split("\n")]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _arguments(text: str, start: int, count: int) -> tuple[int, list[str]]:
    """Return where a use ends, and its arguments; the last one takes the commas that are left."""
    found: list[str] = []
    depth, place, begins = 0, start, start
    while depth >= 0:
        letter = text[place]
        if letter == "," and depth == 0 and len(found) < count - 1:
            found.append(text[begins:place].strip())
            begins = place + 1
        depth += (letter in "({[") - (letter in ")}]")
        place += 1
    return place, [*found, text[begins : place - 1].strip()]


def _filled(body: list[str], values: dict[str, str], indent: int) -> list[str]:
    """Return the lines of a macro, moved to where it is used; an argument of several lines is moved to its place."""
    shift = indent - _indent(body[0])
    lines = []
    for line in body:
        moved = " " * max(_indent(line) + shift, 0) + line.lstrip()
        for name, value in values.items():
            inner = value.replace("\n", "\n" + " " * (_indent(moved) - indent))
            moved = re.sub(rf"\b{name}\b", inner.replace("\\", r"\\"), moved)
        lines.append(moved)
    return lines
