"""Recognise a digit with onnxruntime: the same file natively and in a page.

python script.py digits.onnx
"""

import sys

import onnxruntime as ort

SEVEN = """\
..######
..######
......##
.....##.
...#####
....##..
...##...
...##..."""


def recognise(path: str) -> str:
    """Say what the drawing above is."""
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    (name,) = [spec.name for spec in session.get_inputs()]
    image = [[float(pixel == "#") for pixel in row] for row in SEVEN.splitlines()]
    (logits,) = session.run(None, {name: [[image]]})
    return f"{int(logits.argmax())}, by onnxruntime {ort.__version__} on {session.get_providers()[0]}"


if __name__ == "__main__":
    print(recognise(sys.argv[1]))
