"""The features of sounds that microcontrollers compute, as C that stands before a model."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_infer.tasks.audio.micro_frontend import MicroFrontend, Settings
from edge_infer.tasks.item import Item
from edge_infer.tasks.place import Place
from edge_infer.tasks.values import flat, floats
from edge_infer_converters.writers.microcontroller.text import number, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.tasks.definition import Definition
    from edge_infer.tasks.steps import Step
    from edge_infer.tensors.tensor import TensorSpec

_FOLDER = Path(__file__).parent / "templates"
#: A feature is at most this much: 16 bits.
_MOST = 0xFFFF
_SCALE = 25.6
#: The steps before the features that leave the samples of a sound of their rate as they are.
_PLAIN = {"audio.decode", "audio.resample", "audio.fit"}
#: Bytes of code on a Cortex-M4 by arm-none-eabi-gcc 12.2 for size, with gains and levels.
_CODE = 1750
#: Frames of the sound that the test of a model in C hears.
FRAMES = 4


class Features(NamedTuple):
    """The features that a model takes.

    Attributes:
        settings: Of the frontend.
        levels: The least feature of each int8 from -127 on; empty where features are floats.
    """

    settings: Settings
    levels: list[int]

    def of(self, samples: Sequence[int]) -> list[float]:
        """Return the features of a sound of 16-bit samples as Python computes them."""
        found = [value for row in MicroFrontend(self.settings).features(samples) for value in row]
        if not self.levels:
            return [value / _SCALE for value in found]
        return [sum(level <= value for level in self.levels) - 128 for value in found]


def features_of(definition: Definition, inputs: Sequence[TensorSpec]) -> Features | None:
    """Return the features that the steps of a bundle make, or None where it makes others.

    The steps after them may quantize, cut and reshape; a sound is of the rate that the features ask for.

    Args:
        definition: The steps.
        inputs: The inputs of the bundle's model.
    """
    for name, steps in definition.inputs.items():
        places = [i for i, step in enumerate(steps) if step.name == "audio.micro_features"]
        if not places:
            continue
        if not _PLAIN.issuperset(step.name for step in steps[: places[0]]):
            return None  # one that changes the samples, which is not written in C
        p = steps[places[0]].parameters
        rest = [step for step in steps[places[0] + 1 :] if step.name not in ("tensor.reshape", "tensor.frames")]
        if [step.name for step in rest] not in ([], ["tensor.quantize"]):
            return None
        settings = Settings(p["rate"], p["window"], p["hop"], p["channels"], p["low_hz"], p["high_hz"], p["gain"])
        spec = next((one for one in inputs if one.name == name), None)
        is_whole = bool(rest) or p["unit"] == "int8"
        if spec is None or spec.dtype != ("int8" if is_whole else "float32"):
            return None
        return Features(settings, _levels(rest, spec) if is_whole else [])
    return None


def _levels(rest: list[Step], spec: TensorSpec) -> list[int]:
    """Return the least feature of each int8 from -127 on: where there is a step that quantizes, it says which."""
    if rest:
        apply = rest[0].prepare(Place(lambda _: b"", [], [spec], [], spec.name))
        reals = floats((value / _SCALE for value in range(_MOST + 1)), (_MOST + 1,))
        found = [int(value) for value in flat(apply(reals, Item({})))]
    else:
        found = [min(max((value * 256 + 333) // 666 - 128, -128), 127) for value in range(_MOST + 1)]
    return [next((i for i, value in enumerate(found) if value >= level), _MOST + 1) for level in range(-127, 128)]


class Sizes(NamedTuple):
    """What the features take of a Cortex-M4, in bytes: variables, and constants with the code."""

    ram: int
    flash: int


def sizes(features: Features) -> Sizes:
    """Return what the features take; the code is what GCC makes of it for size."""
    tables = MicroFrontend(features.settings).tables()
    half = len(tables.turns)
    two_bytes = [tables.window, tables.rises, tables.falls, tables.logarithm]
    pairs = [tables.turns, tables.half_turns, tables.bands]
    constants = 2 * sum(map(len, two_bytes)) + 4 * sum(map(len, pairs)) + len(tables.radices)
    constants += 4 * (len(tables.gains) + len(features.levels))
    return Sizes(4 * features.settings.channels + 4 * half + 4 * half + 4 * (half + 1), constants + _CODE)


def files(prefix: str, features: Features) -> dict[str, str]:
    """Return the header and the source of a model's features."""
    settings = features.settings
    tables = MicroFrontend(settings).tables()
    size = 2 * len(tables.turns)
    is_whole = bool(features.levels)
    words = {
        "prefix": prefix,
        "upper": prefix.upper(),
        "rate": str(settings.rate),
        "window": str(settings.window),
        "hop": str(settings.step),
        "channels": str(settings.channels),
        "size": str(size),
        "kind": "int8_t" if is_whole else "float",
        "meaning": "the integers that the model takes" if is_whole else "what the logarithm stands for, from 0 on",
        "gained": "a gain for each band and" if tables.gains else "and",
        "tables": "\n\n".join(
            [
                _table("int16_t", "weights", tables.window),
                _pairs("int16_t", "turns", tables.turns),
                _pairs("int16_t", "half_turns", tables.half_turns),
                f"enum {{ LEVELS = {len(tables.radices)} }};",
                _table("uint8_t", "radices", tables.radices),
                "/* The first bin of each band, and one before, and how many bins it has. */",
                _pairs("int16_t", "bands", tables.bands),
                _table("uint16_t", "rises", tables.rises),
                _table("uint16_t", "falls", tables.falls),
                _table("uint16_t", "logarithms", tables.logarithm),
                *([_table("int32_t", "gains", tables.gains)] if tables.gains else []),
                *([_table("uint32_t", "levels", features.levels)] if is_whole else []),
            ]
        ).replace("it has. */\n\n", "it has. */\n"),
        "gain": _GAIN if tables.gains else "",
        "apply": (
            f"  signal = shrunk((uint32_t)((int64_t)signal * gain_of(noise[band]) >> {21 - tables.correction - 12}));\n"
            if tables.gains
            else ""
        ),
        "corrected": (
            f"signal << {tables.correction}" if tables.correction >= 0 else f"signal >> {-tables.correction}"
        ),
        "levels": _LEVEL if is_whole else "",
        "result": (
            "level_of(finished(band, root_of(energy) >> shift))"
            if is_whole
            else "(float)((double)finished(band, root_of(energy) >> shift) / 25.6)"
        ),
    }
    return {
        f"{prefix}_features.{end}": Template((_FOLDER / f"features.{end}").read_text()).substitute(words)
        for end in ("h", "c")
    }


