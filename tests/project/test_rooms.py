"""The list of rooms describes the package as it stands, and files that run everywhere import nothing of a host."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import edge_infer
from edge_infer.rooms import EXCEPTIONS, ROOMS, Place, runs_in
from edge_infer.tasks.steps import STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PACKAGE = Path(edge_infer.__file__).parent
PLACES: tuple[Place, ...] = ("page", "device")
#: Modules of the standard library that Pyodide lacks, or has without their purpose.
NATIVE = {"ctypes", "fcntl", "mmap", "multiprocessing", "resource", "signal", "socket", "ssl", "subprocess", "termios"}


def files_in(place: Place) -> dict[str, Path]:
    """Return the modules that a place gets, by dotted name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        inside = path.relative_to(PACKAGE)
        if runs_in(inside.as_posix(), place):
            name = ".".join(["edge_infer", *inside.with_suffix("").parts]).removesuffix(".__init__")
            found[name] = path
    return found


def imported(tree: ast.AST, *, inside_functions: bool) -> Iterator[str]:
    """Give the dotted names that a module imports, those in texts as well (`backends/registry.py` has them)."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not inside_functions:
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{one.name}" for one in node.names if inside_functions)
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if inside_functions and node.value.startswith("edge_infer."):
                yield node.value.partition(":")[0]
        else:
            yield from imported(node, inside_functions=inside_functions)


def test_every_room_is_listed_once() -> None:
    entries = {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"}

    assert set(ROOMS) == entries


def test_the_import_contract_has_every_room() -> None:
    contracts = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    (layers,) = (one["layers"] for one in contracts["contracts"] if one.get("containers") == ["edge_infer"])

    listed = sorted(name for layer in layers for name in layer.split(" | "))
    assert listed == sorted(name.removesuffix(".py") for name in ROOMS if not name.startswith(("_", "py.")))


@pytest.mark.parametrize("part", EXCEPTIONS)
def test_an_exception_exists_and_its_room_runs_there(part: str) -> None:
    places, reason = EXCEPTIONS[part]

    assert (PACKAGE / part).exists()
    assert set(places) <= set(ROOMS[part.partition("/")[0]])
    assert reason


@pytest.mark.parametrize("place", PLACES)
def test_no_file_imports_at_its_start_what_its_place_lacks(place: Place) -> None:
    files = files_in(place)
    for name, path in files.items():
        for module in imported(ast.parse(path.read_text("utf-8")), inside_functions=False):
            if module.startswith("edge_infer"):
                assert module in files, f"{name} imports {module}: list one of them in edge_infer/rooms.py"
            elif place == "page":
                assert module.partition(".")[0] in sys.stdlib_module_names - NATIVE, f"{name} imports {module}"


def test_every_file_of_the_page_is_used_there() -> None:
    """A file that no other file of the page imports is a host's: it goes to `EXCEPTIONS` with its reason."""
    files = files_in("page")
    names = import_module("edge_infer")
    waiting = ["edge_infer", "edge_infer.compat", *(getattr(names, name).__module__ for name in names.__all__)]
    waiting += [f"edge_infer.tasks.{step}" for step in STEPS]  # found by their names
    waiting.append("edge_infer.generation.sequence_vectors")  # what `edge-infer verify` runs in a page
    waiting.append("edge_infer.platform.later_rooms")  # called by web/src/engines/pyodide.js
    used: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in used and name in files:
            used.add(name)
            waiting.append(name.rpartition(".")[0])
            waiting += imported(ast.parse(files[name].read_text("utf-8")), inside_functions=True)

    assert sorted(set(files) - used) == []


def modules_of(package: str) -> dict[str, Path]:
    """Return the modules of a package by dotted name, a package's own file under the package's name."""
    base = Path(import_module(package).__file__ or "").parent
    parts = {path: [package, *path.relative_to(base).with_suffix("").parts] for path in base.rglob("*.py")}
    return {".".join(names).removesuffix(".__init__"): path for path, names in parts.items()}


def every_import(path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    """Give what a file imports anywhere: at its start, in functions, and for types.

    `from package import name` is the module of that name among the files, else the package itself.
    """
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for one in node.names:
                inner = f"{node.module}.{one.name}"
                yield inner if inner in files else node.module


def test_no_file_is_in_a_circle_of_imports() -> None:
    files = modules_of("edge_infer") | modules_of("edge_infer_converters")
    waiting = {
        name: {one for one in every_import(path, files) if one in files and one != name} for name, path in files.items()
    }

    while free := [name for name, needs in waiting.items() if not needs & waiting.keys()]:
        for name in free:
            del waiting[name]
    while last := [name for name in waiting if not any(name in needs for needs in waiting.values())]:
        for name in last:
            del waiting[name]

    assert sorted(waiting) == [], "each of these files is in a circle of imports, or between two"


def test_the_house_has_at_most_nineteen_rooms() -> None:
    rooms = [name for name in ROOMS if (PACKAGE / name).is_dir() or name not in ("__init__.py", "__main__.py")]

    assert len([name for name in rooms if name not in ("errors.py", "rooms.py", "py.typed")]) <= 19


#: Modules and names of `os` and `socket` that some systems lack.
POSIX_MODULES = {"fcntl", "grp", "pwd", "resource", "termios"}
POSIX_NAMES = re.compile(
    r"\bos\.(fork|sched_\w+|get[eu]?[ug]id|set[eu]?[ug]id|chown|killpg|getpgid|nice|sysconf|statvfs|O_NOFOLLOW)\b"
    r"|\bsignal\.SIG(?!INT\b)\w+|\bsocket\.(AF_UNIX|SO_REUSEPORT)\b"
)


def test_calls_that_only_posix_systems_have_stand_in_platform_and_server() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).parts[0] not in ("platform", "server"):
            source = path.read_text("utf-8")
            assert POSIX_MODULES.isdisjoint(every_import(path, {})), path
            assert POSIX_NAMES.search(source) is None, path
