"""Damaged folders of the Hub: the same kind of error in Python, JavaScript and on the server, which stays up."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import edge_infer
from edge_infer.errors import EdgeInferError
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from tests.support.server.client import Client
from tests.support.tasks import hub_folders
from tests.support.wait import wait_until

PROGRAM = Path(__file__).parents[1] / "tasks/ask.mjs"
MODEL = hub_folders.text_encoder()
#: What stands in the folder instead, and the error's code.
DAMAGED: dict[str, tuple[dict[str, Any], str]] = {
    "deep": ({"config.json": b'{"architectures": ["BertModel"' + b"[" * 100_000}, "bundle_error"),
    "large": ({"config.json": b'{"architectures": ["' + b"x" * (17 * 2**20) + b'"]}'}, "bundle_error"),
    "no JSON": ({"config.json": b"\xff\xfe"}, "bundle_error"),
    "a list": ({"config.json": b"[]"}, "bundle_error"),
    "length -5": ({"sentence_bert_config.json": {"max_seq_length": -5}}, "bundle_error"),
    "length 1": ({"sentence_bert_config.json": {"max_seq_length": 1}}, "input_error"),
    "modules": ({"modules.json": {"type": 1}}, "bundle_error"),
    "pooling": ({"1_Pooling/config.json": {"pooling_mode": "sideways"}}, "unsupported"),
    "tokenizer": ({"tokenizer.json": b"{"}, "bundle_error"),
    "regex": (
        {
            "tokenizer.json": hub_folders.tokenizer().replace(
                b'{"type": "Whitespace"}',
                b'{"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": false}',
            )
        },
        "unsupported_model",
    ),
    "another task": ({"config.json": {"architectures": ["LlamaForCausalLM"]}}, "unsupported"),
}


def broken(place: Path, name: str) -> Path:
    return hub_folders.write(place, MODEL, {**hub_folders.SENTENCES, **DAMAGED[name][0]})


@pytest.mark.parametrize("name", DAMAGED)
def test_both_languages_refuse_it_alike(name: str, tmp_path: Path) -> None:
    folder = broken(tmp_path / "damaged", name)
    with pytest.raises(EdgeInferError) as caught, edge_infer.pipeline(folder) as embed:
        embed("a good film")
    assert caught.value.code == DAMAGED[name][1]
    assert caught.value.message

    (tmp_path / "asked.json").write_text('["a good film"]', "utf-8")
    command = ["node", str(PROGRAM), str(folder), str(tmp_path / "asked.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    said = json.loads(done.stdout)
    assert said["code"] == caught.value.code, said


@pytest.mark.parametrize("name", ["a list", "pooling", "tokenizer"])
def test_a_served_folder_that_is_damaged_is_told_and_answers_when_it_is_mended(name: str, tmp_path: Path) -> None:
    folders = {"damaged": broken(tmp_path / "damaged", name)}
    folders["good"] = hub_folders.write(tmp_path / "good", MODEL, hub_folders.SENTENCES)
    body = json.dumps({"inputs": "a good film"}).encode()
    with ServerThread(create_app(folders)) as server:
        client = Client(server.url)

        def asked(model: str) -> tuple[int, Any]:
            answer = client(f"/v2/models/{model}/predict", "POST", body, content_type="application/json")
            return answer.status, json.loads(answer.body)

        status, said = asked("damaged")
        assert (status >= 500, said["code"]) == (True, DAMAGED[name][1])
        right = asked("good")
        assert right[0] == 200
        assert client("/models/good/onnx/model.onnx").body == MODEL  # where transformers.js looks for it
        assert client("/models/good/onnx/../../damaged/config.json").status in (400, 404)

        hub_folders.write(folders["damaged"], MODEL, hub_folders.SENTENCES)
        wait_until(lambda: asked("damaged") == right)

        broken(folders["good"], name)  # what runs goes on
        assert asked("good") == right
