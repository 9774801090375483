"""The OpenAI Python client, unmodified, chats with a model that generates text, and asks another for vectors."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import edge_infer
from edge_infer.generation.generate import generate
from edge_infer.server.app import Limits, create_app
from edge_infer.server.execution.text_model import TextLimits
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.scheduling.batcher import BatchLimits
from tests.support.server.texts import TEMPLATE, USER, endless, text_bundle, use_fakes
from tests.support.tasks import pipelines

if TYPE_CHECKING:
    import pytest

#: Its own environment, which tests/setup.sh makes: it brings a client of HTTP and pydantic.
PYTHON = Path(__file__).parents[2] / ".bench" / "openai" / "bin" / "python"
SCRIPT = Path(__file__).parents[1] / "support/server/openai_calls.py"


#: What a prompt asks for that the model answers with NaN, and a template that hands it the tools.
BROKEN = ord("~")
TEMPLATE_OF_TOOLS = "{% if tools %}{{ tools | tojson }}{% endif %}" + TEMPLATE


def broken_by_a_mark(seen: list[int], logits: memoryview[float]) -> None:
    endless(seen, logits)
    # Its third token, so that a stream has begun.
    if BROKEN in seen and len(seen) - seen.index(BROKEN) == len("~\nassistant:") + 2:
        logits[:] = memoryview(struct.pack(f"{len(logits)}f", *[float("nan")] * len(logits))).cast("f")


def test_the_openai_client_chats_and_embeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_fakes(monkeypatch, broken_by_a_mark)
    bundle = text_bundle(tmp_path / "chat", template=TEMPLATE_OF_TOOLS)
    words = pipelines.words(tmp_path / "words.bundle", "feature-extraction", [{"step": "post.pool"}])
    limits = Limits(text=TextLimits(4), batch=BatchLimits(max_wait_ms=1e6))
    expected = generate(bundle).chat(USER, seed=3, max_tokens=12, temperature=1.5).text
    with edge_infer.pipeline(words) as embed:
        vectors = json.dumps([one.tolist() for one in embed(["good film", "paris"])])
    with ServerThread(create_app({"chat": bundle, "words": words}, limits=limits)) as server:
        command = [str(PYTHON), str(SCRIPT), server.url, expected, vectors]
        done = subprocess.run(command, text=True, capture_output=True, timeout=120, check=False, env={})
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("calls passed\n")
