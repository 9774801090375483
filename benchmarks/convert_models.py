"""The models of `convert.py`: built node by node, so that nothing is downloaded and no exporter is waited for."""

from __future__ import annotations

import re
import sys
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

if TYPE_CHECKING:
    from collections.abc import Callable

sys.path.insert(0, str(Path(__file__).parents[1] / "examples/minilm"))
from minilm_graph import Graph, minilm, minilm_folder, token_input  # noqa: F401  for the benchmarks

Arrays = dict[str, np.ndarray]


def image_input(channels: int, height: int, width: int) -> Any:
    return helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", channels, height, width])


Layer = tuple[np.ndarray, np.ndarray, int, int, bool]
"""Weights, bias, stride, groups, and whether ReLU6 follows."""


def convolutions(layers: list[Layer], skips: dict[int, int], head: tuple[np.ndarray, np.ndarray], shape: Any) -> bytes:
    """Build a chain of convolutions, global pooling and a dense layer.

    Args:
        layers: The convolutions.
        skips: After which layer the input of which layer is added.
        head: The dense layer's weights [classes, features] and bias.
        shape: The image's channels, height and width.
    """
    graph, value, inputs = Graph(), "image", {}
    for i, (weight, bias, stride, groups, is_active) in enumerate(layers):
        inputs[i] = value
        pad, size = weight.shape[2] // 2, weight.shape[2]
        settings = {"strides": [stride] * 2, "group": groups, "pads": [pad] * 4, "kernel_shape": [size] * 2}
        value = graph.add("Conv", value, graph.weight(weight), graph.weight(bias), **settings)
        if is_active:
            value = graph.add("Clip", value, graph.weight(0), graph.weight(6))
        if i in skips:
            value = graph.add("Add", value, inputs[skips[i]])
    value = graph.add("Flatten", graph.add("GlobalAveragePool", value))
    value = graph.add("Gemm", value, graph.weight(head[0]), graph.weight(head[1]), transB=1)
    return graph.finish([image_input(*shape)], value, ["batch", len(head[1])])


