"""Pairs of an old and a new version of models, changed as models are changed in earnest."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import onnx
from sync_tensors import half, int8, read, safetensors, scales

from edge_infer.formats.spans import Span, find_spans

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sync_tensors import Tensors

DIGITS = Path(__file__).parents[1] / "examples/digits"
MODEL = "model.onnx"
TENSORS = "model.safetensors"
#: Scales that moved less count as a small drift, which has the sharper target.
SMALL_DRIFT = 0.01


class Pair(NamedTuple):
    """Two versions of one file.

    Attributes:
        name: What was changed.
        path: The file's path in its bundle.
        new: Its new bytes.
        old: Its old bytes.
        target: The most bytes that the update may move; None where none is set.
    """

    name: str
    path: str
    new: bytes
    old: bytes
    target: float | None = None


def float_spans(data: bytes) -> list[Span]:
    return [span for span in find_spans(MODEL, {MODEL: data}) if span.is_float]


def values_of(data: bytes, span: Span) -> np.ndarray:
    return np.frombuffer(data, "<f4", span.length // 4, span.offset)


def drifted(data: bytes, step: float, *, last_only: bool = False) -> bytes:
    """Move the float32 weights of a model by a relative step of this size."""
    random = np.random.default_rng(1)
    spans = float_spans(data)
    moved = {
        span.name: (values_of(data, span) * (1 + step * random.normal(size=span.length // 4))).astype("<f4")
        for span in (spans[-2:] if last_only else spans)
    }
    return with_weights(data, moved)


def with_weights(data: bytes, weights: dict[str, np.ndarray]) -> bytes:
    """Put other values into a model's tensors, by name; every other byte stays."""
    result = bytearray(data)
    for span in float_spans(data):
        if span.name in weights:
            result[span.offset : span.offset + span.length] = weights[span.name].astype("<f4").tobytes()
    return bytes(result)


