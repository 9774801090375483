"""Threads: what an isolated page may use, and that one without isolation works all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edge_infer.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.browser.conftest import BrowserPage

_RUN = """async (threads) => {
    const { load } = await import("/src/index.js");
    const session = await load("/models/digits", { threads: threads ?? undefined });
    const image = Float32Array.from({ length: 64 }, (_, i) => (i % 7) / 7);
    const { logits } = await session.run({ image });
    const { threads: used, isolated } = session.report();
    await session.dispose();
    return { used, isolated, logits: [...logits.data] };
}"""


def test_a_page_that_is_not_isolated_uses_one_thread(open_page: Callable[..., BrowserPage], plain_server: str) -> None:
    found = open_page(f"{plain_server}/blank.html").evaluate(_RUN)

    assert (found["used"], found["isolated"]) == (1, False)


def test_two_threads_give_the_same_numbers(open_page: Callable[..., BrowserPage], server: str) -> None:
    one, two = (open_page(f"{server}/blank.html").evaluate(_RUN, threads) for threads in (1, 2))

    assert (one["used"], two["used"], two["isolated"]) == (1, 2, True)
    assert one["logits"] == two["logits"]


def test_threads_are_refused_where_the_page_is_not_isolated(
    open_page: Callable[..., BrowserPage], plain_server: str
) -> None:
    with pytest.raises(UnsupportedError, match="cross-origin isolated"):
        open_page(f"{plain_server}/blank.html").evaluate(_RUN, 2)
