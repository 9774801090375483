"""First installs of encrypted weights against the same in clear: bytes and CPU time, all checks and the trial too."""

from __future__ import annotations

import hashlib
import time
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from edge_infer.bundle.keys import write_key
from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import Variant
from edge_infer.runtime.loader import trial
from edge_infer.runtime.options import LoadOptions
from edge_infer.sync.client import Pulled, pull
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.publish import publish
from edge_infer.sync.repository import Repository
from edge_infer.tensors.tensor import TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

_WIDTH = 1024  # a layer of 4 MiB in fp32


class Install(NamedTuple):
    """What a first install took, encrypted and in clear."""

    bytes_sealed: int
    bytes_clear: int
    cpu_s: list[float]
    cpu_clear_s: list[float]

    @property
    def ratios(self) -> list[float]:
        """The CPU time of each round, encrypted by clear."""
        return [one / other for one, other in zip(self.cpu_s, self.cpu_clear_s, strict=True)]

    @property
    def ratio(self) -> float:
        """The median of the rounds."""
        return median(self.ratios)


def write_network(folder: Path, megabytes: int, version: int) -> Path:
    """Write a bundle of linear layers, of normal weights; each version moves the last layer."""
    layers = max(1, megabytes // 4)
    random = np.random.default_rng(0)
    nodes, initializers = [], []
    for number in range(layers):
        matrix = (random.normal(size=(_WIDTH, _WIDTH)) / np.sqrt(_WIDTH)).astype(np.float32)
        if number == layers - 1:
            matrix += np.float32(1e-5 * version)
        initializers.append(numpy_helper.from_array(matrix, f"w{number}"))
        nodes.append(helper.make_node("MatMul", [f"x{number}", f"w{number}"], [f"x{number + 1}"]))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", _WIDTH]) for name in ("x0", f"x{layers}")]
    graph = helper.make_graph(nodes, "layers", ends[:1], ends[1:], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    data = model.SerializeToString()
    (folder / "onnx").mkdir(parents=True)
    (folder / "onnx/model.onnx").write_bytes(data)
    entry = FileEntry("onnx/model.onnx", len(data), hashlib.sha256(data).hexdigest())
    inputs, outputs = ([TensorSpec(name, "float32", ("n", _WIDTH))] for name in ("x0", f"x{layers}"))
    variants = [Variant("onnx/fp32", "onnx", "fp32", entry.path)]
    manifest = Manifest("layers", str(version), inputs, outputs, variants, [entry])
    (folder / "manifest.json").write_bytes(manifest.to_bytes())
    return folder


def measure(folder: Path, megabytes: int, rounds: int) -> tuple[Install, dict[str, Pulled]]:
    """Install a network from both stores in turn, then a second version by delta; return the cost and all pulls."""
    folder.mkdir()
    key = folder / "key"
    write_key(key)
    kinds: dict[str, Path | None] = {"clear": None, "sealed": key}
    stores = {kind: Repository(folder / kind) for kind in kinds}
    first = write_network(folder / "1", megabytes, 1)
    for kind, given in kinds.items():
        stores[kind].create(folder / f"keys-{kind}")
        publish(first, stores[kind], folder / f"keys-{kind}", encrypt_to=given)
    seconds: dict[str, list[float]] = {kind: [] for kind in kinds}
    pulls: dict[str, Pulled] = {}
    for number in range(rounds + 1):  # the first warms up
        for kind, given in kinds.items():
            check = partial(trial, asked=LoadOptions(key=given))
            device = DeviceStore(folder / f"device-{kind}-{number}")
            start = time.process_time()
            pulls[kind] = pull(str(folder / kind), "layers", device, check, key=given)
            if number:
                seconds[kind].append(time.process_time() - start)
    second = write_network(folder / "2", megabytes, 2)
    for kind, given in kinds.items():
        publish(second, stores[kind], folder / f"keys-{kind}", encrypt_to=given)
        check = partial(trial, asked=LoadOptions(key=given))
        device = DeviceStore(folder / f"device-{kind}-{rounds}")
        pulls[f"{kind} delta"] = pull(str(folder / kind), "layers", device, check, key=given)
    install = Install(pulls["sealed"].bytes_moved, pulls["clear"].bytes_moved, seconds["sealed"], seconds["clear"])
    return install, pulls
