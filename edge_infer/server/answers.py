"""Answers of JSON, and how long a client may keep them."""

from __future__ import annotations

import json
from typing import Any

from starlette.responses import Response

JSON = "application/json"
#: For what is true only now.
NO_STORE = {"Cache-Control": "no-store"}
#: For what may be kept, and is asked for again each time.
NO_CACHE = {"Cache-Control": "no-cache"}


def json_answer(document: Any, headers: dict[str, str], media_type: str = JSON) -> Response:
    """Make a response of a JSON document."""
    return Response(json.dumps(document, ensure_ascii=False).encode(), 200, headers, media_type)