_GAIN = """
static int32_t gain_of(uint32_t value) {
  int interval = bits_of(value), at = 4 * interval - 6;
  int64_t part, result;
  if (value <= 1) return gains[value];
  part = (interval < 11 ? value << (11 - interval) : value >> (interval - 11)) & 0x3FF;
  result = ((gains[at + 2] * part) >> 5) + ((int64_t)gains[at + 1] * 32);
  return wrapped((int32_t)(((result * part + 16384) >> 15) + gains[at]));
}

static uint32_t shrunk(uint32_t ratio) {
  if (ratio < 8192) return (ratio * ratio) >> 20;
  return (ratio >> 6) - 64;
}
"""
_LEVEL = """
static int8_t level_of(uint32_t value) {
  int low = 0, high = (int)(sizeof levels / sizeof levels[0]);
  while (low < high) {
    int middle = (low + high) / 2;
    if (levels[middle] <= value)
      low = middle + 1;
    else
      high = middle;
  }
  return (int8_t)(low - 128);
}
"""


def _table(kind: str, name: str, values: Sequence[int]) -> str:
    return "\n".join([f"static const {kind} {name}[{len(values)}] = {{", *rows([number(one) for one in values]), "};"])


def _pairs(kind: str, name: str, values: Sequence[tuple[int, int]]) -> str:
    items = [f"{{{first}, {second}}}" for first, second in values]
    return "\n".join([f"static const {kind} {name}[{len(values)}][2] = {{", *rows(items), "};"])


def sound(settings: Settings) -> list[int]:
    """Return the samples of a few frames: a rising tone with noise, made of whole numbers alone."""
    state, phase, found = 1, 0, []
    for i in range(settings.window + (FRAMES - 1) * settings.step):
        state = (1664525 * state + 1013904223) & 0xFFFFFFFF
        phase = (phase + 300 + 2 * i) & 0xFFFF
        tone = (phase if phase < 32_768 else 65_535 - phase) - 16_384
        found.append(max(-32_768, min(32_767, tone // (1 + i // 400) + ((state >> 20) - 2048) // 4)))
    return found


def golden(prefix: str, features: Features) -> tuple[str, str]:
    """Return what a test has of the features: arrays, and the lines that compare them."""
    settings = features.settings
    samples = sound(settings)
    wanted = features.of(samples)
    kind = "int8_t" if features.levels else "float"
    written = [number(int(one)) if features.levels else _real(one) for one in wanted]
    arrays = [
        _table("int16_t", "heard", samples),
        "\n".join([f"static const {kind} wanted[{len(wanted)}] = {{", *rows(written), "};"]),
    ]
    lines = [
        f"  {prefix}_features_reset();",
        f"  for (place = 0; place < {FRAMES}; place++) {{",
        f"    {kind} found[{prefix.upper()}_CHANNELS];",
        f"    {prefix}_features(heard + place * {prefix.upper()}_HOP, found);",
        f"    if (memcmp(found, wanted + place * {prefix.upper()}_CHANNELS, sizeof found) != 0) {{",
        "      missed++;",
        "    }",
        "  }",
    ]
    return "\n\n".join(arrays) + "\n", "\n".join(lines) + "\n"


def _real(value: float) -> str:
    return number(np.float32(value))
