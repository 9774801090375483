"""The example that runs one file natively and in a browser."""

from __future__ import annotations

import subprocess
import sys

from tests.support.browser.digits import EXAMPLES


def test_the_same_file_says_the_same_everywhere() -> None:
    command = [sys.executable, str(EXAMPLES / "03_same_file_everywhere.py")]

    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "drawn  onnxruntime compiled-web",
        "    2            2            2   same",
        "    4            4            4   same",
        "    7            7            7   same",
        "The same file says the same.",
    ]
