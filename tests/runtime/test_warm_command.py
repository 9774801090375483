"""`tests.support.warm_command`: a command that hangs, or is interrupted, spoils no command after it."""

from __future__ import annotations

import errno
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.support import warm_command
from tests.support.wait import wait_until

if TYPE_CHECKING:
    from pathlib import Path


def test_a_command_that_hangs_is_ended_and_the_next_one_runs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "chain.json")
    assert warm_command.run(["--version"]).returncode == 0

    with pytest.raises(subprocess.TimeoutExpired):
        warm_command.run(["chain", "chain.json", "-o", "x"], cwd=tmp_path, timeout_s=0.5)

    def is_unread() -> bool:
        try:
            os.close(os.open(tmp_path / "chain.json", os.O_WRONLY | os.O_NONBLOCK))
        except OSError as error:
            return error.errno == errno.ENXIO
        return False

    wait_until(is_unread, 10)  # what was killed may close its files a little later
    assert warm_command.run(["--version"]).returncode == 0


def test_the_status_of_an_interrupted_command_is_not_that_of_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("select.select", interrupted)
        with pytest.raises(KeyboardInterrupt):
            warm_command.run(["--version"])

    assert warm_command.run(["no-such-command"]).returncode == 2


def test_a_command_has_its_own_folder_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here.onnx").write_bytes(b"")
    monkeypatch.setenv("EDGE_INFER_BACKEND", "no-such-engine")

    done = warm_command.run(["run", "here.onnx"], cwd=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert "Backend `no-such-engine` is not known" in done.stderr
