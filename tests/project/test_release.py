"""The files of a release install in empty folders by the README's own lines, and do what the README says."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.support.wait import wait_until

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
LOAD = """
import edge_infer

session = edge_infer.load("digits.bundle")
print(session.run({"image": [[[[0.5] * 8] * 8]]})["logits"].shape)
"""


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an empty folder but for `dist/`, as `make release` writes it."""
    folder = tmp_path_factory.mktemp("release")
    made = ["make", "-C", str(ROOT), "-o", "setup", "-o", ".venv/ready", "release", f"DIST={folder / 'dist'}"]
    subprocess.run(made, check=True, capture_output=True)
    return folder


def readme_line(start: str) -> list[str]:
    """Return the words of the README's command that begins so."""
    (found,) = re.findall(rf"^{start} (?:[^\n\\#]|\\\n)+", README, re.MULTILINE)
    return [word.strip("'") for word in str(found).replace("\\\n", " ").split()]


@pytest.fixture(scope="module")
def python(release: Path) -> Path:
    """Return the Python of an environment that has what the README says, and nothing of this checkout."""
    uv = Path(sys.executable).with_name("uv")
    environment = release / "environment"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, environment], check=True)
    python = environment / "bin/python"
    install = [str(uv), "pip", "install", "--quiet", "--python", str(python), *readme_line("pip install")[2:]]
    subprocess.run(install, check=True, cwd=release, env=clean_environment())
    return python


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def run(python: Path, *arguments: str) -> str:
    """Run a program of the environment in the release's folder and return its output."""
    program = [str(python.with_name(arguments[0])), *arguments[1:]]
    folder = python.parents[2]
    done = subprocess.run(program, cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_release_has_three_wheels_their_sources_and_the_npm_archive(release: Path) -> None:
    names = sorted(path.name for path in (release / "dist").iterdir())

    (archive,) = (name for name in names if name.endswith(".tgz"))
    version = archive.removesuffix(".tgz").rpartition("-")[2]
    parts = [f"{name}-{version}" for name in ("edge_infer", "edge_infer_converters", "edge_infer_web")]
    archives = [f"{part}{end}" for part in parts for end in ("-py3-none-any.whl", ".tar.gz")]
    assert names == sorted([archive, *archives, "npm.cdx.json", "python.cdx.json", "SHA256SUMS"])


def test_a_release_lists_its_files_by_their_digests(release: Path) -> None:
    lines = (release / "dist/SHA256SUMS").read_text("utf-8").splitlines()

    listed = {name: digest for digest, name in (line.split("  ") for line in lines)}
    files = [path for path in (release / "dist").iterdir() if path.name != "SHA256SUMS"]
    assert listed == {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_bills_of_materials_name_what_a_release_runs_on(release: Path) -> None:
    said = {name: (release / f"dist/{name}.cdx.json").read_text("utf-8") for name in ("python", "npm")}

    used = {name: {one["name"] for one in json.loads(text)["components"]} for name, text in said.items()}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {"edge-infer-converters", "edge-infer-web", "onnxruntime", "starlette", "tuf"} <= used["python"]
    assert set(json.loads((ROOT / "web/package.json").read_text("utf-8"))["dependencies"]) <= used["npm"]
    assert json.loads(said["python"])["metadata"]["component"]["version"] == project["version"]
    assert str(release) not in said["python"] + said["npm"]  # no folder of the machine that built it


def test_the_readme_s_lines_run_in_an_empty_environment(release: Path, python: Path) -> None:
    shutil.copy(ROOT / "examples/digits/digits.onnx", release)

    assert "Convert:" in run(python, "edge-infer", "--help")
    run(python, "edge-infer", "convert", "digits.onnx", "-o", "digits.bundle", "--name", "digits")
    assert run(python, "python", "-c", LOAD) == "(1, 10)\n"
    rows = json.loads(run(python, "edge-infer", "verify", "digits.bundle", "--backend", "ort-web", "--json"))["rows"]
    assert rows
    assert {row["backend"] for row in rows} == {"ort-web"}
    assert Path(run(python, "edge-infer", "store", "keys", "init", "store").strip()).name == "1.root.json"
    run(python, "edge-infer", "publish", "digits.bundle", "store")


def status(url: str) -> int:
    try:
        with urlopen(url, timeout=60) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_the_installed_server_is_ready(release: Path, python: Path) -> None:
    program = [str(python.with_name("edge-infer")), "serve", str(ROOT / "examples/digits/digits.onnx"), "--port", "0"]
    with subprocess.Popen(program, cwd=release, env=clean_environment(), stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        line = server.stderr.readline()
        try:
            (url,) = re.findall(r"http://[^ ]+", line)
            wait_until(lambda: status(f"{url}/v2/health/ready") == 200)
        finally:
            server.terminate()


def test_the_npm_archive_installs_in_an_empty_folder(release: Path) -> None:
    (release / "package.json").write_text('{"private": true, "type": "module"}')
    subprocess.run([*readme_line("npm install"), "--no-audit", "--no-fund", "--silent"], check=True, cwd=release)

    code = 'import { load, VERSION } from "edge-infer"; console.log(typeof load, VERSION)'
    said = subprocess.run(["node", "-e", code], cwd=release, capture_output=True, text=True, check=True).stdout

    assert said.split()[0] == "function"
    assert (release / "node_modules/edge-infer/types/index.d.ts").is_file()
