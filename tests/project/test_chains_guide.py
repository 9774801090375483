"""The commands and the code of the guide for chains, run as they are written."""

from __future__ import annotations

import re
import shlex
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from edge_infer.chains.build import build_chain, read_description
from edge_infer.cli import cli
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tools.browser.chromium import chromium
from tests.support.chains import made

if TYPE_CHECKING:
    from collections.abc import Iterator

GUIDE = Path(__file__).parents[2] / "docs/guide/chains.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("chains")
    made.things(place)
    Image.fromarray(np.full((40, 60, 3), (20, 240, 10), np.uint8)).save(place / "photo.png")
    (place / "things.toml").write_text(blocks("toml")[0])
    with chdir(place):
        yield place


def test_the_commands_and_the_code_of_the_guide_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    for line in commands:
        name, *arguments = shlex.split(line)
        assert name == "edge-infer"
        done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
    assert (folder / "things-and-colours.bundle/manifest.json").is_file()
    names: dict[str, Any] = {}
    for code in blocks("python"):
        exec(code, names)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "['thing', 'place'] green"
    assert printed[1].startswith("['things: 2 in ")
    assert printed[2] == "2"


@pytest.mark.browser
def test_the_page_of_the_guide_answers(folder: Path) -> None:
    (script,) = blocks("html")
    if not (folder / "page.bundle").exists():
        build_chain(read_description(folder / "things.toml"), folder, folder / "page.bundle")
    app = create_app({"things": folder / "page.bundle"}, find_web_root())
    with ServerThread(app) as server, chromium() as browser:
        page = browser.new_page()
        page.route(f"{server.url}/guide.html", lambda route: route.fulfill(body=script, content_type="text/html"))
        page.route(f"{server.url}/photo.png", lambda route: route.fulfill(path=folder / "photo.png"))
        page.goto(f"{server.url}/guide.html")
        page.wait_for_function("document.body.dataset.answer", timeout=30_000)
        assert page.evaluate("document.body.dataset.answer") == "2 things, the first is green"
