"""An index finds the nearest entries, by vector, by words, and by metadata, and changes without being written again."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import edge_infer
from edge_infer.errors import BundleError, InputError
from tests.support.vectors import made

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.vectors.index import Index


def by_hand(data: Any, query: Any, k: int, metric: str = "cosine") -> list[int]:
    """Return the nearest rows by float64."""
    rows, asked = data.astype(np.float64), np.asarray(query, np.float64)
    scores = rows @ asked
    if metric == "cosine":
        scores /= np.linalg.norm(rows, axis=1) * np.linalg.norm(asked)
    return [int(i) for i in np.argsort(-scores, kind="stable")[:k]]


@pytest.fixture
def notes(tmp_path: Path) -> Index:
    index = edge_infer.Index.create(tmp_path / "notes.index", 3)
    index.add(
        [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]],
        texts=["a red apple", "the green tree", "blue sky, blue sea", None],
        metadata=[{"year": 2019, "tag": "fruit"}, {"year": 2021}, {"year": 2023.5, "tag": "air", "sea": True}, None],
    )
    return index


@pytest.mark.parametrize("rows", ["f16", "f32"])
@pytest.mark.parametrize("metric", ["cosine", "dot"])
def test_kept_vectors_find_what_floats_find(tmp_path: Path, rows: str, metric: str) -> None:
    data, queries = made.vectors(1, 2000, 48), made.vectors(2, 20, 48)
    index = edge_infer.Index.create(tmp_path / "a.index", 48, metric, rows=rows)
    index.add(data)

    for query in queries:
        found = [hit.id for hit in index.search(query, 10)]
        want = by_hand(data, query, 10, metric)
        assert len(set(found) & set(want)) >= (10 if rows == "f32" else 9)


def test_8_bit_rows_find_nearly_all(tmp_path: Path) -> None:
    data, queries = made.vectors(1, 2000, 384), made.vectors(2, 20, 384)
    index = edge_infer.Index.create(tmp_path / "a.index", 384)
    index.add(data)

    same = sum(len({hit.id for hit in index.search(q)} & set(by_hand(data, q, 10))) for q in queries)

    assert same / 200 >= 0.97


def test_a_score_is_the_cosine(notes: Index) -> None:
    (hit,) = notes.search([2.0, 2.0, 0.0], 1)

    assert hit.id == 3
    assert hit.score == pytest.approx(1.0, abs=0.01)


def test_equal_scores_come_in_the_order_of_their_ids(tmp_path: Path) -> None:
    index = edge_infer.Index.create(tmp_path / "a.index", 2)
    index.add([[1, 0]] * 3, ids=[7, 2, 9])
    index.add([[1, 0]] * 2, ids=[1, 8])

    assert [hit.id for hit in index.search([1, 0], 4)] == [1, 2, 7, 8]


def test_texts_and_metadata_come_back(notes: Index) -> None:
    hit = notes.search([0, 0, 1], 1)[0]

    assert (hit.text, hit.metadata) == ("blue sky, blue sea", {"year": 2023.5, "tag": "air", "sea": True})
    assert notes.search([1, 1, 0], 1)[0][2:] == (None, {})


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ({"year": 2021}, {1}),
        ({"year": {">=": 2020, "<": 2022}}, {1}),
        ({"year": {"!=": 2021}}, {0, 2}),
        ({"tag": ["fruit", "air"]}, {0, 2}),
        ({"tag": {"not in": ["fruit"]}}, {2}),
        ({"tag": "fruit", "year": 2021}, set()),
        ({"sea": True}, {2}),
        ({"sea": 1}, set()),
        ({"tag": {">": "b"}}, {0}),
    ],
)
@pytest.mark.parametrize("way", made.WAYS)
def test_a_filter_leaves_what_it_says(notes: Index, way: str, where: dict[str, Any], ids: set[int]) -> None:
    made.computing(notes, way)

    assert {hit.id for hit in notes.search([1, 1, 1], where=where)} == ids


@pytest.mark.parametrize(
    ("where", "said"),
    [({"yaer": 1}, "yaer"), ({"year": {"~": 1}}, "'~'"), ({"year": {"in": 3}}, "3"), ({"year": None}, "None")],
)
def test_a_filter_that_cannot_be_is_refused(notes: Index, where: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        notes.search([1, 1, 1], where=where)


def test_words_are_found(notes: Index) -> None:
    assert [hit.id for hit in notes.search("Blue tree", mode="words")] == [2, 1]
    assert notes.search("nothing here", mode="words") == []


def test_deleted_entries_are_not_found_and_their_ids_are_free(notes: Index) -> None:
    assert notes.delete([0, 3, 99]) == 2

    assert len(notes) == 2
    assert [hit.id for hit in notes.search([1, 0, 0])] == [1, 2]
    assert notes.add([[1, 0, 0]], ids=[0]) == [0]
    assert [hit.id for hit in notes.search([1, 0, 0], 1)] == [0]
    assert notes.add([[1, 0, 0]]) == [4]


def test_adding_and_deleting_write_no_segment_again(notes: Index) -> None:
    before = {path: path.stat().st_mtime_ns for path in (notes.path / "segments").iterdir()}

    notes.add([[1, 2, 3]])
    notes.delete([1])

    after = {path: path.stat().st_mtime_ns for path in (notes.path / "segments").iterdir()}
    assert len(after) == 2
    assert before.items() <= after.items()


@pytest.mark.parametrize("rows", ["int8", "f16", "f32"])
def test_a_compacted_index_answers_as_before(tmp_path: Path, rows: str) -> None:
    data, queries = made.vectors(3, 400, 20), made.vectors(4, 10, 20)
    index = edge_infer.Index.create(tmp_path / "a.index", 20, rows=rows)
    for start in range(0, 400, 100):
        index.add(data[start : start + 100], texts=[f"entry {i}" for i in range(start, start + 100)])
    index.delete(range(0, 400, 3))
    before = [index.search(query) for query in queries]

    saved = index.compact()

    assert saved > 0
    assert index.info()["segments"] == 1
    assert index.info()["deleted"] == 0
    assert [index.search(query) for query in queries] == before
    assert [edge_infer.Index.open(tmp_path / "a.index").search(query) for query in queries] == before


def test_another_reader_keeps_its_view_and_another_writer_sees_the_newest(notes: Index) -> None:
    reader = edge_infer.Index.open(notes.path)
    writer = edge_infer.Index.open(notes.path)
    notes.delete([0])
    notes.compact()

    assert [hit.id for hit in reader.search([1, 0, 0], 1)] == [0]
    assert reader.search([1, 0, 0], 1)[0].text == "a red apple"
    assert writer.add([[0, 0, 1]]) == [4]
    assert len(writer) == 4


def test_two_processes_do_not_write_at_once(notes: Index) -> None:
    code = "import sys, edge_infer; edge_infer.Index.open(sys.argv[1]).add([[1, 2, 3]])"
    with notes._folder.writing():
        done = subprocess.run(
            [sys.executable, "-c", code, str(notes.path)], capture_output=True, text=True, check=False
        )

    assert "is being written by another process" in done.stderr
    assert len(edge_infer.Index.open(notes.path)) == 4


def test_an_index_is_not_made_over_something(notes: Index) -> None:
    with pytest.raises(BundleError, match="is there already"):
        edge_infer.Index.create(notes.path, 3)


@pytest.mark.parametrize(
    "options", [{"dimension": 0}, {"dimension": 10**6}, {"metric": "euclid"}, {"rows": "f64"}, {"dimension": True}]
)
def test_an_index_that_cannot_be_is_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        edge_infer.Index.create(tmp_path / "a.index", **{"dimension": 3, **options})
    assert not (tmp_path / "a.index").exists()


@pytest.mark.parametrize("way", made.WAYS)
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"vectors": [[1, 2]]}, "vector 0 has 2 numbers, the index takes 3"),
        ({"vectors": [[1, 2, 3], [1, 2]]}, "vector 1 has 2 numbers"),
        ({"vectors": [[1, 2, 3], [1, float("nan"), 2]]}, "vector 1 has a number that is not finite"),
        ({"vectors": [[1, 2, 1e39]]}, "not finite in float32"),
        ({"vectors": [[0, 0, 0]]}, "is zero"),
        ({"vectors": [[1, 2, "x"]]}, "not finite"),
        ({"vectors": [[1, 2, 3]] * 2, "ids": [10, 10]}, "10 is given twice"),
        ({"vectors": [[1, 2, 3]], "ids": [2]}, "an entry of the id 2 already"),
        ({"vectors": [[1, 2, 3]], "ids": [-1]}, "-1"),
        ({"vectors": [[1, 2, 3]], "ids": [2**53]}, "2\\^53"),
        ({"vectors": [[1, 2, 3]], "texts": []}, "1 vectors and 0 texts"),
        ({"vectors": [[1, 2, 3]], "metadata": [{"a": float("inf")}]}, "entry 0"),
        ({"vectors": [[1, 2, 3]], "metadata": [{"a": object()}]}, "cannot be kept as JSON"),
        ({"vectors": [[1, 2, 3]], "metadata": [{1: "a"}]}, "names are texts"),
    ],
)
def test_what_cannot_be_added_leaves_the_index_as_it_was(
    notes: Index, way: str, arguments: dict[str, Any], said: str
) -> None:
    before = made.files(notes.path)

    with pytest.raises(InputError, match=said):
        made.computing(notes, way).add(**arguments)

    assert made.files(notes.path) == before
    assert len(notes) == 4


@pytest.mark.parametrize("query", [[1, 2], [1, float("inf"), 3], [0, 0, 0], [[1, 2, 3]]])
def test_a_query_that_does_not_fit_is_refused(notes: Index, query: Any) -> None:
    with pytest.raises(InputError):
        notes.search(query)


def test_a_text_needs_a_model(notes: Index) -> None:
    with pytest.raises(BundleError, match="does not say by which model"):
        notes.search("apple")


def test_similarity_and_normalization_are_those_of_the_textbook() -> None:
    assert edge_infer.cosine_similarity([1, 2], [2, 4]) == pytest.approx(1)
    assert edge_infer.cosine_similarity(np.array([1.0, 0.0]), np.array([0.0, 3.0])) == 0
    assert edge_infer.cosine_similarity([0, 0], [1, 1]) == 0
    assert edge_infer.batch_normalize([[3, 4], [0, 0]]) == [[0.6, 0.8], [0.0, 0.0]]
    with pytest.raises(ValueError, match="2 and 1 numbers"):
        edge_infer.cosine_similarity([1, 2], [1])
    with pytest.raises(ValueError, match="vector 1 has 1 numbers"):
        edge_infer.batch_normalize([[1, 2], [1]])
