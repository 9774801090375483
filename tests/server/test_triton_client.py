"""`tritonclient[http]`, a client that exists, makes every call it has."""

from __future__ import annotations

import subprocess
from pathlib import Path

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.tensors.dtypes import DType
from tests.support.server.bundles import bundle_files, write_bundle

ROOT = Path(__file__).parents[2]
#: Its own environment: it wants older packages than ours. `tests/setup.sh` makes it.
PYTHON = ROOT / ".bench" / "triton" / "bin" / "python"
SCRIPT = Path(__file__).parents[1] / "support/server/triton_calls.py"


def test_every_call_of_tritonclient(tmp_path: Path) -> None:
    dtypes = {
        "tiny": DType.FLOAT32,
        "text": DType.STRING,
        "half": DType.FLOAT16,
        "truth": DType.BOOL,
        "brain": DType.BFLOAT16,
    }
    models = {
        name: write_bundle(tmp_path / name, bundle_files(name, dtype=dtype, shape=("batch", 3)))
        for name, dtype in dtypes.items()
    }
    with ServerThread(create_app(models)) as server:
        address = server.url.removeprefix("http://")
        done = subprocess.run(
            [PYTHON, SCRIPT, address], text=True, capture_output=True, timeout=120, check=False, env={}
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("calls passed\n")
