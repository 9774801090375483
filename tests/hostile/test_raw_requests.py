"""Pictures and sounds that nobody recorded, for real models: one clear error with a hint in Python, server and page."""

from __future__ import annotations

import base64
import io
import json
import resource
import struct
import subprocess
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

import edge_infer
from edge_infer.errors import InputError
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer_converters import convert
from tests.support.server.client import OCTETS, Answer, Client

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
RUN_STEPS = ROOT / "tests/tasks/run_steps.mjs"


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, pixels: bytes = zlib.compress(bytes(1000)), bits: int = 8, kind: int = 2) -> bytes:
    """A PNG file whose head says a size, whatever it holds."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def black(width: int, height: int) -> bytes:
    """A whole PNG file of many black pixels in few bytes."""
    return png(width, height, zlib.compress(bytes((1 + (width + 7) // 8) * height), 9), 1, 0)


def wav(body: bytes, channels: int = 1, rate: int = 16_000, bits: int = 16, encoding: int = 1) -> bytes:
    per_second = rate * channels * bits // 8
    form = struct.pack("<HHIIHH", encoding, channels, rate, per_second % 2**32, channels * bits // 8, bits)
    head = b"RIFF" + struct.pack("<I", 36 + len(body)) + b"WAVEfmt " + struct.pack("<I", 16) + form
    return head + b"data" + struct.pack("<I", len(body)) + body


def floats(value: float, count: int = 16_000) -> bytes:
    return wav(np.full(count, value, "<f4").tobytes(), bits=32, encoding=3)


PHOTO = (EXAMPLES / "faces/astronaut.jpg").read_bytes()
YES = (EXAMPLES / "keywords/yes.wav").read_bytes()
PICTURES = {
    "empty": b"",
    "bomb": png(30_000, 30_000),
    "large": png(12_000, 12_000),
    "none": png(0, 5),
    "line": png(100_000, 10),
    "cut": PHOTO[: len(PHOTO) // 2],
    "drawing": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n",
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "sound": YES,
}
SOUNDS = {
    "empty": b"",
    "no samples": wav(b""),
    "no rate": wav(bytes(100), rate=0),
    "hours": wav(bytes(180_000), rate=1),
    "prime rate": wav(bytes(2000), rate=767_999),
    "no channels": wav(bytes(100), channels=0),
    "65 channels": wav(bytes(1300), channels=65),
    "NaN": floats(float("nan")),
    "infinity": floats(float("inf")),
    "mu-law": wav(bytes(8000), bits=8, encoding=7),
    "cut": YES[:30],
    "picture": PHOTO,
}
SAMPLES: dict[str, Any] = {
    "none": None,
    "text": ["loud"],
    "nested": [[0.1], [0.2]],
    "a number beyond all": [10**400],
    "an object": {"array": 1},
}


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("raw")
    convert(
        EXAMPLES / "faces/yunet_320.onnx",
        folder / "faces.bundle",
        task="object-detection",
        labels=str(EXAMPLES / "faces/labels.json"),
        preprocess=str(EXAMPLES / "faces/pipeline.json"),
        format="onnx",
        precision="fp32",
    )
    words = EXAMPLES / "keywords/kws_ref_model.tflite"
    convert(words, folder / "words.bundle", format="tflite", precision="fp32", preprocess="speech-commands")
    return {"faces": folder / "faces.bundle", "words": folder / "words.bundle"}


@pytest.fixture(scope="module")
def server(bundles: dict[str, Path]) -> Iterator[ServerThread]:
    with ServerThread(create_app({**bundles})) as running:
        yield running


def predict(server: ServerThread, name: str, body: Any) -> Answer:
    kind = OCTETS if isinstance(body, bytes) else "application/json"
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Client(server.url)(f"/v2/models/{name}/predict", "POST", data, content_type=kind)


def refused(answer: Answer) -> None:
    document = json.loads(answer.body, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (answer.status, document["code"]) == (400, "input_error"), answer.body
    assert document["error"]
    assert document["hint"]


@pytest.mark.parametrize("name", PICTURES)
def test_no_picture_gets_past_the_server_or_the_pipeline(
    server: ServerThread, bundles: dict[str, Path], name: str
) -> None:
    refused(predict(server, "faces", PICTURES[name]))
    refused(predict(server, "faces", {"inputs": [base64.b64encode(PICTURES[name]).decode()]}))
    with edge_infer.pipeline(bundles["faces"]) as find, pytest.raises(InputError) as caught:
        find(PICTURES[name])
    assert caught.value.hint


@pytest.mark.parametrize("name", SOUNDS)
def test_no_sound_gets_past_the_server_or_the_pipeline(
    server: ServerThread, bundles: dict[str, Path], name: str
) -> None:
    refused(predict(server, "words", SOUNDS[name]))
    with edge_infer.pipeline(bundles["words"]) as hear, pytest.raises(InputError) as caught:
        hear(SOUNDS[name])
    assert caught.value.hint


@pytest.mark.parametrize("name", SAMPLES)
def test_no_samples_get_past_the_server_or_the_pipeline(
    server: ServerThread, bundles: dict[str, Path], name: str
) -> None:
    given = {"array": SAMPLES[name], "sampling_rate": 16_000}
    refused(predict(server, "words", {"inputs": given}))
    with edge_infer.pipeline(bundles["words"]) as hear, pytest.raises(InputError) as caught:
        hear(given)
    assert caught.value.hint


@pytest.mark.parametrize("rate", [0, -1, 10**9, 1.5, "16000", None, True, float("nan")])
def test_no_rate_gets_past_the_server(server: ServerThread, rate: Any) -> None:
    refused(predict(server, "words", {"inputs": {"array": [0.1], "sampling_rate": rate}}))


@pytest.mark.parametrize("threshold", [float("nan"), float("inf"), -1, 2, "much", [0.5]])
def test_no_argument_gets_past_the_server(server: ServerThread, threshold: Any) -> None:
    photo = base64.b64encode(PHOTO).decode()
    refused(predict(server, "faces", {"inputs": photo, "parameters": {"threshold": threshold}}))


def test_odd_pictures_and_sounds_are_answered_and_so_is_the_next_one(server: ServerThread) -> None:
    for mode in ("1", "L", "P", "RGBA", "CMYK", "I;16"):
        file = io.BytesIO()
        Image.new(mode, (7, 300)).save(file, "TIFF")
        assert predict(server, "faces", file.getvalue()).status == 200, mode
    assert predict(server, "faces", black(4990, 5000)).status == 200
    for sound in (wav(bytes([128]) * 7 * 16_000, channels=7, bits=8), wav(bytes(3)), wav(bytes(20), rate=768_000)):
        assert predict(server, "words", sound).status == 200
    assert predict(server, "words", floats(3e38)).status in (200, 400)
    assert json.loads(predict(server, "words", YES).body)[0]["label"] == "yes"
    assert json.loads(predict(server, "faces", PHOTO).body)[0]["label"] == "face"


@pytest.mark.long
def test_minutes_of_sound_and_many_large_pictures_take_bounded_memory(server: ServerThread) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert predict(server, "words", wav(bytes(2 * 44_100 * 240), rate=44_100)).status == 200
    assert predict(server, "faces", {"inputs": [base64.b64encode(black(4990, 5000)).decode()] * 3}).status == 200
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 1_200_000  # kB
    assert predict(server, "words", YES).status == 200


def test_the_page_refuses_the_same_sounds() -> None:
    steps = [{"step": "audio.decode"}, {"step": "audio.resample", "rate": 16_000}]
    given: list[Any] = [{"kind": "bytes", "data": base64.b64encode(one).decode()} for one in SOUNDS.values()]
    given += [{"array": one, "sampling_rate": 16_000} for one in SAMPLES.values() if one != [10**400]]
    given += [{"array": [0.1], "sampling_rate": rate} for rate in (0, -1, 10**9, 1.5, "16000", None, True)]
    cases = json.dumps([{"steps": steps, "value": one} for one in given])
    done = subprocess.run(
        ["node", str(RUN_STEPS), "/dev/stdin"], input=cases, capture_output=True, text=True, check=True, timeout=60
    )
    for one, answer in zip(given, json.loads(done.stdout), strict=True):
        assert answer.get("code") == "input_error", (one, answer)
        assert answer["hint"], answer
