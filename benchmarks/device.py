"""What a device feels: time to the first result, memory, size, latency, and the least memory that it runs in.

Against raw onnxruntime, ai-edge-litert, tflite-runtime, tract and OpenVINO, each in its own process or environment, in
turn. Start-ups are whole processes; the ratio is taken of each round. The models have random weights: DS-CNN (keyword
spotting, 24 k weights) and an MLP of 64-32-10.

    python -m benchmarks.device [--quick] [--json]

Peers that are not installed are left out: `tract` and `openvino` live in `.bench/NAME`, tflite-runtime in
`.venv-tflite` (`tests/setup.sh`).
"""

from __future__ import annotations

import argparse
import compileall
import json
import math
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from table import publish

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]
MEMORY_GROUP = Path("/sys/fs/cgroup/memory")
SHAPES = {"dscnn": (1, 1, 49, 10), "mlp": (1, 64)}

OURS = """
import edge_infer
session = edge_infer.load({model!r}, arrays="tensor", threads=1)
session.run({{{name!r}: bytes({size})}})
"""
RAW = """
import numpy, onnxruntime
options = onnxruntime.SessionOptions(); options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession({model!r}, options, providers=["CPUExecutionProvider"])
session.run(None, {{{name!r}: numpy.zeros({shape}, "f")}})
"""
TFLITE = """
import numpy
from {module}.interpreter import Interpreter
runner = Interpreter(model_path={tflite!r}, num_threads=1)
runner.allocate_tensors()
detail = runner.get_input_details()[0]
runner.resize_tensor_input(detail["index"], {shape}); runner.allocate_tensors()
runner.set_tensor(detail["index"], numpy.zeros({shape}, "f"))
runner.invoke()
runner.get_tensor(runner.get_output_details()[0]["index"])
"""
TRACT = """
import numpy, tract
model = tract.onnx().load({model!r})
model.set_input_fact(0, "{fact}")
model.into_model().into_runnable().run([numpy.zeros({shape}, "f")])
"""
OPENVINO = """
import numpy, openvino
model = openvino.Core().compile_model({model!r}, "CPU", {{"INFERENCE_NUM_THREADS": "1"}})
model(numpy.zeros({shape}, "f"))
"""
# All resident pages, and those that are the process' own: the others are the library's, as the page cache holds them.
RSS = "\nprint([line.split()[1] for line in open('/proc/self/status') if line.startswith(('VmRSS', 'RssAnon'))])"


