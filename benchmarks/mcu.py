"""Models in C against TFLite Micro: arena, flash and instructions on a Cortex-M4, and the time on this machine.

The peer is PyPI's `tflite-micro`: its reference kernels on this machine, and the arena that its allocator records (of
64-bit pointers, which makes its tail larger than on a board). Flash is what `size` of the GNU toolchain prints less the
constants; instructions are counted by QEMU (`-icount shift=0`), where the clock of the board advances with them.

    EDGE_INFER_ZOO=FOLDER python benchmarks/mcu.py [--quick] [--only NET]... [--json]

It needs gcc, gcc-arm-none-eabi, libnewlib-arm-none-eabi, qemu-system-arm and the package tflite-micro.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from table import publish

from edge_infer_converters.compilation import compile_to_c

ZOO = Path(os.environ.get("EDGE_INFER_ZOO", "."))
NETS = (
    "kws_int8",
    "resnet8_int8",
    "vww_int8",
    "ad01_int8",
    "micro_speech",
    "str_ww",
    "person_detect",
    "microflow_sine",
)
WAYS = ("size", "speed")
#: The clock of mps2-an386 in QEMU, by SysTick: 25 MHz of 1 GHz of instructions at `shift=0`.
_NS_PER_TICK = 40
_COUNTER = """#include "net.h"
#include <stdio.h>
int main(void) {
  volatile unsigned *systick = (volatile unsigned *)0xE000E010u;
  unsigned long long ticks = 0;
  unsigned last, now;
  systick[1] = 0xFFFFFFu;
  systick[2] = 0;
  systick[0] = 5;
  last = systick[2];
  net_run();
  now = systick[2];
  ticks = (last - now) & 0xFFFFFFu;
  printf("ticks %llu wrapped %u\\n", ticks, (systick[0] >> 16) & 1u);
  return 0;
}
"""


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", choices=NETS)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.only or (NETS[:3] if args.quick else NETS):
            rows += _measure(name, Path(folder), 3 if args.quick else 9)
    publish(rows, ("edge-infer", "edge-infer-converters", "tflite-micro", "numpy"), as_json=args.json)


def _measure(name: str, root: Path, rounds: int) -> list[dict[str, Any]]:
    content = (ZOO / f"{name}.tflite").read_bytes()
    micro, recorded = _micro(content)
    rows = []
    for way in WAYS:
        made, checked = compile_to_c(content, name, "net", "tflm", way)
        folder = root / f"{name}_{way}"
        folder.mkdir()
        for path, text in made.files.items():
            (folder / path).write_text(text)
        title = f"{name}, for {way}"
        rows.append(_row(title, "arena, bytes", made.layout.arena_bytes, "TFLite Micro, recorded", recorded, 0.65))
        subprocess.run(["make", "-s", "-C", folder, "size"], check=True, capture_output=True)
        text_bytes = int(_said(["arm-none-eabi-size", str(folder / "net.o")]).split("\n")[1].split()[0])
        limit = 4000 if way == "size" else 6000
        code = text_bytes - made.constant_bytes
        rows.append(_row(title, f"flash beyond constants, bytes; {checked}", code, "bound", limit, 1.0))
        counted = _instructions(folder)
        if counted and made.multiply_accumulates:
            per = counted / made.multiply_accumulates
            rows.append(_row(title, "instructions per multiplication, Cortex-M4", per, "bound", 3.0, 1.0))
        rows.append(_timed(title, folder, micro, rounds))
    return rows


def _row(
    name: str, metric: str, ours: float, peer_name: str, peer: float, target: float, **more: Any
) -> dict[str, Any]:
    ratio = ours / peer
    return {
        "name": name,
        "metric": metric,
        "ours": round(ours, 2),
        "peer_name": peer_name,
        "peer": round(peer, 2),
        "ratio": round(ratio, 3),
        "target": f"<= {target}",
        "met": ratio <= target,
        "spread": "",
        **more,
    }


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _instructions(folder: Path) -> float:
    """Return the instructions of a run on the emulated board; 0.0 where the counter of 24 bits wrapped."""
    (folder / "count.c").write_text(_COUNTER)
    text = (folder / "Makefile").read_text().replace("test_main.c", "count.c").replace("test_main.elf", "count.elf")
    (folder / "Makefile.count").write_text(text)
    subprocess.run(["make", "-s", "-f", "Makefile.count", "count.elf"], cwd=folder, check=True)
    board = ["-M", "mps2-an386", "-nographic", "-semihosting", "-icount", "shift=0", "-kernel", "count.elf"]
    done = subprocess.run(
        ["qemu-system-arm", *board], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300
    )
    words = done.stdout.split()
    return float(words[1]) * _NS_PER_TICK if words[3] == "0" else 0.0


def _micro(content: bytes) -> tuple[Any, int]:
    """Return TFLite Micro with a model, and the arena that its allocator records."""
    from tflite_micro.python.tflite_micro import runtime

    engine = runtime.Interpreter.from_bytes(content, arena_size=2**21)
    sys.stderr.flush()
    with tempfile.TemporaryFile() as said:  # it prints to the file descriptor
        kept = [os.dup(1), os.dup(2)]
        os.dup2(said.fileno(), 1)
        os.dup2(said.fileno(), 2)
        try:
            engine.print_allocations()
            ctypes.CDLL(None).fflush(None)
        finally:
            for place, one in zip((1, 2), kept, strict=True):
                os.dup2(one, place)
                os.close(one)
        said.seek(0)
        text = said.read().decode()
    return engine, next(int(line.split()[-2]) for line in text.split("\n") if "Arena allocation total" in line)


def _timed(title: str, folder: Path, micro: Any, rounds: int) -> dict[str, Any]:
    """Compare the time of a run on this machine, in turn: plain C by gcc -O2 without vectors, and TFLite Micro."""
    library = folder / "net.so"
    flags = ("-std=c99", "-O2", "-fno-tree-vectorize", "-ffp-contract=off", "-shared", "-fPIC")
    subprocess.run(["gcc", *flags, "-o", library, folder / "net.c", "-lm"], check=True)
    net_run = ctypes.CDLL(str(library)).net_run
    details = micro.get_input_details(0)
    micro.set_input(np.zeros(details["shape"], details["dtype"]), 0)
    ratios, ours, theirs = [], [], []
    for _ in range(rounds):
        mine, other = _seconds(net_run), _seconds(micro.invoke)
        ours.append(mine * 1e6)
        theirs.append(other * 1e6)
        ratios.append(mine / other)
    row = _row(title, "time here, us", statistics.median(ours), "TFLite Micro", statistics.median(theirs), 1 / 1.2)
    ratio = statistics.median(ratios)
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return row | {"ratio": round(ratio, 3), "target": "<= 0.83", "met": ratio <= 1 / 1.2, "spread": spread}


def _seconds(call: Any) -> float:
    count = 1
    while True:
        start = time.perf_counter()
        for _ in range(count):
            call()
        took = time.perf_counter() - start
        if took > 0.02:
            return took / count
        count *= 4


if __name__ == "__main__":
    with redirect_stderr(io.StringIO()) if "--json" in sys.argv else redirect_stderr(sys.stderr):
        main()
