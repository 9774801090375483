"""The architecture page: its picture is drawn from the contracts, and the files that it names exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/concepts/architecture.md"
#: In a bundle, or made by a verb of the Makefile.
ELSEWHERE = {"manifest.json", "dist/", "vendor/versions.json"}


def test_the_picture_shows_the_layers_of_the_import_contract() -> None:
    drawing = runpy.run_path(str(ROOT / "docs/pictures/architecture.py"))

    assert drawing["PICTURE"].read_text() == drawing["draw"](), "run `python docs/pictures/architecture.py`"


def test_each_file_and_folder_that_the_pages_name_exists() -> None:
    text = PAGE.read_text() + (ROOT / "CONTRIBUTING.md").read_text()
    named = {name for name in re.findall(r"`([\w./-]+(?:/|\.py|\.toml|\.json|\.md))`", text) if "NAME" not in name}
    folders = ["benchmarks", "converters", "docs", "edge_infer", "tests", "web/edge_infer_web", "web/src", "web/studio"]
    paths = [*ROOT.glob("*"), *(ROOT / "web").glob("*")]
    paths += [path for folder in folders for path in (ROOT / folder).rglob("*")]
    known = {f"{path}/" if path.is_dir() else str(path) for path in paths}

    missing = [name for name in named - ELSEWHERE if not any(path.endswith(f"/{name}") for path in known)]

    assert len(named) > 60
    assert sorted(missing) == []
