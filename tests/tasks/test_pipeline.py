"""`edge_infer.pipeline`: raw data in, answers out, in the shapes that transformers gives them."""

from __future__ import annotations

import asyncio
import json
import wave
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

import edge_infer
from edge_infer import Tokenizer
from edge_infer.errors import ExecutionError, InputError, ManifestError, UnsupportedError
from edge_infer.tasks import pipeline as module
from edge_infer.tasks import vectors
from edge_infer.tasks.steps import STEPS, read_step
from edge_infer.tasks.text.windows import windows
from tests.support.tasks import pipelines

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edge_infer.runtime.session import Session

DECODE, TENSOR = {"step": "image.decode"}, {"step": "image.rescale_normalize"}
READS = {"version": 1, "inputs": {"pixels": [DECODE, TENSOR]}, "outputs": [{"step": "post.top_k"}]}
RED = np.full((20, 30, 3), (250, 20, 10), np.uint8)


@pytest.fixture
def classify(tmp_path: Path) -> Iterator[edge_infer.Pipeline]:
    with edge_infer.pipeline(pipelines.colours(tmp_path / "colours.bundle")) as found:
        yield found


def rewritten(bundle: Path, **changes: Any) -> Path:
    """The bundle with other fields in its manifest."""
    path = bundle / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return bundle


def test_an_image_is_classified(classify: edge_infer.Pipeline) -> None:
    answer = classify(RED)
    logits = np.array([250, 20, 10]) / 255 * 8
    scores = np.exp(logits) / np.exp(logits).sum()
    assert [one["label"] for one in answer] == ["red", "green", "blue"]
    assert [one["score"] for one in answer] == pytest.approx(scores, abs=1e-6)
    assert (classify.task, classify.labels) == ("image-classification", pipelines.COLOURS)


def test_a_path_bytes_a_picture_and_an_array_are_the_same_image(classify: edge_infer.Pipeline, tmp_path: Path) -> None:
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 256, (33, 21, 3), dtype=np.uint8))
    picture.save(tmp_path / "a.png")
    raw = [tmp_path / "a.png", str(tmp_path / "a.png"), (tmp_path / "a.png").read_bytes(), picture, np.asarray(picture)]
    first, *others = classify(raw)
    assert all(other == first for other in others)


def test_a_photo_is_turned_as_its_camera_was_held(classify: edge_infer.Pipeline, tmp_path: Path) -> None:
    upright = Image.fromarray(np.random.default_rng(1).integers(0, 256, (12, 40, 3), dtype=np.uint8))
    turned = upright.transpose(Image.Transpose.ROTATE_90)
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(tmp_path / "turned.png", exif=exif)
    assert classify(tmp_path / "turned.png") == classify(upright)


def test_an_iterator_is_answered_one_by_one(classify: edge_infer.Pipeline) -> None:
    asked = iter([RED, RED[..., ::-1].copy()])
    answers = classify(asked)
    assert [answer[0]["label"] for answer in answers] == ["red", "blue"]


def test_arguments_are_those_of_the_steps(classify: edge_infer.Pipeline) -> None:
    assert len(classify(RED, top_k=1)) == 1
    assert [one["label"] for one in classify(RED, threshold=0.5)] == ["red"]
    with pytest.raises(InputError, match="takes no argument `topk`") as caught:
        classify(RED, topk=1)
    assert "top_k" in caught.value.hint
    with pytest.raises(InputError, match="`top_k` is 0, expected a whole number from 1"):
        classify(RED, top_k=0)


def test_the_awaitable_form_gives_the_same(classify: edge_infer.Pipeline) -> None:
    assert asyncio.run(classify.run_async([RED, RED])) == classify([RED, RED])


