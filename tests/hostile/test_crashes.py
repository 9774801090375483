"""A crash of an engine ends a command with an error of ours; signals reach the process that works."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.support import interrupts

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere commands run in the first process")

_DIES = """
import os, signal, sys
from edge_infer import cli
cli.main_here = lambda: os.kill(os.getpid(), signal.{name})
sys.argv = ["edge-infer", "run", "model.onnx"]
cli.main()
"""
_WAITS = """
import os, sys, time
from edge_infer import cli
def work():
    try:
        print(os.getpid(), flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(130)
cli.main_here = work
sys.argv = ["edge-infer", "run", "model.onnx"]
cli.main()
"""


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGFPE"])
def test_a_crash_is_an_error(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", _DIES.format(name=name)], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert f"error: The engine crashed ({name}) during `run`" in done.stderr


def test_a_kill_for_want_of_memory_is_an_error() -> None:
    code = _DIES.format(name="SIGKILL")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "was killed from outside, most likely for want of memory" in done.stderr


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM)])
def test_a_signal_reaches_the_process_that_works(sent: signal.Signals, code: int) -> None:
    with interrupts.heeded():
        begun = subprocess.Popen([sys.executable, "-c", _WAITS], stdout=subprocess.PIPE, text=True)
    with begun as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.send_signal(sent)

        assert running.wait(timeout=20) == code


def test_the_child_dies_with_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", _WAITS], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        running.stdout.readline()
        running.kill()

        assert running.stdout.read() == ""  # it ends when no process holds it any more
