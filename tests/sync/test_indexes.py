"""An index is published and pulled like a model: only new segments move, and a damaged one is not taken."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

import edge_infer
from edge_infer.cli import cli
from edge_infer.errors import BundleError, InputError, IntegrityError, StoreError, TrialError, UnsupportedError
from edge_infer.server.store.followed import Followed
from edge_infer.sync.client import pull
from edge_infer.sync.device import DeviceStore
from edge_infer.sync.publish import publish
from edge_infer.sync.repository import Repository
from edge_infer.vectors.published import contents_of, index_trial

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sync.publisher import Publisher

COUNT = 5_000


def notes(folder: Path) -> edge_infer.Index:
    index = edge_infer.Index.create(folder / "notes.index", 16)
    index.add(np.random.default_rng(1).normal(size=(COUNT, 16)), texts=[f"note {i}" for i in range(COUNT)])
    return index


def test_only_new_segments_and_deletions_move(publisher: Publisher, tmp_path: Path) -> None:
    index, device, store = notes(tmp_path), DeviceStore(tmp_path / "device"), Repository(publisher.folder)
    publish(contents_of(index.path), store, publisher.keys)
    first = pull(str(publisher.folder), "notes", device, index_trial)
    index.add(np.random.default_rng(2).normal(size=(50, 16)), texts=[f"new {i}" for i in range(50)])
    index.delete([3])
    publish(contents_of(index.path), store, publisher.keys)

    second = pull(str(publisher.folder), "notes", device, index_trial)

    assert second.method == "delta"
    assert second.bytes_moved < first.bytes_moved / 15
    there = edge_infer.Index.open(second.path)
    assert [hit.text for hit in there.search("new 7", mode="words", k=1)] == ["new 7"]
    for query in np.random.default_rng(3).normal(size=(5, 16)):
        assert there.search(query) == index.search(query)
    assert pull(str(publisher.folder), "notes", device, index_trial).method == "none"


def test_the_commands_publish_and_pull_an_index(publisher: Publisher, tmp_path: Path) -> None:
    index = notes(tmp_path)
    for arguments in (
        ["publish", str(index.path), str(publisher.folder), "--keys", str(publisher.keys), "--json"],
        ["pull", f"{publisher.folder}/notes", "--into", str(tmp_path / "device"), "--json"],
    ):
        done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
    pulled = json.loads(done.stdout)
    assert len(edge_infer.Index.open(pulled["path"])) == COUNT


def test_a_damaged_index_is_neither_published_nor_taken(publisher: Publisher, tmp_path: Path) -> None:
    index, device = notes(tmp_path), DeviceStore(tmp_path / "device")
    contents = contents_of(index.path)
    segment = next(path for path in contents.files if path.startswith("segments/"))
    wrong = contents._replace(files={**contents.files, segment: contents.files[segment][:-8]})
    publish(wrong, Repository(publisher.folder), publisher.keys)
    with pytest.raises(TrialError):
        pull(str(publisher.folder), "notes", device, index_trial)

    (index.path / segment).write_bytes(b"x")
    with pytest.raises(IntegrityError, match="is not the file"):
        contents_of(index.path)
    with pytest.raises(BundleError, match="cannot be encrypted"):
        publish(contents, Repository(publisher.folder), publisher.keys, encrypt_to=_key(tmp_path))


def test_an_index_and_a_model_of_one_store_are_not_taken_for_one_another(publisher: Publisher, tmp_path: Path) -> None:
    publisher.publish(1)
    index, store = notes(tmp_path), Repository(publisher.folder)
    publish(contents_of(index.path), store, publisher.keys)
    address = str(publisher.folder / "notes")
    for _ in range(2):
        with pytest.raises(UnsupportedError, match="is an index of vectors"):
            edge_infer.load(f"edge+{address}")

    followed = Followed([str(publisher.folder)], root=tmp_path / "cache")
    assert list(followed.bring()) == list(followed.bring()) == ["linear"]
    with pytest.raises(UnsupportedError, match="is an index of vectors"):
        Followed([address], root=tmp_path / "cache").bring()

    with pytest.raises(StoreError, match="`linear` of the store is a model, this is an index"):
        publish(contents_of(index.path)._replace(name="linear"), store, publisher.keys)


@pytest.mark.parametrize("name", [".index", "..index", "my notes.index", "n" * 129 + ".index"])
def test_an_index_whose_folder_gives_no_name_is_not_published(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="would be called"):
        contents_of(notes(tmp_path).path.rename(tmp_path / name))


def test_an_index_of_a_later_version_is_tried_again_by_a_later_edge_infer(publisher: Publisher, tmp_path: Path) -> None:
    contents, device = contents_of(notes(tmp_path).path), DeviceStore(tmp_path / "device")
    contents.files["index.json"] = contents.files["index.json"].replace(b'"version": 1', b'"version": 2')
    publish(contents, Repository(publisher.folder), publisher.keys)
    for _ in range(2):
        with pytest.raises(TrialError, match="index of version 2, this edge-infer reads 1") as caught:
            pull(str(publisher.folder), "notes", device, index_trial)
        assert caught.value.hint == "pip install --upgrade edge-infer"


def _key(folder: Path) -> Path:
    path = folder / "key.json"
    done = CliRunner().invoke(cli, ["store", "keys", "encryption", str(path)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return path
