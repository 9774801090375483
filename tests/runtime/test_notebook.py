"""What notebooks show of a session, its report and a tensor: a table, with everything escaped."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import edge_infer
from edge_infer.runtime.session import Report
from edge_infer.tensors.tensor import Tensor

_DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.onnx"
_EVIL = "<img src=x onerror=alert(1)>\"'&"


class _Shown(HTMLParser):
    """The text of a page and its tags, which have to be closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert {name for name, _ in attrs} <= {"style", "scope"}
        if tag != "br":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def test_a_report_and_a_tensor_are_shown_escaped() -> None:
    report = Report(_EVIL, _EVIL, _EVIL, _EVIL, "auto", "cpu", (_EVIL,), 2, (_EVIL, _EVIL), _EVIL, ((_EVIL, 3),))
    for page in (report._repr_html_(), Tensor([_EVIL, "b"], "string", (2,))._repr_html_()):
        shown = _Shown(page)
        assert _EVIL in shown.text
        assert set(shown.tags) <= {"table", "caption", "tbody", "tr", "th", "td", "br"}


def test_a_session_is_shown_by_what_it_runs() -> None:
    with edge_infer.load(_DIGITS, arrays="tensor") as session:
        text = _Shown(session._repr_html_()).text
        logits = session.run({"image": [[[[0.5] * 8] * 8]]})["logits"]
        shown = _Shown(logits._repr_html_()).text
    assert session.bundle.label in text and "image: float32[" in text
    assert "float32" in shown and "(1, 10)" in shown and "…" in shown
    assert "on closed" in _Shown(session._repr_html_()).text
