"""transformers.js loads the folders that our server serves, and answers as we do."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

import edge_infer
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer_converters import convert
from tests.support.tasks import hub_folders

if TYPE_CHECKING:
    from collections.abc import Mapping

PROGRAM = Path(__file__).parents[1] / "transformers_js/ask.mjs"
BERT: dict[str, Any] = {
    "config.json": {
        "architectures": ["BertForSequenceClassification"],
        "model_type": "bert",
        "id2label": {"0": "good", "1": "bad"},
    },
    "tokenizer.json": hub_folders.tokenizer(),
    "tokenizer_config.json": {"tokenizer_class": "BertTokenizer", "model_max_length": 64},
}
# transformers.js has no defaults for what a file leaves to its class, as transformers has.
_SAID = {
    **dict.fromkeys(("do_resize", "do_rescale", "do_normalize"), True),
    **{name: [0.5, 0.5, 0.5] for name in ("image_mean", "image_std")},
    "resample": 2,
    "rescale_factor": 1 / 255,
}
VIT = {
    "config.json": {**hub_folders.VIT["config.json"], "model_type": "vit"},
    "preprocessor_config.json": {**hub_folders.VIT["preprocessor_config.json"], **_SAID},
}


@pytest.mark.long
@pytest.mark.parametrize("is_converted", [True, False])
@pytest.mark.parametrize("task", ["text-classification", "image-classification"])
def test_it_answers_as_we_do(task: str, is_converted: bool, tmp_path: Path) -> None:
    is_text = task == "text-classification"
    model = hub_folders.text_classifier(2) if is_text else hub_folders.image_classifier(3)
    files: Mapping[str, Any] = BERT if is_text else VIT
    hub_folders.write(tmp_path / "source", model, files)
    bundle = tmp_path / "source"
    if is_converted:
        bundle = convert(bundle, tmp_path / "made.bundle", precision="fp32", format="onnx").path
    Image.new("RGB", (8, 8), (200, 30, 60)).save(tmp_path / "red.png")
    asked = "a good film" if is_text else str(tmp_path / "red.png")
    with ServerThread(create_app({"made": bundle})) as server:
        command = ["node", str(PROGRAM), f"{server.url}/", str(tmp_path / "cache"), task, "made", asked]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)[0]
    with edge_infer.pipeline(bundle) as ask:
        ours = ask(asked)[0]
    assert theirs["label"] == ours["label"]
    assert theirs["score"] == pytest.approx(ours["score"], abs=1e-4)
