"""A request to a server that has the model `linear` of the stores."""

from __future__ import annotations

import json
from urllib.request import Request, urlopen

from tests.support.sync.publisher import SIZE


def infer(url: str) -> float:
    """Return the first output for ones."""
    body = {"inputs": [{"name": "x", "shape": [1, SIZE], "datatype": "FP32", "data": [1.0] * SIZE}]}
    request = Request(f"{url}/v2/models/linear/infer", json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request) as response:
        return float(json.load(response)["outputs"][0]["data"][0])
