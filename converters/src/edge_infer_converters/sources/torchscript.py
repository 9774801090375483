"""Read a `.pt` file of `torch.jit.save`, a TorchScript program, by torch.onnx's older exporter.

A `.pt` file may be three things. A TorchScript program has its own code, which torch's interpreter runs: it is
exported, and judged by its own outputs. Weights alone (a state dict) and a pickled module need Python code that is not
in the file: they are told apart by the names in the pickle, which is never opened, and refused with what to write.
"""

from __future__ import annotations

import pickletools
import tempfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.errors import ConversionError, InputError, listed
from edge_infer_converters.sources import onnx as onnx_source
from edge_infer_converters.sources import onnx_file
from edge_infer_converters.sources.framework import Framework
from edge_infer_converters.sources.torch import OPSET, answer, first_line, numbers_of, output_names, quiet, tensors_of

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from edge_infer_converters.sources.onnx import SourceModel
    from edge_infer_converters.sources.options import Shape, SourceOptions

_SAVE = "torch.jit.save(torch.jit.script(model), path)"
#: What a free dimension has in the example inputs.
_EXAMPLE_SIZE = 2
#: The newest operator set that the older exporter writes.
_NEWEST_OPSET = 20
#: The names in the pickle of weights alone, by their first parts.
_OF_WEIGHTS = ("collections OrderedDict", "torch._utils _rebuild_tensor", "torch._utils _rebuild_parameter", "torch ")


def load(path: str | os.PathLike[str], options: SourceOptions) -> SourceModel:
    """Read a `.pt` file by exporting it to ONNX.

    Args:
        path: The file.
        options: The shapes of its inputs, which the file does not have; None leaves a dimension free.

    Raises:
        ConversionError: The file is missing, holds only weights or a pickled module, or cannot be opened, run or
            exported by torch; or its export gives other numbers.
        InputError: The shape of an input is missing, or of none of its inputs.
    """
    place = Path(path)
    _check(place)
    try:
        import torch
    except ImportError as error:
        raise ConversionError(
            f"Reading .pt needs {error.name}, which is not installed",
            hint='pip install "edge-infer-converters[torch]"',
        ) from error
    try:
        with quiet():
            module = torch.jit.load(str(place), map_location="cpu").eval()  # type: ignore[no-untyped-call]  # torch's own
    except Exception as error:  # torch raises what its parts raise
        raise ConversionError(
            f"torch cannot open `{place.name}`: {first_line(error)}",
            hint="save it again: torch.jit.save(program, path)",
        ) from error
    names = [argument.name for argument in module.forward.schema.arguments[1:]]
    shapes = _shapes(names, options.shapes, place.name)
    examples = _examples(torch, module, shapes, place.name)
    with torch.no_grad():
        outputs = output_names(module(*examples.values()))
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder, f"{place.stem}.onnx")
        free = {name: _free(shape) for name, shape in shapes.items() if _free(shape)}
        try:
            with quiet():
                torch.onnx.export(
                    module,
                    tuple(examples.values()),
                    str(exported),
                    dynamo=False,
                    input_names=names,
                    output_names=outputs,
                    dynamic_axes={**free, **({name: {0: "batch"} for name in outputs} if free else {})},
                    opset_version=min(options.opset or OPSET, _NEWEST_OPSET),
                )
        except Exception as error:  # the exporter raises what its parts raise
            raise ConversionError(f"torch cannot export `{place.name}`: {first_line(error)}") from error

        def run(feeds: Mapping[str, Any]) -> list[Any]:
            tensors = tensors_of(feeds)
            return answer(module, *(tensors[name] for name in names))

        sizes = {name: list(axes) for name, axes in free.items()}
        framework = Framework("torch", run, numbers_of(examples), {**dict.fromkeys(names, ()), **sizes})
        return onnx_source.load_export(exported, framework, place.name, options)


def _check(place: Path) -> None:
    """Refuse a file that is not a TorchScript program, and say what it is."""
    try:
        with zipfile.ZipFile(place) as archive:
            names = archive.namelist()
            if any("/code/" in name for name in names):
                return
            pickles = [name for name in names if name.endswith("data.pkl")]
            found = _classes(archive.read(pickles[0])) if pickles else []
    except FileNotFoundError:
        raise onnx_file.missing(place) from None
    # zipfile raises the last two for an encrypted archive and for a compression that it does not know.
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError, NotImplementedError) as error:
        raise ConversionError(
            f"`{place.name}` is not a file of PyTorch, or is cut short: {error}",
            hint=f"{_SAVE}, or edge-infer convert module:function",
        ) from error
    module = place.stem.replace("-", "_").replace(".", "_") or "model"
    foreign = [one for one in found if not one.startswith(_OF_WEIGHTS)]
    if not foreign:
        raise ConversionError(
            f"`{place.name}` holds weights without a model (a state dict): its code is in the Python that made it",
            hint=f"edge-infer convert {module}:net -o ..., with `def net(): model = Net(); model.load_state_dict("
            f"torch.load('{place.name}', weights_only=True)); return model, (example,)` in {module}.py",
        )
    raise ConversionError(
        f"`{place.name}` is a pickled module (`{foreign[0].replace(' ', '.')}`), which would run code when it is "
        "opened: it is not opened",
        hint=f"edge-infer convert {module}:net -o ..., with `net` in {module}.py that returns model, (example,)",
    )


def _classes(data: bytes) -> list[str]:
    """Name what a pickle would import, without opening it."""
    found: list[str] = []
    texts: list[str] = []
    for code, argument, _ in pickletools.genops(data):
        if code.name == "GLOBAL":
            found.append(str(argument))
        elif code.name == "STACK_GLOBAL":
            found.append(" ".join(texts[-2:]))
        elif isinstance(argument, str):
            texts.append(argument)
    return found


def _shapes(names: list[str], given: Mapping[str, Shape], file: str) -> dict[str, Shape]:
    unknown = [name for name in given if name not in names]
    missing = [name for name in names if name not in given]
    if unknown or missing:
        what = f"has no input {listed(unknown)}" if unknown else f"does not say the shape of {listed(missing)}"
        raise InputError(
            f"`{file}` {what}; its inputs are {listed(names)}",
            hint=" ".join(f"--shape {name}=?x3x224x224" for name in missing or names) + "; ? leaves a dimension free",
        )
    return {name: given[name] for name in names}


def _examples(torch: Any, module: Any, shapes: Mapping[str, Shape], file: str) -> dict[str, Any]:
    """Return inputs on which the program runs: of floats, or else of integers."""
    sizes = {name: [_EXAMPLE_SIZE if dim is None else dim for dim in shape] for name, shape in shapes.items()}
    random = torch.Generator().manual_seed(0)
    floats = {name: torch.randn(size, generator=random) for name, size in sizes.items()}
    integers = {name: torch.ones(size, dtype=torch.int64) for name, size in sizes.items()}
    said = ""
    for examples in (floats, integers):
        try:
            with torch.no_grad():
                module(*examples.values())
        except Exception as error:  # the program raises what it likes
            said = said or str(error).strip().rpartition("\n")[2]
        else:
            return examples
    raise ConversionError(
        f"`{file}` does not run on inputs of these shapes: {said}", hint="check the sizes that --shape gives"
    )


def _free(shape: Shape) -> dict[int, str]:
    """Return the free axes of a shape, with the symbols that they get."""
    return {axis: "batch" if axis == 0 else f"size_{axis}" for axis, dim in enumerate(shape) if dim is None}
