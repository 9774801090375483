"""`selfTest` in JavaScript runs the vectors of a bundle's pipeline, and judges as Python does."""

from __future__ import annotations

import copy
import json
import random
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import edge_infer
from edge_infer.bundle.bundle import Bundle
from edge_infer.errors import EdgeInferError
from edge_infer.formats.safetensors import write_examples
from edge_infer.platform.hashing import sha256
from edge_infer.tasks import vector_making, vectors
from edge_infer.tasks.agreement import difference, plain
from edge_infer.tasks.definition import definition_of
from edge_infer.tensors.arrays import to_tensor
from tests.support.tasks import each_task
from tests.support.tasks.pipelines import words

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
#: The one with a character of two UTF-16 units moves the places behind it.
TEXTS = ("a good film", "\U0001f600 Paris a London \U0001f600 bad")


def prove(*bundles: Path | str) -> list[Any]:
    command = ["node", str(HERE / "prove.mjs"), *map(str, bundles)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, encoding="utf-8")
    found: list[Any] = json.loads(done.stdout)
    return found


def rewrite(bundle: Path, file: str, data: bytes, **pipeline: Any) -> None:
    """Put a file into a bundle, and change fields of its manifest's pipeline."""
    (bundle / file).parent.mkdir(exist_ok=True)
    (bundle / file).write_bytes(data)
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    files = [one for one in manifest["files"] if one["path"] != file]
    manifest["files"] = [*files, {"path": file, "size": len(data), "sha256": sha256(data)}]
    manifest["pipeline"] |= pipeline
    (bundle / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def with_vectors(bundle: Path) -> list[Any]:
    """Give a bundle the vectors that its pipeline has in Python; return the answers."""
    opened = Bundle.open(bundle)
    cases = vector_making.cases_for(definition_of(opened.manifest), TEXTS)
    with edge_infer.pipeline(bundle) as ask:
        answers = [vectors.ask(ask, case) for case in cases]
    data = vector_making.write(opened, cases, {"onnx/fp32": answers}, "onnx/fp32")
    rewrite(bundle, vectors.PATH, data, vectors=vectors.PATH)
    return answers


@pytest.fixture(scope="module")
def proven(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], dict[str, list[Any]]]:
    bundles = each_task.write_all(tmp_path_factory.mktemp("each"))
    return bundles, {name: with_vectors(path) for name, path in bundles.items()}


@pytest.mark.long
def test_every_task_is_proven_in_node(proven: tuple[dict[str, Path], dict[str, list[Any]]]) -> None:
    bundles, answers = proven
    assert all(answers.values()), "each has a case at least"
    assert dict(zip(bundles, prove(*bundles.values()), strict=True)) == dict.fromkeys(bundles)


def changed(bundle: Path, change: Callable[[Any], None]) -> Path:
    document = json.loads((bundle / vectors.PATH).read_text("utf-8"))
    change(document)
    rewrite(bundle, vectors.PATH, json.dumps(document).encode())
    return bundle


def test_what_differs_is_told(tmp_path: Path) -> None:
    after = [{"step": "post.softmax"}, {"step": "post.top_k"}]

    def made(name: str) -> Path:
        path = words(tmp_path / f"{name}.bundle", "text-classification", after, 2, ["good", "bad"], pooled=True)
        with_vectors(path)
        return path

    def other_score(document: Any) -> None:
        document["cases"][0]["answer"][0]["score"] += 0.1

    def other_tokens(document: Any) -> None:
        (run,) = document["cases"][1]["runs"]
        run[next(iter(run))]["sha256"] = "0" * 64

    labels = made("labels")
    rewrite(labels, "labels.json", b'["bad", "good"]')
    bundles = [
        labels,
        changed(made("answer"), other_score),
        changed(made("tokens"), other_tokens),
        changed(made("version"), lambda document: document.update(version=2)),
        changed(made("cases"), lambda document: document.update(cases=document["cases"] * 40)),
    ]
    by_labels, by_answer, by_tokens, *unread = prove(*bundles)
    assert by_labels["code"] == "execution_error"
    assert by_labels["differences"][0] == "the labels were changed after the vectors were made"
    assert [one.split(":")[0] for one in by_answer["differences"]] == ["case 0"]
    assert "differs" in by_tokens["differences"][0]
    assert [one["code"] for one in unread] == ["manifest_error", "manifest_error"]


def test_where_it_is_loaded_the_model_proves_itself_too(tmp_path: Path) -> None:
    after = [{"step": "post.softmax"}, {"step": "post.top_k"}]

    def made(name: str, factor: int | None) -> Path:
        path = words(tmp_path / f"{name}.bundle", "text-classification", after, 2, ["good", "bad"], pooled=True)
        with_vectors(path)
        if factor is None:
            return path
        with edge_infer.load(path, arrays="numpy") as session:
            given = {spec.name: np.ones((1, 2), str(spec.dtype)) for spec in session.inputs}
            outputs = {name: to_tensor(array * factor) for name, array in session.run(given).items()}
        golden = write_examples([({name: to_tensor(array) for name, array in given.items()}, outputs)])
        rewrite(path, "golden.safetensors", golden)
        manifest = json.loads((path / "manifest.json").read_text("utf-8"))
        (path / "manifest.json").write_text(json.dumps({**manifest, "examples": "golden.safetensors"}), "utf-8")
        return path

    bundles = [made("none", None), made("right", 1), made("wrong", 2)]
    in_python: list[tuple[str, str] | None] = []
    for bundle in bundles:
        try:
            edge_infer.pipeline(bundle, self_test=True).close()
            in_python.append(None)
        except EdgeInferError as error:
            in_python.append((error.code, error.message))

    in_javascript = [one and (one["code"], one["message"]) for one in prove("--load", *bundles)]

    assert in_javascript[:2] == in_python[:2]
    assert in_python[1] is None
    assert [one and one[0] for one in in_javascript] == ["input_error", None, "execution_error"]
    assert [one and one[0] for one in in_python] == ["input_error", None, "execution_error"]


def moved(value: Any, chance: random.Random) -> Any:
    """Return an answer with some of its numbers moved, names changed or members left out."""
    if isinstance(value, dict):
        return {key: moved(one, chance) for key, one in value.items() if chance.random() > 0.01}
    if isinstance(value, list):
        return [moved(one, chance) for one in value if chance.random() > 0.04]
    if isinstance(value, float):
        return value + chance.choice((0, 0, 0.004, -0.03, 0.5)) * max(1.0, abs(value))
    if isinstance(value, str) and chance.random() < 0.05:
        return value[::-1]
    return value


def test_both_languages_judge_answers_alike(
    proven: tuple[dict[str, Path], dict[str, list[Any]]], tmp_path: Path
) -> None:
    chance = random.Random(8)
    answers = [plain(one) for each in proven[1].values() for one in each]
    cases = [(one, one, 0.0) for one in answers]
    cases += [(one, moved(copy.deepcopy(one), chance), chance.choice((0.0, 0.3))) for one in answers for _ in range(12)]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    command = ["node", str(HERE / "agree.mjs"), str(tmp_path / "cases.json")]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    judged = [bool(difference(*case)) for case in cases]
    apart = [(one, said) for one, said, other in zip(cases, found, judged, strict=True) if bool(said) != other]
    assert apart == []
    assert not any(judged[: len(answers)])
    assert 0.2 < sum(judged[len(answers) :]) / len(judged[len(answers) :]) < 0.98
