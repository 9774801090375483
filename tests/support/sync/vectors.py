"""Write `vectors.json`, what every decoder of a store must give: `python -m tests.support.sync.vectors`."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from edge_infer.bundle.keys import Key
from edge_infer.bundle.sealed import CHUNK, seal
from edge_infer.sync.pack_writer import write_pack
from edge_infer.sync.transforms import FLOATS, GROUPED, INTEGERS, PLANES, RATIOS, RESCALED, encode

PLACE = Path(__file__).parents[2] / "sync/vectors.json"
#: Where integers wrap around and floats change their sign, for each width.
_EDGES = [0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**63]


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def transforms() -> list[dict[str, Any]]:
    random = np.random.default_rng(7)
    found = []
    for width in (1, 2, 4, 8):
        edges = b"".join((edge & (1 << 8 * width) - 1).to_bytes(width, "little") for edge in _EDGES)
        new, old = edges + random.bytes(9 * width), edges[::-1] + random.bytes(9 * width)
        for transform in (PLANES, FLOATS, INTEGERS, GROUPED):
            if transform in (FLOATS, GROUPED) and width == 1:
                continue
            data = encode(transform, width, new, old if transform != PLANES else b"")
            found.append(
                {"transform": transform, "width": width, "data": text(data), "old": text(old), "gives": text(new)}
            )
    every, new = bytes(range(256)), random.bytes(256)
    for ratio in (RATIOS[0], 1 << 16, 62415, 78643, RATIOS[-1]):
        data = encode(RESCALED, ratio, new, every)
        found.append(
            {"transform": RESCALED, "width": ratio, "data": text(data), "old": text(every), "gives": text(new)}
        )
    return found


def packs() -> list[dict[str, Any]]:
    random = np.random.default_rng(8)
    old_weights = random.normal(size=3000).astype("<f4")
    new_weights = (old_weights * (1 + 1e-5 * random.normal(size=3000))).astype("<f4")

    def safetensors(values: np.ndarray[tuple[int, ...], Any], note: str) -> bytes:
        header = {"__metadata__": {"note": note}, "w": {"dtype": "F32", "shape": [3000], "data_offsets": [0, 12000]}}
        head = json.dumps(header).encode()
        return len(head).to_bytes(8, "little") + head + values.tobytes()

    prose = random.bytes(3000)
    old = {"a.safetensors": safetensors(old_weights, "one"), "prose.txt": prose, "same.txt": b"same" * 20}
    changed = prose[:1000] + b"an insertion" + prose[1000:]
    new = {"a.safetensors": safetensors(new_weights, "two"), "prose.txt": changed, "same.txt": old["same.txt"]}
    new["empty.txt"] = b""
    return [
        {"name": name, "pack": text(write_pack(new, base)), "bases": _files(base or {}), "files": _files(new)}
        for name, base in (("full", None), ("delta", old))
    ]


def _files(files: dict[str, bytes]) -> list[dict[str, Any]]:
    return [
        {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "bytes": text(data)}
        for path, data in files.items()
    ]


def canonical() -> list[dict[str, Any]]:
    from securesystemslib.formats import encode_canonical

    values: list[Any] = [
        {"b": 1, "a": [True, False, None, -3], "Ä": "ü", "\U0001f600": "x", "\uffff": ""},
        {"quote": 'say "hi" \\ there\n\t', "": {}, "list": [[], [1, 2]]},
    ]
    return [{"value": value, "gives": encode_canonical(value)} for value in values]


def stages() -> list[dict[str, Any]]:
    """What a target's `custom` says to a device outside every share: `whole`, `fallback`, or the code of an error."""
    digest = "cd" * 32
    stage = {"number": 1, "share": 0, "fallback": digest}
    cases: list[tuple[Any, str]] = [
        ({}, "whole"),
        ({"sequence": 2, "stage": None}, "whole"),
        ({"sequence": 2, "stage": stage | {"share": 10_000}}, "whole"),
        ({"sequence": 2, "stage": stage}, "fallback"),
        ({"sequence": 2, "stage": stage | {"fallback": ""}}, "not_released"),
        ({"sequence": 2, "stage": {"number": 1, "share": 0}}, "not_released"),
    ]
    wrong: list[Any] = [None, [], "x", {"sequence": 2, "stage": 0}, {"sequence": 2, "stage": []}, {"stage": stage}]
    wrong += [{"sequence": 2, "stage": {key: stage[key] for key in ("number", "share") if key != one}} for one in stage]
    wrong.pop()  # without a fallback it is right
    wrong += [{"sequence": sequence, "stage": stage} for sequence in ("2", -1, True, None)]
    wrong += [{"sequence": 2, "stage": stage | {"number": number}} for number in ("1", -1, False, None)]
    wrong += [{"sequence": 2, "stage": stage | {"share": share}} for share in ("9999", -1, True, None)]
    wrong += [
        {"sequence": 2, "stage": stage | {"fallback": one}}
        for one in (None, 7, "../x", "ab", digest + "\n", digest.upper())
    ]
    return [
        {"custom": custom, "gives": gives} for custom, gives in [*cases, *((one, "signature_error") for one in wrong)]
    ]


def sealed() -> list[dict[str, Any]]:
    """Sealed files: short ones whole, one of two chunks by its sha256; its clear bytes count up from 0 to 250."""
    made = []
    for number, size in enumerate((0, 1, 300, CHUNK, CHUNK + 5)):
        secret = hashlib.sha256(bytes([number])).digest()
        key = Key(secret)
        data = seal(bytes(i % 251 for i in range(size)), key)
        made.append({"key": secret.hex(), "name": key.name, "size": size, "sha256": hashlib.sha256(data).hexdigest()})
    return made


def main() -> None:
    document = {"transforms": transforms(), "packs": packs(), "canonical": canonical(), "stages": stages()}
    document["sealed"] = sealed()
    PLACE.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
