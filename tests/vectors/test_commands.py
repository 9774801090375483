"""`edge-infer index` and `edge-infer embed` do what they say, on a tiny model of words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import edge_infer
from edge_infer.cli import cli
from edge_infer.errors import BundleError, InputError, IntegrityError
from edge_infer.formats.safetensors import read_tensors
from edge_infer.vectors.embedder import Embedder
from tests.support.tasks import pipelines

if TYPE_CHECKING:
    from pathlib import Path

_AFTER = [{"step": "post.pool"}, {"step": "post.normalize"}]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and documents."""
    pipelines.words(tmp_path / "w.bundle", "feature-extraction", _AFTER)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "films.md").write_text("# Good\ngood good film\n\n# Bad\nbad film\n")
    (tmp_path / "docs" / "towns.jsonl").write_text('{"text": "paris", "n": 1}\n{"text": "london london", "n": 2}\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str, code: int = 0) -> Any:
    """Run a command, and return what it prints."""
    done = CliRunner().invoke(cli, [*words])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done


def found(*words: str) -> list[str]:
    hits = json.loads(run("index", "search", "n.index", *words, "--json").stdout)
    return [hit["text"] for hit in hits]


def test_an_index_is_built_searched_and_changed(folder: Path) -> None:
    assert "4 pieces" in run("index", "build", "docs", "--model", "w.bundle", "-o", "n.index").stderr

    assert found("london", "-k", "1") == ["london london"]
    assert found("paris bad", "--mode", "words") == ["paris", "# Bad\nbad film"]
    assert found("london", "--where", "n<2") == ["paris"]
    assert found("good", "--where", "title=Good", "--mode", "hybrid") == ["# Good\ngood good film"]
    assert "docs/towns.jsonl#1" in run("index", "search", "n.index", "london").stdout

    (folder / "docs" / "films.md").write_text("# Good\ngood good film\n\n# Bad\nbad bad film\n")
    assert "Added 1 pieces, kept 3, removed 1" in run("index", "add", "n.index", "docs").stderr
    assert "# Bad\nbad bad film" in found("bad")
    assert "Deleted 2 of 2 entries; 2 are left" in run("index", "delete", "n.index", "--where", "n>=1").stderr
    assert "2 entries" in run("index", "compact", "n.index").stderr
    facts = json.loads(run("index", "info", "n.index", "--recall", "--json").stdout)
    assert (facts["entries"], facts["deleted"], facts["embedding"]["name"]) == (2, 0, "w.bundle")
    assert facts["embedding"]["pooling"] == "mean"
    assert facts["recall"]["quick"] == facts["recall"]["full"] == 1
    assert "recall@10" in run("index", "info", "n.index", "--recall").stdout


def test_a_build_goes_on_where_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("index", "build", "docs/films.md", "--model", "w.bundle", "-o", "n.index")
    embedded: list[str] = []
    documents = Embedder.documents

    def counted(self: Embedder, texts: Any, progress: Any = None) -> Any:
        embedded.extend(texts)
        return documents(self, texts, progress)

    monkeypatch.setattr(Embedder, "documents", counted)
    done = run("index", "build", "docs", "--model", "w.bundle", "-o", "n.index")

    assert "Added 2 pieces, kept 2, removed 0" in done.stderr
    assert embedded == ["paris", "london london"]
    assert len(edge_infer.Index.open(folder / "n.index")) == 4


def test_another_model_is_refused(folder: Path) -> None:
    run("index", "build", "docs", "--model", "w.bundle", "-o", "n.index")
    pipelines.words(folder / "other.bundle", "feature-extraction", _AFTER[:1])

    with pytest.raises(IntegrityError, match="is not the model of"):
        run("index", "search", "n.index", "paris", "--model", "other.bundle")
    with pytest.raises(IntegrityError, match="is not the model of"):
        edge_infer.Index.open("n.index", model="other.bundle").search("paris")
    with pytest.raises(BundleError, match="by another model"):
        run("index", "build", "docs", "--model", "other.bundle", "-o", "n.index")
    (folder / "w.bundle").rename(folder / "gone")
    with pytest.raises(BundleError, match=r"the model of `n.index` is not there"):
        run("index", "search", "n.index", "paris")


def test_usage_is_checked(folder: Path) -> None:
    run("index", "build", "docs", "--model", "w.bundle", "-o", "n.index")

    assert "Say which" in run("index", "delete", "n.index", code=2).stderr
    assert "is not NAME=VALUE" in run("index", "search", "n.index", "x", "--where", "n", code=2).stderr


def test_texts_become_vectors(folder: Path) -> None:
    (folder / "lines.txt").write_text("paris\n\ngood film\n")

    lines = [json.loads(line) for line in run("embed", "w.bundle", "bad", "--file", "lines.txt").stdout.splitlines()]
    run("embed", "w.bundle", "bad", "--file", "lines.txt", "-o", "v.safetensors")

    assert [line["text"] for line in lines] == ["bad", "paris", "good film"]
    tensor = read_tensors((folder / "v.safetensors").read_bytes())["vectors"]
    assert tensor.tolist() == [line["vector"] for line in lines]
    assert all(abs(sum(value * value for value in line["vector"]) - 1) < 1e-5 for line in lines)


def test_an_index_embeds_texts_that_are_added(folder: Path) -> None:
    run("index", "build", "docs", "--model", "w.bundle", "-o", "n.index")
    index = edge_infer.Index.open("n.index")

    (number,) = index.add(texts=["paris paris a"])

    assert index.get(number) is not None
    assert {hit.text for hit in index.search("paris", 2)} == {"paris", "paris paris a"}


def test_a_model_without_one_vector_is_named_with_the_step_that_lacks(folder: Path) -> None:
    pipelines.words(folder / "raw.bundle", "feature-extraction", [{"step": "post.tensor"}])

    with pytest.raises(InputError, match="expected a vector") as caught:
        run("index", "build", "docs", "--model", "raw.bundle", "-o", "n.index")

    assert caught.value.hint == "convert it with the step post.pool"
