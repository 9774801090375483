"""The server on a disk that is really full: a small tmpfs, mounted for one process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server.full_disk import CASES, KIB

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def unshare(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that gives a process a mount of its own: as the root of a user namespace, or as root."""
    if shutil.which("unshare") is None:
        pytest.skip("no `unshare` here (util-linux): no disk can be made full")
    said = []
    for flags in (("--user", "--map-root-user"), ()):
        command = ["unshare", *flags, "--mount"]
        script = ["sh", "-c", 'mount -t tmpfs -o size=64k tmpfs "$0"', str(tmp_path_factory.mktemp("disk"))]
        tried = subprocess.run([*command, *script], capture_output=True, text=True, check=False)
        if tried.returncode == 0:
            return command
        said.append(tried.stderr.strip())
    pytest.skip(f"nothing may be mounted here, so no disk can be made full: {'; '.join(said)}")


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_a_full_disk_ends_nothing_and_leaves_nothing_by_half(case: str, unshare: list[str], tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size="$0"k tmpfs "$1" && exec "$2" -m tests.support.server.full_disk "$3" "$1"'
    command = [*unshare, "sh", "-c", script, str(KIB), str(tmp_path), sys.executable, case]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "converters/src")))}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.endswith("DONE\n"), done.stdout + done.stderr