class Side:
    """A contender: the interpreter and the code of a process that runs the model once."""

    def __init__(self, name: str, python: Path, code: str, path: str = "", flags: tuple[str, ...] = ()) -> None:
        self.name = name
        self.command = [str(python), *flags]
        self.code = code
        # As installed packages are: with their compiled bytecode, whatever this shell says.
        hidden = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
        self.environment = {key: value for key, value in os.environ.items() if key not in hidden}
        if path:
            self.environment["PYTHONPATH"] = path

    def run(self, more: str = "") -> str:
        """Run the process and return what it prints."""
        run = subprocess.run(
            [*self.command, "-c", self.code + more], env=self.environment, capture_output=True, text=True, check=False
        )
        if run.returncode:
            raise RuntimeError(f"{self.name}: {run.stderr[-400:]}")
        return run.stdout

    def start_ms(self) -> tuple[float, float]:
        """Return wall and CPU time of the process in ms."""
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        self.run()
        wall = time.perf_counter() - start
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return wall * 1000, (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def models(folder: Path) -> dict[str, Path]:
    """Write the models: DS-CNN as fp32 and int8 ONNX and as fp32 TFLite, the MLP as ONNX."""
    import numpy as np
    import onnx

    from benchmarks.convert_models import keyword_spotter
    from edge_infer_converters.writers.tflite import write
    from tests.support import zoo

    made = {"dscnn": folder / "dscnn.onnx", "mlp": folder / "mlp.onnx", "tflite": folder / "dscnn.tflite"}
    made["dscnn"].write_bytes(keyword_spotter())
    made["mlp"].write_bytes(zoo.mlp())
    made["tflite"].write_bytes(write(onnx.load(made["dscnn"])).data)
    (name,) = [value.name for value in onnx.load(made["dscnn"]).graph.input]
    rng = np.random.default_rng(0)
    np.savez(folder / "samples.npz", **{name: rng.normal(size=(64, *SHAPES["dscnn"][1:])).astype(np.float32)})
    command = [sys.executable, "-m", "edge_infer", "convert", str(made["dscnn"]), "-o", str(folder / "dscnn.bundle")]
    command += ["--precision", "int8", "--keep-all", "--calibration", str(folder / "samples.npz")]
    subprocess.run(command, check=True, capture_output=True)
    made["bundle"] = folder / "dscnn.bundle"
    made["int8"] = next((folder / "dscnn.bundle/onnx").glob("*int8*.onnx"))
    return made


def sides(made: dict[str, Path], installed: Path) -> list[Side]:
    """Return ours and the peers that are here."""
    import onnx

    shape = SHAPES["dscnn"]
    (name,) = [value.name for value in onnx.load(made["dscnn"]).graph.input]
    words = {"model": str(made["dscnn"]), "tflite": str(made["tflite"]), "shape": shape, "name": name, "size": 4 * 490}
    words["fact"] = ",".join(map(str, shape)) + ",f32"
    python = Path(sys.executable)
    found = [
        Side("ours", python, OURS.format(**words), str(installed)),
        Side("onnxruntime", python, RAW.format(**words)),
        Side("ai-edge-litert", python, TFLITE.format(module="ai_edge_litert", **words)),
        Side("tflite-runtime", ROOT / ".venv-tflite/bin/python", TFLITE.format(module="tflite_runtime", **words)),
        Side("tract", ROOT / ".bench/tract/bin/python", TRACT.format(**words)),
        Side("OpenVINO", ROOT / ".bench/openvino/bin/python", OPENVINO.format(**words)),
    ]
    usable = []
    for side in found:
        try:
            side.run()
        except (OSError, RuntimeError) as error:
            print(f"left out: {error}", file=sys.stderr)
        else:
            usable.append(side)
    return usable


def row(
    name: str, metric: str, ours: float, peer: str, theirs: float, target: float | None, spread: str
) -> dict[str, Any]:
    ratio = ours / theirs if theirs else 0.0
    return {
        "name": name,
        "metric": metric,
        "ours": round(ours, 2),
        "peer_name": peer,
        "peer": round(theirs, 2),
        "ratio": round(ratio, 3),
        "target": target,
        "met": None if target is None else ratio <= target,
        "spread": spread,
    }


def start_rows(contenders: list[Side], rounds: int) -> list[dict[str, Any]]:
    """Measure processes from nothing to the first result, and the memory they then hold."""
    times: dict[str, list[tuple[float, float]]] = {side.name: [] for side in contenders}
    for _ in range(rounds):
        for side in contenders:
            times[side.name].append(side.start_ms())
    memory = {side.name: [int(kb) / 1024 for kb in json.loads(side.run(RSS).replace("'", '"'))] for side in contenders}
    rows = []
    peers = [side.name for side in contenders if side.name != "ours"]
    for index, metric in ((0, "wall ms"), (1, "CPU ms")):
        middle = {name: statistics.median(one[index] for one in runs) for name, runs in times.items()}
        best = min(peers, key=lambda name: middle[name])
        for name in peers:
            ratios = [a[index] / b[index] for a, b in zip(times["ours"], times[name], strict=True)]
            target = 0.45 if name == best else None
            text = f"{min(ratios):.2f} to {max(ratios):.2f}"
            rows.append(row("start to first result", metric, middle["ours"], name, middle[name], target, text))
    for index, what in ((0, "memory after DS-CNN"), (1, "of it the process' own")):
        best = min(peers, key=lambda name: memory[name][index])
        for name in peers:
            target = 1.0 if name == best and index == 0 else None
            rows.append(row(what, "MB", memory["ours"][index], name, memory[name][index], target, ""))
    return rows


def call_us(function: Callable[[], Any], seconds: float) -> float:
    """Return the time of a call in microseconds: of the quickest 20 in a row, which others disturb least."""
    samples = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(samples) < 5:
        start = time.perf_counter()
        for _ in range(20):
            function()
        samples.append((time.perf_counter() - start) / 20 * 1e6)
    return min(samples)


def floor(raw: Any, feeds: dict[str, Any]) -> Callable[[], Any]:
    """Return the run below which no wrapper can get: bound beforehand, no input copied, nothing checked."""
    binding = raw.io_binding()
    held = [*feeds.values(), *raw.run(None, feeds)]
    for node, buffer in zip((*raw.get_inputs(), *raw.get_outputs()), held, strict=True):
        bind = binding.bind_input if node.name in feeds else binding.bind_output
        bind(node.name, "cpu", 0, buffer.dtype.type, buffer.shape, buffer.ctypes.data)

    def run() -> list[Any]:
        raw.run_with_iobinding(binding)
        return held  # which the engine knows by address only

    return run


def latency_rows(made: dict[str, Path], rounds: int, seconds: float) -> list[dict[str, Any]]:
    """Measure prepared calls against a raw run, one thread each: by the C interface and by IO binding."""
    import edge_infer

    targets = {"dscnn": 0.9, "int8": 0.88, "int8 not precise": 0.88, "mlp": 0.75}
    options: dict[str, Any] = {"backend": "onnxruntime", "threads": 1}
    # Loaded before numpy is imported, so by the C interface.
    assert "numpy" not in sys.modules
    precision = {name: "0" if name == "int8 not precise" else "1" for name in targets}
    switch = {
        name: edge_infer.OnnxRuntimeOptions(session_settings={"session.x64quantprecision": precision[name]})
        for name in targets
    }
    files = {name: made[name.partition(" ")[0]] for name in targets}
    small = {name: edge_infer.load(files[name], options=switch[name], **options) for name in targets}
    import numpy as np
    import onnxruntime

    rows = []
    rng = np.random.default_rng(0)
    for name, target in targets.items():
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        settings.add_session_config_entry("session.x64quantprecision", precision[name])
        raw = onnxruntime.InferenceSession(str(files[name]), settings, providers=["CPUExecutionProvider"])
        shape = SHAPES["mlp" if name == "mlp" else "dscnn"]
        feeds = {raw.get_inputs()[0].name: rng.normal(size=shape).astype(np.float32)}
        bound = edge_infer.load(files[name], options=switch[name], **options)
        shapes = dict.fromkeys(feeds, shape)
        calls: dict[str, Callable[[], Any]] = {"raw": lambda raw=raw, feeds=feeds: raw.run(None, feeds)}
        for label, session in (("C interface", small[name]), ("IO binding", bound)):
            call = session.prepare(shapes)
            np.testing.assert_array_equal(call(feeds)[session.outputs[0].name], raw.run(None, feeds)[0])
            calls[label] = lambda call=call, feeds=feeds: call(feeds)
        calls["floor"] = floor(raw, feeds)
        times: dict[str, list[float]] = {label: [] for label in calls}
        for function in calls.values():
            call_us(function, seconds / 2)
        for _ in range(rounds):
            for label, function in calls.items():
                times[label].append(call_us(function, seconds))
        for label in ("C interface", "IO binding", "floor"):
            ratios = [a / b for a, b in zip(times[label], times["raw"], strict=True)]
            middle = statistics.median(ratios)
            text = f"{min(ratios):.2f} to {max(ratios):.2f}"
            ours, theirs = statistics.median(times[label]), statistics.median(times["raw"])
            what = "floor: the engine's own bound run" if label == "floor" else f"prepared, {label}"
            one = row(f"{name}: {what}", "us", ours, "onnxruntime run", theirs, target, text)
            met = None if label == "floor" else middle <= target
            rows.append(one | {"ratio": round(middle, 3), "met": met, "target": None if met is None else target})
    return rows


def size_row(made: dict[str, Path], folder: Path) -> dict[str, Any]:
    """Compare a slim folder with what an environment of tflite-runtime holds."""
    slim = folder / "slim"
    command = [sys.executable, "-m", "edge_infer", "slim", str(made["bundle"]), "--variant", "onnx/int8"]
    subprocess.run([*command, "-o", str(slim)], check=True, capture_output=True)
    ours = sum(path.stat().st_size for path in slim.rglob("*") if path.is_file()) / 1e6
    peer = ROOT / ".venv-tflite/lib"
    names = ("numpy*", "tflite_runtime*")
    parts = [path for name in names for path in peer.glob(f"python*/site-packages/{name}")]
    theirs = sum(file.stat().st_size for part in parts for file in part.rglob("*") if file.is_file()) / 1e6
    one = row("size, int8 DS-CNN", "MB", ours, "tflite-runtime + numpy", theirs, None, "")
    return one | {"target": "<= 32 MB", "met": ours <= 32}


def least_memory_rows(contenders: list[Side], folder: Path) -> list[dict[str, Any]]:
    """Find the least memory limit, of 12 to 64 MB, in which a process gives its first result."""
    group = MEMORY_GROUP / f"edge-infer-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        print(f"left out: memory limits: {error}", file=sys.stderr)
        return []
    slim = str(folder / "slim")
    inside = Side(
        "slim folder", Path(sys.executable), f"import sys; sys.path.insert(0, {slim!r})\n", flags=("-I", "-S")
    )
    size = 4 * math.prod(SHAPES["dscnn"])
    inside.code += (
        f"import edge_infer; session = edge_infer.load({slim + '/model.bundle'!r}, arrays='tensor', threads=1)\n"
    )
    inside.code += f"session.run({{session.inputs[0].name: bytes({size})}})"
    least: dict[str, int] = {}
    try:
        for side in [inside, *contenders]:
            for limit in (12, 16, 17, 18, 20, 24, 32, 48, 64):
                (group / "memory.limit_in_bytes").write_text(str(limit * 2**20))
                shell = f'echo $$ > "{group}/cgroup.procs" && exec "$@"'
                command = ["sh", "-c", shell, "sh", *side.command, "-c", side.code]
                run = subprocess.run(command, env=side.environment, capture_output=True, check=False)
                if run.returncode == 0:
                    least[side.name] = limit
                    break
    finally:
        group.rmdir()
    rows = []
    for name in ("slim folder", "ours"):
        best = min((limit, peer) for peer, limit in least.items() if peer not in ("slim folder", "ours"))
        one = row(f"least memory limit, {name}", "MB", least.get(name, 0), best[1], best[0], None, "")
        rows.append(one | {"target": "16 MB", "met": 0 < least.get(name, 0) <= 16})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="a minute at the most")
    parser.add_argument("--latency", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    rounds, seconds, starts = (15, 0.05, 7) if arguments.quick else (61, 0.1, 21)
    if arguments.latency:  # a process of its own, which has not imported numpy
        made = {name: Path(path) for name, path in json.loads(arguments.latency).items()}
        print(json.dumps(latency_rows(made, rounds, seconds)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = models(folder)
        installed = folder / "installed"
        shutil.copytree(ROOT / "edge_infer", installed / "edge_infer")
        compileall.compile_dir(installed, quiet=2)
        contenders = sides(made, installed)
        rows = start_rows(contenders, starts)
        rows.append(size_row(made, folder))
        rows += least_memory_rows(contenders, folder)
        command = [sys.executable, __file__, "--latency", json.dumps({k: str(v) for k, v in made.items()})]
        command += ["--quick"] if arguments.quick else []
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        rows += json.loads(run.stdout)
        named = ("tflite-runtime", "tract", "OpenVINO")
        versions = {side.name: _version_of(side) for side in contenders if side.name in named}
    packages = ("edge-infer", "onnxruntime", "ai-edge-litert", "numpy")
    publish(rows, packages, as_json=arguments.json, versions=versions)


def _version_of(side: Side) -> str:
    """Ask a peer's environment for its version."""
    code = f"from importlib.metadata import version; print(version({side.name.lower()!r}))"
    return subprocess.run([*side.command, "-c", code], capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    main()
