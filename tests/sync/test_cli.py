"""The commands of weight sync, as they are typed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import warm_command
from tests.support.sync.publisher import write_version

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path


def typed(folder: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = warm_command.run([*words], cwd=folder)
    assert done.returncode == code, done.stderr
    return done


def test_publish_pull_roll_back_and_verify(tmp_path: Path) -> None:
    typed(tmp_path, "store", "keys", "init", "store", "--keys", "keys")
    write_version(tmp_path / "one", 1)
    write_version(tmp_path / "two", 2)
    typed(tmp_path, "publish", "one", "store", "--keys", "keys", "--model-version", "spring")

    pulled = typed(tmp_path, "pull", "store/linear", "--into", "device")

    assert (tmp_path / pulled.stdout.strip() / "manifest.json").is_file()
    assert "linear spring is active" in pulled.stderr
    assert "100.0% of a full download" in pulled.stderr

    said: dict[str, Any] = json.loads(typed(tmp_path, "publish", "two", "store", "--keys", "keys", "--json").stdout)
    assert said["deltas"][0]["from"] == "spring"
    assert said["deltas"][0]["size"] < 0.6 * said["full"]
    watched = typed(tmp_path, "watch", "store/linear", "--into", "device", "--once")
    assert watched.stdout.startswith("2 ")
    assert "method delta" in watched.stderr

    typed(tmp_path, "store", "refresh", "store", "--keys", "keys")
    typed(tmp_path, "store", "rollback", "device")
    status: dict[str, Any] = json.loads(typed(tmp_path, "store", "status", "device", "--json").stdout)
    assert (status["active"]["version"], status["previous"]) == ("spring", None)
    assert "Freed" in typed(tmp_path, "store", "gc", "device").stderr
    assert "whole" in typed(tmp_path, "store", "verify", "device").stderr

    model = tmp_path / status["active"]["path"] / "onnx/model.onnx"
    model.chmod(0o644)
    model.write_bytes(b"")
    assert "model.onnx" in typed(tmp_path, "store", "verify", "device", code=1).stdout


def test_errors_say_what_to_type(tmp_path: Path) -> None:
    assert "has no `tuf" in typed(tmp_path, "pull", "nowhere/linear", "--into", "device", code=1).stderr
    write_version(tmp_path / "one", 1)
    assert "store keys init" in typed(tmp_path, "publish", "one", "nowhere", code=1).stderr
    inside = typed(tmp_path, "store", "keys", "init", "new", "--keys", "new/keys", code=2)
    assert "inside the store" in inside.stderr


@pytest.mark.long
def test_a_roll_out_in_steps_and_new_keys(tmp_path: Path) -> None:
    typed(tmp_path, "store", "keys", "init", "store", "--keys", "keys")
    for version, stage in ((1, "all"), (2, "canary:0%")):
        write_version(tmp_path / str(version), version)
        said = typed(tmp_path, "publish", str(version), "store", "--keys", "keys", "--stage", stage, "--json")
        assert json.loads(said.stdout)["share"] == (1 if stage == "all" else 0)
    pull = ("pull", "store/linear", "--into", "device", "--name", "pi-1", "--json")
    assert json.loads(typed(tmp_path, *pull).stdout)["version"] == "1"
    assert (tmp_path / "device/name").read_text() == "pi-1\n"

    assert "50.00%" in typed(tmp_path, "store", "stage", "store", "linear", "50%", "--keys", "keys").stderr
    typed(tmp_path, "store", "keys", "rotate", "store", "timestamp", "--keys", "keys")
    added = typed(tmp_path, "store", "keys", "add", "store", "targets", "--threshold", "2", "--keys", "keys")
    assert "2 must sign" in added.stderr
    typed(tmp_path, "store", "stage", "store", "linear", "all", "--keys", "keys")

    assert json.loads(typed(tmp_path, *pull).stdout)["version"] == "2"
    assert (
        "is not a share"
        in typed(tmp_path, "store", "stage", "store", "linear", "most", "--keys", "keys", code=1).stderr
    )
    assert "not a name for a device" in typed(tmp_path, *pull[:-2], "../x", code=1).stderr
    both = typed(tmp_path, "watch", "store/linear", "--into", "device", "--server", "http://x", "--no-server", code=2)
    assert "exclude each other" in both.stderr
    often = typed(tmp_path, "watch", "store/linear", "--into", "device", "--interval-s", "0", code=2)
    assert "'--interval-s': 0.0 is not in the range" in often.stderr
    assert "Freed" in typed(tmp_path, "store", "gc", "store").stderr
