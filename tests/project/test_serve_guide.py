"""The guide to the server does what it says: its commands, Python and settings are run, from the file itself."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from contextlib import chdir, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import edge_infer
from edge_infer.platform.fetch import fetch
from tests.support import warm_command

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
GUIDE, LOAD, MORE = (ROOT / f"docs/guide/{name}.md" for name in ("serve", "serve_load", "deploy"))
LOCAL = "http://127.0.0.1:8080"
#: Bundles that other tests make and serve (tests/generation, tests/server/test_search.py), and Ray (test_ray.py).
ELSEWHERE = ("chat.bundle", "minilm.bundle", "resnet.bundle", "serve run ", "docker", "pip install")


def blocks(language: str, guide: Path = GUIDE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", guide.read_text("utf-8"), re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model and the bundle that the guide serves."""
    place = tmp_path_factory.mktemp("serve")
    shutil.copy(ROOT / "examples/digits/digits.onnx", place / "digits.onnx")
    made = warm_command.run(
        ["convert", "digits.onnx", "-o", "digits.bundle", "--name", "digits", "--precision", "fp32"], cwd=place
    )
    assert made.returncode == 0, made.stderr
    return place


@contextmanager
def serving(folder: Path, *words: str) -> Iterator[str]:
    """Run `edge-infer serve` as it is typed, but on a free port; give its URL."""
    command = [sys.executable, "-m", "edge_infer", "serve", *words, "--port", "0"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = next(line for line in process.stderr if line.startswith("Serving "))
            yield line.split()[1]
        finally:
            process.send_signal(signal.SIGTERM)
            process.stderr.read()


def commands() -> list[str]:
    shells = [*blocks("sh"), *blocks("sh", LOAD)]
    lines = [line.strip() for block in shells for line in block.replace("|\n", "| ").splitlines()]
    return [line for line in lines if line and not any(one in line for one in ELSEWHERE)]


def test_the_commands_and_the_python_of_the_guide_work(folder: Path) -> None:
    """Each `serve` is started; what asks it, by curl or in Python, is run as it stands, and feedback in between."""
    ran = []
    with serving(folder, "digits.bundle", "--feedback", "said") as url:
        image = np.zeros((1, 1, 8, 8), np.float32)
        for line in commands():
            if "curl" in line and "indexes" not in line:
                said = subprocess.run(
                    ["bash", "-c", line.replace(LOCAL, url)], cwd=folder, capture_output=True, text=True, check=True
                )
                answer = json.loads(said.stdout)
                assert (answer["model_name"], answer["outputs"][0]["shape"]) == ("digits", [1, 10])
                ran.append(line)
        for code in blocks("python"):
            if "edge_infer.load(" in code:
                names: dict[str, Any] = {"edge_infer": edge_infer}
                exec(code.replace("127.0.0.1:8080", url.removeprefix("http://")), names)
                assert list(names["session"].run({"image": image})) == ["logits"]
                ran.append(code)
        body = {"inputs": [{"name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0.5] * 64}]}
        tell = (
            "import json, sys, urllib.request as u\n"
            "url, body = sys.argv[1], json.loads(sys.argv[2])\n"
            "post = lambda path, what: u.urlopen(u.Request(url + path, json.dumps(what).encode(), "
            "{'Content-Type': 'application/json'}))\n"
            "given = post('/v2/models/digits/infer', body).headers['Feedback-Id']\n"
            "post('/v2/models/digits/feedback', {'id': given, 'label': 3, 'consent': True, **body})\n"
        )
        for _ in range(4):
            subprocess.run([sys.executable, "-c", tell, url, json.dumps(body)], check=True)
    for line in commands():
        if line.startswith("edge-infer ") and " serve " not in line:
            done = warm_command.run(shlex.split(line)[1:], cwd=folder)
            # Four made-up labels are no measure: whether `--max-loss` is kept is not what is tested.
            assert done.returncode in (0, 1), f"{line}\n{done.stderr}"
            assert "Usage" not in done.stderr, line
            ran.append(line)
    assert len(ran) >= 6
    assert (folder / "eval.npz").is_file()


def test_every_serve_of_the_guide_starts(folder: Path) -> None:
    lines = [line for line in commands() if line.startswith("edge-infer serve ")]
    assert lines
    for line in lines:
        with serving(folder, *shlex.split(line.replace("--port 8080", ""))[2:]) as url:
            assert json.loads(fetch(f"{url}/v2"))["name"] == "edge-infer"


def test_the_server_in_a_program_of_the_guide_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = [one for one in blocks("python") if "ServerThread(" in one]
    with chdir(folder):
        exec(code, {})
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


def test_the_settings_of_the_guide_are_read(folder: Path) -> None:
    settings = blocks("toml", LOAD)
    assert settings
    for text in settings:
        assert tomllib.loads(text)


def test_the_recipes_for_clusters_name_what_the_server_has() -> None:
    """YAML is not run here: its paths, options and ports are those of the server."""
    help_text = warm_command.run(["serve", "--help"]).stdout
    recipes = blocks("yaml", MORE)
    assert len(recipes) == 2
    for text in recipes:
        for option in re.findall(r'"(--[a-z-]+)"', text):
            assert option in help_text, option
        for path in re.findall(r"path: (/[a-z0-9/_-]+)", text):
            assert path in ("/livez", "/readyz", "/v2/models/digits/ready"), path
