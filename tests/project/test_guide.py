"""The guide from PyTorch to the browser does what it says: its blocks are run in order, from the file itself."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import edge_infer
from edge_infer.tools.browser.chromium import chromium

if TYPE_CHECKING:
    from collections.abc import Iterator

GUIDE = Path(__file__).parents[2] / "docs/guide/pytorch_to_browser.md"
SERVER = "python -m http.server --directory site 8000"


class Block(NamedTuple):
    language: str
    text: str

    @property
    def file(self) -> str:
        """The file that its first line names, or an empty text."""
        found = re.match(r"(?:# |<!-- )([\w/.]+)", self.text)
        return found[1] if found else ""


def blocks() -> list[Block]:
    return [Block(*found) for found in re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE.read_text("utf-8"), re.M | re.S)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder, with `python` and `edge-infer` on the PATH."""
    place = tmp_path_factory.mktemp("guide")
    commands = place / "bin"
    commands.mkdir()
    for name, arguments in (("python", ""), ("edge-infer", "-m edge_infer ")):
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
        (commands / name).chmod(stat.S_IRWXU)
    return place


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    shell = ["bash", "-euo", "pipefail", "-c", command]
    return subprocess.run(shell, cwd=folder, env=environment, capture_output=True, text=True, timeout=580, check=False)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the site as the guide does, on a free port."""
    command = [sys.executable, "-u", *SERVER.split()[1:-1], "0", "--bind", "127.0.0.1"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        try:
            found = re.search(r"port (\d+)", server.stdout.readline())
            assert found is not None
            yield f"http://127.0.0.1:{found[1]}/"
        finally:
            server.terminate()


@pytest.mark.long
@pytest.mark.torch
@pytest.mark.browser
def test_every_block_of_the_guide_works_in_order(folder: Path) -> None:
    found = blocks()
    for block in found:
        if block.file:
            (folder / block.file).parent.mkdir(exist_ok=True)
            (folder / block.file).write_text(block.text)

    said = {}
    for command in [block.text.strip() for block in found if block.language == "sh"]:
        if command == SERVER:
            break
        done = run(command, folder)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        said[command.split()[1]] = done.stdout + done.stderr
    else:
        pytest.fail("the guide does not serve its site")

    assert re.search(r"onnx/mixed .* ok", said["convert"])
    assert "agree with the source" in said["verify"]
    assert "ort-web" in said["verify"]
    with edge_infer.load(folder / "site/digits.bundle") as session:
        assert session.report().variant in ("onnx/int8", "onnx/mixed")
    with served(folder) as url, chromium() as browser:
        page = browser.new_page()
        page.goto(url)
        page.wait_for_function("document.querySelector('#answer').textContent.startsWith('This is')", timeout=60_000)
        answer = page.locator("#answer").inner_text()
    numbers = re.fullmatch(r"This is a (\d); it was labelled (\d)\.", answer)
    assert numbers is not None, answer
    assert numbers[1] == numbers[2]
