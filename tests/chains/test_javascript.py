"""JavaScript reads the same definitions of chains, refuses the same ones, and cuts the same pixels and samples."""

from __future__ import annotations

import json
import random
import subprocess
from array import array
from pathlib import Path
from typing import Any

from edge_infer.chains.definition import read_chain
from edge_infer.chains.kinds import INPUTS, WORKS
from edge_infer.chains.steps.crop import cropped
from edge_infer.chains.steps.cut import stretch
from edge_infer.chains.steps.prompt import text_of
from edge_infer.errors import EdgeInferError
from edge_infer.tasks.audio.sound import Sound
from edge_infer.tasks.image.image import Image
from tests.support.chains.definitions import DOCUMENTS

PROGRAM = Path(__file__).with_name("definitions.mjs")


def in_node(folder: Path, asked: dict[str, Any]) -> dict[str, Any]:
    (folder / "asked.json").write_text(json.dumps(asked), "utf-8")
    command = ["node", str(PROGRAM), str(folder / "asked.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def read(document: Any) -> dict[str, Any]:
    try:
        return {"steps": [step.name for step in read_chain(document).steps]}
    except EdgeInferError as error:
        return {"code": error.code}


def test_both_languages_do_the_same(tmp_path: Path) -> None:
    rng = random.Random(7)
    documents = [document for document, _ in DOCUMENTS]
    crops: list[list[Any]] = []
    for _ in range(60):
        xs, ys = sorted(rng.uniform(-5, 25) for _ in range(2)), sorted(rng.uniform(-5, 20) for _ in range(2))
        box = {"xmin": xs[0], "ymin": ys[0], "xmax": xs[1], "ymax": ys[1]}
        crops.append([rng.randint(1, 20), rng.randint(1, 15), box, rng.choice([0, 0.1, 0.5])])
    stretches: list[list[Any]] = [
        [rng.randint(1, 60), a := rng.uniform(0, 5), a + rng.uniform(0, 3), 0.1] for _ in range(40)
    ]
    hits: list[dict[str, Any]] = [
        {"id": i, "score": 1.0, "text": text, "metadata": {}} for i, text in enumerate(["ab", None, "\U0001f600" * 9])
    ]
    texts: list[list[Any]] = [
        ["\U0001f600ab", 2],
        [hits, 100],
        [hits, 9],
        [[], 5],
        [{"text": "what was said"}, 8],
        [[{"label": "a", "score": 1.0}, {"label": "b"}], 4],
        [{"answer": "yes"}, 9],
        [3, 9],
        [[1, 2], 9],
    ]
    found = in_node(tmp_path, {"documents": documents, "crops": crops, "stretches": stretches, "texts": texts})

    assert [{key: one[key] for key in one if key != "message"} for one in found["answers"]] == [*map(read, documents)]
    for (_, said), answer in zip(DOCUMENTS, found["answers"], strict=True):
        assert said.replace("'", '"') in answer["message"].replace("'", '"').replace("undefined", "None")
    assert found["inputs"] == [*INPUTS]
    for name, work in WORKS.items():
        parameters = None if work.parameters is None else {key: one.to_json() for key, one in work.parameters.items()}
        facts = {"takes": dict(work.takes), "gives": work.gives, "optional": [*work.optional], "depth": work.depth}
        assert found["works"].pop(name) == {**facts, "holds": work.holds, "parameters": parameters}
    assert not found["works"]
    assert found["spread"] == [[{"query": "a", "hit": "x"}, {"query": "a", "hit": "y"}], [["ax", "ay"], []]]
    assert found["cache"] == [None, 60, 60, 60]
    assert found["digests"] == [7, None]
    for (width, height, box, margin), answer in zip(crops, found["crops"], strict=True):
        image = Image(bytes(i % 256 for i in range(width * height * 3)), width, height, 3)
        here = cropped(image, box, margin)
        assert [here.width, here.height, [*here.data]] == answer
    for (count, start, end, margin), answer in zip(stretches, found["stretches"], strict=True):
        assert [*stretch(Sound(array("f", range(count)), 10), start, end, margin).samples] == answer
    assert found["texts"] == [_text(value, most) for value, most in texts]


def _text(value: Any, most: int) -> str:
    try:
        return text_of("x", value, most, "\n\n")
    except EdgeInferError as error:
        return error.code
