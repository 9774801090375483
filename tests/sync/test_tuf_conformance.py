"""Both clients against the conformance suite of The Update Framework, github.com/theupdateframework/tuf-conformance.

`EDGE_INFER_TUF_SUITE` names a checkout of it. Its cases start a client in a process of its own, again and again.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_NAMED = os.environ.get("EDGE_INFER_TUF_SUITE", "")
SUITE = str(Path(_NAMED).resolve()) if _NAMED else ""
CLIENTS = Path(__file__).parent / "tuf"

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not SUITE, reason="EDGE_INFER_TUF_SUITE names no checkout of tuf-conformance"),
    pytest.mark.skipif(shutil.which("faketime") is None, reason="the suite needs Debian's package faketime"),
]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("command", [f"{sys.executable} {CLIENTS}/client.py", f"node {CLIENTS}/client.mjs"])
def test_a_client_passes_all_of_the_suite(command: str, tmp_path: Path) -> None:
    program, *words = command.split(" ")
    start = tmp_path / "client"
    start.write_text(f'#!/bin/sh\nexec {program} {" ".join(words)} "$@"\n')
    start.chmod(0o755)

    cases = Path(SUITE, "tuf_conformance")
    pytest_words = [
        "-B",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "patience",
        "--rootdir",
        SUITE,
        "--entrypoint",
        str(start),
    ]
    places = os.pathsep.join(filter(None, (str(CLIENTS), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, *pytest_words, str(cases)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": places},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout[-8000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None and int(passed[1]) >= 112, done.stdout[-500:]
