"""Tiny bundles for the server's tests: a model of one node, as a folder, a zip or a bare file."""

from __future__ import annotations

import hashlib
import zipfile
from typing import TYPE_CHECKING

from onnx import TensorProto, helper

from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import Variant
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from edge_infer.tensors.tensor import Dim

_ONNX_TYPES = {
    DType.FLOAT32: TensorProto.FLOAT,
    DType.FLOAT64: TensorProto.DOUBLE,
    DType.FLOAT16: TensorProto.FLOAT16,
    DType.BFLOAT16: TensorProto.BFLOAT16,
    DType.INT8: TensorProto.INT8,
    DType.UINT8: TensorProto.UINT8,
    DType.INT16: TensorProto.INT16,
    DType.UINT16: TensorProto.UINT16,
    DType.INT32: TensorProto.INT32,
    DType.UINT32: TensorProto.UINT32,
    DType.INT64: TensorProto.INT64,
    DType.UINT64: TensorProto.UINT64,
    DType.BOOL: TensorProto.BOOL,
    DType.STRING: TensorProto.STRING,
}


def onnx_model(op: str = "Identity", dtype: DType = DType.FLOAT32, shape: Sequence[Dim] = ("batch", 3)) -> bytes:
    """A model of one node: `x` -> op -> `y`."""
    value = _ONNX_TYPES[dtype]
    graph = helper.make_graph(
        [helper.make_node(op, ["x"], ["y"])],
        "tiny",
        [helper.make_tensor_value_info("x", value, list(shape))],
        [helper.make_tensor_value_info("y", value, list(shape))],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 10
    data: bytes = model.SerializeToString()
    return data


def bundle_files(
    name: str = "tiny",
    model: bytes | None = None,
    *,
    dtype: DType = DType.FLOAT32,
    shape: Sequence[Dim] = ("batch", 3),
    more: Mapping[str, bytes] | None = None,
) -> dict[str, bytes]:
    """The files of a bundle, `manifest.json` among them."""
    files = {"onnx/model.onnx": model if model is not None else onnx_model(dtype=dtype, shape=shape), **(more or {})}
    manifest = Manifest(
        name,
        "1",
        [TensorSpec("x", dtype, shape)],
        [TensorSpec("y", dtype, shape)],
        [Variant("onnx/fp32", "onnx", "fp32", "onnx/model.onnx")],
        [FileEntry(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in files.items()],
    )
    return {"manifest.json": manifest.to_bytes(), **files}


def write_bundle(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write a bundle as a folder, or over one; its manifest is the last, by which a server sees that it changed."""
    for path, data in sorted(files.items(), key=lambda file: file[0] == "manifest.json"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


def zip_bundle(path: Path, files: Mapping[str, bytes]) -> Path:
    """Write a bundle as a zip."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path
