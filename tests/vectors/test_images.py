"""An index of images: built from files and searched by an image in Python and in JavaScript."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image

import edge_infer
from edge_infer.cli import cli
from edge_infer.errors import InputError
from tests.support.tasks import pipelines

COLOURS = {"red": (250, 5, 5), "green": (10, 240, 20), "blue": (0, 10, 230)}
_ROOT = Path(__file__).parents[2]
_SCRIPT = """
const [root, folder, model] = process.argv.slice(1);
const { openIndex } = await import(`${root}/web/src/index.js`);
const { pathToFileURL } = await import("node:url");
const photos = await openIndex(pathToFileURL(folder), { model });
const data = new Uint8Array(16 * 16 * 3).map((_, i) => [10, 200, 30][i % 3]);
const hits = await photos.search({ data, width: 16, height: 16, channels: 3 }, { k: 3 });
const words = await photos.search("blue", { mode: "words" });
const refused = await photos.search("/etc/passwd").catch(({ code }) => code);
await photos.embed.dispose();
const texts = (found) => found.map(({ text }) => text);
const scores = hits.map(({ score }) => score);
console.log(JSON.stringify({ hits: texts(hits), scores, words: texts(words), refused }));
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    model = pipelines.colours(tmp_path / "looks.bundle", after=[{"step": "post.tensor"}])
    document = json.loads((model / "manifest.json").read_text("utf-8"))
    document["task"] = "image-feature-extraction"
    (model / "manifest.json").write_text(json.dumps(document), "utf-8")
    (tmp_path / "photos").mkdir()
    for name, colour in COLOURS.items():
        Image.new("RGB", (16, 16), colour).save(f"photos/{name} sky.png")
    Path("photos/torn.jpg").write_bytes(b"\xff\xd8\xff\xe0 no more")
    Path("photos/notes.txt").write_text("no image")
    return tmp_path


def run(*words: str) -> str:
    done = CliRunner().invoke(cli, [*words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_images_are_found_by_images_in_python_and_javascript(folder: Path) -> None:
    said = run("index", "build", "photos", "--model", "looks.bundle", "-o", "photos.index")
    assert "`photos/torn.jpg` is left out" in said
    assert "3 pieces" in said
    Image.new("RGB", (16, 16), (10, 200, 30)).save("leaf.png")

    index = edge_infer.Index.open("photos.index", model="looks.bundle")
    hits = index.search(Path("leaf.png"), k=3)
    assert hits[0].metadata["source"] == "photos/green sky.png"
    assert index.search(Path("leaf.png").read_bytes(), k=3) == hits
    assert "photos/green sky.png" in run("index", "search", "photos.index", "leaf.png", "-k", "1")
    with pytest.raises(InputError, match="takes images"):
        index.search("leaf.png")  # a text from outside must not name a file

    arguments = [str(_ROOT), str(folder / "photos.index"), str(folder / "looks.bundle")]
    command = ["node", "--input-type=module", "-e", _SCRIPT, *arguments]
    done = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert done.pop("scores") == pytest.approx([hit.score for hit in hits], abs=1e-6)  # of two engines
    assert done == {"hits": [hit.text for hit in hits], "words": ["blue sky.png"], "refused": "input_error"}


def test_only_changed_images_are_embedded_again(folder: Path) -> None:
    run("index", "build", "photos", "--model", "looks.bundle", "-o", "photos.index")
    Image.new("RGB", (16, 16), (250, 250, 5)).save("photos/red sky.png")
    (folder / "photos/blue sky.png").unlink()
    said = run("index", "add", "photos.index", "photos")
    assert "Added 1 pieces, kept 1, removed 1" in said
    assert len(edge_infer.Index.open("photos.index")) == 3

    with pytest.raises(InputError, match="none of the images"):
        CliRunner().invoke(
            cli,
            ["index", "build", "photos/torn.jpg", "--model", "looks.bundle", "-o", "x.index"],
            catch_exceptions=False,
            standalone_mode=False,
        )
