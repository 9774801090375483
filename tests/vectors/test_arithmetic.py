"""Every way to compute gives the same bits: the same files, and the same ids and scores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import edge_infer
from edge_infer.kernels import build
from edge_infer.kernels.search_library import SearchLibrary
from edge_infer.platform.cpu import read_processor
from edge_infer.vectors import native, search
from edge_infer.vectors.native import Native
from edge_infer.vectors.numeric import Numeric
from edge_infer.vectors.postings import natural_log
from tests.support.vectors import made

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer.vectors.index import Index


def built(folder: Path, way: str, seed: int, rows: str, dimension: int) -> Index:
    """Make an index of two segments with deleted entries."""
    data = made.vectors(seed, 300, dimension)
    index = made.computing(edge_infer.Index.create(folder / f"{way}.index", dimension, rows=rows), way)
    index.add(data[:200], metadata=[{"n": i} for i in range(200)], texts=[f"words {i % 7} {i}" for i in range(200)])
    index.add(data[200:], ids=range(1000, 900, -1))
    index.delete([5, 950])
    return index


@pytest.mark.parametrize("rows", ["int8", "f16", "f32"])
@pytest.mark.parametrize("dimension", [1, 7, 64, 384])
def test_every_way_writes_the_same_index_and_finds_the_same(tmp_path: Path, rows: str, dimension: int) -> None:
    queries = made.vectors(99, 5, dimension)
    found = {}
    for way in made.WAYS:
        index = built(tmp_path, way, dimension, rows, dimension)
        compacted = (made.files(index.path), made.answers(index, queries), index.compact(), made.files(index.path))
        found[way] = (*compacted, made.answers(index, queries, 3), made.answers(index, queries, where={"n": {"<": 9}}))

    assert all(one == found["plain"] for one in found.values())


@pytest.mark.parametrize("size", [1e-45, 1e-43, 2e-43, 1e-40, 1e30])
def test_tiny_and_huge_numbers_are_encoded_alike(tmp_path: Path, size: float) -> None:
    data = (np.linspace(-1, 1, 8 * 190).reshape(8, 190) * size).astype(np.float32)
    found = {}
    for way in made.WAYS:
        index = made.computing(edge_infer.Index.create(tmp_path / f"{way}.index", 190, "dot"), way)
        index.add(data)
        found[way] = (made.files(index.path), made.answers(index, data))

    assert all(one == found["plain"] for one in found.values())


@pytest.mark.parametrize("way", made.WAYS)
def test_dot_products_of_long_vectors_are_whole_numbers(tmp_path: Path, way: str) -> None:
    rng = np.random.default_rng(1)
    data = rng.choice([-1.0, 1.0], size=(20, 9000)).astype(np.float32)
    data[:, 0] = 1
    index = made.computing(edge_infer.Index.create(tmp_path / "a.index", 9000, "dot"), way)
    index.add(data)

    hits = index.search(data[3], 20)

    scale = np.float32(1) / np.float32(127)
    dots = (data.astype(np.int64) @ data[3].astype(np.int64)) * 127 * 127
    want = {i: np.float32(np.float32(np.float32(dots[i]) * scale) * float(scale)) for i in range(20)}
    assert {hit.id: np.float32(hit.score) for hit in hits} == want


@pytest.mark.parametrize("way", made.WAYS)
def test_candidates_by_bits_find_nearly_all(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "PREFILTER_ROWS", 1000)
    data = made.vectors(5, 10_000, 128)
    queries = data[::2000] + made.vectors(6, 5, 128) * np.float32(0.2)
    index = edge_infer.Index.create(tmp_path / "a.index", 128)
    index.add(data)
    made.computing(index, way)

    quick, whole = made.answers(index, queries), made.answers(index, queries, full_scan=True)

    same = sum(len(set(some) & set(all_)) for some, all_ in zip(quick, whole, strict=True))
    assert same >= 45
    assert quick == made.answers(made.computing(index, "plain"), queries)


@pytest.mark.parametrize("name", [name for name in build.TARGETS if name.startswith("vectors_linux_x86_64")])
@pytest.mark.parametrize("dimension", [1, 63, 130])
def test_every_kernel_of_this_machine_gives_the_same(
    tmp_path: Path, name: str, dimension: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    features = read_processor().features
    if ("vnni" in name and "avx512_vnni" not in features) or ("v3" in name and "avx2" not in features):
        pytest.skip(f"this processor cannot run {name}")
    monkeypatch.setattr(search, "PREFILTER_ROWS", 100)
    index = edge_infer.Index.create(tmp_path / "a.index", dimension)
    index.add(made.vectors(dimension, 12_001, dimension))
    index.delete(range(0, 12_000, 5))
    queries = made.vectors(1, 4, dimension)
    want = [made.answers(made.computing(index, "numpy"), queries, 50, full_scan=full) for full in (False, True)]
    index._arithmetic = Native(Numeric(), SearchLibrary(build.BUILT / name))

    assert [made.answers(index, queries, 50, full_scan=full) for full in (False, True)] == want


@pytest.mark.parametrize("sizes", [[1500], [1, 1300, 40, 2], [300] * 5])
@pytest.mark.parametrize("kind", ["int8", "f32"])
def test_threads_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], kind: str) -> None:
    index = edge_infer.Index.create(tmp_path / "a.index", 32, rows=kind)
    for seed, size in enumerate(sizes):
        index.add(np.repeat(made.vectors(seed, -(-size // 4), 32), 4, axis=0)[:size])  # ties across the spans
    index.delete([5, 6, 700])
    queries = made.vectors(9, 3, 32)
    want = [made.answers(index, queries, k) for k in (1, 10, 400)]
    spans: list[tuple[int, int]] = []
    cut = native.Native.spans

    def counted(self: native.Native, count: int, row_bytes: int, work: int) -> list[tuple[int, int]]:
        spans.extend(cut(self, count, row_bytes, work))
        return cut(self, count, row_bytes, work)

    monkeypatch.setattr(native.Native, "spans", counted)
    monkeypatch.setattr(native, "_PARALLEL_BYTES", 0)
    for cpus in (2, 3, 16):
        monkeypatch.setattr(native, "usable_cpus", lambda cpus=cpus: cpus)
        native._pool.cache_clear()
        assert [made.answers(index, queries, k) for k in (1, 10, 400)] == want
    assert index.arithmetic != "kernel" or len(spans) > 3 * 9 * len(sizes)
    native._pool.cache_clear()


def test_the_logarithm_is_within_a_unit_of_the_system_s() -> None:
    values = np.concatenate([np.linspace(1, 3, 2001), np.geomspace(1, 1e9, 2001)])

    found = np.array([natural_log(float(value)) for value in values])

    np.testing.assert_allclose(found, np.log(values), rtol=4e-16, atol=1e-16)
