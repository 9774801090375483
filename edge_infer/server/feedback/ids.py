"""The ids of answers: the server knows those that it gave, and keeps no list of them.

An id is 5 bytes of time in seconds, 9 random ones, the first 10 of HMAC-SHA256 over these, the model's name and version
and the tenant's name, and the version that answered, as base64 without padding (RFC 4648, section 5). So nobody makes
one up, or takes that of another model or tenant; and the version is known though another one is served by now.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import time
from re import fullmatch
from typing import NamedTuple

from edge_infer.errors import InputError

#: For how long feedback to an answer is taken, in seconds.
LIFETIME_S = 30 * 24 * 3600
_TIME, _RANDOM, _SIGNATURE = 5, 9, 10
# A clock that was set back a little does not make an id of the future.
_SLACK_S = 300
_LONGEST = 1024


class Answered(NamedTuple):
    """What an id tells: itself, and the version that gave the answer."""

    id: str
    version: str


class AnswerIds:
    """Makes and checks the ids of answers.

    Args:
        secret: What they are signed by; servers that share it take each other's.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def make(self, model: str, version: str, tenant: str, now_s: float | None = None) -> str:
        """Return a new id for an answer of a model to a tenant."""
        seconds = int(time.time() if now_s is None else now_s)
        body = seconds.to_bytes(_TIME, "big") + secrets.token_bytes(_RANDOM)
        return _written(body + self._signature(body, model, version.encode(), tenant) + version.encode())

    def check(self, given: object, model: str, tenant: str, now_s: float | None = None) -> Answered:
        """Return an id that this server gave, and what it tells.

        Raises:
            InputError: It did not, or not for this model and tenant, or too long ago.
        """
        if not isinstance(given, str) or len(given) > _LONGEST or not fullmatch(r"[A-Za-z0-9_-]{32,}", given):
            raise InputError(
                "`id` is not the id of an answer", hint="send back the header `Feedback-Id` of the answer", field="id"
            )
        whole = given[:-1] if len(given) % 4 == 1 else given  # no base64 has such a length
        data = base64.urlsafe_b64decode(whole + "=" * (-len(whole) % 4))
        signed = _TIME + _RANDOM
        body, signature, version = data[:signed], data[signed : signed + _SIGNATURE], data[signed + _SIGNATURE :]
        is_ours = hmac.compare_digest(signature, self._signature(body, model, version, tenant))
        if not is_ours or _written(data) != given:  # the last character has bits that are not read
            raise InputError(
                f"`id` is of no answer that this server gave for the model `{model}`",
                hint="send back the header `Feedback-Id` of the answer, to the model that gave it",
                field="id",
            )
        age_s = (time.time() if now_s is None else now_s) - int.from_bytes(body[:_TIME], "big")
        if not -_SLACK_S <= age_s <= LIFETIME_S:
            raise InputError(
                f"The answer is {age_s / 86400:.0f} days old, feedback is taken for {LIFETIME_S // 86400}",
                hint="ask again, and send the new id; is the clock of this server right?",
                field="id",
            )
        return Answered(given, version.decode())

    def _signature(self, body: bytes, model: str, version: bytes, tenant: str) -> bytes:
        said = b"\0".join((body, model.encode(), version, tenant.encode()))
        return hmac.digest(self._secret, said, "sha256")[:_SIGNATURE]


def _written(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
