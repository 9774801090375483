"""The page's decoder, run in Node, gives the bits of the native one and the same errors."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.generation.decoder import Decoder
from tests.support.generation.decoders import random_decoder
from tests.support.generation.families import FAMILIES

if TYPE_CHECKING:
    from edge_infer.generation.weight_file import Encoding

PROGRAM = Path(__file__).with_name("decode.mjs")
MODULE = Path(__file__).parents[2] / "web/src/generation/decoder.js"
TOKENS = [int(token) for token in np.random.default_rng(4).integers(0, 97, 40)]
ENCODINGS: tuple[Encoding, ...] = ("f32", "f16", "int8", "int4")


def _in_node(cases: list[dict[str, Any]], folder: Path) -> list[Any]:
    """Run cases by the page's decoder."""
    (folder / "cases.json").write_text(json.dumps(cases))
    words = ["node", str(PROGRAM), str(folder / "cases.json"), str(MODULE)]
    done = subprocess.run(words, capture_output=True, text=True, check=True, encoding="utf-8")
    found: list[Any] = json.loads(done.stdout)
    return found


def test_the_bits_are_those_of_the_native_decoder(tmp_path: Path) -> None:
    """All families and encodings: a prompt, single steps, two slots in a batch, a copied prefix, the best tokens."""
    cases: list[dict[str, Any]] = []
    for family, (config, optional) in FAMILIES.items():
        for encoding in ENCODINGS:
            path = tmp_path / f"{family}_{encoding}"
            random_decoder(config, encoding, optional=optional).write(path)
            steps: list[dict[str, Any]] = [
                {"run": [TOKENS[:30], [0] * 30, [*range(30)], [0, 15, 29]], "top": [1, 97]},
                {"run": [[TOKENS[30]], [0], [30], [0]], "top": [0, 5]},
                {"run": [TOKENS[:4], [0, 0, 1, 1], [31, 32, 0, 1], [0, 1, 2, 3]]},
                {"copy": [0, 1, 21], "run": [TOKENS[20:25], [1] * 5, [*range(21, 26)], [4]]},
            ]
            cases.append({"path": str(path), "options": {"slots": 2, "context": 40}, "steps": steps})

    found = _in_node(cases, tmp_path)

    for case, results in zip(cases, found, strict=True):
        with Decoder.open(case["path"], **case["options"]) as decoder:
            for step in case["steps"]:
                if "copy" in step:
                    decoder.copy(*step["copy"])
                decoder.run(*step["run"])
                rows = [bytes(decoder.logits(row)).hex() for row in range(len(step["run"][3]))]
                assert results.pop(0) == rows, case["path"]
                if "top" in step:
                    assert results.pop(0) == [list(pair) for pair in decoder.top(*step["top"])], case["path"]


def test_what_does_not_fit_is_refused_alike(tmp_path: Path) -> None:
    config, optional = FAMILIES["llama"]
    path = random_decoder(config, "int4", optional=optional).write(tmp_path / "model")
    batches: list[tuple[list[Any], str]] = [
        ([[97], [0], [0], []], "tokens[0] is 97, expected 0 to 96"),
        ([[1], [2], [0], []], "slots[0] is 2, expected 0 to 1"),
        ([[1, 1], [0, 0], [3, 3], []], "positions[1] is 3"),
        ([[1, 1], [0, 0], [0, 1], [1, 0]], "wanted[1] is 0"),
        ([[1], [0, 0], [0], []], "1 tokens, 2 slots and 1 positions"),
        ([[1.5], [0], [0], []], "tokens[0] is 1.5"),
        ([[2**40], [0], [0], []], "tokens[0] is 1099511627776"),
    ]
    steps: list[dict[str, Any]] = [{"run": batch} for batch, _ in batches]
    steps += [{"top": [0, 1]}, {"copy": [0, 2, 1]}, {"copy": [0, 1, 65]}]
    says = [*(said for _, said in batches), "Logits 0 were not computed", "slot is 2", "length is 65"]

    (found,) = _in_node([{"path": str(path), "options": {"slots": 2}, "steps": steps}], tmp_path)

    assert [one["code"] for one in found] == ["input_error"] * len(says)
    for one, said in zip(found, says, strict=True):
        assert said in one["message"]


def test_a_file_that_cannot_be_opened_is_refused(tmp_path: Path) -> None:
    config, optional = FAMILIES["phi"]  # 5 GiB of cache in 65536 slots
    whole = random_decoder(config, "int8", optional=optional).write(tmp_path / "model").read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    wrong = {
        "nothing": b"",
        "short": whole[:-1],
        "long": whole + b"0",
        "no header": b"x" * 100,
        "no json": (8).to_bytes(8, "little") + b"{{{{{{{{" + bytes(64),
        "another version": whole[:start] + whole[start : start + 4] + b"\2" + whole[start + 5 :],
        "another size": whole[: start + 12] + b"\0\1\0\0" + whole[start + 16 :],
    }
    cases: list[dict[str, Any]] = []
    for name, content in wrong.items():
        (tmp_path / name).write_bytes(content)
        cases.append({"path": str(tmp_path / name), "options": {}, "steps": []})
    options: list[tuple[dict[str, Any], str]] = [
        ({"slots": 0}, "input_error"),
        ({"context": 65}, "input_error"),
        ({"slots": 65536}, "out_of_memory"),
    ]
    cases += [{"path": str(tmp_path / "model"), "options": one, "steps": []} for one, _ in options]

    found = _in_node(cases, tmp_path)

    codes = ["bundle_error"] * len(wrong) + [code for _, code in options]
    assert [results[0]["code"] for results in found] == codes
