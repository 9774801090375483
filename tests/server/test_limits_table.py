"""The table of limits in the guide: every limit of the server is in it, with its default."""

from __future__ import annotations

import re
from pathlib import Path

from edge_infer.server.config import parse_settings
from edge_infer.server.http.limits import DoorLimits
from edge_infer.server.ingestion.raw_inputs import MAX_CHARACTERS, MAX_INPUTS, MAX_PIXELS
from edge_infer.server.ingestion.text_fields import MAX_CHARACTERS as MAX_TEXT
from edge_infer.server.ingestion.text_fields import MAX_CHOICES
from edge_infer.server.options import declared
from edge_infer.server.scheduling.shares import Bounds

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "serve.md"
#: They bound batches and not clients.
OF_BATCHES = {"--max-batch-size", "--max-delay-ms"}


def rows() -> list[list[str]]:
    """The cells of the table's rows."""
    section = GUIDE.read_text().split("\n## Limits\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_option_that_bounds_clients_is_there_with_its_default() -> None:
    table = {found[1]: row for row in rows() if (found := re.match(r"`(--[a-z-]+)`", row[0]))}
    options = {one.flag: one for one in declared()}
    bounding = {
        flag for flag in options if re.match(r"--max-|--(slots|context)$|--(header|read)-timeout", flag)
    } - OF_BATCHES
    assert set(table) == bounding
    for flag, row in table.items():
        assert re.match(rf"{options[flag].default:g}\b", row[1]), row
    for row in rows():
        assert len(row) == 4
        assert row[1]
        assert row[2], row


def test_what_has_no_option_is_told_as_it_is() -> None:
    text = " ".join(" ".join(row) for row in rows())
    door = DoorLimits()
    assert f"{door.keep_alive_s:g} s for a connection without a request" in text
    assert f"never stops for {door.body_timeout_s:g} s" in text
    assert f"at {door.min_body_rate / 1000:g} kB/s" in text
    assert (
        f"{MAX_INPUTS} inputs, {MAX_PIXELS / 1e6:g} million pixels of an image, {MAX_CHARACTERS:,} characters" in text
    )


def test_the_bounds_of_generated_text_are_there() -> None:
    text = " ".join(" ".join(row) for row in rows())
    assert f"{MAX_CHOICES} answers to a request, {MAX_TEXT:,} characters or tokens" in text


def test_every_bound_of_a_tenant_is_there() -> None:
    last = [row[0].rpartition(" ")[2].strip("`") for row in rows()[-len(Bounds._fields) :]]
    digest = "sha256:" + "0" * 64
    (tenant,) = parse_settings({"tenants": {"a": {"keys": [digest], **dict.fromkeys(last, 7)}}}).tenants
    assert all(tenant.bounds)
