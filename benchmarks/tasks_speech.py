"""The bundle of Silero's voice detector that `tasks.py` and `tasks_page.py` measure, with the file of silero-vad."""

from __future__ import annotations

from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import edge_infer
from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import State, Variant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def write_bundle(
    folder: Path,
    model: bytes,
    task: str,
    pipeline: Mapping[str, Any],
    files: Mapping[str, bytes],
    state: Sequence[State] = (),
) -> Path:
    """Write a bundle with a pipeline around a model."""
    held = {"onnx/model.onnx": model, **files}
    (folder / "onnx").mkdir(parents=True)
    for path, data in held.items():
        (folder / path).write_bytes(data)
    with edge_infer.load(folder / "onnx/model.onnx") as session:
        inputs, outputs = session.inputs, session.outputs
    entries = [FileEntry(path, len(data), sha256(data).hexdigest()) for path, data in held.items()]
    variant = Variant("onnx/fp32", "onnx", "fp32", "onnx/model.onnx", state=state)
    manifest = Manifest(folder.stem, "1", inputs, outputs, [variant], entries, task=task, pipeline=pipeline)
    (folder / "manifest.json").write_bytes(manifest.to_bytes())
    return folder


def silero_bundle(folder: Path) -> Path:
    """Write the bundle.

    Raises:
        ImportError: The package silero-vad is not there; it is not imported, since it needs torch.
    """
    spec = find_spec("silero_vad")
    if spec is None or spec.origin is None:
        raise ImportError("silero-vad is not in .bench/tasks")
    model = (Path(spec.origin).parent / "data/silero_vad.onnx").read_bytes()
    steps = {
        "version": 1,
        "inputs": {
            "input": [{"step": "audio.decode"}, {"step": "audio.frame", "samples": 512, "context": 64}],
            "sr": [{"step": "tensor.constant", "values": [16000]}],
        },
        "outputs": [{"step": "post.speech_segments", "tensor": "output"}],
    }
    return write_bundle(folder, model, "voice-activity-detection", steps, {}, [State("stateN", "state")])
