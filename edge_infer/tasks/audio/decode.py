"""`audio.decode`: a file, bytes or samples to a `Sound` of one channel."""

from __future__ import annotations

import os
from array import array
from math import isfinite
from typing import TYPE_CHECKING

from edge_infer.errors import InputError
from edge_infer.platform import installed
from edge_infer.tasks.audio.sound import MAX_SAMPLES, Sound
from edge_infer.tasks.audio.wav import mixed, read_wav
from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.raw_file import read_raw

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {
    # The samples per second of samples that are given without a rate.
    "rate": Parameter("whole", 16_000, low=1, high=768_000),
    "sampling_rate": Parameter("whole", None, low=1, high=768_000, is_argument=True),
}
#: The largest file.
MAX_BYTES = 1024 * 2**20
_HINT = "give a WAV file, its bytes, an array of float32 samples, or {'array': samples, 'sampling_rate': 44100}"


def prepare(parameters: dict[str, Any], place: Place) -> Apply:  # noqa: ARG001
    """Return the function that reads a sound.

    WAV files are read here, others by the package soundfile where it is installed. Channels are mixed to one.
    """
    default = parameters["rate"]

    def apply(value: Any, item: Item) -> Sound:
        sound = _read(value, item.argument("sampling_rate", parameters["sampling_rate"] or default))
        if not 1 <= len(sound.samples) <= MAX_SAMPLES:
            raise InputError(
                f"a sound has {len(sound.samples)} samples, expected 1 to {MAX_SAMPLES}",
                hint="cut it into parts" if len(sound.samples) else "record it again: it is empty",
            )
        if not isfinite(sum(sound.samples)):
            raise InputError("a sound holds NaN or infinity", hint="give samples of -1 to 1")
        item.rate = sound.rate
        return sound

    return apply


def _read(value: Any, rate: int) -> Sound:
    if isinstance(value, Sound):
        return value
    if isinstance(value, dict) and "sampling_rate" in value:
        samples = value.get("array", value.get("raw"))
        given = value["sampling_rate"]
        if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= 768_000:
            raise InputError(f"a sound has a sampling rate of {given!r}, expected 1 to 768000", hint=_HINT)
        return Sound(_samples(samples), given)
    if isinstance(value, (str, os.PathLike)):
        return _decoded(read_raw(os.fspath(value), MAX_BYTES, "sound"))
    if isinstance(value, (bytes, bytearray)):
        return _decoded(bytes(value))
    return Sound(_samples(value), rate)


def _decoded(data: bytes) -> Sound:
    if not data:
        raise InputError("the sound is empty: it has 0 bytes", hint="record it again")
    if data[:4] == b"RIFF" or installed.origin_of("soundfile") is None:
        if data[:4] != b"RIFF":
            hint = 'pip install "edge-infer[audio]", which reads FLAC, Ogg and MP3'
            raise InputError("the sound is not a WAV file", hint=hint)
        return read_wav(data)
    import io

    import soundfile

    try:
        samples, rate = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, RuntimeError, ValueError) as error:
        raise InputError(f"the sound cannot be read: {error}", hint="give a WAV, FLAC, Ogg or MP3 file") from error
    return Sound(mixed(array("f", samples.tobytes()), samples.shape[1], 1.0), int(rate))


def _samples(value: Any) -> array[float]:
    """Return float32 samples of one channel: integers are scaled by their type's full scale."""
    if isinstance(value, (list, tuple)):
        try:
            return array("f", value)
        except (TypeError, OverflowError) as error:
            raise InputError(f"a sound is a list that holds no numbers: {error}", hint=_HINT) from error
    shape, dtype = getattr(value, "shape", None), str(getattr(value, "dtype", ""))
    if isinstance(value, array):
        shape, dtype = (len(value),), {"f": "float32", "d": "float64", "h": "int16"}.get(value.typecode, "")
    kinds = {"float32": ("f", 1.0), "float64": ("d", 1.0), "int16": ("h", 2.0**15), "int32": ("i", 2.0**31)}
    if shape is None or dtype not in kinds or len(shape) > 2 or not shape:
        raise InputError(f"`{type(value).__name__}` {dtype} is not a sound", hint=_HINT)
    code, full = kinds[dtype]
    values = array(code, memoryview(value).tobytes())
    if len(shape) == 1:
        return mixed(values, 1, 1 / full)
    frames, channels = shape
    if frames < channels:  # [channels, samples], as torchaudio gives it
        raise InputError(
            f"a sound has shape {list(shape)}, expected [samples] or [samples, channels]", hint="give `sound.T`"
        )
    return mixed(values, channels, 1 / full)
