"""What a chain may not say is refused when it is read, by name, before any model is loaded."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import pytest

import edge_infer
from edge_infer.chains.build import build_chain
from edge_infer.chains.checked import check_chain
from edge_infer.chains.definition import read_chain
from edge_infer.chains.spread import gather, spread
from edge_infer.errors import BundleError, EdgeInferError, InputError, ManifestError
from tests.support.chains import made
from tests.support.chains.definitions import CHAIN, DOCUMENTS, A
from tests.support.tasks import pipelines

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("document", "said"), DOCUMENTS)
def test_a_definition_is_refused_by_name(document: dict[str, Any], said: str) -> None:
    with pytest.raises(ManifestError) as caught:
        read_chain(document)
    assert said in caught.value.message


def test_steps_may_be_written_in_any_order() -> None:
    steps = [{**A, "name": "c", "from": "b"}, {**A, "name": "b", "from": "a"}, A]
    assert [one.name for one in read_chain({**CHAIN, "steps": steps}).steps] == ["a", "b", "c"]


def things(folder: Path) -> dict[str, Any]:
    description = made.things(folder)
    made.grouped(folder)
    made.ranker(folder / "ranker.bundle")
    made.index(folder / "notes.index", folder / "minilm.bundle")
    return description


@pytest.mark.parametrize(
    ("at", "fields", "said"),
    [
        (1, {"from": {"image": "image"}}, "step `crops` (crop) lacks `boxes`"),
        (1, {"from": {"image": "image", "boxes": "whole"}}, "takes boxes as `boxes`, and `whole` gives answer"),
        (1, {"from": {"image": "image", "boxs": "things"}}, "takes no `boxs`"),
        (1, {"from": {"image": "things", "boxes": "things"}}, "takes image as `image`, and `things` gives boxes"),
        (2, {"with": {"topk": 3}}, "takes no argument `topk`"),
        (2, {"from": "crops.x"}, "reads `crops.x`, and `crops` gives image[], which has no parts"),
        (2, {"bundle": "groups.bundle", "do": "model"}, "does not say what stands before and after"),
        (2, {"with": {}, "bundle": "groups.bundle"}, "feeds `input`, the model takes `x`"),
        (
            2,
            {"with": {}, "bundle": "groups.bundle", "from": {"x": "crops"}},
            "takes tensor as `x`, and `crops` gives image[]",
        ),
        (2, {"with": {}, "bundle": "minilm.bundle"}, "takes text as `input`, and `crops` gives image[]"),
        (
            2,
            {"with": {}, "bundle": "minilm.bundle", "do": "rank", "from": {"query": "image", "hits": "image"}},
            "is for feature-",
        ),
        (2, {"bundle": "minilm.bundle", "do": "generate"}, "generates no text"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, at: int, fields: dict[str, Any], said: str) -> None:
    description = things(tmp_path)
    description["steps"][at] = {**description["steps"][at], **fields}
    with pytest.raises(ManifestError) as caught:
        made.build(tmp_path, description)
    assert said in caught.value.message
    assert not list(tmp_path.glob("*chain-things*"))


def test_an_index_of_another_model_is_refused(tmp_path: Path) -> None:
    description = made.answers(tmp_path)
    other = pipelines.words(tmp_path / "other.bundle", "feature-extraction", [{"step": "post.normalize"}], pooled=True)
    description["steps"][0]["bundle"] = other.name
    with pytest.raises(ManifestError, match="step `found`: the index was built by revision"):
        made.build(tmp_path, description)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"from": {"text": "question"}}, "searches by hybrid and reads no `vector`"),
        ({"from": {"vector": "vector"}}, "searches by hybrid and reads no `text`"),
        ({"with": {"mode": "word"}}, '`mode` is "word"'),
        ({"with": {"k": 0}}, "`k` is 0"),
    ],
)
def test_a_search_reads_what_its_mode_needs(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    description = made.answers(tmp_path)
    description["steps"][1] = {**description["steps"][1], **change}
    with pytest.raises(ManifestError) as caught:
        made.build(tmp_path, description)
    assert said in caught.value.message


@pytest.mark.parametrize(
    ("template", "said"),
    [("{source}: {question}", "nothing is read as `{source}`"), ("{question}", "has no place `{sources}`")],
)
def test_a_template_names_what_is_read(tmp_path: Path, template: str, said: str) -> None:
    description = made.answers(tmp_path)
    description["steps"][3]["with"]["template"] = template
    with pytest.raises(ManifestError) as caught:
        made.build(tmp_path, description)
    assert said in caught.value.message


def test_an_option_that_a_generation_lacks_is_refused(tmp_path: Path) -> None:
    description = made.answers(tmp_path)
    description["steps"][-1]["with"] = {"max_tokns": 5}
    with pytest.raises(ManifestError, match="generation has no option `max_tokns`"):
        made.build(tmp_path, description)


def test_more_examples_than_are_read_again_are_refused(tmp_path: Path) -> None:
    description = {**made.grouped(tmp_path), "examples": [{"text": "good film"}] * 33}
    with pytest.raises(InputError, match="there are 33 `examples`, expected at most 32"):
        made.build(tmp_path, description)


def test_an_output_that_the_model_lacks_is_refused(tmp_path: Path) -> None:
    description = made.grouped(tmp_path)
    description["outputs"] = "group.labels"
    with pytest.raises(ManifestError, match="gives `label`"):
        made.build(tmp_path, description)


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        ({"steps": []}, InputError, "1 to 64 steps"),
        ({"steps": [{"name": "a"}]}, InputError, "step `a` does nothing"),
        ({"steps": [{"bundle": "x"}]}, InputError, "step 0 has no name"),
        ({"steps": [{"name": "a", "bundle": "missing.bundle", "from": "text"}]}, BundleError, "missing.bundle"),
        ({"steps": [{"name": "a", "index": "missing.index", "from": "text"}]}, BundleError, "no index at"),
        ({"name": "a b"}, InputError, "`name` is 'a b'"),
        ({"examples": [{"texts": "a"}]}, InputError, "an example has `texts`"),
        ({"examples": "a"}, InputError, "`examples` is not a list"),
    ],
)
def test_a_description_is_refused(
    tmp_path: Path, change: dict[str, Any], kind: type[EdgeInferError], said: str
) -> None:
    description = {**made.grouped(tmp_path), **change}
    with pytest.raises(kind) as caught:
        build_chain(description, tmp_path, tmp_path / "x.bundle")
    assert said in caught.value.message
    assert not list(tmp_path.glob("*x.bundle*"))


def test_what_is_there_is_replaced_only_by_force(tmp_path: Path) -> None:
    description = made.grouped(tmp_path)
    first = made.build(tmp_path, description)
    before = (first / "manifest.json").read_bytes()
    with pytest.raises(BundleError, match="is there already"):
        made.build(tmp_path, description)
    made.build(tmp_path, {**description, "version": "2"}, force=True)
    assert (first / "manifest.json").read_bytes() != before
    assert json.loads((first / "manifest.json").read_bytes())["version"] == "2"


def test_the_same_description_gives_the_same_bytes(tmp_path: Path) -> None:
    description = made.grouped(tmp_path)
    first = (made.build(tmp_path, description) / "manifest.json").read_bytes()
    assert (made.build(tmp_path, deepcopy(description), force=True) / "manifest.json").read_bytes() == first


def test_a_chain_that_was_damaged_is_refused(tmp_path: Path) -> None:
    bundle = made.build(tmp_path, made.grouped(tmp_path))
    path = bundle / "manifest.json"
    document = json.loads(path.read_text())
    document["chain"]["steps"][0]["bundle"] = "steps/other"
    path.write_text(json.dumps(document))
    with pytest.raises(ManifestError, match="there is no bundle `steps/other` in the chain"):
        check_chain(edge_infer.Bundle.open(bundle))


def test_a_chain_in_a_chain_is_refused(tmp_path: Path) -> None:
    description = made.grouped(tmp_path)
    made.build(tmp_path, description)
    description["steps"].append({"name": "inner", "do": "model", "bundle": "chain-grouped.bundle", "from": "text"})
    with pytest.raises(ManifestError, match="is a chain itself"):
        made.build(tmp_path, {**description, "name": "outer"})


def test_lists_are_spread_and_gathered() -> None:
    read = {"query": ["a", "b"], "hit": [["x", "y"], []]}
    single, shape = spread(read, {"query": 1, "hit": 2}, "rank")
    assert single == [{"query": "a", "hit": "x"}, {"query": "a", "hit": "y"}]
    assert gather(shape, ["ax", "ay"]) == [["ax", "ay"], []]
    with pytest.raises(InputError, match="step `rank` reads lists of different lengths: 1 of `a`, 2 of `b`"):
        spread({"a": [1], "b": [1, 2]}, {"a": 1, "b": 1}, "rank")