def fine_tuned(data: bytes, *, steps: int = 20, rate: float = 1e-4, last_only: bool = False) -> bytes:
    """Train on: AdamW without decay, batches of 64 labelled drawings, as many steps. Needs torch."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers: dict[int, nn.Module] = {0: nn.Conv2d(1, 16, 3, padding=1), 2: nn.Conv2d(16, 32, 3, padding=1)}
    layers |= {5: nn.Conv2d(32, 48, 3, padding=1)}
    features = nn.Sequential(
        layers[0], nn.ReLU(), layers[2], nn.ReLU(), nn.MaxPool2d(2), layers[5], nn.ReLU(), nn.MaxPool2d(2)
    )
    classifier = nn.Sequential(nn.Flatten(), nn.Linear(192, 64), nn.ReLU(), nn.Linear(64, 10))
    net = nn.ModuleDict({"features": features, "classifier": classifier})
    parameters = dict(net.named_parameters())
    initial = {init.name: onnx.numpy_helper.to_array(init) for init in onnx.load_from_string(data).graph.initializer}
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(torch.from_numpy(initial[name].copy()))
    trained = [one for name, one in parameters.items() if not last_only or name.startswith("classifier.3")]
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=0.0)
    held = np.load(DIGITS / "eval.npz")
    images, labels = torch.from_numpy(held["image"]), torch.from_numpy(held["labels"].astype(np.int64))
    order = torch.randperm(len(images))
    for step in range(steps):
        batch = order[(step * 64) % 640 :][:64]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(classifier(features(images[batch])), labels[batch])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return with_weights(data, {name: one.detach().numpy() for name, one in parameters.items()})


def as_half(data: bytes) -> bytes:
    """Write the weights of a model as fp16."""
    return safetensors(half({span.name: values_of(data, span) for span in float_spans(data)}))


def as_int8(data: bytes, scales_of: bytes | None = None, *, factor: float = 1.0) -> bytes:
    """Write the weights of a model as int8 with a scale for each tensor.

    Args:
        data: The model.
        scales_of: The model whose scales are used: the old one for frozen scales; its own unless given.
        factor: What the scales are multiplied by, as other calibration data would move them.
    """
    old = {span.name: values_of(scales_of or data, span) for span in float_spans(scales_of or data)}
    by = {name: np.float32(np.abs(values).max() / 127) for name, values in old.items()}
    return safetensors(int8({span.name: values_of(data, span) for span in float_spans(data)}, by, factor))


def quantized(data: bytes) -> bytes:
    """Quantize a model as `edge-infer convert --precision int8` does it."""
    from edge_infer_converters import convert

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "source.onnx"), Path(folder, "target.bundle")
        source.write_bytes(data)
        convert(source, target, format="onnx", precision="int8", calibration=DIGITS / "calibration.npz", keep_all=True)
        return next((target / "onnx").glob("*int8*.onnx")).read_bytes()


def reordered(data: bytes) -> bytes:
    """Write the same model with its tensors in the opposite order."""
    model = onnx.load_from_string(data)
    tensors = list(model.graph.initializer)[::-1]
    del model.graph.initializer[:]
    model.graph.initializer.extend(tensors)
    return bytes(model.SerializeToString())


def other_opset(data: bytes) -> bytes:
    """Write the same model as one of the next operator set."""
    model = onnx.load_from_string(data)
    model.opset_import[0].version += 1
    return bytes(model.SerializeToString())


def large(megabytes: int, seed: int, step: float = 0.0) -> bytes:
    """Make a file of one large float32 tensor, its values moved by a relative step."""
    values = np.random.default_rng(seed).normal(size=megabytes * 250_000).astype("<f4")
    if step:
        values = (values * (1 + step * np.random.default_rng(seed + 1).normal(size=values.shape))).astype("<f4")
    return safetensors({"w": values})


def as_codes(data: bytes) -> bytes:
    """Write the one tensor of `large` as int8."""
    (span,) = find_spans(TENSORS, {TENSORS: data})
    return safetensors({"w": np.clip(np.rint(values_of(data, span) * 30), -127, 127).astype(np.int8)})


GROUPS = ("digits", "cnn", "mobilenet", "minilm", "large")


def pairs(group: str, folder: Path) -> Iterator[Pair]:
    """Make the pairs of one group, with their targets.

    Args:
        group: One of `GROUPS`: the digits model changed in every way, three fine-tuned networks, large tensors.
        folder: Where files may be put.
    """
    if group == "digits":
        yield from _digits()
    elif group == "large":
        yield Pair("64 MB moved by 1e-05, fp32", TENSORS, large(64, 0, 1e-5), large(64, 0))
        old, new = (as_codes(large(64, 0, step)) for step in (0.0, 1e-3))
        yield Pair("16 MB moved by 1e-03, int8", TENSORS, new, old)
    else:
        yield from _tuned(group, folder)


def _tuned(group: str, folder: Path) -> Iterator[Pair]:
    """Fine-tune a network by `sync_finetune.py`, in the environment that it needs; nothing where that is missing."""
    python = Path(__file__).parents[1] / ".bench/minilm/bin/python" if group == "minilm" else Path(sys.executable)
    script = str(Path(__file__).with_name("sync_finetune.py"))
    done = python.exists() and subprocess.run([str(python), script, group, str(folder)], capture_output=True, text=True)
    if not done or done.returncode:
        why = done.stderr.strip().splitlines()[-1] if done else f"{python} is missing"
        print(f"without {group}: {why}; see sync_finetune.py", file=sys.stderr)
        return
    old, new = (read((folder / f"{word}.safetensors").read_bytes()) for word in ("old", "new"))
    bounds = {"fp32": 0.45, "fp16": 0.32, "small": 0.14, "rescaled": 0.2} if group != "mobilenet" else {}

    def pair(word: str, bound: str, after: Tensors, before: Tensors) -> Pair:
        data = safetensors(after)
        target = bounds[bound] * len(data) if bounds else None
        return Pair(f"{group} tuned, {word}", TENSORS, data, safetensors(before), target)

    yield pair("fp32", "fp32", new, old)
    yield pair("fp16", "fp16", half(new), half(old))
    for per_channel in (False, True):
        frozen, own = (scales(one, per_channel=per_channel) for one in (old, new))
        drift = max(float(np.abs(own[name] / frozen[name] - 1).max()) for name in own)
        word, before = f"int8 by {'channel' if per_channel else 'tensor'}", int8(old, frozen)
        yield pair(f"{word}, frozen scales", "small", int8(new, frozen), before)
        small = "small" if drift < SMALL_DRIFT else "rescaled"
        yield pair(f"{word}, own scales (drift {drift:.1%})", small, int8(new, own), before)
        for factor in (1.05, 1.2):
            yield pair(f"{word}, scales x {factor}", "rescaled", int8(new, frozen, factor), before)


def _digits() -> Iterator[Pair]:
    first = (DIGITS / "digits.onnx").read_bytes()
    small = 8000.0
    yield Pair("metadata only", MODEL, first + b"\x1a\x04note", first, small)  # ModelProto.domain
    yield Pair("tensors in another order", MODEL, reordered(first), first, small)
    yield Pair("another opset", MODEL, other_opset(first), first, small)
    for step in (1e-5, 1e-4, 1e-3):
        yield Pair(f"all moved by {step:g}, fp32", MODEL, drifted(first, step), first)
    try:
        last, full = fine_tuned(first, last_only=True), fine_tuned(first)
    except ImportError:
        print("without digits tuned: torch is not installed", file=sys.stderr)
        return
    spans = float_spans(first)
    changed = sum(span.length for span in spans if values_of(first, span).tobytes() != values_of(last, span).tobytes())
    before, codes = as_half(first), as_int8(first)
    yield Pair("digits last layer tuned, fp32", MODEL, last, first, 0.6 * changed + 5000)
    yield Pair("digits tuned, fp32", MODEL, full, first, 0.45 * len(first))
    yield Pair("digits tuned, fp16", TENSORS, as_half(full), before, 0.32 * len(before))
    yield Pair("digits tuned, int8, frozen scales", TENSORS, as_int8(full, first), codes, 0.14 * len(codes))
    yield Pair("digits tuned, int8, own scales", TENSORS, as_int8(full), codes, 0.14 * len(codes))
    for factor in (1.05, 1.2):
        moved = as_int8(full, first, factor=factor)
        yield Pair(f"digits tuned, int8, scales x {factor}", TENSORS, moved, codes, 0.2 * len(codes))
    old, new = quantized(first), quantized(full)
    yield Pair("digits tuned, int8 by convert", MODEL, new, old, 0.2 * len(old))
