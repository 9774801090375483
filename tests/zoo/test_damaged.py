"""Truncated and mutated real models: an error of ours or a result, without traceback, hang or crash.

`EDGE_INFER_SOAK=1` (`make soak`) takes 200 of each model, else there are 200 in all.
"""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.support import limited, real_models, soak

if TYPE_CHECKING:
    from pathlib import Path

ZOO = real_models.folder()
# What the commands take a second or two for when the file is sound.
PATHS = [path for path in real_models.paths(ZOO) if path.stat().st_size < 400_000] if ZOO else []
COMMANDS = (("info", "{}"), ("run", "{}"), ("convert", "{}", "-o", "out.bundle", "--precision", "fp32"))
_IN_ALL = 200
_MOST_PROCESSOR_S = 10
_MOST_BYTES = 1.5e9

pytestmark = pytest.mark.long


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Cut a file short, or change some of its bytes, numbers or blocks."""
    changed = bytearray(data)
    kind = rng.choice(("cut", "bytes", "bytes", "number", "number", "lost", "twice", "swapped"))
    if kind == "cut":
        return data[: rng.randrange(len(data))]
    if kind == "bytes":
        for _ in range(rng.choice((1, 3, 30))):
            changed[rng.randrange(len(data))] = rng.randrange(256)
    elif kind == "number":
        # Structure lies at either end of a file, weights between them.
        place = rng.choice((rng.randrange(len(data) - 4), rng.randrange(200), len(data) - 4 - rng.randrange(2000)))
        place = max(0, place)
        changed[place : place + 4] = rng.choice(
            (b"\xff" * 4, b"\xff\xff\xff\x7f", b"\0" * 4, b"\0\0\0\x80", b"\1\0\0\0")
        )
    else:
        length = rng.choice((1, 4, 100, len(data) // 10))
        first, second = rng.randrange(len(data)), rng.randrange(len(data))
        if kind == "lost":
            del changed[first : first + length]
        elif kind == "twice":
            changed[first:first] = changed[second : second + length]
        else:
            length = min(length, len(data) - max(first, second))
            one, other = data[first : first + length], data[second : second + length]
            changed[first : first + length], changed[second : second + length] = other, one
    return bytes(changed)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.name) for path in PATHS]
    or [pytest.param(None, marks=pytest.mark.skip("EDGE_INFER_ZOO names no folder of real models"))],
)
def test_a_damaged_model_is_an_error_of_ours_or_none(path: Path, tmp_path: Path) -> None:
    rng = random.Random(path.name)
    data = path.read_bytes()
    for number in range(soak.rounds(-(-_IN_ALL // len(PATHS)), _IN_ALL)):
        file = tmp_path / f"damaged{path.suffix}"
        file.write_bytes(damaged(data, rng))
        arguments = [part.format(file) for part in COMMANDS[number % len(COMMANDS)]]

        done = limited.run((*real_models.EDGE_INFER, *arguments, "--json"), seconds=300, cwd=tmp_path)

        said = f"{path.name} {number}, {arguments[0]}: {real_models.said_last(done.err)}"
        assert not done.is_late, said
        assert done.code in (0, 1), said
        assert "Traceback" not in done.err, done.err
        assert "please report it" not in done.err, said
        assert done.code == 0 or "error: " in done.err, said
        assert done.code == 0 or done.processor_s <= _MOST_PROCESSOR_S, said
        assert done.peak_bytes <= _MOST_BYTES, f"{said}: {done.peak_bytes / 1e6:.0f} MB"
        if (tmp_path / "out.bundle").exists():
            shutil.rmtree(tmp_path / "out.bundle")
