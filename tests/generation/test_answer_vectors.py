"""The answers that JavaScript has to give too are those that Python gives."""

from __future__ import annotations

import json

from tests.support.generation.answer_vectors import PATH, models


def test_the_answers_of_the_file_are_those_of_this_version() -> None:
    assert json.loads(PATH.read_text("utf-8")) == json.loads(json.dumps(models()))
