"""A staged roll-out: the signed targets say which share of the devices takes a version, and what the others take.

`custom` of a target holds `stage`: `{"number": 1, "share": 1000, "fallback": "<sha256>"}`, a share of 10 000 devices,
the number of the step, and the revision for those that are not in it. A device's place is drawn from its name, the
model's and the sequence, so that every version has other first devices, and a share that grows keeps those that it had.
"""

from __future__ import annotations

import hashlib
from re import fullmatch
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import InputError, NotReleasedError, SignatureError

if TYPE_CHECKING:
    from tuf.api.metadata import TargetFile

WHOLE = 10_000


class Stage(NamedTuple):
    """A step of a roll-out.

    Attributes:
        number: 1 for the first step of a version, one more for each after it.
        share: How many of 10 000 devices take it.
        fallback: The revision document for the others; empty where there is none.
    """

    number: int
    share: int
    fallback: str = ""


class Offer(NamedTuple):
    """The revision document for a device.

    Attributes:
        sha256: Its sha256.
        length: Its length where that is signed.
        stage: The number of the roll-out's step; 0 for none.
        is_fallback: Whether it is the one for devices that a roll-out has not reached.
    """

    sha256: str
    length: int | None
    stage: int
    is_fallback: bool = False


def place_of(device: str, model: str, sequence: int) -> int:
    """Return where a device stands in the roll-out of a version, from 0 to 9999."""
    digest = hashlib.sha256(f"{model}/{sequence}/{device}".encode()).digest()
    return int.from_bytes(digest[:4], "big") * WHOLE >> 32


def offered(target: TargetFile, model: str, device: str, taken: int) -> Offer:
    """Return what a device shall take.

    Args:
        target: The model's entry in the signed targets.
        model: Its name.
        device: The device's name.
        taken: The highest sequence that it took: it never goes back.

    Raises:
        NotReleasedError: Nothing is meant for it yet.
    """
    custom: Any = target.unrecognized_fields.get("custom", {})
    whole = Offer(target.hashes.get("sha256", ""), target.length, 0)
    try:
        stage = stage_of(custom)
        if stage is None:
            return whole
        whole = whole._replace(stage=stage.number)
        sequence = custom["sequence"]
        if type(sequence) is not int or sequence < 0:
            raise ValueError(f"sequence {sequence!r}")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SignatureError(f"The roll-out of `{model}` is malformed: {error}") from error
    if taken >= sequence or place_of(device, model, sequence) < stage.share:
        return whole
    if stage.fallback:
        return Offer(stage.fallback, None, 0, is_fallback=True)
    raise not_released(model)


def not_released(model: str, word: str = "") -> NotReleasedError:
    """Return the error of a device that waits for its turn; the word is what kind of version it waits for."""
    return NotReleasedError(
        f"No {word}version of `{model}` is released to this device yet",
        hint=f"edge-infer store stage STORE {model} all",
    )


def stage_of(custom: Any) -> Stage | None:
    """Return the step of a roll-out that a target's `custom` holds; None for a version that is for all."""
    entry = custom.get("stage")
    if entry is None:
        return None
    number, share, fallback = entry["number"], entry["share"], entry.get("fallback", "")
    if any(type(one) is not int or one < 0 for one in (number, share)):
        raise ValueError(f"step {number!r} with share {share!r}")
    if not isinstance(fallback, str) or not fullmatch(r"([0-9a-f]{64})?", fallback):
        raise ValueError(f"{fallback!r} is not a sha256")
    return Stage(number, share, fallback)


def parse_share(text: str) -> int:
    """Return the share that `10%`, `canary:10%`, `all` or `halt` says, of 10 000.

    Raises:
        InputError: It is none of them.

    >>> parse_share("canary:0.5%")
    50
    """
    word = text.strip().removeprefix("canary:").strip()
    if word in ("all", "halt"):
        return WHOLE if word == "all" else 0
    try:
        share = round(float(word.removesuffix("%")) * 100)
        if word.endswith("%") and 0 <= share <= WHOLE:
            return share
    except (ValueError, OverflowError):
        pass
    raise InputError(f"`{text}` is not a share of the devices", hint="10%, canary:10%, all or halt")
