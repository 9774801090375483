"""The table of limits in the guide: every limit of the server is in it, with its default."""

from __future__ import annotations

import re
from pathlib import Path

from edge_infer.server.config import parse_settings
from edge_infer.server.feedback.routes import MAX_FEEDBACK_BYTES, MAX_LABELS
from edge_infer.server.http.limits import DoorLimits
from edge_infer.server.ingestion import bodies, embeddings, search
from edge_infer.server.ingestion.raw_inputs import MAX_CHARACTERS, MAX_INPUTS, MAX_PIXELS
from edge_infer.server.ingestion.text_fields import MAX_CHARACTERS as MAX_TEXT
from edge_infer.server.ingestion.text_fields import MAX_CHOICES
from edge_infer.server.options import declared
from edge_infer.server.protocol.reports import MAX_REPORT_BYTES
from edge_infer.server.protocol.requests import MAX_RANK
from edge_infer.server.protocol.steps import MAX_STEPS
from edge_infer.server.scheduling.shares import Bounds
from edge_infer.server.store.events import MAX_LISTENERS
from edge_infer.server.store.fleet import MAX_DEVICES, MAX_MODELS
from edge_infer.vectors.modes import MAX_K

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
        flag for flag in options if re.match(r"--max-|--(slots|context|feedback-mb)$|--(header|read)-timeout", flag)
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


def test_the_bounds_of_each_kind_of_request_are_there() -> None:
    text = " ".join(" ".join(row) for row in rows())
    for bound in (
        f"{bodies.MAX_MEMBERS} members of gzip, {bodies.MAX_FRAMES:,} frames of zstd",
        f"{MAX_STEPS:,} steps",
        f"{MAX_RANK} dimensions",
        f"{embeddings.MAX_TEXTS} texts of {embeddings.MAX_CHARACTERS:,} characters, {embeddings.MAX_VALUES:,} values",
        f"{search.MAX_BODY_BYTES >> 20} MiB, a query of {search.MAX_CHARACTERS:,} characters, {MAX_K:,} hits; "
        f"{search.MAX_WAITING} that wait",
        f"{MAX_FEEDBACK_BYTES >> 20} MiB and {MAX_LABELS} labels",
        f"{MAX_REPORT_BYTES >> 10} KiB; {MAX_DEVICES:,} devices, {MAX_MODELS} models",
        f"{MAX_LISTENERS:,} that listen",
    ):
        assert bound in text


def test_the_bounds_of_generated_text_are_there() -> None:
    text = " ".join(" ".join(row) for row in rows())
    assert f"{MAX_CHOICES} answers to a request, {MAX_TEXT:,} characters or tokens" in text


def test_every_bound_of_a_tenant_is_there() -> None:
    last = [row[0].rpartition(" ")[2].strip("`") for row in rows()[-len(Bounds._fields) :]]
    digest = "sha256:" + "0" * 64
    (tenant,) = parse_settings({"tenants": {"a": {"keys": [digest], **dict.fromkeys(last, 7)}}}).tenants
    assert all(tenant.bounds)
