"""A store with versions of a small model, and the pull of one."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from onnx import helper, numpy_helper

from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import Variant
from edge_infer.formats.safetensors import write_examples
from edge_infer.runtime.loader import trial
from edge_infer.sync.client import Pulled, pull
from edge_infer.sync.publish import Published, publish
from edge_infer.sync.repository import Repository
from edge_infer.tensors.tensor import Tensor, TensorSpec
from tests.support import zoo

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from edge_infer.sync.device import DeviceStore


SIZE = 96


def weights(version: int, size: int = SIZE) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The weights of a version: those of the one before, each moved a little."""
    result = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32)
    for step in range(1, version):
        result = (result * (1 + np.random.default_rng(step).normal(size=(size, size)) * 1e-5)).astype(np.float32)
    return result


def write_version(folder: Path, version: int, *, wrong: bool = False, size: int = SIZE) -> Path:
    """Write a bundle with one linear layer; a wrong one has golden outputs that the weights do not give."""
    matrix = weights(version, size)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = ([zoo.value("x", ["n", size])], [zoo.value("y", ["n", size])], [numpy_helper.from_array(matrix, "w")])
    made = helper.make_graph([node], "linear", *graph)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", zoo.OPSET)], ir_version=10)
    x = np.random.default_rng(9).normal(size=(1, size)).astype(np.float32)
    y = x @ matrix + (10 if wrong else 0)
    files = {
        "onnx/model.onnx": model.SerializeToString(),
        "examples/golden.bin": write_examples(
            [({"x": Tensor(x.tobytes(), "float32", x.shape)}, {"y": Tensor(y.tobytes(), "float32", y.shape)})]
        ),
    }
    entries = []
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
        entries.append(FileEntry(path, len(data), hashlib.sha256(data).hexdigest()))
    inputs, outputs = ([TensorSpec(name, "float32", ("n", size))] for name in ("x", "y"))
    variants = [Variant("onnx/fp32", "onnx", "fp32", "onnx/model.onnx")]
    manifest = Manifest("linear", str(version), inputs, outputs, variants, entries, examples="examples/golden.bin")
    (folder / "manifest.json").write_bytes(manifest.to_bytes())
    return folder


class Publisher(NamedTuple):
    """A store and its keys."""

    folder: Path
    keys: Path
    bundles: Path

    def publish(
        self,
        version: int,
        *,
        wrong: bool = False,
        size: int = SIZE,
        encrypt_to: Path | None = None,
        in_clear: bool = False,
    ) -> Published:
        bundle = write_version(self.bundles / str(version), version, wrong=wrong, size=size)
        return publish(bundle, Repository(self.folder), self.keys, encrypt_to=encrypt_to, in_clear=in_clear)


def take(
    store: Path | str, device: DeviceStore, check: Callable[[Path], None] = trial, *, retry: bool = False
) -> Pulled:
    """Pull the model `linear`."""
    return pull(str(store), "linear", device, check, retry=retry)
