"""The options of one generation: checked once, used by the API, the commands and the server."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from math import isfinite
from typing import TYPE_CHECKING

from edge_infer.errors import InputError, did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Self

#: Stop strings of one generation, and characters of one.
MAX_STOPS = 1024
MAX_STOP_LENGTH = 1024
#: Alternatives of each token that `logprobs` may ask for.
MAX_LOGPROBS = 20
#: Tokens that `logit_bias` may name.
MAX_BIASES = 65_536
_NUMBERS: dict[str, tuple[float, float, str]] = {
    "temperature": (0.0, 100.0, "0 takes the most likely token"),
    "top_p": (0.0, 1.0, "1 keeps all tokens"),
    "min_p": (0.0, 1.0, "0 keeps all tokens"),
    "repetition_penalty": (1e-6, 1e3, "1 changes nothing"),
    "frequency_penalty": (-100.0, 100.0, "0 changes nothing"),
    "presence_penalty": (-100.0, 100.0, "0 changes nothing"),
}


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """How tokens are chosen and when generation ends.

    The defaults are those of llama.cpp; a bundle may bring its own. Sampling follows the rules of
    `edge_infer.generation.sampler`.

    Args:
        max_tokens: The most new tokens.
        temperature: Divides the logits; 0 takes the most likely token.
        top_k: Keeps the best `top_k` tokens; 0 keeps all.
        top_p: Keeps the smallest set of the best tokens that has this share of the probability; 1 keeps all.
        min_p: Keeps tokens at least this fraction as likely as the best; 0 keeps all.
        seed: The same seed gives the same tokens. None draws one.
        stop: Strings that end the text; they are not part of it.
        repetition_penalty: Above 1, tokens of the prompt and of the answer become less likely (Keskar et al. 2019).
        frequency_penalty: Taken from a token's logit for each time that the answer has it.
        presence_penalty: Taken from a token's logit once the answer has it.
        logit_bias: Added to the logits, by token id.
        logprobs: How many alternatives of each token are reported with their logarithms of probability; 0 reports
            the chosen token's alone, None nothing.
        response_format: None for any text, `{"type": "json_object"}`, or `{"type": "json_schema", "schema": {...}}`.

    Raises:
        InputError: A value is out of range; `option` names it.
    """

    max_tokens: int = 256
    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    seed: int | None = None
    stop: tuple[str, ...] = ()
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int | None = None
    response_format: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        _check_whole("max_tokens", self.max_tokens, 1, 2**31 - 1)
        _check_whole("top_k", self.top_k, 0, 2**31 - 1)
        if self.seed is not None:
            _check_whole("seed", self.seed, -(2**63), 2**64 - 1)
        for name, (low, high, hint) in _NUMBERS.items():
            _check_number(name, getattr(self, name), low, high, hint)
        self._set("stop", _stops(self.stop))
        self._set("logit_bias", _biases(self.logit_bias))
        if isinstance(self.logprobs, bool):
            self._set("logprobs", 0 if self.logprobs else None)
        if self.logprobs is not None:
            _check_whole("logprobs", self.logprobs, 0, MAX_LOGPROBS)
        if self.response_format is not None and not isinstance(self.response_format, dict):
            raise InputError(
                f"`response_format` is {self.response_format!r}, expected an object",
                hint='response_format={"type": "json_object"}',
                option="response_format",
            )

    @classmethod
    def of(cls, given: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> Self:
        """Make options from names and values; what is not given, or None, is the bundle's default or the class's.

        Args:
            given: What the caller asks for.
            defaults: The bundle's own; fields that are no options are ignored.

        Raises:
            InputError: A name is unknown or a value is out of range.
        """
        names = [one.name for one in fields(cls)]
        for name in given:
            if name not in names:
                hint = did_you_mean(name, names) or f"choose from {listed(names)}"
                raise InputError(f"generation has no option `{name}`", hint=hint, option=name)
        known = {name: value for name, value in (defaults or {}).items() if name in names and value is not None}
        return cls(**{**known, **{name: value for name, value in given.items() if value is not None}})

    def seeded(self) -> Self:
        """Return these options with a seed: their own, or one from the system's random numbers."""
        if self.seed is not None:
            return self
        from secrets import randbits

        # A number that JavaScript holds exactly, so that a page can repeat the answer.
        return replace(self, seed=randbits(53))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def _check_whole(name: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(f"`{name}` is {value!r}, expected a whole number", option=name)
    if not low <= value <= high:
        raise InputError(f"`{name}` is {value}, expected {low} to {high}", option=name)


def _check_number(name: str, value: object, low: float, high: float, hint: str) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not isfinite(value)):
        raise InputError(f"`{name}` is {value!r}, expected a number", hint=hint, option=name)
    assert isinstance(value, (int, float))
    if not low <= value <= high:
        raise InputError(f"`{name}` is {str(value)[:40]}, expected {low:g} to {high:g}", hint=hint, option=name)


def _stops(value: object) -> tuple[str, ...]:
    stops = (value,) if isinstance(value, str) else value
    if not isinstance(stops, (list, tuple)):
        raise InputError(f"`stop` is {value!r}, expected a text or a list of texts", option="stop")
    if len(stops) > MAX_STOPS:
        raise InputError(f"`stop` has {len(stops)} texts, at most {MAX_STOPS} are allowed", option="stop")
    for one in stops:
        if not isinstance(one, str) or not one:
            raise InputError(f"`stop` has {one!r}, expected texts that are not empty", option="stop")
        if len(one) > MAX_STOP_LENGTH:
            raise InputError(
                f"`stop` has a text of {len(one)} characters, at most {MAX_STOP_LENGTH} are allowed", option="stop"
            )
    return tuple(dict.fromkeys(stops))


def _biases(value: object) -> dict[int, float]:
    """Read biases by token; the ids are texts where they come from JSON."""
    if not hasattr(value, "items"):
        raise InputError(f"`logit_bias` is {value!r}, expected token ids with numbers", option="logit_bias")
    if len(value) > MAX_BIASES:  # type: ignore[arg-type]
        raise InputError(f"`logit_bias` names more than {MAX_BIASES} tokens", option="logit_bias")
    found: dict[int, float] = {}
    for token, bias in value.items():
        try:
            if isinstance(token, float):
                raise TypeError
            number = int(token)
        except (TypeError, ValueError):
            raise InputError(f"`logit_bias` has the token {token!r}, expected an id", option="logit_bias") from None
        if number < 0:
            raise InputError(f"`logit_bias` has the token {number}, expected an id of 0 or more", option="logit_bias")
        _check_number("logit_bias", bias, -1000.0, 1000.0, "-100 forbids a token in practice")
        found[number] = float(bias)
    return found
