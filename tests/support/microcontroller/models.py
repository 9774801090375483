"""The real models and their C: `docs/reference/c_models.md`, read and written.

`EDGE_INFER_ZOO=FOLDER python -m tests.support.microcontroller.models` writes the page anew.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from click.testing import CliRunner

from edge_infer.cli.output import size
from edge_infer.errors import EdgeInferError
from edge_infer_converters.compile_command import compile_
from tests.support import real_models

PAGE = Path(__file__).parents[3] / "docs/reference/c_models.md"
ROUNDINGS = ("reference", "tflm", "litert")
#: What boards with a Cortex-M4 have, such as those with an nRF52840: a model that takes more is for none of them.
FLASH_BYTES, RAM_BYTES = 2**20, 2**18
_HEAD = """<!-- Written by `python -m tests.support.microcontroller.models`; do not edit. -->
# Real models in C

{count} models out of public repositories, unchanged, through `edge-infer compile MODEL --to c`; {covered} of them are
written. Each of these is compiled and run by the long tests, for size and for speed: on the host with sanitizers, in
each rounding named here, and on an emulated Cortex-M4, in the first of them, where a board has room for it: 1 MB of
flash and 256 kB of RAM, as an nRF52840 has. Models with up to 100 kB of constants run there in each rounding, and by
`make soak` all do. Integers are those of the engine, byte for byte, floats within 1e-5. Before C is written, its
numbers are compared with LiteRT's or onnxruntime's.

An ONNX model is written with its floats. Arena and constants are for size; code is what is said before it is compiled,
for size and for speed.

| model | roundings | arena | constants | code | Cortex-M4 |
|---|---|---|---|---|---|
"""
_LEFT = """
These are refused as they are, each with the reason that `compile` prints. Four of them are written where options say
what they leave open: `byte_bidi_lstm.onnx` with `--shape input=1x20`, `treecl.onnx` with `--shape input=?x20`,
`silero_v5.onnx` with `--shape input=1x512 --shape state=2x1x128 --bind sr=16000`, and `silero_16k_op15.onnx` with the
same but `input=1x576`.

| model | why |
|---|---|
"""
_ROW = re.compile(r"^\| `([^`]+)` \| (.+) \|$", re.MULTILINE)


class Model(NamedTuple):
    """A row of the page.

    Attributes:
        name: The file.
        roundings: Those that it can have; empty where it is refused.
        fits: Whether the emulated board holds it.
        reason: Why it is refused.
    """

    name: str
    roundings: tuple[str, ...] = ()
    fits: bool = True
    reason: str = ""


def listed() -> list[Model]:
    """Return the rows of the page."""
    found = []
    for name, rest in _ROW.findall(PAGE.read_text()):
        cells = rest.split(" | ")
        is_written = len(cells) == 5
        found.append(
            Model(name, tuple(cells[0].split(", ")), cells[4] == "yes") if is_written else Model(name, reason=rest)
        )
    return found


def tried(path: Path, rounding: str, way: str, folder: Path) -> dict[str, Any] | str:
    """Compile a model to C; return what `--json` says, or why it is refused.

    Args:
        path: The model.
        rounding: How its integers are rounded.
        way: `size` or `speed`.
        folder: Where to write.
    """
    import json

    command = [str(path), "-o", str(folder), "--to", "c", "--prefix", "net", "--json"]
    done = CliRunner().invoke(compile_, [*command, "--rounding", rounding, "--optimize", way])
    if isinstance(done.exception, EdgeInferError):
        return done.exception.message.replace(f"{path.parent}/", "").replace("|", "/").replace("\n", " ")
    if done.exception is not None:
        raise done.exception
    return dict(json.loads(done.stdout))


def _row(path: Path, root: Path) -> tuple[bool, str]:
    """Return whether a model is written, and its row."""
    roundings, first, fast, reason = [], None, None, ""
    for rounding in ROUNDINGS if path.suffix == ".tflite" else ROUNDINGS[:1]:  # floats have one rounding
        found = tried(path, rounding, "size", root / f"{path.name}_{rounding}")
        if isinstance(found, str):
            reason = reason or found
            continue
        roundings.append(rounding)
        if first is None:
            first = found
            fast = tried(path, rounding, "speed", root / f"{path.name}_speed")
    if first is None or not isinstance(fast, dict):
        return False, f"| `{path.name}` | {reason} |"
    arena, constants = first["arena_bytes"], first["constant_bytes"]
    fits = (
        max(one["flash_bytes"] for one in (first, fast)) < FLASH_BYTES and max(arena, fast["arena_bytes"]) < RAM_BYTES
    )
    code = " / ".join(f"{one['flash_bytes'] - one['constant_bytes']:,}" for one in (first, fast))
    cells = (f"`{path.name}`", ", ".join(roundings), size(arena), size(constants), code, "yes" if fits else "too large")
    return True, f"| {' | '.join(cells)} |"


def main() -> None:
    """Write the page."""
    folder = real_models.folder()
    if folder is None:
        raise SystemExit("EDGE_INFER_ZOO names no folder of real models")
    rows = []
    with tempfile.TemporaryDirectory() as root:
        for path in real_models.paths(folder):
            rows.append(_row(path, Path(root)))
            print(rows[-1][1], flush=True)
    written, left = ([row for is_written, row in rows if is_written is wanted] for wanted in (True, False))
    text = _HEAD.format(count=len(rows), covered=len(written)) + "\n".join(written) + "\n"
    PAGE.write_text(text + _LEFT + "\n".join(left) + "\n")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    main()
