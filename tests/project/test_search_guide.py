"""The guide to search does what it says: its commands, its Python and its page are run, from the file itself."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

import edge_infer
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tools.browser.chromium import chromium
from tests.support.tasks import pipelines

if TYPE_CHECKING:
    from playwright.sync_api import Route

GUIDE = Path(__file__).parents[2] / "docs/guide/search.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE.read_text("utf-8"), re.M | re.S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a tiny model of words, by the name that the guide uses, and two documents."""
    pipelines.words(
        tmp_path / "minilm.bundle", "feature-extraction", [{"step": "post.pool"}, {"step": "post.normalize"}]
    )
    for name, text in (("films.md", "# Films\ngood good film\n\n# Others\nbad film"), ("towns.txt", "paris a london")):
        (tmp_path / "docs").mkdir(exist_ok=True)
        (tmp_path / "docs" / name).write_text(text)
    (tmp_path / "site").mkdir()
    for line in "".join(blocks("sh")).splitlines():
        command = [sys.executable, "-m", "edge_infer", *shlex.split(line)[1:]]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    return tmp_path


def test_the_commands_and_the_python_of_the_guide_work(folder: Path) -> None:
    code = "\n".join(blocks("python"))
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    ).stdout

    assert "docs/films.md # Films" in printed.splitlines()[0]
    assert "['north-east', 'east']" in printed
    assert "# ['north-east', 'east']" in code
    assert len(edge_infer.Index.open(folder / "mine.index")) == 2


@pytest.mark.browser
@pytest.mark.long
def test_the_own_documents_of_the_guide_are_found(folder: Path) -> None:
    (code,) = blocks("js")
    code = code.replace(
        'import { ownIndex } from "/src/index.js";', 'const { ownIndex } = await import("/src/index.js");'
    )
    with (
        ServerThread(create_app({"minilm": folder / "minilm.bundle"}, find_web_root())) as server,
        chromium() as browser,
    ):
        page = browser.new_page()
        page.goto(f"{server.url}/blank.html")
        said = page.evaluate(
            f"""async () => {{
                const files = [{{ name: "a.md", text: "# Films\\n\\ngood film" }}, {{ name: "b.txt", text: "paris" }}];
                {code}
                return [best.text, notes.size, notes.isKept];
            }}"""
        )
    assert said == ["# Films\n\ngood film", 2, True]


@pytest.mark.long
@pytest.mark.browser
def test_the_page_of_the_guide_finds_what_python_finds(folder: Path) -> None:
    (page_text,) = blocks("html")
    # The files that the guide's server has beside those of the package.
    files = {f"/{path.relative_to(folder / 'site').as_posix()}": path for path in (folder / "site").rglob("*")}
    (folder / "page.html").write_text(page_text)
    files["/index.html"] = folder / "page.html"

    def answer_from_disk(route: Route) -> None:
        path = files.get(urlsplit(route.request.url).path)
        route.fulfill(path=path) if path else route.fallback()

    app = create_app({"minilm": folder / "minilm.bundle"}, find_web_root())
    with ServerThread(app) as server, chromium() as browser:
        page = browser.new_page()
        page.route(f"{server.url}/**", answer_from_disk)
        page.goto(f"{server.url}/index.html")
        page.wait_for_function("document.querySelector('#answer').textContent.startsWith('Found')", timeout=30_000)
        answer = page.locator("#answer").inner_text()
        there = page.evaluate("""async () => {
            const { openIndex } = await import("/src/index.js");
            const notes = await openIndex("/notes.index", { model: "/models/minilm" });
            const words = await notes.search("film paris", { mode: "words" });
            const near = notes.searchVector(Float32Array.from({ length: notes.catalogue.dimension }, (_, i) => i - 1));
            return [words, near].map((hits) => hits.map(({ id, score }) => [id, score]));
        }""")
    index = edge_infer.Index.open(folder / "site/notes.index", model=folder / "minilm.bundle")
    dimension = int(index.info()["dimension"])
    here = [index.search("film paris", mode="words"), index.search([i - 1 for i in range(dimension)])]

    assert answer == f"Found: {' '.join((index.search('good film', 3)[0].text or '').split())}"
    assert there == [[[hit.id, hit.score] for hit in hits] for hits in here]
