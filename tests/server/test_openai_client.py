"""The OpenAI Python client, unmodified, chats with a model that generates text."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.generation.generate import generate
from edge_infer.server.app import Limits, create_app
from edge_infer.server.execution.text_model import TextLimits
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.scheduling.batcher import BatchLimits
from tests.support.server.texts import USER, text_bundle, use_fakes

if TYPE_CHECKING:
    import pytest

#: Its own environment, which tests/setup.sh makes: it brings a client of HTTP and pydantic.
PYTHON = Path(__file__).parents[2] / ".bench" / "openai" / "bin" / "python"
SCRIPT = Path(__file__).parents[1] / "support/server/openai_calls.py"


def test_the_openai_client_chats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fakes(monkeypatch)
    bundle = text_bundle(tmp_path / "chat")
    limits = Limits(text=TextLimits(4), batch=BatchLimits(max_wait_ms=1e6))
    expected = generate(bundle).chat(USER, seed=3, max_tokens=12, temperature=1.5).text
    with ServerThread(create_app({"chat": bundle}, limits=limits)) as server:
        done = subprocess.run(
            [PYTHON, SCRIPT, server.url, expected], text=True, capture_output=True, timeout=120, check=False, env={}
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("calls passed\n")
