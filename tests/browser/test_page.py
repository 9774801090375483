"""The page that `verify` and `bench` open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edge_infer.errors import BackendUnavailable, BundleError, ExecutionError
from edge_infer.server import app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.tools.browser import page
from edge_infer.tools.browser.page import PagePython

if TYPE_CHECKING:
    from pathlib import Path


def test_a_page_that_hangs_is_left_and_answers_no_more(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with PagePython(server) as python:
        assert python.run("[1, None, 'x']") == [1, None, "x"]
        monkeypatch.setattr(page, "_ANSWER_S", 1)
        with pytest.raises(ExecutionError, match="does not answer within 1 s"):
            python.run("while True: pass")
        with pytest.raises(ExecutionError, match="closed"):
            python.run("1")


def test_a_page_without_the_web_files_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> Path:
        raise BundleError("The web files are not installed")

    monkeypatch.setattr(app, "find_web_root", absent)
    with ServerThread(app.create_app({})) as bare, pytest.raises(BackendUnavailable) as caught, PagePython(bare.url):
        pass

    assert caught.value.hint == "pip install 'edge-infer[web]'"
