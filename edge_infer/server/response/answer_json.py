"""An answer as JSON, or an error that says why it cannot be written."""

from __future__ import annotations

import json
from typing import Any

from edge_infer.errors import UnsupportedError


def answer_json(answer: Any) -> bytes:
    """Return the bytes of an answer.

    Raises:
        UnsupportedError: It holds NaN, infinity or half of a surrogate pair, which JSON in UTF-8 does not know.
    """
    try:
        return json.dumps(answer, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError as error:
        raise UnsupportedError(
            "The answer holds half of a surrogate pair, which UTF-8 does not know",
            hint="look for characters that were cut in two where the text was stored",
        ) from error
    except ValueError as error:
        raise UnsupportedError(
            "The answer holds NaN or infinity, which JSON does not know",
            hint="look for NaN and very large values in the input; `edge-infer verify` tests the model's own examples",
        ) from error
