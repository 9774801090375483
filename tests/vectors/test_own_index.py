"""An index that a page makes of its reader's documents: the pieces and the bytes of Python, read by Python."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import edge_infer
from edge_infer.vectors.catalogue import Embedding
from edge_infer.vectors.documents import read_pieces

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("write.mjs")
HTML = """<!doctype html><html><head><title>no</title><style>a{}</style></head><body><nav>skip</nav>
<h1>First &amp; <em>only</em></h1><p>A paragraph &mdash; with&nbsp;text.</p><script>if (1 < 2) x("</p>");</script>
<div>More<br>lines<!-- <p>hidden</p> --></div>
<h2 class="a > b">Second</h2><ul><li>one<li>two</ul>&#8364; &#x20ac; 5 &lt; 6</body></html>"""
TEXTS = ["good film", "Straße café 東京 42", "", "x" * 70, "\U0001f600 ok", "good good"]
METADATA: list[dict[str, Any]] = [
    {"source": "a.md", "part": 0, "title": "Ä"},
    {"source": "a.md", "part": 1},
    {"source": "b.md", "part": 0, "flag": True},
    {},
    {"source": "b.md", "part": 1, "flag": 1, "list": [1]},
    {"source": "\U0001f600", "part": 2.5},
]


def documents() -> list[dict[str, str]]:
    found = [
        {"name": path.name, "text": path.read_text("utf-8")} for path in sorted((ROOT / "docs/guide").glob("s*.md"))
    ]
    found.append({"name": "page.html", "text": HTML})
    found.append({"name": "long.txt", "text": "\U0001f600 word. " * 300 + "y" * 1700 + "\n\n東京。" * 500})
    return [*found, {"name": "short.markdown", "text": "# A\n\n```\n# no heading\n```\n## B ##\n\ntext\x85line"}]


def asked(metric: str = "cosine") -> dict[str, Any]:
    return {
        "dimension": 70,
        "metric": metric,
        "embedding": Embedding("minilm.bundle", "a" * 64)._asdict(),
        "documents": documents(),
        "changed": [{"name": "page.html", "text": HTML.replace("More", "Other")}],
        "gone": "long.txt",
        "query": "stored searches",
        "texts": TEXTS,
        "metadata": METADATA,
        "refused": [{"name": "a.pdf", "text": "x"}, {"name": "none", "text": "x"}],
    }


def in_node(folder: Path, document: dict[str, Any]) -> dict[str, Any]:
    (folder / "asked.json").write_text(json.dumps(document), "utf-8")
    command = ["node", str(PROGRAM), str(folder / "asked.json"), str(folder / "own.index")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, encoding="utf-8")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("metric", ["cosine", "dot"])
def test_a_segment_of_a_page_has_the_bytes_of_python(tmp_path: Path, metric: str) -> None:
    found = in_node(tmp_path, asked(metric))
    index = edge_infer.Index.create(tmp_path / "here.index", 70, metric)
    index.add(found["vectors"], ids=[3 * i for i in range(len(TEXTS))], texts=TEXTS, metadata=METADATA)
    (path,) = (tmp_path / "here.index/segments").iterdir()
    assert path.read_bytes() == base64.b64decode(found["segment"])


def test_documents_become_the_pieces_of_python_and_an_index_that_python_reads(tmp_path: Path) -> None:
    given = asked()
    found = in_node(tmp_path, given | {"renew": True})
    for one, pieces in zip(given["documents"], found["pieces"], strict=True):
        (tmp_path / one["name"]).write_text(one["text"], "utf-8")
        here = [
            {"text": piece.text, "metadata": {**piece.metadata, "source": one["name"]}}
            for piece in read_pieces(tmp_path / one["name"])
        ]
        assert pieces == here, one["name"]
    total = sum(map(len, found["pieces"]))
    assert found["filled"][0] == {"added": total, "kept": 0, "removed": 0}
    assert found["filled"][1] == {"added": 0, "kept": total, "removed": 0}
    assert found["filled"][2]["added"] == found["filled"][2]["removed"] == 1
    assert found["said"] > 2
    assert (found["stopped"], found["refused"]) == ("AbortError", ["input_error", "input_error"])
    assert [one["source"] for one in found["documents"]].count("long.txt") == 0
    assert found["removed"] > 1
    assert "unsupported: what is kept was made by revision aaaaaaaaaaaa of minilm.bundle" in found["asks"]
    assert found["renewed"] == found["documents"]  # the pieces of another revision are embedded anew
    index = edge_infer.Index.open(tmp_path / "own.index")
    assert index.embedding is not None
    assert index.embedding.revision == "0" * 64
    assert len(list((tmp_path / "own.index/segments").iterdir())) == 1


def test_python_finds_what_the_page_finds(tmp_path: Path) -> None:
    given = asked()
    found = in_node(tmp_path, given)
    index = edge_infer.Index.open(tmp_path / "own.index")
    assert len(index) == sum(one["pieces"] for one in found["documents"])
    assert index.embedding is not None
    assert index.embedding.name == "minilm.bundle"
    assert [hit.text for hit in index.search("stored searches", 3, mode="words")]
    index.add([[1.0] * 70], texts=["from Python"])
    index.compact()
    assert len(edge_infer.Index.open(tmp_path / "own.index")) == len(index)
    shutil.rmtree(tmp_path / "own.index")
