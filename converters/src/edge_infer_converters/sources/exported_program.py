"""Export a `.pt2` file, an exported program of `torch.export.save`, by torch.onnx's newer exporter.

Such a file can hold pickled objects and expressions that torch evaluates. None of them is needed for a model of plain
tensors, so the file is looked through before torch opens it, and tensors are read by torch's restricted reader only.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import json
import re
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from edge_infer.errors import ConversionError
from edge_infer_converters.sources import onnx as onnx_source
from edge_infer_converters.sources.framework import Framework
from edge_infer_converters.sources.torch import OPSET, answer, first_line, numbers_of, quiet, tensors_of

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from edge_infer_converters.sources.onnx import SourceModel
    from edge_infer_converters.sources.options import SourceOptions

# What torch's own exporter writes as the target of a call: registered operators, and arithmetic on sizes.
_TARGET = re.compile(
    r"torch\.ops\.\w+\.\w+(\.\w+)?|_operator\.(?!attrgetter|methodcaller|call\b)\w+|math\.\w+|torch\.sym_\w+"
)
_PICKLED = ("custom_obj_", "opaque_obj_")
_NODES = (
    ast.Expression, ast.Call, ast.Name, ast.Load, ast.keyword, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Compare,
    ast.operator, ast.unaryop, ast.cmpop, ast.Tuple,
)  # fmt: skip


def load(path: str | os.PathLike[str], options: SourceOptions) -> SourceModel:
    """Read a `.pt2` file by exporting it to ONNX; see `export` and `sources.onnx.load` for the errors."""
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder, f"{Path(path).stem}.onnx")
        framework = export(Path(path), exported, options.opset)
        return onnx_source.load_export(exported, framework, Path(path).name, options)


def export(source: Path, path: Path, opset: int | None = None) -> Framework | None:
    """Export a program.

    Args:
        source: The `.pt2` file.
        path: The `.onnx` file to write; a dynamic first axis stays free.
        opset: The operator set to write, or None for one that suits.

    Returns:
        The program, to be compared with its export; None where its inputs are not plain tensors.

    Raises:
        ConversionError: torch is not installed, the file is not an exported program, holds pickled objects or code, or
            cannot be exported.
    """
    _check(source)
    try:
        import onnxscript  # noqa: F401  torch.onnx needs it and says so late
        import torch
    except ImportError as error:
        raise ConversionError(
            f"Reading .pt2 needs {error.name}, which is not installed",
            hint='pip install "edge-infer-converters[torch]"',
        ) from error
    try:
        with quiet(), _without_pickle(torch):
            program = torch.export.load(str(source))
    except Exception as error:  # torch raises what its parts raise
        raise ConversionError(
            f"torch cannot open `{source}`: {first_line(error)}",
            hint="save it again: torch.export.save(torch.export.export(model, args), path), with this version of torch",
        ) from error
    names = _output_names(program)
    try:
        with quiet():
            torch.onnx.export(
                program,
                f=str(path),
                dynamo=True,
                opset_version=opset or OPSET,
                output_names=names,
                external_data=False,
                verbose=False,
            )
    except Exception as error:
        raise ConversionError(f"torch cannot export `{source}`: {first_line(error)}") from error
    model = onnx.load(path)
    _name_batch(model)
    path.write_bytes(model.SerializeToString())
    return _framework(torch, program, [value.name for value in model.graph.input])


def _framework(torch: Any, program: Any, names: list[str]) -> Framework | None:
    """Return the program as it runs in torch, with the example inputs that it was saved with."""
    arguments, keywords = program.example_inputs or ((), {})
    examples = [*arguments, *keywords.values()]
    if len(examples) != len(names) or not all(isinstance(one, torch.Tensor) for one in examples):
        return None
    module = program.module()

    def run(feeds: Mapping[str, Any]) -> list[Any]:
        tensors = tensors_of(feeds)
        given = [tensors[name] for name in names]
        return answer(module, *given[: len(arguments)], **dict(zip(keywords, given[len(arguments) :], strict=True)))

    return Framework("torch", run, numbers_of(dict(zip(names, examples, strict=True))))


def _check(source: Path) -> None:
    """Refuse a file that is not an exported program, or that would run code when it is opened."""
    try:
        with zipfile.ZipFile(source) as archive:
            names = archive.namelist()
            documents = {name: json.loads(archive.read(name)) for name in names if name.endswith(".json")}
    except FileNotFoundError:
        raise ConversionError(f"There is no file `{source}`", hint="torch.export.save(program, path)") from None
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError, NotImplementedError) as error:
        raise ConversionError(
            f"`{source}` is not an exported program, or is cut short: {error}", hint="torch.export.save(program, path)"
        ) from error
    programs = [name for name in documents if re.search(r"(^|/)models/[^/]+\.json$", name)]
    if len(programs) != 1:
        raise ConversionError(
            f"`{source}` holds {len(programs)} exported programs, expected one",
            hint="save one with torch.export.save of torch 2.9 or newer",
            expected=1,
            got=len(programs),
        )
    refused = [name.rpartition("/")[2] for name in names if any(word in name for word in _PICKLED)]
    for document in documents.values():
        for key, value in _members(document):
            if key == "use_pickle" and value:
                refused.append("a pickled tensor")
            elif key == "target" and isinstance(value, str) and not _TARGET.fullmatch(value):
                refused.append(value)
            elif key == "expr_str" and not _is_arithmetic(value):
                refused.append(str(value)[:60])
    if refused:
        raise ConversionError(
            f"`{source}` holds what would run code when it is opened ({', '.join(sorted(set(refused))[:3])}): refused",
            hint="build the model in Python of your own: edge-infer convert module:function",
            found=sorted(set(refused)),
        )


def _members(document: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(document, dict):
        for key, value in document.items():
            yield key, value
            yield from _members(value)
    elif isinstance(document, list):
        for value in document:
            yield from _members(value)


def _is_arithmetic(text: object) -> bool:
    """Tell whether an expression over sizes is made of numbers, symbols and sympy's classes, and of nothing else."""
    try:
        tree = ast.parse(str(text), mode="eval")
    except (SyntaxError, ValueError, RecursionError):
        return False
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            return False
        if isinstance(node, ast.Name) and not re.fullmatch(r"[A-Z][A-Za-z]*|[a-z]+\d+|oo|int_oo", node.id):
            return False
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id[0].isupper()):
            return False
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not node.value.isidentifier():
            return False
    return True


@contextlib.contextmanager
def _without_pickle(torch: Any) -> Iterator[None]:
    """Keep torch from its fallback: where the restricted reader fails, it would unpickle."""
    load = torch.load

    @functools.wraps(load)
    def restricted(*arguments: Any, **options: Any) -> Any:
        return load(*arguments, **{**options, "weights_only": True})

    torch.load = restricted
    try:
        yield
    finally:
        torch.load = load


def _output_names(program: Any) -> list[str]:
    """Call outputs as the dict that the program returns does, else `output`, `output_1` ..."""
    count = len(program.graph_signature.user_outputs)
    spec = program.call_spec.out_spec
    if spec is not None and spec.type is dict and len(spec.context) == count:
        return [str(name) for name in spec.context]
    return ["output", *(f"output_{i}" for i in range(1, count))]


def _name_batch(model: onnx.ModelProto) -> None:
    """Call the first axis `batch`, in place, where all inputs share its symbol; the exporter numbers symbols."""
    shapes = [value.type.tensor_type.shape.dim for value in model.graph.input]
    first = {dims[0].dim_param for dims in shapes if dims}
    if len(first) != 1 or "" in first:
        return
    (symbol,) = first
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == symbol:
                dim.dim_param = "batch"
