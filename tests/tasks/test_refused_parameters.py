"""A step that refuses its parameters says what it expected, what it found and what to type, alike in both languages."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer import EdgeInferError
from edge_infer.tasks.definition import read_definition
from edge_infer.tasks.item import Item
from edge_infer.tasks.parameters import REQUIRED
from edge_infer.tasks.place import Place
from edge_infer.tasks.steps import STEPS, prepare_chain, read_step
from edge_infer.tensors.tensor import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_infer.tasks.parameters import Parameter

    Case = dict[str, Any]

PROGRAM = Path(__file__).with_name("run_steps.mjs")
ROOT = Path(__file__).parents[2]
PARAMETERS: dict[str, dict[str, Parameter]] = {
    name: import_module(f"edge_infer.tasks.{name}").PARAMETERS for name in STEPS
}
INPUT = {"name": "x", "dtype": "float32", "shape": [2]}
PLACE = {"inputs": [INPUT], "outputs": [{**INPUT, "name": "ab"}, {**INPUT, "name": "cd"}], "input": "x"}
COLUMNS = {"step": "tabular.columns", "names": ["age", "town"], "types": ["float64", "string"]}
ROW = {"age": 7, "town": "Ulm"}


def refused_values(name: str) -> Iterator[Case]:
    """Yield the step with each of its parameters wrong: of another kind, out of range, missing, unknown."""
    declared = PARAMETERS[name]
    least = {key: one.low or 1 for key, one in declared.items() if one.default is REQUIRED}
    yield {"step": name, **least, "zzzzzz": 1}
    for key, one in declared.items():
        wrong: list[Any] = [7 if one.kind in ("text", "names", "texts", "lists", "expressions") else "nothing", [], 1.5]
        yield from ({"step": name, key: value} for value in wrong if not one._fits(value))
        for limit in (one.low, one.high):
            if limit is not None and one.kind != "numbers":
                yield {"step": name, key: limit - 1 if limit == one.low else limit + 1}
        if one.default is REQUIRED:
            yield {"step": name}


def of_table(*steps: Case) -> Case:
    return {"steps": [COLUMNS, *steps], "value": ROW}


def of_input(step: Case, dtype: str = "float32") -> Case:
    return {"steps": [step], "place": {**PLACE, "inputs": [{**INPUT, "dtype": dtype}]}}


def derived(expression: Any) -> Case:
    return of_table({"step": "tabular.derive", "names": ["z"], "expressions": [expression]})


#: Parameters that are right one by one, and not together, or not for this model or table.
TOGETHER: list[Case] = [
    of_input({"step": "audio.micro_features", "low_hz": 9000}),
    of_input({"step": "image.rescale_normalize", "std": [0, 1, 1]}),
    of_input({"step": "image.rescale_normalize", "mean": [0.5]}),
    of_input({"step": "image.resize"}),
    of_input({"step": "image.resize", "width": 3}),
    of_input({"step": "image.resize", "shortest": 3, "multiple": 2}),
    of_input({"step": "image.to_tensor"}, "int64"),
    of_input({"step": "image.rescale_normalize"}, "int64"),
    of_input({"step": "tensor.quantize", "scale": 1}),
    of_input({"step": "tensor.reshape", "shape": [0]}),
    of_input({"step": "tensor.constant", "values": [1, 2, 3]}),
    of_input({"step": "tensor.constant", "values": [1, 1000]}, "int8"),
    of_input({"step": "tabular.tensor"}, "int8"),
    of_input({"step": "post.boxes", "format": "yolov8", "tensors": {"zzz": "ab"}}),
    of_input({"step": "post.boxes", "format": "decoded"}),
    of_input({"step": "post.top_k", "tensor": "ef"}),
    of_input({"step": "text.tokenize", "tensors": {"ids": "x", "zzzzz": "x"}}),
    of_input({"step": "text.tokenize", "tensors": {"ids": "tokens"}}),
    of_input({**COLUMNS, "types": ["float64"]}),
    of_input({**COLUMNS, "names": ["age", "age"]}),
    of_input({**COLUMNS, "types": ["float64", "zzz"]}),
    of_input({**COLUMNS, "nullable": ["zzz"]}),
    of_input({"step": "tabular.derive", "names": ["a"], "expressions": []}),
    of_input({"step": "tabular.categories", "values": {"town": ["Ulm", 1, "Ulm"]}}),
    of_input({"step": "tabular.scale", "columns": ["age"], "mean": [0], "scale": [0]}),
    of_input({"step": "tabular.scale", "columns": ["age"], "mean": [0, 1], "scale": [1]}),
    of_table({"step": "tabular.scale", "columns": ["zzzz"], "mean": [0], "scale": [1]}),
    of_table({"step": "tabular.scale", "columns": ["town"], "mean": [0], "scale": [1]}),
    of_table({"step": "tabular.tensor"}) | {"place": PLACE},
    of_table({"step": "tabular.derive", "names": ["age"], "expressions": [["col", "age"]]}, {"step": "tabular.tensor"})
    | {"place": PLACE},
    derived("age"),
    derived(["zzzzzz", 1]),
    derived(["clip", ["col", "age"]]),
    derived(["+", 1]),
    derived(["log", 1, 2]),
    derived(["length", ["col", "age"]]),
    derived(["log", ["col", "town"]]),
    derived(["clip", ["col", "town"], 0, 1]),
    derived(["+", ["col", "town"], ["col", "town"]]),
    derived(["==", ["col", "town"], ["col", "age"]]),
    derived(["lookup", ["col", "town"], [1, 2], [0, 1]]),
    derived(["lookup", ["col", "age"], ["a"], [0]]),
    derived([[1]]),
]
READS = {"version": 1, "inputs": {"x": [{"step": "image.decode"}, {"step": "image.to_tensor"}]}}
ENDS = [{"step": "post.tensor"}]
DEFINITIONS: list[Case] = [
    {**READS, "inputs": []},
    {**READS, "outputs": ENDS, "source": 1},
    {**READS, "outputs": ENDS, "vectors": 1},
    {**READS, "outputs": []},
    {**READS, "outputs": None},
    {**READS, "outputs": [7]},
    {**READS, "outputs": [{"step": "zzzzzz"}]},
    {**READS, "inputs": {"x": [{"step": "image.decode"}]}},
    {**READS, "inputs": {"x": [{"step": "image.to_tensor"}]}},
    {**READS, "outputs": [{"step": "post.nms"}]},
    {**READS, "outputs": [{"step": "post.top_k"}, {"step": "image.decode"}]},
]


def python_refusal(case: Case) -> Case:
    """Return the error of Python as `run_steps.mjs` prints that of JavaScript."""
    where = case.get("place", PLACE)
    inputs, outputs = ([TensorSpec(**one) for one in where[key]] for key in ("inputs", "outputs"))
    place = Place(lambda path: Path(path).read_bytes(), [], inputs, outputs, where["input"])
    try:
        if "definition" in case:
            read_definition("image-classification", case["definition"])
        made = case.get("value")
        steps = [read_step(entry, f"steps[{index}]") for index, entry in enumerate(case.get("steps", []))]
        for apply in prepare_chain(steps, place):
            made = apply(made, Item({}))
    except EdgeInferError as error:
        return {"code": error.code, "message": error.message, "hint": error.hint}
    raise AssertionError(f"{case} was not refused")


def assert_refused_alike(cases: list[Case], folder: Path) -> None:
    (folder / "cases.json").write_text(json.dumps([{"place": PLACE, **one} for one in cases]), "utf-8")
    done = subprocess.run(
        ["node", str(PROGRAM), str(folder / "cases.json")],
        capture_output=True,
        text=True,
        check=False,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    for case, javascript in zip(cases, json.loads(done.stdout), strict=True):
        python = python_refusal(case)
        assert python["hint"], python
        # What to install differs between the languages; the choices are the same.
        either = {"pip install --upgrade edge-infer": "update edge-infer"}
        for mine, theirs in either.items():
            python["hint"] = python["hint"].replace(mine, theirs)
        assert javascript == python, case


def test_each_step_says_what_to_type_in_the_place_of_a_wrong_parameter(tmp_path: Path) -> None:
    assert_refused_alike([{"steps": [step]} for name in STEPS for step in refused_values(name)], tmp_path)


def test_parameters_that_do_not_go_together_are_refused_alike(tmp_path: Path) -> None:
    assert_refused_alike(TOGETHER, tmp_path)


def test_wrong_definitions_are_refused_alike(tmp_path: Path) -> None:
    assert_refused_alike([{"definition": one} for one in DEFINITIONS], tmp_path)


def test_a_hint_is_what_the_parameter_takes() -> None:
    """What is typed from a hint is accepted, wherever it holds no word in capitals for what only the author knows."""
    for name, declared in PARAMETERS.items():
        for key, one in declared.items():
            wrong: tuple[Any, ...] = ("nothing", -(10**9), 10**9)
            for example in map(one.example, wrong):
                if not re.search("[A-Z]{4}", example):
                    assert one._fits(json.loads(example)), (name, key, example)


def test_no_refusal_of_a_definition_lacks_a_hint() -> None:
    without = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / "edge_infer/tasks").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ManifestError"
        if not any(keyword.arg == "hint" for keyword in node.keywords)
    ]
    for path in sorted((ROOT / "web/src/tasks").rglob("*.js")):
        text = path.read_text("utf-8")
        without += [
            f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1}"
            for found in re.finditer(r"new EdgeInferError\(", text)
            if '"manifest_error"' in (made := _call(text[found.end() :])) and "hint" not in made
        ]
    assert without == []


def _call(text: str) -> str:
    """Return the arguments of a call: what stands before the bracket that ends it."""
    depth = 1
    for at, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0:
            return text[:at]
    raise AssertionError("a call without its end")
