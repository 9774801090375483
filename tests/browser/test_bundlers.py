"""Pages that webpack, Next, esbuild and Rollup have built from the npm package, each run in Chromium."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import urllib.request
from typing import TYPE_CHECKING

import pytest

from tests.support.browser.digits import make_digits_bundle
from tests.support.browser.npm_project import ROOT, run, unpack_package
from tests.support.browser.static_host import StaticHost
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.browser.pages import BrowserPage

    Open = Callable[..., BrowserPage]

pytestmark = pytest.mark.long

_INSTALLED = ROOT / "tests/bundlers"
_USER = ROOT / "tests/npm"
_PAGE = (
    '<!doctype html><link rel="icon" href="data:,"><p id="said">loading</p><script type="module" src="SCRIPT"></script>'
)
_EXPECTED = {"engine": "ort-web", "variant": "onnx/int8", "shape": [1, 10]}

# What a user types, by bundler: only the names of the project's own files differ from its guide.
_COMMANDS = {
    "webpack": ["webpack-cli/bin/cli.js", "--mode=production", "--entry=./main.js", "--output-path=public/built"],
    "rollup": ["rollup/dist/bin/rollup", "main.js", "-p", "@rollup/plugin-node-resolve", "-d", "public/built"],
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_digits_bundle(tmp_path_factory.mktemp("digits") / "digits.bundle", "both")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, bundle: Path) -> Path:
    """A user's project: the package, the bundlers, and in `public/` what `edge-infer-files` copies and a model."""
    assert (_INSTALLED / "node_modules/next").is_dir(), "run tests/setup.sh all: the bundlers are not installed"
    folder = tmp_path_factory.mktemp("project")
    shutil.copy(_USER / "main.js", folder)
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    unpack_package(folder, _INSTALLED)
    tool = "node_modules/edge-infer/bin/edge-infer-files.js"
    run("node", tool, "public/edge-infer", "--engine", "onnx", cwd=folder)
    shutil.copytree(bundle, folder / "public/models/digits")
    return folder


def check(open_page: Open, url: str) -> None:
    page = open_page(url)
    page.do(lambda page: page.wait_for_function("document.querySelector('#said').textContent !== 'loading'"))
    said = page.evaluate("() => document.querySelector('#said').textContent")
    assert said.startswith("{"), f"{said} {page.console}"
    assert json.loads(said) == _EXPECTED


def serve_and_check(open_page: Open, project: Path, script: str) -> StaticHost:
    (project / "public/index.html").write_text(_PAGE.replace("SCRIPT", script))
    with StaticHost(project / "public") as host:
        check(open_page, f"{host.url}/index.html")
    return host


@pytest.mark.parametrize("name", list(_COMMANDS))
def test_a_page_is_built_without_configuration(open_page: Open, project: Path, name: str) -> None:
    tool, *words = _COMMANDS[name]
    shutil.rmtree(project / "public/built", ignore_errors=True)
    run("node", f"node_modules/{tool}", *words, cwd=project)

    serve_and_check(open_page, project, "/built/main.js")


def test_esbuild_builds_a_page_without_configuration(open_page: Open, project: Path) -> None:
    command = ["node_modules/esbuild/bin/esbuild", "main.js", "--bundle", "--format=esm", "--outdir=public/built"]
    shutil.rmtree(project / "public/built", ignore_errors=True)
    # Where the installer ran no scripts, npm leaves a script in the place of the program.
    native = next((_INSTALLED / "node_modules/@esbuild").glob("*/bin/esbuild"))
    run(str(native), *command[1:], cwd=project)

    host = serve_and_check(open_page, project, "/built/main.js")

    assert "/edge-infer/src/page/worker.js" in host.asked, "esbuild writes no file for the worker"


def test_next_builds_a_page_without_configuration(open_page: Open, project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    shutil.copytree(_INSTALLED / "next", folder)
    shutil.copytree(project / "public", folder / "public")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    # Turbopack follows no link that leads out of the project.
    shutil.copytree(_INSTALLED / "node_modules", folder / "node_modules", copy_function=link)
    shutil.copytree(project / "node_modules/edge-infer", folder / "node_modules/edge-infer")
    env = os.environ | {"NEXT_TELEMETRY_DISABLED": "1"}
    tool = str(folder / "node_modules/next/dist/bin/next")
    run("node", tool, "build", cwd=folder, env=env)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = ["node", tool, "start", "--hostname", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL) as server:
        try:
            wait_until(lambda: answers(f"http://127.0.0.1:{port}/"), 60)
            check(open_page, f"http://127.0.0.1:{port}/")
        finally:
            server.terminate()


def link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=10):
            return True
    except OSError:
        return False
