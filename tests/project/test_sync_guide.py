"""The guide to stores does what it says: its commands, its Python and its page are run, from the file itself."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from onnx import helper, numpy_helper

from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import Variant
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.server.store.routes import HostedStore
from edge_infer.sync.device import DeviceStore
from edge_infer.tensors.tensor import TensorSpec
from edge_infer.tools.browser.chromium import chromium
from tests.support import warm_command, zoo

if TYPE_CHECKING:
    from collections.abc import Iterator

GUIDE = Path(__file__).parents[2] / "docs/guide/sync.md"
HOST = "https://models.example.org"
#: What the guide installs is installed here, and what follows a store for ever looks once.
_PREPARED = ("pip install",)


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def write_digits(folder: Path, version: int) -> None:
    """Write a bundle `digits.bundle` whose weights are of a version."""
    weights = np.full((4, 4), version, np.float32)
    node = helper.make_node("MatMul", ["image", "w"], ["logits"])
    ends = [zoo.value(name, ["n", 4]) for name in ("image", "logits")]
    graph = helper.make_graph([node], "digits", ends[:1], ends[1:], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", zoo.OPSET)], ir_version=10)
    data = model.SerializeToString()
    bundle = folder / "digits.bundle"
    (bundle / "onnx").mkdir(parents=True, exist_ok=True)
    (bundle / "onnx/model.onnx").write_bytes(data)
    entry = FileEntry("onnx/model.onnx", len(data), hashlib.sha256(data).hexdigest())
    inputs, outputs = ([TensorSpec(name, "float32", ("n", 4))] for name in ("image", "logits"))
    variants = [Variant("onnx/fp32", "onnx", "fp32", entry.path)]
    (bundle / "manifest.json").write_bytes(
        Manifest("digits", str(version), inputs, outputs, variants, [entry]).to_bytes()
    )


class Done(NamedTuple):
    """A folder in which the commands of the guide were run, and the server of its store."""

    folder: Path
    url: str
    printed: list[str]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Done]:
    folder = tmp_path_factory.mktemp("sync")
    (folder / "store").mkdir()
    hosted = HostedStore(folder / "store")
    with ServerThread(create_app({}, find_web_root(), store=hosted)) as server:
        printed = []
        for number, block in enumerate(blocks("sh"), 1):
            write_digits(folder, number)
            for line in block.splitlines():
                command = line.partition("#")[0].strip().replace(HOST, server.url)
                if not command or command.startswith(_PREPARED):
                    continue
                if "watch" in command.split():
                    command += " --once --no-server"
                _, *words = shlex.split(command)
                ran = warm_command.run(words, cwd=folder)
                assert ran.returncode == 0, f"{command}\n{ran.stderr}"
                printed.append(ran.stdout)
                if words[:3] == ["store", "keys", "init"]:
                    shutil.copy(folder / "store/tuf/1.root.json", folder / "1.root.json")
        yield Done(folder, server.url, printed)


def test_the_commands_of_the_guide_work(done: Done) -> None:
    assert len(done.printed) >= 10
    record = DeviceStore(done.folder / "device").record()
    assert record.active is not None
    assert record.active.key, "the last version is encrypted"
    assert record.previous is not None


def test_the_commands_of_the_tables_are_there(done: Done) -> None:
    """What stands in a table or a sentence is asked for its help."""
    named = set(re.findall(r"`edge-infer ((?:store keys|store|device) [a-z-]+|[a-z]+)[^`]*`", GUIDE.read_text("utf-8")))
    assert {"store status", "store rollback", "store keys rotate"} <= named
    for words in named:
        assert warm_command.run([*words.split(), "--help"], cwd=done.folder).returncode == 0, words


def test_the_python_of_the_guide_follows_the_store(done: Done, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGE_INFER_KEY_FILE", str(done.folder / "weights.key"))
    names: dict[str, Any] = {"image": np.ones((1, 4), np.float32)}
    with chdir(done.folder):
        for code in blocks("python"):
            exec(code.replace(HOST, done.url), names)
    version = len(blocks("sh"))
    assert names["result"]["logits"].tolist() == [[4.0 * version] * 4]


@pytest.mark.long
@pytest.mark.browser
def test_the_page_of_the_guide_follows_the_store(done: Done) -> None:
    (code,) = blocks("js")
    root, key = (done.folder / "1.root.json").read_text(), (done.folder / "weights.key").read_text()
    code = code.replace("report: true", "report: true, key")
    with chromium() as browser:
        page = browser.new_page()
        page.goto(f"{done.url}/blank.html")
        said = page.evaluate(
            f"""async ([rootJson, key]) => {{
                const {{ load }} = await import("/src/index.js");
                const image = new Float32Array([1, 1, 1, 1]);
                {code.replace("{ image }", "{ image: { data: image, shape: [1, 4] } }")}
                return Array.from(logits.data);
            }}""",
            [root, key],
        )
    assert said == [4.0 * len(blocks("sh"))] * 4
