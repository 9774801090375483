"""Labels that are not one for each class are refused in the same words in Python, JavaScript and on the server."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from PIL import Image

import edge_infer
from edge_infer.errors import BundleError
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from tests.support.tasks.each_task import write_all

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = Path(__file__).parents[1] / "tasks/ask.mjs"
#: By bundle of the guide what it is asked, and what it says of one label too few.
ASKED: dict[str, tuple[Any, str]] = {
    "photos": ("photo", "the model gives 3 scores, and the bundle has 2 labels"),
    "street": ("photo", "the model gives 2 scores, and the bundle has 1 labels"),
    "scene": ("photo", "the model gives 3 scores, and the bundle has 2 labels"),
    "moods": ("a good film", "the model gives 2 scores, and the bundle has 1 labels"),
    "places": ("Paris a London", "the model gives 3 scores, and the bundle has 2 labels"),
    "risk": ({"age": 41, "city": "Bern", "income": 2.5}, "the model gives 2 scores, and the bundle has 1 labels"),
}


def relabel(bundle: Path, labels: Sequence[str]) -> None:
    """Give a bundle other labels, and its manifest their hash."""
    document = json.loads((bundle / "manifest.json").read_text("utf-8"))
    data = json.dumps(labels).encode()
    path = document.setdefault("labels", "labels.json")
    (bundle / path).write_bytes(data)
    entry = {"path": path, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    document["files"] = [one for one in document["files"] if one["path"] != path] + [entry]
    (bundle / "manifest.json").write_text(json.dumps(document), "utf-8")


def classes(message: str) -> int:
    return int(message.split()[3])


@pytest.mark.parametrize("more", [-1, 1])
def test_each_kind_of_model_refuses_them(more: int, tmp_path: Path) -> None:
    bundles = {name: path for name, path in write_all(tmp_path).items() if name in ASKED}
    expected = {}
    for name, (_, message) in ASKED.items():
        count = classes(message)
        relabel(bundles[name], [f"label {i}" for i in range(count + more)])
        expected[name] = message.replace(f"has {count - 1} labels", f"has {count + more} labels")
    said = {}
    for name, (asked, _) in ASKED.items():
        given = str(tmp_path / "photo.jpg") if asked == "photo" else asked
        with edge_infer.pipeline(bundles[name]) as answer, pytest.raises(BundleError) as caught:
            answer(given)
        said[name] = caught.value.message
    assert said == expected

    assert on_server(bundles, tmp_path / "photo.jpg") == expected
    assert in_node(bundles, tmp_path / "photo.jpg") == expected


def on_server(bundles: dict[str, Path], photo: Path) -> dict[str, str]:
    """Ask the server, which says that the fault is its own."""
    said = {}
    with ServerThread(create_app(bundles)) as server:
        for name, (asked, _) in ASKED.items():
            url = f"{server.url}/v2/models/{name}/predict"
            body = json.dumps({"inputs": asked}).encode()
            raw = Request(url, photo.read_bytes()) if asked == "photo" else None
            with pytest.raises(HTTPError) as caught:
                urlopen(raw or Request(url, body, {"Content-Type": "application/json"}))
            answer = json.loads(caught.value.read())
            assert (caught.value.code, answer["code"]) == (500, "bundle_error")
            said[name] = answer["error"]
    return said


def in_node(bundles: dict[str, Path], photo: Path) -> dict[str, str]:
    """Ask JavaScript, which is given pixels."""
    with Image.open(photo) as image:
        pixels = image.convert("RGB")
    facts = {"width": pixels.width, "height": pixels.height, "channels": 3}
    picture = {"image": {**facts, "data": base64.b64encode(pixels.tobytes()).decode()}}
    said = {}
    for name, (asked, _) in ASKED.items():
        file = photo.with_suffix(".json")
        file.write_text(json.dumps([picture if asked == "photo" else asked]), "utf-8")
        done = subprocess.run(
            ["node", str(PROGRAM), str(bundles[name]), str(file)], capture_output=True, text=True, check=False
        )
        answer = json.loads(done.stdout)
        assert answer.get("code") == "bundle_error", (name, answer)
        said[name] = answer["message"]
    return said
