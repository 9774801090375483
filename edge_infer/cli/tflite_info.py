"""`edge-infer info` for a `.tflite` file: operators, tensors, metadata."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from edge_infer.cli import output, pipeline_info
from edge_infer.formats import tflite

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.formats.tflite import TFLiteFile, TFLiteTensor


def show(path: Path, *, as_json: bool) -> None:
    """Print it.

    Args:
        path: The file.
        as_json: Whether as one JSON object.

    Raises:
        UnsupportedModel: It is not a TFLite file, or contradicts itself.
    """
    content = path.read_bytes()
    file = tflite.read(content, path.name)
    found = described(file, len(content))
    bundle = pipeline_info.described_bundle(str(path))
    if as_json:
        said: dict[str, Any] = {"labels": [], "task": None, "pipeline": None}
        if bundle is not None:
            said = {"labels": bundle.labels(), **pipeline_info.to_json(bundle)}
        output.data_json({"name": path.stem, **found, **said})
        return
    output.data(
        f"{path.name}  {output.size(len(content))}, weights in {found['precision']}, by {found['writer'] or '-'}"
    )
    for kind, specs in (("input ", found["inputs"]), ("output", found["outputs"])):
        for spec in specs:
            scale = f", steps of {spec['scale']:.6g}, zero at {spec['zero_point']}" if spec["scale"] else ""
            output.data(f"{kind}  {spec['name']}: {spec['dtype']}[{', '.join(map(str, spec['shape']))}]{scale}")
    if bundle is not None:
        if labels := bundle.labels():
            output.data(f"labels  {len(labels)}: {', '.join(labels[:10])}")
        pipeline_info.show(bundle)
    output.data("")
    output.table(
        ["operator", "version", "count"],
        [(one["operator"], one["version"], one["count"]) for one in found["operators"]],
        right=["version", "count"],
    )
    output.data("")
    output.table(
        ["tensors", "dtype", "count", "size"],
        [(one["kind"], one["dtype"], one["count"], output.size(one["size"])) for one in found["tensors"]],
        right=["count", "size"],
    )
    output.data("")
    output.data(f"arena   {output.size(found['arena'])}, estimated for a batch of 1, without kernels' scratch memory")
    if file.subgraphs > 1:
        output.warn(f"{file.subgraphs - 1} more subgraphs, bodies of control flow, are not shown", "")


def described(file: TFLiteFile, nbytes: int) -> dict[str, Any]:
    """Describe a file for `--json`."""
    operators = Counter((one.code, one.version) for one in file.operators)
    made = {i for one in file.operators for i in one.outputs} | {*file.inputs.values()}
    classes: dict[tuple[str, str], list[int]] = {}
    for i, tensor in enumerate(file.tensors):
        kind = "state" if tensor.is_variable else "constants" if tensor.data is not None else "values"
        if kind == "values" and i not in made:
            continue
        classes.setdefault((kind, tensor.dtype), []).append(tensor.nbytes)
    return {
        "size": nbytes,
        "writer": file.description,
        "precision": precision_of(file),
        "inputs": [_spec(name, file.tensors[i]) for name, i in file.inputs.items()],
        "outputs": [_spec(name, file.tensors[i]) for name, i in file.outputs.items()],
        "operators": [
            {"operator": code, "version": version, "count": count}
            for (code, version), count in sorted(operators.items(), key=lambda one: (-one[1], one[0]))
        ],
        "tensors": [
            {"kind": kind, "dtype": dtype, "count": len(sizes), "size": sum(sizes)}
            for (kind, dtype), sizes in sorted(classes.items(), key=lambda one: (one[0][0], -sum(one[1])))
        ],
        "arena": file.arena_bytes(),
        "subgraphs": file.subgraphs,
        "metadata": {name: len(data) for name, data in file.metadata.items()},
    }


def precision_of(file: TFLiteFile) -> str:
    """Name what most bytes of the weights are stored in, as numpy spells it; `none` without weights."""
    sizes: Counter[str] = Counter()
    for tensor in file.tensors:
        if tensor.data is not None and (tensor.scales is not None or tensor.dtype.startswith(("float", "bfloat"))):
            sizes[tensor.dtype] += len(tensor.data)
    return max(sizes, key=lambda dtype: sizes[dtype]) if sizes else "none"


def _spec(name: str, tensor: TFLiteTensor) -> dict[str, Any]:
    scales = tensor.scales if tensor.scales is not None and len(tensor.scales.scales) == 1 else None
    return {
        "name": name,
        "dtype": tensor.dtype,
        "shape": [dim if dim >= 0 else "?" for dim in tensor.signature],
        "scale": scales.scales[0] if scales else None,
        "zero_point": scales.zero_points[0] if scales else None,
    }
