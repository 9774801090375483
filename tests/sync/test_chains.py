"""A chain is published like a model, its index inside: a pull moves what is new of both."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

import edge_infer
from edge_infer.cli import cli
from edge_infer.errors import TrialError
from edge_infer.sync.client import pull
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.publish import publish
from edge_infer.sync.repository import Repository
from edge_infer.verify.chains import chain_trial
from tests.support.chains import made

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sync.publisher import Publisher


def described(folder: Path) -> dict[str, object]:
    made.embedder(folder / "minilm.bundle")
    index = edge_infer.Index.open(made.index(folder / "notes.index", folder / "minilm.bundle"))
    index.add(np.random.default_rng(1).normal(size=(20_000, 4)), texts=[f"note {i}" for i in range(20_000)])
    step = {"name": "found", "index": "notes.index", "from": {"vector": "vector"}, "with": {"k": 3}}
    steps = [{"name": "vector", "bundle": "minilm.bundle", "from": "text"}, step]
    return {"name": "notes", "inputs": {"text": "text"}, "steps": steps}


def test_only_the_new_segment_of_an_index_is_moved(publisher: Publisher, tmp_path: Path) -> None:
    description, device = described(tmp_path), DeviceStore(tmp_path / "device")
    repository = Repository(publisher.folder)
    publish(made.build(tmp_path, description), repository, publisher.keys)
    first = pull(str(publisher.folder), "notes", device, chain_trial)
    index = edge_infer.Index.open(tmp_path / "notes.index")
    index.add(np.random.default_rng(2).normal(size=(200, 4)), texts=[f"new {i}" for i in range(200)])
    shutil.rmtree(tmp_path / "chain-notes.bundle")
    publish(made.build(tmp_path, {**description, "version": "2"}), repository, publisher.keys)
    second = pull(str(publisher.folder), "notes", device, chain_trial)
    assert second.bytes_moved < first.bytes_moved / 15
    with (
        edge_infer.Chain.open(second.path) as there,
        edge_infer.Chain.open(tmp_path / "chain-notes.bundle") as here,
    ):
        assert there("good film") == here("good film")


def test_the_command_pulls_a_chain(publisher: Publisher, tmp_path: Path) -> None:
    publish(made.build(tmp_path, made.grouped(tmp_path)), Repository(publisher.folder), publisher.keys)
    arguments = ["pull", f"{publisher.folder}/grouped", "--into", str(tmp_path / "device")]
    done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_a_chain_that_answers_otherwise_is_not_taken(publisher: Publisher, tmp_path: Path) -> None:
    bundle = made.build(tmp_path, made.grouped(tmp_path))
    path = bundle / "manifest.json"
    path.write_text(path.read_text().replace('"outputs": "group.label"', '"outputs": "group.scores"'))
    publish(bundle, Repository(publisher.folder), publisher.keys)
    with pytest.raises(TrialError, match="does not give the answers of its bundle"):
        pull(str(publisher.folder), "grouped", DeviceStore(tmp_path / "device"), chain_trial)
