"""Definitions of chains that are refused, and a part of what is said."""

from __future__ import annotations

from typing import Any

A = {"name": "a", "do": "model", "bundle": "steps/a", "from": "image"}
CHAIN: dict[str, Any] = {"version": 1, "inputs": {"image": "image"}, "steps": [A]}


def step(**fields: Any) -> dict[str, Any]:
    return {"version": 1, "inputs": {"image": "image"}, "steps": [{**A, **fields}]}


DOCUMENTS: list[tuple[dict[str, Any], str]] = [
    ({**CHAIN, "version": 2}, "version 2, this edge-infer reads 1"),
    ({**CHAIN, "inputs": {}}, "`inputs` is not an object"),
    ({**CHAIN, "inputs": {"image": "video"}}, "the input `image` is 'video'"),
    ({**CHAIN, "inputs": {"a b": "image"}}, "`a b` is not a name"),
    ({**CHAIN, "steps": []}, "not a list of 1 to 64 steps"),
    ({**CHAIN, "steps": [A, A]}, "two things are called `a`"),
    ({**CHAIN, "steps": [{**A, "name": "image"}]}, "two things are called `image`"),
    ({**CHAIN, "outputs": "b"}, "the chain answers with `b`, which is not there"),
    ({**CHAIN, "outputs": {}}, "`outputs` is neither a name"),
    ({**CHAIN, "outputs": {"x": 3}}, "expected the name"),
    ({**CHAIN, "vectors": 3}, "`vectors` is not the path"),
    (step(**{"from": "imege"}), "step `a` reads `imege`, which is not there"),
    (step(**{"from": 3}), "`from` is neither a name"),
    (step(**{"from": {"input": "image."}}), "expected the name"),
    (step(do="modell"), "does 'modell', which this edge-infer cannot"),
    (step(bundle=3), "`bundle` is 3"),
    (step(bundle="../a"), "leaves the bundle"),
    (step(index="steps/a.index"), "has `index`, which it does not take"),
    (step(name="../a"), "`name` is '../a'"),
    (step(caches=True), "has the field `caches`"),
    (step(cache=1), "`cache` is 1"),
    (step(server="ftp://x"), "`server` is 'ftp://x'"),
    (step(**{"with": []}), "`with` is not an object"),
    (step(where={}), "`where` is a filter of a search"),
    (
        {**CHAIN, "steps": [{"name": "c", "do": "crop", "from": {"image": "image"}, "with": {"margins": 1}}]},
        "has no parameter `margins`",
    ),
    (
        {**CHAIN, "steps": [{"name": "c", "do": "crop", "from": "image", "server": "http://h/v2/models/x"}]},
        "no server does",
    ),
    (
        {**CHAIN, "steps": [{**A, "from": "b"}, {**A, "name": "b", "from": "c"}, {**A, "name": "c", "from": "a"}]},
        "in a circle: `a` reads `b` reads `c` reads `a`",
    ),
    ({**CHAIN, "steps": [{**A, "from": "a"}]}, "in a circle: `a` reads `a`"),
]
