"""The ids of answers: the server knows those that it gave, and keeps no list of them.

An id is 5 bytes of time in seconds, 9 random ones, and the first 10 of HMAC-SHA256 over these, the model's and the
tenant's name, as 32 characters of base64 (RFC 4648, section 5). So nobody makes one up, takes that of another model, or
of another tenant.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import time
from re import fullmatch

from edge_infer.errors import InputError

#: For how long feedback to an answer is taken, in seconds.
LIFETIME_S = 30 * 24 * 3600
_TIME, _RANDOM, _SIGNATURE = 5, 9, 10
# A clock that was set back a little does not make an id of the future.
_SLACK_S = 300


class AnswerIds:
    """Makes and checks the ids of answers.

    Args:
        secret: What they are signed by; servers that share it take each other's.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def make(self, model: str, tenant: str, now_s: float | None = None) -> str:
        """Return a new id for an answer of a model to a tenant."""
        seconds = int(time.time() if now_s is None else now_s)
        body = seconds.to_bytes(_TIME, "big") + secrets.token_bytes(_RANDOM)
        return base64.urlsafe_b64encode(body + self._signature(body, model, tenant)).decode()

    def check(self, given: object, model: str, tenant: str, now_s: float | None = None) -> str:
        """Return an id that this server gave.

        Raises:
            InputError: It did not, or not for this model and tenant, or too long ago.
        """
        if not isinstance(given, str) or not fullmatch(r"[A-Za-z0-9_-]{32}", given):
            raise InputError(
                "`id` is not the id of an answer", hint="send back the header `Feedback-Id` of the answer", field="id"
            )
        data = base64.urlsafe_b64decode(given)
        body, signature = data[:-_SIGNATURE], data[-_SIGNATURE:]
        if not hmac.compare_digest(signature, self._signature(body, model, tenant)):
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
        return given

    def _signature(self, body: bytes, model: str, tenant: str) -> bytes:
        said = b"\0".join((body, model.encode(), tenant.encode()))
        return hmac.digest(self._secret, said, "sha256")[:_SIGNATURE]
