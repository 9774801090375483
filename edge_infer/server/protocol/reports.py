"""The report of a device after a look at a store: bounded and checked, since anybody may send one."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from edge_infer.errors import InputError, listed

#: A larger report is refused.
MAX_REPORT_BYTES = 16 * 2**10
RESULTS = ("ok", "current", "rolled_back", "held", "fetch_failed", "refused", "trial_failed", "error")
#: Those of `RESULTS` that are faults.
FAILURES = ("fetch_failed", "refused", "trial_failed", "error")
KINDS = ("device", "page", "server")
METHODS = ("", "none", "repair", "local", "delta", "full", "files")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_MAX_TEXT = 500
_MAX_NUMBER = 2**53


class Report(NamedTuple):
    """The state of one model on one device.

    Attributes:
        device: The device's own name: random, unless its owner gave it one.
        model: The model's name.
        kind: `device`, `page` or `server`.
        version: The version that it runs; empty for none.
        sequence: That version's number in the store; 0 for none.
        wanted: The sequence of the version that it was offered; 0 where it learned of none.
        stage: The number of the roll-out's step that it was offered in; 0 where there is none.
        bundle: The bundle revision that it runs.
        method: What brought the files.
        result: `ok` (updated), `current` (nothing new), `rolled_back` (the newest version was taken back by hand),
            `held` (the roll-out is halted), `fetch_failed`, `refused` (metadata that is not trusted), `trial_failed`
            (the golden examples did not come out), or `error`.
        error: What went wrong, in words.
        bytes_moved: The bytes that were fetched for it.
        bytes_full: The bytes of a full download.
        seconds: How long it took.
        trial_s: How long the golden examples took.
    """

    device: str
    model: str
    kind: str = "device"
    version: str = ""
    sequence: int = 0
    wanted: int = 0
    stage: int = 0
    bundle: str = ""
    method: str = ""
    result: str = "ok"
    error: str = ""
    bytes_moved: int = 0
    bytes_full: int = 0
    seconds: float = 0.0
    trial_s: float = 0.0

    @classmethod
    def from_bytes(cls, data: bytes) -> Report:
        """Parse and check a report; fields that are not known are ignored.

        Raises:
            InputError: It is none, or a field is not what it must be.
        """
        try:
            document = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise InputError(f"The report is not JSON: {error}", hint="send a JSON object") from error
        if not isinstance(document, dict):
            raise InputError(
                "The report is not a JSON object", hint='{"device": "...", "model": "...", "version": "..."}'
            )
        values = {name: document[name] for name in cls._fields if name in document}
        for name in ("device", "model"):
            if not isinstance(values.get(name), str) or not _NAME.fullmatch(values[name]):
                raise InputError(f"The report has no proper `{name}`", hint="letters, digits, `.`, `_`, `:` and `-`")
        for name, value in values.items():
            values[name] = _checked(name, value)
        return cls(**values)


def _checked(name: str, value: Any) -> Any:
    default = Report._field_defaults.get(name, "")
    if isinstance(default, str):
        if not isinstance(value, str) or len(value) > _MAX_TEXT:
            raise InputError(
                f"`{name}` of the report is not a text of at most {_MAX_TEXT} characters", got=str(value)[:80]
            )
        allowed = {"result": RESULTS, "kind": KINDS, "method": METHODS}.get(name)
        if allowed is not None and value not in allowed:
            raise InputError(f"`{name}` of the report is `{value[:80]}`; choose from {listed([*allowed])}", got=value)
        return "".join(character for character in value if character.isprintable())
    is_number = type(value) is int or (isinstance(default, float) and type(value) is float)
    if not is_number or not 0 <= value < _MAX_NUMBER:
        raise InputError(f"`{name}` of the report is not a number from 0", got=str(value)[:80])
    return type(default)(value)
