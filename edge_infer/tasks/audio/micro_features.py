"""`audio.micro_features`: a sound to the features that microcontrollers compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.errors import InputError, ManifestError
from edge_infer.tasks.audio.micro_frontend import MicroFrontend, Settings
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.values import floats, integers
from edge_infer.tensors.dtypes import DType

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from edge_infer.tasks.audio.sound import Sound
    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply
    from edge_infer.tensors.tensor import Tensor

PARAMETERS = {
    "rate": Parameter("whole", 16_000, low=4000, high=48_000),
    "window": Parameter("whole", 480, low=16, high=2048),
    "hop": Parameter("whole", 160, low=1, high=2048),
    "channels": Parameter("whole", 40, low=1, high=128),
    "low_hz": Parameter("real", 125.0, low=0, high=24_000),
    "high_hz": Parameter("real", 7500.0, low=1, high=24_000),
    "gain": Parameter("flag", True),
    # `real`: what the logarithm stands for, 0 to some 26; `int8`: as the micro_speech example quantizes it.
    "unit": Parameter("choice", "real", choices=("real", "int8")),
}
_SCALE = 25.6
#: The integers of micro_speech: 256 steps over 0 to 26, `feature_provider.cc`.
_STEPS, _SPAN = 256, 666


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that makes a tensor [frames, channels]; each sound begins without any noise heard before.

    All numbers are integers and the same everywhere; see `micro_frontend`.

    Raises:
        ManifestError: The bands do not fit the rate.
    """
    p = parameters
    if not p["low_hz"] < p["high_hz"] <= p["rate"] / 2:
        raise ManifestError(
            f"pipeline: `audio.micro_features` has bands from {p['low_hz']:g} to {p['high_hz']:g} Hz, expected them to "
            f"rise and to end at {p['rate'] / 2:g} at most",
            hint=f'"low_hz": 125, "high_hz": {min(7500, p["rate"] / 2):g}',
            field="high_hz",
        )
    settings = Settings(p["rate"], p["window"], p["hop"], p["channels"], p["low_hz"], p["high_hz"], p["gain"])
    MicroFrontend(settings)  # what does not fit fails now

    def apply(sound: Sound, item: Item) -> Tensor:  # noqa: ARG001
        samples = [_sample(value) for value in sound.samples]
        rows = MicroFrontend(settings).features(samples)
        if not rows:
            raise InputError(
                f"a sound of {len(samples)} samples is too short: a frame takes {p['window']}",
                hint='add silence, or the step {"step": "audio.fit", "samples": N} before this one',
            )
        return _tensor(rows, p["unit"])

    return apply


def _tensor(rows: Sequence[Sequence[int]], unit: str) -> Tensor:
    shape = (len(rows), len(rows[0]))
    if unit == "real":
        return floats((value / _SCALE for row in rows for value in row), shape)
    levels = ((value * _STEPS + _SPAN // 2) // _SPAN - 128 for row in rows for value in row)
    return integers([min(max(level, -128), 127) for level in levels], DType.INT8, shape)


def _sample(value: float) -> int:
    """Return a sample as 16 bits hold it; what is not finite is silence."""
    if value - value != 0:
        return 0
    return min(max(round(value * 32_768), -32_768), 32_767)
