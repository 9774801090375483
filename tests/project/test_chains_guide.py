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

from edge_infer.cli import cli
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
