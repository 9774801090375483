"""Test modules are independent: what two of them need stands in tests/support."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[1]


def imported(tree: ast.AST) -> set[str]:
    """Return the modules that a file imports, at any depth."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module or ".", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_no_file_imports_a_test_module_or_a_conftest() -> None:
    found = [
        f"{path.relative_to(TESTS)}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        if "node_modules" not in path.parts
        for name in imported(ast.parse(path.read_text("utf-8")))
        if name.startswith("tests.") and (".test_" in name or ".conftest" in name)
    ]
    assert found == []