def test_the_task_may_come_first_as_in_transformers(tmp_path: Path) -> None:
    bundle = pipelines.colours(tmp_path / "colours.bundle")
    with edge_infer.pipeline("image-classification", bundle) as run:
        assert run(RED, top_k=1)[0]["label"] == "red"
    with pytest.raises(InputError, match="is for image-classification, not for object-detection"):
        edge_infer.pipeline("object-detection", bundle)
    with pytest.raises(InputError, match="there is no task `image-clasification`"):
        edge_infer.pipeline("image-clasification", bundle)


def test_a_bundle_without_a_pipeline_says_what_to_type() -> None:
    with pytest.raises(UnsupportedError, match="does not say what stands before and after") as caught:
        edge_infer.pipeline("examples/digits/digits.onnx")
    assert "--task" in caught.value.hint


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        ({"version": 2}, "version 2"),
        ({"version": 1, "inputs": []}, r"`inputs` is \[\], expected an object"),
        ({"version": 1, "inputs": {"pixels": []}}, "a list of 0 steps, expected a list of 1 to 64 steps"),
        ({"version": 1, "inputs": {"pixels": [{"step": "image.blur"}]}}, "there is no step `image.blur`"),
        ({"version": 1, "inputs": {"pixels": [{"step": "image.resize", "widht": 3}]}}, "no parameter `widht`"),
        ({"version": 1, "inputs": {"pixels": [{"step": "image.resize", "width": "3"}]}}, '`width` is "3"'),
        ({"version": 1, "inputs": {"pixels": [{"step": "image.resize", "width": 0, "height": 1}]}}, "from 1 to 16384"),
        ({"version": 1, "inputs": {"pixels": [{"step": "image.center_crop", "width": 3}]}}, "lacks `height`"),
        (
            {**READS, "inputs": {"pixels": [DECODE, {"step": "image.resize"}, TENSOR]}},
            "is given nothing, expected `width` and `height`",
        ),
        ({**READS, "inputs": {"x": [DECODE, TENSOR]}}, "no input `x`"),
        ({**READS, "outputs": [{"step": "post.top_k", "tensor": "y"}]}, "names `y`"),
        ({**READS, "inputs": {"pixels": [TENSOR]}}, "`image.rescale_normalize` takes image, and the chain gives raw"),
        ({**READS, "outputs": [{"step": "post.nms"}]}, "`post.nms` takes detections, and the chain gives outputs"),
        ({**READS, "inputs": {"pixels": [DECODE]}}, "ends with `image.decode`, which gives image"),
    ],
)
def test_a_wrong_definition_is_refused_with_its_place(tmp_path: Path, pipeline: Any, message: str) -> None:
    bundle = rewritten(pipelines.colours(tmp_path / "colours.bundle"), pipeline=pipeline)
    with pytest.raises(ManifestError, match=message):
        edge_infer.pipeline(bundle)


def test_every_step_is_found_by_its_name_and_says_what_it_takes() -> None:
    for name in STEPS:
        try:
            step = read_step({"step": name}, "here")
        except ManifestError as error:
            assert "lacks" in error.message
        else:
            assert step.to_json() == {"step": name}


# -- texts --


def test_texts_of_different_lengths_run_together_and_pool_alone(tmp_path: Path) -> None:
    after = [{"step": "post.pool"}, {"step": "post.normalize"}]
    with edge_infer.pipeline(pipelines.words(tmp_path / "w.bundle", "feature-extraction", after)) as embed:
        texts = ["good film", "a", "bad film a good paris london", "good film"]
        together, alone = embed(texts), [embed(text) for text in texts]
        assert [one.tolist() for one in together] == [one.tolist() for one in alone]
        assert together[0].tolist() == together[3].tolist()
        assert sum(x * x for x in together[2].tolist()) == pytest.approx(1)
        assert together[0].shape == (4,)


