"""A chain gives what its parts give when they are run by hand, one after the other."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

import edge_infer
from edge_infer.chains.steps.crop import cropped
from edge_infer.errors import InputError, IntegrityError, UnsupportedError
from edge_infer.tasks.answers import as_json
from edge_infer.tasks.image.image import Image as Pixels
from edge_infer.vectors.embedder import Embedder
from tests.support.chains import made
from tests.support.tasks import pipelines

if TYPE_CHECKING:
    from pathlib import Path


def picture(seed: int, width: int = 50, height: int = 40) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def by_hand(folder: Path, image: Any) -> dict[str, Any]:
    """Run the parts of `made.things` one after the other."""
    pixels = Pixels(image.tobytes(), image.shape[1], image.shape[0], 3)
    with (
        edge_infer.pipeline(folder / "things.bundle") as find,
        edge_infer.pipeline(folder / "colours.bundle") as classify,
    ):
        found = find(image)
        crops = [cropped(pixels, one["box"], 0.1) for one in found]
        return {"things": found, "colours": [classify(one, top_k=1) for one in crops], "whole": classify(image)}


def near(one: Any, other: Any) -> bool:
    """Tell whether two answers are the same but for the last digits that a batch may change."""
    if isinstance(one, float):
        return bool(abs(one - other) < 1e-6)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(near, one, other))
    return bool(one == other)


def test_crops_of_a_detector_are_classified(tmp_path: Path) -> None:
    bundle = made.build(tmp_path, made.things(tmp_path))
    pictures = [picture(seed, 40 + seed, 61 - seed) for seed in range(4)]
    with edge_infer.Chain.open(bundle) as chain:
        answers = chain(pictures)
        assert near(chain(pictures[0]), answers[0])
        assert len(answers[0]["colours"]) == len(answers[0]["things"]) == 2
    for image, answer in zip(pictures, answers, strict=True):
        assert near(answer, by_hand(tmp_path, image))


def test_a_question_is_answered_from_what_was_found(tmp_path: Path) -> None:
    bundle = made.build(tmp_path, made.answers(tmp_path))
    question = "a good paris"
    with edge_infer.Chain.open(bundle) as chain:
        answer = chain(question)
        assert chain({"question": question}) == answer
    with Embedder(tmp_path / "minilm.bundle") as model:
        vector = model.query(question)
    hits = edge_infer.Index.open(tmp_path / "notes.index").find(question, vector, 3, mode="hybrid")
    with edge_infer.pipeline(tmp_path / "ranker.bundle") as rank:
        ranked = rank({"query": question, "documents": [hit.text for hit in hits]}, top_k=2)
    assert [one["text"] for one in answer["sources"]] == [one["text"] for one in ranked]
    assert [one["id"] for one in answer["sources"]] == [hits[one["corpus_id"]].id for one in ranked]
    sources = "\n\n".join(f"[{number}] {one['text']}" for number, one in enumerate(ranked, 1))
    prompt = f"Read:\n{sources}\n\nQuestion: {question}"
    with edge_infer.generate(tmp_path / "writer.bundle") as generator:
        expected = generator.chat([{"role": "user", "content": prompt}], max_tokens=8, seed=0).text
    assert answer["answer"] == expected


def test_an_encoder_feeds_k_means(tmp_path: Path) -> None:
    bundle = made.build(tmp_path, made.grouped(tmp_path))
    with (
        edge_infer.Chain.open(bundle, cache=edge_infer.StepCache()) as chain,
        Embedder(tmp_path / "minilm.bundle") as model,
        edge_infer.load(tmp_path / "groups.bundle", arrays="numpy") as groups,
    ):
        found = [int(one.tolist()) for one in chain(made.TEXTS)]
        rows = np.array([one.tolist() for one in model.documents(made.TEXTS)], np.float32)
        assert found == groups.run({"x": rows})["label"].tolist()
        assert len(set(found)) > 1


def test_stretches_of_speech_are_cut_out(tmp_path: Path) -> None:
    bundle = made.build(tmp_path, made.speech(tmp_path))
    samples = np.zeros(16_000, np.float32)
    samples[3200:8000] = 0.9
    samples[11_200:14_400] = 0.8
    with edge_infer.Chain.open(bundle) as chain:
        answer = chain(samples)
        assert chain([*map(float, samples)]) == answer  # the samples of one sound, not a list of inputs
    with edge_infer.pipeline(tmp_path / "speech.bundle") as listen:
        parts = listen(samples)
        cuts = [samples[round(one["start"] * 16_000) : round(one["end"] * 16_000)] for one in parts]
        assert answer == {"parts": parts, "again": [listen(one) for one in cuts]}
    assert [round(one["start"], 2) for one in parts] == [0.2, 0.7]


def test_steps_that_two_models_begin_with_are_done_once(tmp_path: Path) -> None:
    """Both classifiers decode and resize alike; of the detector only the decoding is the same."""
    description = made.things(tmp_path)
    pipelines.colours(tmp_path / "others.bundle", after=[{"step": "post.top_k"}])
    description["steps"].append({"name": "others", "bundle": "others.bundle", "from": "image"})
    description["outputs"]["others"] = "others"
    buffer = io.BytesIO()
    Image.fromarray(picture(1)).save(buffer, "PNG")
    with edge_infer.Chain.open(made.build(tmp_path, description)) as chain:
        run = chain.run(buffer.getvalue())
        assert run.spared == 1 + 1 + 4  # decoding for the crops and `whole`, and all four steps for `others`
        assert near(run.answer["whole"], by_hand(tmp_path, picture(1))["whole"])
        with edge_infer.pipeline(tmp_path / "others.bundle") as others:
            assert near(run.answer["others"], others(picture(1)))


def test_what_the_steps_took_is_told(tmp_path: Path) -> None:
    with edge_infer.Chain.open(made.build(tmp_path, made.things(tmp_path))) as chain:
        run = chain.run([picture(1), picture(2)])
        assert [(one.name, one.values, one.cached) for one in run.timings] == [
            ("things", 2, 0),
            ("crops", 2, 0),
            ("colours", 4, 0),
            ("whole", 2, 0),
        ]
        assert all(one.ms > 0 for one in run.timings)
        assert repr(chain).endswith("things -> crops -> colours -> whole)")


def test_an_empty_list_and_an_image_without_a_box(tmp_path: Path) -> None:
    description = made.things(tmp_path)
    description["steps"][0]["with"] = {"threshold": 0.95}
    with edge_infer.Chain.open(made.build(tmp_path, description)) as chain:
        assert chain([]) == []
        assert chain(picture(1))["colours"] == []


def test_the_loop_is_not_blocked(tmp_path: Path) -> None:
    bundle = made.build(tmp_path, made.grouped(tmp_path))

    async def ask() -> Any:
        chain = await edge_infer.Chain.open_async(bundle)
        try:
            return (await chain.run_async("good film")).answer
        finally:
            chain.close()

    with edge_infer.Chain.open(bundle) as chain:
        assert asyncio.run(ask()).tolist() == chain("good film").tolist()


def test_a_zip_is_a_chain_too(tmp_path: Path) -> None:
    bundle = made.build(tmp_path, made.answers(tmp_path))
    with zipfile.ZipFile(tmp_path / "chain.zip", "w") as archive:
        for path in bundle.rglob("*"):
            archive.write(path, path.relative_to(bundle).as_posix())
    with edge_infer.Chain.open(bundle) as folder, edge_infer.Chain.open(tmp_path / "chain.zip") as packed:
        assert packed("bad film") == folder("bad film")


def test_the_model_of_two_steps_is_in_memory_once(tmp_path: Path) -> None:
    bundle = made.build(tmp_path, made.things(tmp_path))
    inside = sorted(path.name for path in (bundle / "steps").iterdir())
    assert inside == ["colours", "things"]


def test_a_file_that_was_changed_is_refused(tmp_path: Path) -> None:
    bundle = made.build(tmp_path, made.grouped(tmp_path))
    path = bundle / "steps" / "group" / "manifest.json"
    path.write_text(path.read_text().replace('"groups"', '"others"'))
    with pytest.raises(IntegrityError, match=r"steps/group/manifest\.json"):
        edge_infer.Chain.open(bundle)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"images": 1}, "step `things`: `dict` is not an image"),
        (7, "`things`: `int` is not an image"),
        (b"no image", "step `things`: the image cannot be read"),
        ("missing.png", "cannot read the image `missing.png`"),
    ],
)
def test_an_input_that_is_none_names_the_step(tmp_path: Path, given: Any, said: str) -> None:
    bundle = made.build(tmp_path, made.things(tmp_path))
    with edge_infer.Chain.open(bundle) as chain, pytest.raises(InputError, match=said):
        chain(given)


def test_inputs_have_names(tmp_path: Path) -> None:
    made.ranker(tmp_path / "ranker.bundle")
    made.embedder(tmp_path / "minilm.bundle")
    made.index(tmp_path / "notes.index", tmp_path / "minilm.bundle")
    description = {
        "name": "two",
        "inputs": {"vector": "tensor", "text": "text"},
        "steps": [{"name": "found", "index": "notes.index", "from": {"vector": "vector", "text": "text"}}],
    }
    with edge_infer.Chain.open(made.build(tmp_path, description)) as chain:
        assert len(chain({"vector": [1, 0, 0, 0], "text": "a"})) == len(made.TEXTS)
        for given, said in [
            ("a", "the chain takes `vector`, `text`, and one value is given"),
            ({"vector": [1, 0, 0, 0]}, "`text` is not given"),
            ({"vector": [1, 0, 0, 0], "text": "a", "texts": 1}, "takes no `texts`"),
            ({"vector": [1, 0, 0, 0], "text": 3}, "`text` is int, expected a text"),
            ({"vector": [1, 0, 0], "text": "a"}, "step `found`: vector 0 has 3 numbers"),
        ]:
            with pytest.raises(InputError, match=said):
                chain(given)


def test_load_and_pipeline_say_what_opens_a_chain(tmp_path: Path) -> None:
    bundle = made.build(tmp_path, made.grouped(tmp_path))
    for open_it in (edge_infer.load, edge_infer.pipeline):
        with pytest.raises(UnsupportedError, match="is a chain") as caught:
            open_it(bundle)
        assert "Chain.open" in caught.value.hint


def test_a_single_model_is_no_chain(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="is not a chain"):
        edge_infer.Chain.open(made.embedder(tmp_path / "minilm.bundle"))


def test_answers_can_be_written_as_json(tmp_path: Path) -> None:
    with edge_infer.Chain.open(made.build(tmp_path, made.things(tmp_path))) as chain:
        json.dumps(as_json(chain(picture(3))))
    shutil.rmtree(tmp_path / "things.bundle")  # the chain holds what it needs
    with edge_infer.Chain.open(tmp_path / "chain-things.bundle") as chain:
        assert chain(picture(3))
