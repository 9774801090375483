"""A finding of a check: one line of text and its remedy."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """The answer of one check.

    Attributes:
        check: What was looked at, as `engine.onnxruntime` or `cpu.threads`: the part before the dot groups the table.
        level: `ok`, `note` (good to know), `warning` (costs speed or safety) or `problem` (does not work).
        what: What was found, a sentence without a full stop.
        hint: What to type or change; empty where nothing is to be done.
    """

    check: str
    level: str
    what: str
    hint: str = ""