def test_a_text_is_classified_and_a_pair_too(tmp_path: Path) -> None:
    after = [{"step": "post.softmax"}, {"step": "post.top_k", "top_k": 1}]
    bundle = pipelines.words(tmp_path / "w.bundle", "text-classification", after, 2, ["NO", "YES"], pooled=True)
    with edge_infer.pipeline(bundle) as classify:
        assert set(classify("good film")[0]) == {"label", "score"}
        assert len(classify("good film", top_k=2)) == 2
        assert classify({"text": "good", "text_pair": "film"}) != classify("good")
        with pytest.raises(InputError, match="is not a text"):
            classify([3.5])


def test_entities_are_found_with_their_places(tmp_path: Path) -> None:
    after = [{"step": "post.softmax"}, {"step": "post.entities"}]
    labels = ["O", "B-LOC", "I-LOC"]
    bundle = pipelines.words(tmp_path / "w.bundle", "token-classification", after, 3, labels, offsets=True)
    with edge_infer.pipeline(bundle) as find:
        text = "Paris a LONDON"
        found = find(text)
        assert all(text[one["start"] : one["end"]].lower() == one["word"] for one in found)
        assert {"entity", "score", "index", "word", "start", "end"} == set(found[0])
        groups = find(text, aggregation_strategy="simple")
        assert all(one["word"] == text[one["start"] : one["end"]].lower() for one in groups)


def test_documents_are_ranked_and_labels_chosen(tmp_path: Path) -> None:
    after = [{"step": "post.tensor"}]
    bundle = pipelines.words(tmp_path / "w.bundle", "text-ranking", after, 1, pooled=True)
    with edge_infer.pipeline(bundle) as rank:
        found = rank({"query": "film", "documents": ["good", "bad", "paris"]})
        assert sorted(one["corpus_id"] for one in found) == [0, 1, 2]
        assert [one["score"] for one in found] == sorted((one["score"] for one in found), reverse=True)
        with pytest.raises(InputError, match="documents are ranked for a query"):
            rank("film")
    labels = ["contradiction", "neutral", "entailment"]
    bundle = pipelines.words(tmp_path / "z.bundle", "zero-shot-classification", after, 3, labels, pooled=True)
    with edge_infer.pipeline(bundle) as choose:
        found = choose("good film", candidate_labels=["paris", "london", "film"], hypothesis_template="{}")
        assert sum(found["scores"]) == pytest.approx(1)
        assert found["sequence"] == "good film"
        both = choose("good film", candidate_labels="paris, film", hypothesis_template="{}", multi_label=True)
        assert len(both["labels"]) == 2
        with pytest.raises(InputError, match="no labels to choose from"):
            choose("good film")


def test_a_question_is_answered_from_its_context(tmp_path: Path) -> None:
    bundle = pipelines.questions(tmp_path / "qa.bundle")
    with edge_infer.pipeline(bundle) as ask:
        found = ask({"question": "a film", "context": "Good paris a  LONDON film"})
        assert (found["answer"], found["start"], found["end"]) == ("paris a  LONDON", 5, 20)
        assert found["score"] == pytest.approx(1, abs=1e-3)
        with pytest.raises(InputError, match="a question is asked of a context"):
            ask("a film")


def test_a_long_context_is_searched_in_windows(tmp_path: Path) -> None:
    context = "good film " * 60 + "paris a london " + "bad film " * 40
    asked = {"question": "a film", "context": context}
    with edge_infer.pipeline(pipelines.questions(tmp_path / "cut.bundle")) as ask:
        assert ask(asked)["score"] < 0.01
        found = ask(asked, doc_stride=8)
        assert (found["answer"], found["start"]) == ("paris a london", context.index("paris"))
        assert found["score"] == pytest.approx(1, abs=1e-3)
        assert ask(asked, doc_stride=0, max_length=400) == pytest.approx(found, abs=1e-3)
        several = ask(asked, doc_stride=16, top_k=4)
        assert len(several) == 4
        assert len({(one["start"], one["end"]) for one in several}) == 4
        for wrong in (-1, 1.5, True, 31):
            with pytest.raises(InputError, match=r"doc_stride|leave no room"):
                ask(asked, doc_stride=wrong)
    with edge_infer.pipeline(pipelines.questions(tmp_path / "w.bundle", doc_stride=8, pad_to=32)) as ask:
        assert ask([asked, {"question": "a", "context": "paris london"}]) == [
            pytest.approx(found, abs=1e-3),
            {"score": pytest.approx(1, abs=1e-3), "start": 0, "end": 12, "answer": "paris london"},
        ]


