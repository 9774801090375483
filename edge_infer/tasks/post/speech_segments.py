"""`post.speech_segments`: how likely each frame is speech to the stretches of speech."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.tasks.parameters import Parameter
from edge_infer.tasks.post.outputs import reader
from edge_infer.tasks.values import flat

if TYPE_CHECKING:
    from typing import Any

    from edge_infer.tasks.item import Item
    from edge_infer.tasks.place import Place
    from edge_infer.tasks.steps import Apply

PARAMETERS = {
    "tensor": Parameter("text", None),
    "threshold": Parameter("real", 0.5, low=0, high=1, is_argument=True),
    # Speech ends below this; 0.15 under the threshold where it is not given.
    "end_threshold": Parameter("real", None, low=0, high=1, is_argument=True),
    "min_speech_ms": Parameter("real", 250.0, low=0, is_argument=True),
    "min_silence_ms": Parameter("real", 100.0, low=0, is_argument=True),
    # How much is added before and after each stretch.
    "pad_ms": Parameter("real", 30.0, low=0, is_argument=True),
}


def prepare(parameters: dict[str, Any], place: Place) -> Apply:
    """Return the function: `[{"start", "end", "score"}]`, in seconds, `score` the highest of the stretch.

    The rules are those of Silero VAD's `get_speech_timestamps`.
    """
    read = reader(parameters["tensor"], place, "post.speech_segments")

    def apply(value: Any, item: Item) -> list[dict[str, float]]:
        p = {name: item.argument(name, given) for name, given in parameters.items()}
        detector = SpeechDetector(p, item.rate, item.frame)
        for score in flat(read(value)):
            detector.step(score)
        return detector.finish()

    return apply


class SpeechDetector:
    """Finds stretches of speech, frame by frame.

    Args:
        parameters: Those of the step.
        rate: Samples per second.
        frame: Samples of a frame.
    """

    def __init__(self, parameters: dict[str, Any], rate: int, frame: int) -> None:
        self._high: float = parameters["threshold"]
        low = parameters["end_threshold"]
        self._low: float = max(self._high - 0.15, 0.01) if low is None else low
        self._rate, self._frame = rate, frame
        self._min_speech, self._min_silence, self._pad = (
            rate * parameters[name] / 1000 for name in ("min_speech_ms", "min_silence_ms", "pad_ms")
        )
        self._at = 0  # the sample that the next frame begins with
        self._start: int | None = None
        self._quiet_since: int | None = None
        self._best = 0.0
        self._found: list[tuple[int, int, float]] = []  # those that were not answered yet
        self._before: int | None = None  # where the last one that was answered ended

    def step(self, score: float) -> None:
        """Take how likely the next frame is speech."""
        at, self._at = self._at, self._at + self._frame
        if score >= self._high:
            self._quiet_since = None
            if self._start is None:
                self._start, self._best = at, score
        if self._start is None:
            return
        self._best = max(self._best, score)
        if score < self._low:
            if self._quiet_since is None:
                self._quiet_since = at
            if at - self._quiet_since >= self._min_silence:
                self._end(self._quiet_since)

    def _end(self, at: int) -> None:
        assert self._start is not None
        if at - self._start > self._min_speech:
            self._found.append((self._start, at, self._best))
        self._start = self._quiet_since = None

    def finish(self) -> list[dict[str, float]]:
        """Return the stretches that were not answered yet, that which the sound's end cuts included."""
        if self._start is not None:
            self._end(self._at)
        return self.ended()

    def ended(self) -> list[dict[str, float]]:
        """Return the stretches that have ended since the last call."""
        answers = []
        found, self._found = self._found, []
        for i, (start, end, score) in enumerate(found):
            begins = start - min(self._pad, start if self._before is None else (start - self._before) / 2)
            stops = end + min(self._pad, (found[i + 1][0] - end) / 2 if i + 1 < len(found) else self._at - end)
            answers.append({"start": begins / self._rate, "end": stops / self._rate, "score": float(score)})
            self._before = end
        return answers
