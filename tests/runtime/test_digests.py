"""SHA-256 by the interpreter's own code for few bytes, by OpenSSL for many: the same digest."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from edge_infer.platform import hashing

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("size", [0, 1, 2**20 - 1, 2**20, 2**20 + 1, 5 * 2**20 + 3])
def test_both_ways_give_the_digest_of_hashlib(tmp_path: Path, size: int) -> None:
    data = bytes(i * 7 % 256 for i in range(251)) * (size // 251 + 1)
    data = data[:size]
    (tmp_path / "file").write_bytes(data)
    right = hashlib.sha256(data).hexdigest()

    assert hashing.sha256(data) == hashing.sha256_of_file(str(tmp_path / "file")) == right


@pytest.mark.parametrize(("size", "loads"), [(2**20, False), (2**20 + 1, True)], ids=["small", "large"])
def test_openssl_is_loaded_for_large_files_only(size: int, loads: bool) -> None:
    code = "import sys; from edge_infer.platform.hashing import sha256"
    code += f"; sha256(bytes({size})); print('hashlib' in sys.modules)"

    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)

    assert run.stdout.strip() == str(loads)
