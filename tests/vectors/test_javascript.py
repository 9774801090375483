"""JavaScript reads the index that Python wrote, and finds the same ids with the same scores."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import edge_infer
from edge_infer.formats.safetensors import read_tensors, write_tensors
from edge_infer.platform.hashing import sha256
from edge_infer.tensors.tensor import Tensor
from edge_infer.vectors import search
from edge_infer.vectors.words import words_of
from tests.support.soak import rounds
from tests.support.vectors import made

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.vectors.index import Index

_SCRIPT = Path(__file__).parent / "search.mjs"
_WORDS = ["Straße", "naïve", "café", "東京", "hello", "WORLD", "İstanbul", "x" * 80, "ﬁx", "42nd", "नमस्ते", "мир"]
_WORDS += ["\U0001f600"]


def in_node(*asked: tuple[Path, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Search indexes in Node."""
    file = asked[0][0].parent / "queries.json"
    file.write_text(json.dumps([{"index": str(path), "queries": queries} for path, queries in asked]))
    done = subprocess.run(["node", str(_SCRIPT), str(file)], capture_output=True, text=True, check=True, timeout=300)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def in_python(index: Index, queries: list[dict[str, Any]]) -> list[Any]:
    """Search an index here, with the options as JavaScript writes them."""
    found = []
    for asked in queries:
        options = {("full_scan" if name == "fullScan" else name): value for name, value in asked["options"].items()}
        query = asked["query"] if isinstance(asked["query"], list) else asked["query"]["text"]
        found.append([list(hit) for hit in index.search(query, **options)])
    return found


def filled(path: Path, seed: int, rows: str, count: int = 600) -> Index:
    """Make an index of three segments, with texts, metadata and deleted entries."""
    rng = np.random.default_rng(seed)
    dimension = int(rng.integers(1, 200))
    index = edge_infer.Index.create(path, dimension, ["cosine", "dot"][seed % 2], rows=rows)
    data = made.vectors(seed, count, dimension)
    for start in range(0, count, count // 3):
        part = range(start, start + count // 3)
        texts = [" ".join(rng.choice(_WORDS, rng.integers(0, 9))) for _ in part]
        metadata = [{"n": i, "tag": str(rng.choice(_WORDS)), "even": i % 2 == 0} for i in part]
        index.add(data[start : part.stop], ids=[*rng.permutation(part)], texts=texts, metadata=metadata)
    index.delete(range(0, count, 7))
    return index


def dimension_of(index: Index) -> int:
    return int(index.info()["dimension"])


def different(folder: Path, seeds: range, rows: str, count: int, queries: int) -> tuple[int, int]:
    """Return how many hits differ between Python and JavaScript, and how many there are."""
    indexes = [filled(folder / f"{seed}.index", seed, rows, count) for seed in seeds]
    asked = [
        [{"query": vector.tolist(), "options": {}} for vector in made.vectors(seed + 99, queries, dimension_of(index))]
        for seed, index in zip(seeds, indexes, strict=True)
    ]
    there = in_node(*((index.path, some) for index, some in zip(indexes, asked, strict=True)))
    wrong = total = 0
    for index, some, answer in zip(indexes, asked, there, strict=True):
        assert answer.get("size") == len(index), answer
        here = in_python(index, some)
        pairs = [
            (a, b) for one, two in zip(here, answer["answers"], strict=True) for a, b in zip(one, two, strict=True)
        ]
        wrong, total = wrong + sum(a != b for a, b in pairs), total + len(pairs)
    return wrong, total


@pytest.mark.parametrize(("rows", "seeds"), [("int8", range(6)), ("f16", range(2)), ("f32", range(2))])
def test_indexes_are_searched_alike(tmp_path: Path, rows: str, seeds: range) -> None:
    assert different(tmp_path, seeds, rows, 300, 20) == (0, len(seeds) * 200)


@pytest.mark.long
def test_tens_of_thousands_of_hits_are_the_same(tmp_path: Path) -> None:
    indexes = rounds(5, 20)

    assert different(tmp_path, range(indexes), "int8", 3000, 500) == (0, indexes * 5000)


def test_words_filters_and_bits_are_alike(tmp_path: Path) -> None:
    index = filled(tmp_path / "a.index", 4, "int8")
    vector = made.vectors(1, 1, dimension_of(index))[0].tolist()
    queries: list[dict[str, Any]] = [
        {"query": {"text": text}, "options": {"mode": "words", "k": 30}}
        for text in ("hello world", "STRASSE straße", "東京 мир", "café naïve 42nd", "nothing")
    ]
    queries += [
        {"query": vector, "options": {"where": where, "k": 40}}
        for where in (
            {"n": {">=": 100, "<": 600}},
            {"tag": ["東京", "café"]},
            {"tag": {">": "hello"}},
            {"tag": {"<=": "\U0001f600"}},
            {"even": True, "n": {"!=": 2}},
            {"even": {"not in": [False, 1]}},
        )
    ]

    (there,) = in_node((index.path, queries))

    assert there["answers"] == in_python(index, queries)


def test_large_indexes_are_searched_alike(tmp_path: Path) -> None:
    data = made.vectors(3, search.PREFILTER_ROWS + 1001, 24)
    index = edge_infer.Index.create(tmp_path / "a.index", 24)
    index.add(data[:90_000], metadata=[{"n": i} for i in range(90_000)])
    index.add(data[90_000:])
    index.delete(range(0, 50_000, 3))
    queries = [
        {"query": data[i * 4000].tolist(), "options": options}
        for i in range(3)
        for options in ({}, {"fullScan": True}, {"where": {"n": {"<": 40_000}}}, {"where": {"n": {"<": 900}}})
    ]

    (there,) = in_node((index.path, queries))

    assert there["answers"] == in_python(index, queries)


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.long)])
def test_words_are_the_same_for_every_character(tmp_path: Path, step: int) -> None:
    index = edge_infer.Index.create(tmp_path / "a.index", 3)
    codes = [code for code in range(0, 0x30000, step) if not 0xD800 <= code < 0xE000]
    texts = ["".join(f"a{chr(code)}b " for code in codes[start : start + 4096]) for start in range(0, len(codes), 4096)]

    (there,) = in_node((index.path, [{"words": text} for text in texts]))

    assert there["answers"] == [words_of(text) for text in texts]


