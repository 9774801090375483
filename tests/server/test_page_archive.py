"""The part of the package that a page fetches: whole for a page, small, and with its lines where they were."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import brotli
import pytest

from edge_infer.server.static.page_archive import build_archive, build_later_archive, without_documentation
from edge_infer.server.static.wheel import package_files

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def modules() -> dict[str, str]:
    """The source of each module in the first archive, by its dotted name."""
    return modules_of(build_archive(package_files(), "0.1.0"))


def modules_of(data: bytes) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        found = {one.name: archive.extractfile(one) for one in archive.getmembers() if one.name.endswith(".py")}
        return {
            name[:-3].replace("/", ".").removesuffix(".__init__"): file.read().decode()
            for name, file in found.items()
            if file is not None
        }


def without_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """Return a body without its docstring; an empty text where a block would be empty."""
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return node.body[1:] or ([] if isinstance(node, ast.Module) else [ast.Expr(ast.Constant(""))])
    return node.body


def test_it_has_the_page_s_engines_and_none_of_the_server(modules: dict[str, str]) -> None:
    assert {"edge_infer.backends.web.ort", "edge_infer.backends.web.litert", "edge_infer.runtime.load"} <= set(modules)
    assert not any(name.startswith(("edge_infer.server", "edge_infer.cli", "edge_infer.sync")) for name in modules)


def test_the_code_is_that_of_the_package_line_by_line(modules: dict[str, str]) -> None:
    sources = {path[:-3].replace("/", ".").removesuffix(".__init__"): file for path, file in package_files()}
    for name, source in (modules | modules_of(build_later_archive(package_files()))).items():
        original = ast.parse(sources[name].read_text("utf-8"))
        for node in ast.walk(original):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
                node.body = without_docstring(node)
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                node.body = [ast.Expr(ast.Constant(""))]
        assert ast.dump(ast.parse(source)) == ast.dump(original), name
        assert source.count("\n") == sources[name].read_text("utf-8").count("\n"), name


def test_it_is_small_over_the_wire() -> None:
    data = build_archive(package_files(), "0.1.0")

    assert len(brotli.compress(data)) < 56_000


def test_a_name_that_it_leaves_out_says_where_to_find_it(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(build_archive(package_files(), "0.1.0"))) as archive:
        archive.extractall(tmp_path, filter="data")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import edge_infer; edge_infer.Tokenizer"

    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)

    assert "UnsupportedError: `Tokenizer` is not in the small archive" in done.stderr
    assert "install the wheel" in done.stderr


def test_the_same_files_give_the_same_bytes() -> None:
    assert build_archive(package_files(), "1") == build_archive(package_files(), "1")


def test_a_hash_in_a_text_is_no_comment() -> None:
    source = 'def f():\n    """Say."""\n    return "# no comment", r\'\\\' #\'  # "a comment\n'

    assert without_documentation(source) == "def f():\n\n    return \"# no comment\", r'\\' #'\n"


def test_the_rooms_of_the_second_archive_come_with_the_first_import_of_one(tmp_path: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(build_archive(package_files(), "0.1.0"))) as archive:
        archive.extractall(tmp_path / "package", filter="data")
    later = tmp_path / "later.tar"
    later.write_bytes(build_later_archive(package_files()))
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path / "package")!r})
from pathlib import Path
from edge_infer.platform import fetch, later_rooms
asked = []
fetch.fetch = lambda url: asked.append(url) or Path(url).read_bytes()
later_rooms.install({str(later)!r})
import edge_infer
edge_infer.Manifest
try:
    import edge_infer.backends.nothing
except ModuleNotFoundError:
    pass
assert asked == []
import edge_infer.compat
import edge_infer.runtime.tuning
print(edge_infer.Tokenizer.__name__, edge_infer.compat.install.__name__, edge_infer.tune.__name__, len(asked))
"""

    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)

    assert done.stdout == "Tokenizer install tune 1\n", done.stderr


def test_a_page_that_loaded_numpy_computes_with_what_the_archives_have(tmp_path: Path) -> None:
    for data in (build_archive(package_files(), "1"), build_later_archive(package_files())):
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            archive.extractall(tmp_path, filter="data")
    program = f"""
import sys
import numpy
sys.path.insert(0, {str(tmp_path)!r})
from edge_infer.tasks.item import Item
from edge_infer.tasks.steps import read_step
from edge_infer.vectors.ways import arithmetics
made = {{"a": 1.5}}
for step in (
    {{"step": "tabular.columns", "names": ["a"], "types": ["float64"]}},
    {{"step": "tabular.derive", "names": ["x"], "expressions": [["/", ["col", "a"], 2]]}},
):
    made = read_step(step, "steps").prepare(None)(made, Item())
print(list(made.columns["x"]), *arithmetics())
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert done.stdout == "[0.75] plain\n", done.stderr