def test_windows_are_those_of_the_tokenizers_package() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    data = pipelines.tokenizer()
    theirs, ours = tokenizers.Tokenizer.from_str(data.decode()), Tokenizer.from_bytes(data)
    for length, stride in ((12, 0), (12, 3), (20, 7), (64, 5)):
        theirs.enable_truncation(length, stride=stride, strategy="only_second")
        first = theirs.encode("a film", "good paris bad " * 14)
        whole = ours.encode("a film", "good paris bad " * 14, truncation=None, padding=None, offsets=True)
        found = windows(whole, length, stride)
        assert [one.ids for one in found] == [one.ids for one in (first, *first.overflowing)]
        assert [one.offsets for one in found] == [one.offsets for one in (first, *first.overflowing)]


# -- sounds --


def spoken(rate: int) -> np.ndarray[Any, Any]:
    """A second of silence, one of noise, one of silence."""
    noise = np.random.default_rng(4).uniform(-0.9, 0.9, rate)
    return np.concatenate([np.zeros(rate), noise, np.zeros(rate)]).astype(np.float32)


def test_speech_is_found_frame_by_frame_in_samples_and_files(tmp_path: Path) -> None:
    with edge_infer.pipeline(pipelines.loudness(tmp_path / "loud.bundle")) as find:
        (one,) = find(spoken(16_000))
        assert (one["start"], one["end"]) == (1.0, 2.0)
        assert find(spoken(16_000), min_speech_ms=1500) == []
        with wave.open(str(tmp_path / "a.wav"), "wb") as file:
            file.setnchannels(2)
            file.setsampwidth(2)
            file.setframerate(44_100)
            whole = (spoken(44_100) * 32767).astype("<i2")
            file.writeframes(np.stack([whole, whole], 1).tobytes())
        (again,) = find(str(tmp_path / "a.wav"))
        assert (again["start"], again["end"]) == pytest.approx((1, 2), abs=0.02)
        (given,) = find({"array": spoken(44_100), "sampling_rate": 44_100})
        assert given == again or given["start"] == pytest.approx(again["start"], abs=0.011)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_model_whose_pipeline_is_refused_is_closed(
    is_async: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Session] = []

    def noted(session: Session) -> Session:
        opened.append(session)
        return session

    async def load_async(*given: Any, **options: Any) -> Session:
        return noted(await edge_infer.load_async(*given, **{**options, "self_test": False}))

    def load(*given: Any, **options: Any) -> Session:
        return noted(edge_infer.load(*given, **{**options, "self_test": False}))  # these bundles have no examples

    monkeypatch.setattr(module, "load", load)
    monkeypatch.setattr(module, "load_async", load_async)

    def broken(*_: object) -> None:
        raise ExecutionError("other answers")

    async def broken_async(*_: object) -> None:
        broken()

    monkeypatch.setattr(vectors, "prove_async" if is_async else "prove", broken_async if is_async else broken)
    bundle = pipelines.colours(tmp_path / "c.bundle")
    refused: list[tuple[type[Exception], dict[str, Any]]]
    refused = [(ExecutionError, {"self_test": True}), (InputError, {"task": "object-detection"})]
    for error, options in refused:
        with pytest.raises(error):
            if is_async:
                asyncio.run(edge_infer.pipeline_async(bundle, **options))
            else:
                edge_infer.pipeline(bundle, **options)
        with pytest.raises(InputError, match="closed"):
            opened[-1].run({"pixels": np.zeros((1, 3, 8, 8), np.float32)})
    assert len(opened) == 2
