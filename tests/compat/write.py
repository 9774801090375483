"""Write what a version of edge-infer keeps on disk, by that version's own code: see README.md beside this file.

`python tests/compat/write.py FOLDER`, with PYTHONPATH set to the version's sources.
"""

from __future__ import annotations

import datetime
import os
import shutil
import sys
import zipfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import edge_infer
from edge_infer.sync.client import pull
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.publish import publish
from edge_infer.sync.repository import Repository
from edge_infer_converters import convert

SIZE = 24
#: Signed metadata expires after days; the tests of a year hence read it too.
SIGNED_AT = datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)


def model(step: int) -> bytes:
    """Two dense layers; each step moves their weights a little."""
    random = np.random.default_rng(0)
    weights = [random.normal(0, 0.2, (SIZE, SIZE)).astype(np.float32) for _ in range(2)]
    weights = [weight * np.float32(1 + step * 1e-5) for weight in weights]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["y"]),
    ]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", SIZE]) for name in ("x", "y")]
    kept = [numpy_helper.from_array(weight, name) for weight, name in zip(weights, ("a", "b"), strict=True)]
    graph = helper.make_graph(nodes, "dense", value[:1], value[1:], kept)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    data: bytes = made.SerializeToString()
    return data


def main(folder: Path) -> None:
    folder.mkdir(parents=True)
    samples = folder / "samples.npz"
    np.savez(samples, x=np.random.default_rng(1).normal(0, 1, (16, SIZE)).astype(np.float32))
    for step in (1, 2):
        source = folder / "dense.onnx"
        source.write_bytes(model(step))
        convert(source, folder / f"dense-{step}", name="dense", version=str(step), calibration=samples)
    source.unlink()
    samples.unlink()
    with zipfile.ZipFile(folder / "dense-1.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted((folder / "dense-1").rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder / "dense-1"))
    store = Repository(folder / "store", now=SIGNED_AT)
    store.create(folder / "keys")
    publish(folder / "dense-1", store, folder / "keys")
    pull(str(folder / "store"), "dense", DeviceStore(folder / "device"), lambda _: None)
    publish(folder / "dense-2", store, folder / "keys")
    shutil.rmtree(folder / "dense-2")  # the store has it
    os.environ["EDGE_INFER_CACHE"] = str(folder / "cache")
    edge_infer.tune(folder / "dense-1", max_time_s=0.5)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
