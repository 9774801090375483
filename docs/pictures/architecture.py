"""Draw docs/pictures/architecture.svg: the rooms in layers, and how a load, a request and a conversion cross them.

python docs/pictures/architecture.py

The order of the rooms is that of the import contract in pyproject.toml. A test compares the picture with this script.
"""

from __future__ import annotations

import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURE = Path(__file__).with_name("architecture.svg")

#: What each room does, in a few words.
JOBS = {
    "edge_infer_converters": "models in, measured bundles out",
    "cli": "one file per command",
    "tools": "bench, browser, device, doctor, slim",
    "server": "HTTP, batching, pages, stores",
    "verify": "golden examples, bisection",
    "monitor": "drift: counters that add up",
    "chains": "bundles that feed one another",
    "generation": "decoders, samplers, slots",
    "vectors": "indexes and top-k search",
    "tasks": "from raw data to an answer",
    "compat": "onnxruntime and tflite scripts in a page",
    "runtime": "load, choose, session",
    "parity": "compare arrays, verdicts",
    "backends": "one engine each",
    "sync": "signed weights and deltas",
    "bundle": "manifest and files",
    "formats": "ONNX, TFLite, safetensors",
    "kernels": "our own kernels in C",
    "tensors": "dtypes, Tensor, arrays",
    "platform": "page, device or desktop",
    "errors": "one tree of errors",
    "rooms": "which room runs where",
}

#: Each walk: its colour, and the rooms that it crosses in turn with what happens there.
WALKS = {
    "load and run": (
        "#1a7f52",
        [
            ("runtime", "load(): options"),
            ("bundle", "manifest.json"),
            ("runtime", "choose variant, engine"),
            ("backends", "prepare the model"),
            ("runtime", "Session.run()"),
            ("tensors", "check inputs"),
            ("backends", "the engine runs"),
        ],
    ),
    "a request": (
        "#2563c9",
        [
            ("server", "http: read bytes"),
            ("server", "ingestion: admit, parse"),
            ("server", "execution: queue, batch"),
            ("runtime", "Session.run()"),
            ("backends", "the engine runs"),
            ("server", "response: write"),
            ("server", "metrics: record"),
        ],
    ),
    "a conversion": (
        "#b4530a",
        [
            ("cli", "edge-infer convert"),
            ("edge_infer_converters", "sources: read the model"),
            ("edge_infer_converters", "passes, search, writers"),
            ("runtime", "run each variant"),
            ("parity", "measure against fp32"),
            ("edge_infer_converters", "choose what is kept"),
            ("bundle", "manifest and files"),
        ],
    ),
}

_TOP, _ROOMS, _WALK, _STEP = 72, 330, 236, 22
_STYLE = """
  text { font: 14px system-ui, sans-serif; fill: #1c2128 }
  .room { font-weight: 600; font-size: 15px } .job, .note { fill: #57606a; font-size: 13px }
  .head { font-weight: 600; font-size: 15px }
  .number { fill: #fff; font-size: 11px; font-weight: 600; text-anchor: middle }
  .box { fill: #f3f5f8; stroke: #d0d7de } .back { fill: #fff } .rule { stroke: #e4e8ec }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .job, .note { fill: #9da7b3 } .box { fill: #1b222b; stroke: #3a434e } .back { fill: #0d1117 }
    .rule { stroke: #262d36 } .number { fill: #fff }
  }"""


def layers() -> list[list[str]]:
    """Return the rooms from the top down, those of one layer together, as pyproject.toml states them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    found = next(one for one in contracts if one.get("containers") == ["edge_infer"])
    return [["edge_infer_converters"], *([room.strip() for room in layer.split("|")] for layer in found["layers"])]


def draw() -> str:
    """Return the picture."""
    rooms = [room for layer in layers() for room in layer]
    rows, top = {}, _TOP
    for room in rooms:
        most = max(sum(crossed == room for crossed, _ in steps) for _, steps in WALKS.values())
        rows[room] = (top, height := max(44, 14 + _STEP * most))
        top += height + 8
    width = _ROOMS + _WALK * len(WALKS) + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top + 34}" role="img" '
        'aria-label="The rooms of edge-infer in layers, crossed by a load, a request and a conversion">',
        f"<style>{_STYLE}\n</style>",
        f'<rect class="back" width="{width}" height="{top + 34}" rx="8"/>',
        '<text class="head" x="24" y="34">Room</text>',
        '<text class="note" x="24" y="54">imports point down only</text>',
    ]
    for room, (y, height) in rows.items():
        parts += [
            f'<rect class="box" x="16" y="{y}" width="{_ROOMS - 32}" height="{height}" rx="6"/>',
            f'<line class="rule" x1="{_ROOMS}" y1="{y + height + 4}" x2="{width - 16}" y2="{y + height + 4}"/>',
            f'<text class="room" x="28" y="{y + 19}">{escape(room)}</text>',
            f'<text class="job" x="28" y="{y + 36}">{escape(JOBS[room])}</text>',
        ]
    for number, (name, (colour, steps)) in enumerate(WALKS.items()):
        x = _ROOMS + 20 + _WALK * number
        parts.append(f'<text class="head" x="{x - 9}" y="34">{escape(name)}</text>')
        taken = dict.fromkeys(rooms, 0)
        places = []
        for room, label in steps:
            y, _ = rows[room]
            places.append((y + 22 + _STEP * taken[room], label))
            taken[room] += 1
        points = " ".join(f"{x},{y}" for y, _ in places)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2" opacity=".35"/>')
        for step, (y, label) in enumerate(places, 1):
            parts += [
                f'<circle cx="{x}" cy="{y}" r="9" fill="{colour}"/>',
                f'<text class="number" x="{x}" y="{y + 4}">{step}</text>',
                f'<text x="{x + 16}" y="{y + 5}">{escape(label)}</text>',
            ]
    parts.append(f'<text class="note" x="24" y="{top + 18}">Drawn by docs/pictures/architecture.py</text>')
    return "\n".join([*parts, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(draw())
