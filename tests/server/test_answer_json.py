"""Answers that cannot be written as JSON are refused with what they hold."""

from __future__ import annotations

import pytest

from edge_infer.errors import UnsupportedError
from edge_infer.server.response.answer_json import answer_json


@pytest.mark.parametrize(
    ("value", "said"), [(float("nan"), "NaN or infinity"), (float("inf"), "NaN or infinity"), ("\ud800", "surrogate")]
)
def test_an_answer_that_json_does_not_know_is_refused(value: object, said: str) -> None:
    with pytest.raises(UnsupportedError, match=said) as refused:
        answer_json({"hits": [value]})
    assert refused.value.hint


def test_an_answer_is_utf_8() -> None:
    assert answer_json({"text": "é"}) == '{"text": "é"}'.encode()