def test_a_damaged_index_is_refused(tmp_path: Path) -> None:
    index = filled(tmp_path / "a.index", 2, "int8")
    segment = next((index.path / "segments").iterdir())
    whole = segment.read_bytes()
    for data in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
        segment.write_bytes(data)
        assert in_node((index.path, []))[0]["code"] == "integrity_error"
    (index.path / "index.json").write_text("{}")
    assert in_node((index.path, []))[0]["code"] == "bundle_error"


def sealed(path: Path, change: Callable[[bytes], bytes]) -> Path:
    """Change the only segment of an index, and let the catalogue name what it is then."""
    document = json.loads((path / "index.json").read_bytes())
    entry = document["segments"][0]
    data = change((path / entry["path"]).read_bytes())
    entry |= {"path": f"segments/{sha256(data)[:16]}.safetensors", "size": len(data), "sha256": sha256(data)}
    (path / entry["path"]).write_bytes(data)
    (path / "index.json").write_text(json.dumps(document))
    return path


def with_tensors(change: dict[str, Tensor | None]) -> Callable[[bytes], bytes]:
    def changed(data: bytes) -> bytes:
        tensors = {**read_tensors(data), **change}
        return write_tensors({name: one for name, one in tensors.items() if one is not None}, aligned=True)

    return changed


def misaligned(data: bytes) -> bytes:
    """Put a tensor of one byte in front, so that all others lie one byte further."""
    return write_tensors({"a": Tensor(b"x", "uint8", (1,)), **read_tensors(data)})


#: By what is wrong, how the segment's file is changed.
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut to 3 bytes": lambda data: data[:3],
    "a header of 2^63 bytes": lambda data: b"\xff" * 7 + b"\x7f" + data[8:],
    "a header beyond the file": lambda data: (len(data) + 1).to_bytes(8, "little") + data[8:],
    "a fractional offset": lambda data: data.replace(b'"data_offsets":[0,', b'"data_offsets":[0.5,', 1),
    "tensors between elements": misaligned,
    "no ids": with_tensors({"ids": None}),
    "a short column": with_tensors({"columns/n": Tensor(bytes(8), "float64", (1,))}),
    "a column of another type": with_tensors({"columns/n": Tensor(bytes(8), "uint32", (2,))}),
    "ends of words beyond their rows": with_tensors({"words/ends": Tensor(b"\xff" * 8, "uint32", (2,))}),
    "ends of words that fall": with_tensors({"words/ends": Tensor(b"\xff\0\0\0\2\0\0\0", "uint32", (2,))}),
    "words without counts": with_tensors({"words/counts": None}),
    "a text that is a number": with_tensors(
        {
            "payload": Tensor(b'{"text":3}' * 2, "uint8", (20,)),
            "payload/ends": Tensor(b"\x0a" + bytes(7) + b"\x14" + bytes(7), "uint64", (2,)),
        }
    ),
    "a payload that ends beyond itself": with_tensors({"payload/ends": Tensor(b"\xff" * 16, "uint64", (2,))}),
}


def test_a_crafted_segment_is_refused(tmp_path: Path) -> None:
    asked = []
    for number, change in enumerate(DAMAGE.values()):
        index = edge_infer.Index.create(tmp_path / f"{number}.index", 3)
        index.add([[1, 2, 3], [3, 2, 1]], texts=["one", "two"], metadata=[{"n": 1}, {"n": 2}])
        asked.append((sealed(index.path, change), [{"query": [1, 1, 1], "options": {"where": {"n": {">": 0}}}}]))

    there = in_node(*asked)

    codes = {what: one.get("code", one) for what, one in zip(DAMAGE, there, strict=True)}
    assert codes == dict.fromkeys(DAMAGE, "bundle_error")


def test_a_query_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    index = edge_infer.Index.create(tmp_path / "a.index", 2)
    index.add([[1, 2]])
    asked: list[tuple[list[int], dict[str, Any]]] = [
        ([1], {}),
        ([0, 0], {}),
        ([1, 2], {"k": 0}),
        ([1, 2], {"where": {"x": 1}}),
        ([1, 2], {"mode": "x"}),
        ([1, 2], {"mode": "words"}),
    ]

    there = in_node(*((index.path, [{"query": query, "options": options}]) for query, options in asked))

    assert [one.get("code") for one in there] == ["input_error"] * len(asked)
