"""Recognise a drawn digit: the same file natively and in a page.

    python examples/digits_app.py [MODEL]

MODEL is a bundle or an .onnx file; the committed `examples/digits/digits.onnx` unless given. The demo page runs this
very file in Pyodide. It uses the portable subset of arrays only, so it needs no numpy anywhere.
"""

from __future__ import annotations

import math
from array import array
from pathlib import Path
from time import perf_counter
from typing import Any

import edge_infer

MODEL = Path(__file__).parent / "digits" / "digits.onnx"

# How scikit-learn's digits were made (https://archive.ics.uci.edu/dataset/80): the bounding box of the ink is scaled
# to a bitmap of 32 x 32, and each pixel of the image is the mean of 4 x 4 of its bits.
SIDE = 8
SAMPLES = 4
GRID = SIDE * SAMPLES
# Fainter ink than this, of 255, is the edge of a stroke and does not widen the bounding box.
FAINTEST = 64
_INK = bytes(0 if value < FAINTEST else value for value in range(256))

_session: edge_infer.Session | None = None


def open_model(source: str = "") -> dict[str, Any]:
    """Load the model, and tell what it runs on. A page passes the URL of a bundle."""
    global _session
    if _session is not None:
        _session.close()
    _session = edge_infer.load(source or MODEL)
    return _session.report()._asdict()


def classify(pixels: bytes | memoryview, width: int, height: int) -> dict[str, Any]:
    """Recognise the digit in a drawing.

    Args:
        pixels: The ink of each pixel, row by row: 0 is paper, 255 is full ink.
        width: The pixels of a row.
        height: The rows.

    Returns:
        `digit`, or None where there is no ink; `scores`, the probability of each digit; `image`, the 64 values that
        the model saw; `ms`, how long the model took.
    """
    image = to_image(bytes(pixels), width, height)
    if image is None:
        return {"digit": None, "scores": [], "image": [], "ms": 0.0}
    if _session is None:
        open_model()
    assert _session is not None
    start = perf_counter()
    result = _session.run({"image": edge_infer.Tensor(image, "float32", (1, 1, SIDE, SIDE))})
    ms = (perf_counter() - start) * 1000
    logits = result["logits"]
    return {"digit": int(logits.argmax()), "scores": softmax(logits[0].tolist()), "image": list(image), "ms": ms}


def to_image(pixels: bytes, width: int, height: int) -> array[float] | None:
    """Fit the ink of a drawing into the model's 8 x 8 pixels of 0 to 1; None where there is no ink."""
    ink = pixels.translate(_INK)
    rows = [ink[y * width : (y + 1) * width] for y in range(height)]
    inked = [y for y, row in enumerate(rows) if row.strip(b"\0")]
    if not inked:
        return None
    top, bottom = inked[0], inked[-1] + 1
    left = min(width - len(rows[y].lstrip(b"\0")) for y in inked)
    right = max(len(rows[y].rstrip(b"\0")) for y in inked)

    side = max(right - left, bottom - top)
    columns = _sampled(left, right, side)
    lines = _sampled(top, bottom, side)
    sums = [0] * (SIDE * SIDE)
    for i, y in enumerate(lines):
        if 0 <= y < height:
            row, start = rows[y], i // SAMPLES * SIDE
            for j, x in enumerate(columns):
                if 0 <= x < width:
                    sums[start + j // SAMPLES] += row[x]
    return array("f", [total / (255 * SAMPLES * SAMPLES) for total in sums])


def _sampled(start: int, end: int, side: int) -> list[int]:
    """Place the grid over a span of the drawing that is centred in a square of `side`: the pixel under each point."""
    return [(GRID * (start + end - side) + (2 * i + 1) * side) // (2 * GRID) for i in range(GRID)]


def softmax(logits: list[float]) -> list[float]:
    """Turn logits into probabilities."""
    largest = max(logits)
    powers = [math.exp(value - largest) for value in logits]
    total = 0.0
    for power in powers:
        total += power
    return [power / total for power in powers]


# Three drawings to try it on: a letter is a pixel full of ink.
DRAWINGS = {
    "2": """
        ..####....
        .######...
        ##...###..
        ......##..
        ......##..
        .....###..
        ....###...
        ...###....
        ..###.....
        .########.
        #########.
    """,
    "4": """
        .....###..
        ....####..
        ...##.##..
        ..##..##..
        .##...##..
        ##....##..
        #########.
        #########.
        ......##..
        ......##..
        ......##..
    """,
    "7": """
        #########.
        #########.
        .......##.
        ......##..
        .....###..
        .....##...
        ....##....
        ....##....
        ...##.....
        ...##.....
        ..##......
    """,
}


def drawing(text: str, scale: int = 12) -> tuple[bytes, int, int]:
    """Blow a drawing of letters up to pixels, with paper around it."""
    lines = [line.strip() for line in text.strip().splitlines()]
    lines = ["." * len(lines[0])] * 2 + lines + ["." * len(lines[0])] * 2
    rows = [b"".join((b"\xff" if letter == "#" else b"\0") * scale for letter in line) for line in lines]
    return b"".join(row for row in rows for _ in range(scale)), scale * len(lines[0]), scale * len(lines)


def main() -> None:
    """Load the model and recognise the drawings."""
    import argparse  # not needed in a page

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL", nargs="?", default="", help="a bundle or an .onnx file")
    try:
        report = open_model(parser.parse_args().model)
    except edge_infer.EdgeInferError as error:
        raise SystemExit(str(error)) from error
    print(f"{report['model']}, {report['variant']}, {report['engine']} on {report['device']}")
    for meant, text in DRAWINGS.items():
        found = classify(*drawing(text))
        print(f"drawn {meant}: recognised {found['digit']}, {max(found['scores']):.0%} sure")


if __name__ == "__main__":
    main()
