"""The pinned Unicode table is what its script writes, and gives the same on every Python."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from itertools import pairwise
from pathlib import Path

import pytest
from tokenizers import normalizers

from edge_infer.tasks.text.definition import Part
from edge_infer.tasks.text.normalizers import normalizer
from edge_infer.tasks.text.unicode_table import LAST, complement, members, ranges, union

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "edge_infer/tasks/text/unicode_table.json"


@pytest.mark.long
@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="it is written by Python 3.11")
def test_the_script_writes_the_table_again() -> None:
    code = "from tests.support.tasks import write_unicode_table as w; import json; print(json.dumps(w.table()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert json.loads(done.stdout) == json.loads(TABLE.read_text("utf-8"))


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_every_character_of_the_lower_planes_is_normalized_as_by_the_package(form: str) -> None:
    step, theirs = normalizer(Part({"type": form}, "")), getattr(normalizers, form)()
    assert step is not None

    for start in range(0, 0x20000, 0x100):
        characters = [chr(code) for code in range(start, start + 0x100) if not 0xD800 <= code < 0xE000]
        text = "\u0345".join(characters)
        assert step(text, None)[0] == theirs.normalize_str(text)
        with_spans = step(text, [(at, at + 1) for at in range(len(text))])
        assert with_spans[0] == step(text, None)[0]


def test_sets_are_sorted_runs() -> None:
    letters = ranges("L")

    assert all(before[1] + 1 < after[0] for before, after in pairwise(letters))
    assert union(letters, complement(letters)) == ((0, LAST),)
    assert complement(complement(letters)) == letters
    assert [members("Nd")[one] for one in "a1٣ "] == [False, True, True, False]
    with pytest.raises(KeyError):
        ranges("Han")
