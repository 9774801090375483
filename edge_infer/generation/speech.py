"""Speech to text by Whisper: windows of 30 seconds, the tokens before and the rules of timestamps.

Sources: `generation_whisper.py` and `WhisperTimeStampLogitsProcessor` of transformers 5.24 (greedy, without conditions
on the text before and without a second try by temperature).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import InputError, ManifestError, UnsupportedError, did_you_mean, listed
from edge_infer.generation.exact_math import exp
from edge_infer.tasks.audio.sound import Sound
from edge_infer.tasks.item import Item
from edge_infer.tasks.place import Place
from edge_infer.tasks.steps import read_step
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edge_infer.generation.encoder_decoder import SequenceModel

_NEVER = float("-inf")
#: Of each number of a bundle; Whisper's windows have 480,000 samples.
_MOST = 2**24


class Segment(NamedTuple):
    """A stretch of speech.

    Attributes:
        start: Seconds from the beginning.
        end: Likewise; None where the model did not say.
        tokens: Its tokens, those of its times among them.
    """

    start: float
    end: float | None
    tokens: list[int]


class Speech:
    """What a bundle says of sounds and of the tokens around a transcript.

    Args:
        fields: The manifest's `generate.speech`.
        vocab_size: Tokens of the model.
        start: The token that the decoder begins with.

    Raises:
        ManifestError: A field is missing, of another type, or a token is outside of the vocabulary.
    """

    def __init__(self, fields: Mapping[str, Any], vocab_size: int, start: int) -> None:
        self.start, self._vocab = start, vocab_size
        numbers = ("rate", "mels", "fft", "hop", "samples", "positions", "no_timestamps")
        found = {name: fields.get(name) for name in numbers}
        for name, value in found.items():
            if type(value) is not int or not 1 <= value <= _MOST:
                raise ManifestError(f"manifest: `generate.speech.{name}` is {value!r}, expected 1 to {_MOST}")
        self.rate, self.mels, self.fft, self.hop = (int(found[one] or 0) for one in ("rate", "mels", "fft", "hop"))
        self.samples, self.positions = int(found["samples"] or 0), int(found["positions"] or 0)
        if self.samples < self.hop:
            raise ManifestError(f"manifest: `generate.speech.samples` is {self.samples}, expected {self.hop} or more")
        self.no_timestamps = self._token("no_timestamps", found["no_timestamps"])
        self.first_time = self.no_timestamps + 1
        self.languages = self._tokens_by_name(fields, "languages")
        self.tasks = self._tokens_by_name(fields, "tasks")
        self.suppressed = self._listed(fields, "suppress")
        self.begin_suppressed = self._listed(fields, "begin_suppress")
        limit = fields.get("max_initial_timestamp")
        self.max_initial = limit if type(limit) is int else None

    def _token(self, name: str, value: Any) -> int:
        if type(value) is not int or not 0 <= value < self._vocab:
            raise ManifestError(f"manifest: `generate.speech.{name}` is {value!r}, expected a token of the vocabulary")
        return value

    def _listed(self, fields: Mapping[str, Any], name: str) -> list[int]:
        found = fields.get(name) or []
        if not isinstance(found, list):
            raise ManifestError(f"manifest: `generate.speech.{name}` is {found!r}, expected a list")
        return [self._token(name, one) for one in found]

    def _tokens_by_name(self, fields: Mapping[str, Any], name: str) -> dict[str, int]:
        found = fields.get(name) or {}
        if not isinstance(found, dict):
            raise ManifestError(f"manifest: `generate.speech.{name}` is {found!r}, expected an object")
        return {key: self._token(name, value) for key, value in found.items()}

    @property
    def frames(self) -> int:
        """Frames of a window."""
        return self.samples // self.hop

    @property
    def seconds_of_time(self) -> float:
        """Seconds between two timestamps."""
        return self.samples / self.rate / self.positions


class Recognizer:
    """Transcribes sounds.

    Args:
        model: The model.

    Raises:
        UnsupportedError: The model is not one of speech.
        ManifestError: The bundle does not say what it must.
    """

    def __init__(self, model: SequenceModel) -> None:
        self.model, definition = model, model.definition
        if not definition.speech:
            raise UnsupportedError(f"a {definition.architecture} takes text", hint='pipeline("text2text-generation")')
        if definition.context < 1 or not definition.eos:
            raise ManifestError("manifest: `generate.context` and `generate.eos` of a model of speech must be given")
        self.speech = speech = Speech(definition.speech, definition.vocab_size, definition.start)
        place = Place(lambda _: b"", [], model.encoder.inputs, model.encoder.outputs)
        mels: dict[str, Any] = {"rate": speech.rate, "fft": speech.fft, "hop": speech.hop, "mels": speech.mels}
        self._decode = read_step({"step": "audio.decode", "rate": speech.rate}, "speech").prepare(place)
        self._resample = read_step({"step": "audio.resample", "rate": speech.rate}, "speech").prepare(place)
        self._features = read_step(
            {"step": "audio.log_mel", **mels, "style": "whisper", "axes": "mels_first"}, "speech"
        ).prepare(place)

    def segments(
        self,
        sound: Any,
        *,
        language: str | None = None,
        task: str = "transcribe",
        has_times: bool = False,
        sampling_rate: int | None = None,
    ) -> Iterator[Segment]:
        """Give the stretches of speech of a sound.

        A sound of one window is one segment where no times are asked for. Longer ones are always cut by times: a window
        begins where the last one's speech ended.

        Args:
            sound: What `audio.decode` takes.
            language: Such as `en`; detected where it is None and the model knows several.
            task: `transcribe`, or `translate` into English.
            has_times: Whether the model says when each segment begins and ends.
            sampling_rate: Samples per second of samples that are given without a rate.

        Raises:
            InputError: The sound cannot be read, or the model knows no such language or task.
            ExecutionError: The engine failed.
        """
        item = Item({} if sampling_rate is None else {"sampling_rate": sampling_rate})
        samples = self._resample(self._decode(sound, item), item).samples
        speech = self.speech
        is_long = len(samples) > speech.samples
        has_times = has_times or is_long
        features, count = self._windows(samples, item)
        seek, prompt = 0, list[int]()
        while seek < count:
            length = min(speech.frames, count - seek)
            crossed = self.model.encode({"input_features": self._window(features, seek, length)})
            try:
                if not prompt:
                    prompt = self._prompt(crossed, language, task, has_times=has_times)
                most = self.model.definition.context - len(prompt)
                rules = self._timed if has_times else self.plain_rules
                tokens = list(self.model.tokens(crossed, prompt, most, rules))
            finally:
                self.model.forget(crossed)
            offset = seek * speech.hop / speech.rate
            if not has_times:
                yield Segment(offset, None, tokens)
                return
            found, passed = self._cut(tokens, offset, length)
            yield from found
            seek += passed if passed > 0 else length

    def first_window(self, sound: Any) -> tuple[dict[str, Any], list[int]]:
        """Return what the encoder gives for a sound's first window, and the tokens before a text without times.

        The language is English, or the first that the model knows: to hear it is no proof of the model.
        """
        item, languages = Item(), self.speech.languages
        features, count = self._windows(self._resample(self._decode(sound, item), item).samples, item)
        window = self._window(features, 0, min(self.speech.frames, count))
        crossed = self.model.encode({"input_features": window})
        language = "en" if "en" in languages else next(iter(languages), None)
        task = "transcribe" if "transcribe" in self.speech.tasks else next(iter(self.speech.tasks), "transcribe")
        return crossed, self._prompt(crossed, language, task, has_times=False)

    def text(self, tokens: list[int]) -> str:
        """Return the text of tokens, without times and special tokens."""
        return self.model.tokenizer.decode([one for one in tokens if one < self.speech.no_timestamps])

    def _windows(self, samples: array[float], item: Item) -> tuple[memoryview[float], int]:
        """Return the features of a sound, float32 [mels, frames], and how many frames are of the sound."""
        speech = self.speech
        if len(samples) < speech.samples:
            samples = samples + array("f", bytes(4 * (speech.samples - len(samples))))
        made = self._features(Sound(samples, speech.rate), item)
        return memoryview(made.data()).cast("B").cast("f"), int(made.shape[1])

    def _window(self, features: memoryview[float], seek: int, length: int) -> Tensor:
        """Return one window, [1, mels, frames]; what is behind the sound's end is 0, as in transformers."""
        speech = self.speech
        count, data = len(features) // speech.mels, bytearray()
        for mel in range(speech.mels):
            row = features[mel * count + seek : mel * count + seek + length]
            data += row.tobytes() + bytes(4 * (speech.frames - length))
        return Tensor(bytes(data), DType.FLOAT32, (1, speech.mels, speech.frames))

    def _prompt(self, crossed: Mapping[str, Any], language: str | None, task: str, *, has_times: bool) -> list[int]:
        speech = self.speech
        prompt = [speech.start]
        if speech.languages:
            prompt.append(self._language(crossed, language))
        elif language is not None:
            raise InputError(f"the model knows one language, and not `{language}` by name", hint="leave `language` out")
        if speech.tasks:
            if task not in speech.tasks:
                raise InputError(f"the model does not {task}", hint=f"choose from {listed(list(speech.tasks))}")
            prompt.append(speech.tasks[task])
        elif task != "transcribe":
            raise InputError(f"the model does not {task}: it knows one language", hint="take one of several languages")
        return prompt if has_times else [*prompt, speech.no_timestamps]

    def _language(self, crossed: Mapping[str, Any], language: str | None) -> int:
        languages = self.speech.languages
        if language is not None:
            if language not in languages:
                hint = did_you_mean(language, list(languages)) or f"such as {listed(list(languages)[:6])}"
                raise InputError(f"the model does not know the language `{language}`", hint=hint, got=language)
            return languages[language]
        logits = self.model.first_logits(crossed, [self.speech.start])
        return max(languages.values(), key=lambda token: (logits[token], -token))

    def plain_rules(self, logits: list[float], tokens: list[int]) -> None:
        """Forbid the tokens that the bundle suppresses."""
        for one in (*self.speech.suppressed, *(() if tokens else self.speech.begin_suppressed)):
            logits[one] = _NEVER

    def _timed(self, logits: list[float], tokens: list[int]) -> None:
        """Times come in pairs, never fall, and stand first; all together may be likelier than the best word."""
        self.plain_rules(logits, tokens)
        speech, first = self.speech, self.speech.first_time
        times = [one for one in tokens if one >= first]
        was_time = bool(tokens) and tokens[-1] >= first
        was_time_before = len(tokens) < 2 or tokens[-2] >= first
        logits[speech.no_timestamps] = _NEVER
        if was_time and was_time_before:
            _forbid(logits, first, len(logits))
        elif was_time:
            _forbid(logits, 0, min(self.model.definition.eos))
        if times:
            _forbid(logits, first, times[-1] + (0 if was_time and not was_time_before else 1))
        if not tokens:
            _forbid(logits, 0, first)
            if speech.max_initial is not None:
                _forbid(logits, first + speech.max_initial + 1, len(logits))
        word = max(logits[:first])
        most = max(word, max(logits[first:], default=_NEVER))
        total = 0.0
        for value in logits[first:]:
            if value > _NEVER:
                total += exp(value - most)
        if total > (exp(word - most) if word > _NEVER else 0.0):
            _forbid(logits, 0, first)

    def _cut(self, tokens: list[int], offset: float, length: int) -> tuple[list[Segment], int]:
        """Return the segments of a window's tokens, and how many frames they pass."""
        speech, first = self.speech, self.speech.first_time
        unit = speech.seconds_of_time
        is_time = [one >= first for one in tokens]
        ends_alone = is_time[-2:] == [False, True]
        cuts = [i + 1 for i in range(len(tokens) - 1) if is_time[i] and is_time[i + 1]]
        if not cuts:
            times = [one for one in tokens if one >= first]
            end = length * speech.hop / speech.rate
            if times and times[-1] != first:
                end = (times[-1] - first) * unit
            return [Segment(offset, offset + end, tokens)], length
        if ends_alone:
            cuts.append(len(tokens))
        else:
            cuts[-1] += 1
        found, before = [], 0
        for number, cut in enumerate(cuts):
            part = tokens[before:cut]
            last = part[-2] if number == len(cuts) - 1 and not ends_alone else part[-1]
            found.append(Segment(offset + (part[0] - first) * unit, offset + (last - first) * unit, part))
            before = cut
        if ends_alone:
            return found, length
        return found, (tokens[before - 2] - first) * (speech.frames // speech.positions)


def _forbid(logits: list[float], first: int, last: int) -> None:
    if last > first:
        logits[first:last] = [_NEVER] * (last - first)