def random_layer(rng: np.random.Generator, outs: int, ins: int, size: int, *rest: Any) -> Layer:
    """Draw a convolution as batch normalization leaves it: channels of very different scale."""
    stride, groups, is_active = rest
    fan = ins // groups * size * size
    spread = np.exp(rng.normal(0, 0.25, (outs, 1, 1, 1)))
    weight = rng.normal(0, np.sqrt(2 / fan), (outs, ins // groups, size, size)) * spread
    return weight, rng.normal(0, 0.2, outs), stride, groups, is_active


def mobilenet_plan(settings: list[tuple[int, int, int, int]], first: int, last: int) -> list[tuple[int, ...]]:
    """Lay out MobileNetV2 (Sandler et al. 2018, table 2): (outs, ins, size, stride, groups, active, skip from)."""
    plan: list[tuple[int, ...]] = []
    width = first
    for expansion, outs, count, stride in settings:
        for i in range(count):
            start, inner, step = len(plan), width * expansion, stride if i == 0 else 1
            if expansion > 1:
                plan.append((inner, width, 1, 1, 1, 1, -1))
            plan.append((inner, inner, 3, step, inner, 1, -1))
            plan.append((outs, inner, 1, 1, 1, 0, start if step == 1 and outs == width else -1))
            width = outs
    plan.append((last, width, 1, 1, 1, 1, -1))
    return plan


def initial_layer(rng: np.random.Generator, outs: int, ins: int, size: int, *rest: Any) -> Layer:
    """Draw a convolution as torchvision starts it (normal, fan out, groups not divided by), and spread statistics."""
    stride, groups, is_active = rest
    weight = rng.normal(0, np.sqrt(2 / (outs * size * size)), (outs, ins // groups, size, size))
    scale, shift, mean, variance = (
        rng.uniform(0.5, 1.5, outs),
        rng.normal(0, 0.2, outs),
        rng.normal(0, 0.2, outs),
        rng.uniform(0.5, 1.5, outs),
    )
    factor = scale / np.sqrt(variance + 1e-5)
    return weight * factor[:, None, None, None], shift - mean * factor, stride, groups, is_active


def mobilenet(draw: Callable[..., Layer] = initial_layer, seed: int = 0) -> bytes:
    """Return MobileNetV2-1.0 with random weights, 3x224x224 to 1000.

    With `initial_layer` its outputs hardly depend on the input, as those of any net that was not trained; with
    `random_layer` they do, and every layer makes the noise of those before it larger.
    """
    rng = np.random.default_rng(seed)
    settings = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ]
    layers = [draw(rng, 32, 3, 3, 2, 1, True)]
    skips = {}
    for outs, ins, size, stride, groups, active, skip in mobilenet_plan(settings, 32, 1280):
        if skip >= 0:
            skips[len(layers)] = skip + 1
        layers.append(draw(rng, outs, ins, size, stride, groups, bool(active)))
    head = (rng.normal(0, 0.03, (1000, 1280)), rng.normal(0, 0.05, 1000))
    return convolutions(layers, skips, head, (3, 224, 224))


def keyword_spotter(seed: int = 0) -> bytes:
    """Return DS-CNN with random weights, 49x10 coefficients to 12 words (Zhang et al. 2017, "Hello Edge", DS-CNN S)."""
    rng = np.random.default_rng(seed)
    layers = [random_layer(rng, 64, 1, 5, 2, 1, True)]
    for _ in range(4):
        layers += [random_layer(rng, 64, 64, 3, 1, 64, True), random_layer(rng, 64, 64, 1, 1, 1, True)]
    return convolutions(layers, {}, (rng.normal(0, 0.2, (12, 64)), np.zeros(12)), (1, 49, 10))


def digits_mobilenet(train: Arrays, epochs: int = 30) -> bytes:
    """Train a small MobileNetV2 on the digits and return it: needs torch, takes seconds."""
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    plan = [(16, 1, 3, 1, 1, 1, -1)]
    body = mobilenet_plan([(2, 16, 1, 1), (4, 24, 2, 2), (4, 32, 2, 1)], 16, 128)
    plan += [(*layer[:6], layer[6] + 1 if layer[6] >= 0 else -1) for layer in body]
    modules = [
        torch.nn.Sequential(torch.nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=False), torch.nn.BatchNorm2d(o))
        for o, i, k, s, g, _, _ in plan
    ]
    head = torch.nn.Linear(128, 10)
    net = torch.nn.ModuleList([*modules, head])

    def forward(x: Any) -> Any:
        inputs = []
        for module, (*_, active, skip) in zip(modules, plan, strict=True):
            inputs.append(x)
            x = module(x)
            x = torch.nn.functional.relu6(x) if active else x
            x = x + inputs[skip] if skip >= 0 else x
        return head(x.mean((2, 3)))

    images, labels = torch.from_numpy(train["image"]), torch.from_numpy(train["labels"].astype(np.int64))
    rate = torch.optim.AdamW(net.parameters(), 4e-3, weight_decay=1e-3)
    plan_of_rates = torch.optim.lr_scheduler.OneCycleLR(rate, 8e-3, total_steps=epochs * -(-len(images) // 64))
    for _ in range(epochs):
        for part in torch.randperm(len(images)).split(64):
            rate.zero_grad()
            torch.nn.functional.cross_entropy(forward(images[part]), labels[part]).backward()
            rate.step()
            plan_of_rates.step()
    net.eval()
    layers, skips = [], {}
    with torch.no_grad():
        for i, (module, (*_, stride, groups, active, skip)) in enumerate(zip(modules, plan, strict=True)):
            conv, norm = module
            factor = norm.weight / torch.sqrt(norm.running_var + norm.eps)
            weight = (conv.weight * factor[:, None, None, None]).numpy()
            bias = (norm.bias - norm.running_mean * factor).numpy()
            layers.append((weight, bias, stride, groups, bool(active)))
            if skip >= 0:
                skips[i] = skip
        return convolutions(layers, skips, (head.weight.numpy(), head.bias.numpy()), (1, 8, 8))


def decoder(seed: int = 0, vocabulary: int = 8000, width: int = 256, depth: int = 4, length: int = 32) -> bytes:
    """Return a decoder with random weights: RMS norm, rotary positions, causal attention, SwiGLU."""
    rng = np.random.default_rng(seed)
    graph, heads = Graph(), 8
    half = width // heads // 2

    def dense(value: str, ins: int, outs: int) -> str:
        return str(graph.add("MatMul", value, graph.weight(rng.normal(0, ins**-0.5, (ins, outs)))))

    def norm(value: str) -> str:
        square = graph.add("Mul", value, value)
        mean = graph.add("ReduceMean", square, graph.weight([-1], np.int64))
        root = graph.add("Sqrt", graph.add("Add", mean, graph.weight(1e-5)))
        scaled = graph.add("Div", value, root)
        return str(graph.add("Mul", scaled, graph.weight(rng.uniform(0.5, 1.5, width))))

    angles = np.arange(length)[:, None] / 10000 ** (np.arange(half) / half)
    cos, sin = (graph.weight(np.tile(f(angles), 2)) for f in (np.cos, np.sin))
    shape = graph.weight([0, length, heads, width // heads], np.int64)
    flat = graph.weight([0, length, width], np.int64)
    mask = graph.weight(np.triu(np.full((length, length), -1e9), 1))
    scale = graph.weight((width // heads) ** -0.5)

    def split_heads(value: str) -> str:
        return str(graph.add("Transpose", graph.add("Reshape", value, shape), perm=[0, 2, 1, 3]))

    def rotate(value: str) -> str:
        first, second = graph.add("Split", value, outputs=2, axis=-1, num_outputs=2)
        turned = graph.add("Concat", graph.add("Neg", second), first, axis=-1)
        return str(graph.add("Add", graph.add("Mul", value, cos), graph.add("Mul", turned, sin)))

    value = graph.add("Gather", graph.weight(rng.normal(0, 1, (vocabulary, width))), "tokens")
    for _ in range(depth):
        inner = norm(value)
        query, key, values = (split_heads(dense(inner, width, width)) for _ in range(3))
        turned = graph.add("Transpose", rotate(key), perm=[0, 1, 3, 2])
        scores = graph.add("Mul", graph.add("MatMul", rotate(query), turned), scale)
        weights = graph.add("Softmax", graph.add("Add", scores, mask), axis=-1)
        mixed = graph.add("Transpose", graph.add("MatMul", weights, values), perm=[0, 2, 1, 3])
        value = graph.add("Add", value, dense(graph.add("Reshape", mixed, flat), width, width))
        inner = norm(value)
        gate, up = dense(inner, width, 688), dense(inner, width, 688)
        gate = graph.add("Mul", gate, graph.add("Sigmoid", gate))
        value = graph.add("Add", value, dense(graph.add("Mul", gate, up), 688, width))
    value = dense(norm(value), width, vocabulary)
    return graph.finish([token_input("tokens", length)], value, ["batch", length, vocabulary])


class WordPiece:
    """BERT's uncased tokenizer, as far as English sentences need it (Devlin et al. 2019)."""

    def __init__(self, folder: Path) -> None:
        self._ids = {word: i for i, word in enumerate((folder / "vocab.txt").read_text("utf-8").splitlines())}

    def __call__(self, text: str) -> list[int]:
        """Return the tokens of a sentence, with those that begin and end it."""
        plain = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
        spaced = "".join(c if c.isalnum() or c.isspace() else f" {c} " for c in plain)
        return [self._ids["[CLS]"], *(i for word in spaced.split() for i in self._pieces(word)), self._ids["[SEP]"]]

    def _pieces(self, word: str) -> list[int]:
        found: list[int] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self._ids:
                    found.append(self._ids[piece])
                    start = end
                    break
            else:
                return [self._ids["[UNK]"]]
        return found


_WHO = (
    "A nurse",
    "The old farmer",
    "My neighbour",
    "The young pilot",
    "Our teacher",
    "A tired driver",
    "The baker",
    "An engineer",
)
_DOES = (
    "repaired the broken bridge before the storm arrived",
    "asked why the train to the coast was late again",
    "wrote a long letter about the price of bread",
    "found three small kittens behind the hospital",
    "sold the blue car to a student from Norway",
    "explained how vaccines teach cells to recognise a virus",
    "lost the keys of the office in deep snow",
    "compared two neural networks on a cheap computer",
    "planted tomatoes and beans near the river",
    "refused to sign the contract with the bank",
    "cooked soup for forty people after the flood",
    "heard strange music coming from the empty theatre",
    "learned to play chess against a patient robot",
)


def sentences() -> list[str]:
    """Return 104 sentences of our own: each subject does each thing."""
    return [f"{who} {does}." for does in _DOES for who in _WHO]


def documented(folder: Path) -> list[str]:
    """Return the English sentences of Markdown files, those of code and tables left out, in a fixed order."""
    found: set[str] = set()
    for file in folder.rglob("*.md"):
        text = re.sub(r"```.*?```", "", file.read_text("utf-8"), flags=re.DOTALL)
        text = re.sub(r"\s+", " ", re.sub(r"[`*\[\]]", "", text))
        found.update(
            one
            for one in re.findall(r"[A-Z][^.!?|]{20,200}[.!?]", text)
            if sum(c.isalpha() or c == " " for c in one) > 0.9 * len(one)
        )
    return sorted(found)
