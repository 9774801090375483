"""Reports that lie, break out, or are no reports: each is refused, and none is believed further than its words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_infer.errors import InputError
from edge_infer.server.protocol.reports import Report
from edge_infer.server.store.fleet import Fleet
from edge_infer.server.store.page import render

GOOD = {"device": "d", "model": "m"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"[" * 100_000,
        b"{}",
        json.dumps({"device": "d"}).encode(),
        *(
            json.dumps({**GOOD, **change}).encode()
            for change in (
                {"device": ""},
                {"device": "../x"},
                {"device": "d" * 200},
                {"model": "<script>"},
                {"model": 3},
                {"version": ["1"]},
                {"version": "v" * 501},
                {"sequence": -1},
                {"sequence": 1.5},
                {"sequence": True},
                {"sequence": 2**60},
                {"seconds": "1"},
                {"seconds": -1},
                {"result": "perfect"},
                {"kind": "god"},
                {"method": "magic"},
            )
        ),
        b'{"device": "d", "model": "m", "seconds": NaN}',
        b'{"device": "d", "model": "m", "seconds": Infinity}',
    ],
)
def test_what_is_no_report_is_refused(body: bytes) -> None:
    with pytest.raises(InputError):
        Report.from_bytes(body)


@given(st.dictionaries(st.sampled_from(["version", "error", "bundle"]), st.text(max_size=40)))
def test_any_text_stays_text_on_the_page(texts: dict[str, str]) -> None:
    fleet = Fleet()
    fleet.add(Report.from_bytes(json.dumps({**GOOD, **texts, "result": "error"}).encode()))
    fleet.add(Report.from_bytes(json.dumps({**GOOD, "device": "e", "error": "<i>"}).encode()))

    page = render(fleet)

    assert "<i>" not in page
    assert page.count("<script") == 1  # the one of the page itself, which takes the chosen theme
    fleet.close()
