"""`edge-infer chain`, and what `info`, `run` and `verify` do with a chain."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from edge_infer.cli import cli
from edge_infer.errors import EdgeInferError, InputError, ManifestError
from tests.support.chains import made

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

TOML = """
name = "things"
version = "3"

[inputs]
image = "image"

[[steps]]
name = "things"
bundle = "things.bundle"
from = "image"

[[steps]]
name = "crops"
do = "crop"
from = { image = "image", boxes = "things" }

[[steps]]
name = "colours"
bundle = "colours.bundle"
from = "crops"
with = { top_k = 1 }
cache = true
"""


def call(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, arguments, catch_exceptions=True)
    if isinstance(result.exception, EdgeInferError):
        raise result.exception
    return result


def built(folder: Path) -> Path:
    made.things(folder)
    (folder / "chain.toml").write_text(TOML)
    Image.fromarray(np.full((20, 30, 3), (250, 20, 10), np.uint8)).save(folder / "red.png")
    target = folder / "out.bundle"
    done = call("chain", str(folder / "chain.toml"), "-o", str(target), "--json")
    facts = json.loads(done.stdout)
    assert facts["steps"] == ["things", "crops", "colours"]
    assert "things -> crops -> colours" in done.stderr
    return target


def test_a_description_becomes_a_bundle_that_runs(tmp_path: Path) -> None:
    bundle, image = built(tmp_path), str(tmp_path / "red.png")
    shown = call("info", str(bundle)).stdout
    assert "things 3  revision" in shown
    assert "input   image: image" in shown
    assert [line.split()[:3] for line in shown.splitlines() if line.startswith("crops")] == [
        ["crops", "crop", "image,"]
    ]
    facts = json.loads(call("info", str(bundle), "--json").stdout)
    assert [step["gives"] for step in facts["steps"]] == ["boxes", "image[]", "answer[]"]
    lines = [json.loads(line) for line in call("run", str(bundle), image, image, "--json").stdout.splitlines()]
    assert [[one[0]["label"] for one in line["answer"]] for line in lines[:2]] == [["red", "red"]] * 2
    assert [one["values"] for one in lines[2]["timings"]] == [2, 2, 4]
    assert "colours" in call("run", str(bundle), image).stderr


def test_verify_runs_the_proofs_of_the_steps_and_of_the_chain(tmp_path: Path) -> None:
    bundle = built(tmp_path)
    done = call("verify", str(bundle), "--json")
    rows = json.loads(done.stdout)["chain"]
    assert [(row["step"], row["verdict"]) for row in rows] == [("things", "skip"), ("colours", "skip"), ("chain", "ok")]
    assert done.exit_code == 0
    path = bundle / "manifest.json"
    document = json.loads(path.read_text())
    document["chain"]["steps"][2]["with"] = {"top_k": 2}
    path.write_text(json.dumps(document))
    done = call("verify", str(bundle))
    assert done.exit_code == 1
    assert "chain" in done.stdout
    assert "fail: case 0" in done.stdout


def test_a_chain_of_several_inputs_takes_names(tmp_path: Path) -> None:
    made.embedder(tmp_path / "minilm.bundle")
    made.index(tmp_path / "notes.index", tmp_path / "minilm.bundle")
    description = {
        "name": "two",
        "inputs": {"vector": "tensor", "text": "text"},
        "steps": [{"name": "found", "index": "notes.index", "from": {"vector": "vector", "text": "text"}}],
        "examples": [{"vector": [1, 0, 0, 0], "text": "film"}],
    }
    (tmp_path / "two.json").write_text(json.dumps(description))
    call("chain", str(tmp_path / "two.json"), "-o", str(tmp_path / "two.bundle"))
    found = json.loads(call("run", str(tmp_path / "two.bundle"), "vector=[1, 0, 0, 0]", "text=a").stdout)
    assert len(found) == len(made.TEXTS)
    assert json.loads(call("verify", str(tmp_path / "two.bundle"), "--json").stdout)["passed"]
    for raw, said in [
        (["vectors=[1]"], "names no input"),
        (["vector=[1", "text=a"], "not JSON"),
        ([], "nothing is given"),
    ]:
        with pytest.raises(InputError, match=said):
            call("run", str(tmp_path / "two.bundle"), *raw)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("steps = [", InputError, "is not TOML"),
        ("step = []", InputError, "has the field `step`"),
        (TOML.replace('"things.bundle"', '"missing.bundle"'), EdgeInferError, "missing.bundle"),
        (TOML.replace('from = "image"', 'from = "colours"'), ManifestError, "in a circle"),
        (TOML.replace('from = "crops"', 'from = "crop"'), ManifestError, "`crop`, which is not there"),
    ],
)
def test_a_wrong_description_leaves_nothing(tmp_path: Path, text: str, kind: type[EdgeInferError], said: str) -> None:
    made.things(tmp_path)
    (tmp_path / "chain.toml").write_text(text)
    with pytest.raises(kind) as caught:
        call("chain", str(tmp_path / "chain.toml"), "-o", str(tmp_path / "out.bundle"))
    assert said in caught.value.message
    assert not list(tmp_path.glob("*out.bundle*"))


@pytest.mark.parametrize(
    "arguments", [["run", "--argument", "top_k=1"], ["run", "--variant", "onnx/fp32"], ["verify", "--atol", "1"]]
)
def test_options_of_one_model_are_refused(tmp_path: Path, arguments: list[Any]) -> None:
    bundle = built(tmp_path)
    with pytest.raises(InputError):
        call(arguments[0], str(bundle), *arguments[1:])
