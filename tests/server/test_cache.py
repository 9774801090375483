"""The cache of answers by itself; test_serving.py has it in a running server."""

from __future__ import annotations

from edge_infer.server.response.cache import ResultCache


def test_the_cache_forgets_by_age_and_by_use() -> None:
    now = [0.0]
    cache: ResultCache[None] = ResultCache(10, 5.0, lambda: now[0])
    a, b, c = (cache.key(text, "form") for text in (b"a", b"b", b"c"))
    assert len({a, b, c, cache.key(b"a", "other")}) == 4
    cache.put(a, b"1234", [])
    cache.put(b, b"1234", [])
    assert cache.get(a) is not None
    cache.put(c, b"1234", [])
    assert cache.get(b) is None
    assert cache.get(a) is not None
    cache.put(b, b"x" * 11, [])
    assert cache.get(b) is None
    now[0] = 5.0
    assert cache.get(a) is None
    assert cache.get(c) is None
    assert len(cache) == 0
