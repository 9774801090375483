"""Recognise a digit with onnxruntime: the same file natively and in a page.

python examples/21_browser_script/script.py examples/digits/digits.onnx
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
    if len(sys.argv) != 2 or not sys.argv[1].endswith(".onnx"):
        raise SystemExit(__doc__)
    print(recognise(sys.argv[1]))
