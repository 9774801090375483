"""Pipelines in a page: the answers of Python, from files, elements and texts."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import wave
from array import array
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image, PngImagePlugin

import edge_infer
from edge_infer.bundle.manifest import FileEntry, Manifest
from edge_infer.bundle.variant import Variant
from edge_infer.errors import InputError, UnsupportedError
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tasks.image import decode
from edge_infer.tasks.item import Item
from tests.support.browser.pages import BrowserPage, BrowserThread
from tests.support.tasks.pipelines import WORDS, colours, loudness, questions, words

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOP: list[dict[str, Any]] = [{"step": "post.softmax"}, {"step": "post.top_k"}]
_PLAIN: list[dict[str, Any]] = [{"step": "post.tensor"}]
_FIND: list[dict[str, Any]] = [{"step": "post.softmax"}, {"step": "post.entities"}]
_FILL: list[dict[str, Any]] = [{"step": "post.softmax"}, {"step": "post.fill_mask", "mask": "[UNK]"}]
_NLI = ["contradiction", "neutral", "entailment"]
_CHOICE = {"candidate_labels": ["paris", "london", "film"], "hypothesis_template": "{}"}
#: By bundle what is asked, and with which arguments.
ASKED: list[tuple[str, Any, dict[str, Any]]] = [
    ("answer", {"question": "a film", "context": "Good paris a  LONDON film"}, {}),
    ("answer", {"question": "a film", "context": "Paris a london"}, {"top_k": 3, "max_answer_len": 2}),
    ("answer", {"question": "a film", "context": "good film " * 60 + "paris a london"}, {"top_k": 3, "doc_stride": 8}),
    ("rank", {"query": "film", "documents": ["good", "bad", "paris"]}, {"top_k": 2}),
    ("choose", "good film", _CHOICE),
    ("choose", ["good film", "bad"], {**_CHOICE, "multi_label": True}),
    ("find", "Paris a  LONDON bad film", {}),
    ("find", ["Paris a  LONDON bad film", "a"], {"aggregation_strategy": "simple"}),
    ("fill", "a zzz film", {"top_k": 2}),
    ("fill", ["zzz zzz", "good zzz"], {}),
    ("embed", ["good film", "a", "bad film a good paris london"], {}),
]
TEXTS = ["a good film", "bad", "paris a london a paris", "good good"]


FACES = Path(__file__).parents[2] / "examples/faces"


def faces(folder: Path) -> Path:
    """The detector of the example, with its steps."""
    session = edge_infer.load(FACES / "yunet_320.onnx")
    files = {"model.onnx": (FACES / "yunet_320.onnx").read_bytes(), "labels.json": (FACES / "labels.json").read_bytes()}
    manifest = Manifest(
        "faces",
        "1",
        session.inputs,
        session.outputs,
        [Variant("onnx/fp32", "onnx", "fp32", "model.onnx")],
        [FileEntry(path, len(data), hashlib.sha256(data).hexdigest()) for path, data in files.items()],
        labels="labels.json",
        task="object-detection",
        pipeline=json.loads((FACES / "pipeline.json").read_text("utf-8")),
    )
    folder.mkdir()
    for path, data in {**files, "manifest.json": manifest.to_bytes()}.items():
        (folder / path).write_bytes(data)
    return folder


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("bundles")
    return {
        "colours": colours(folder / "colours.bundle"),
        "words": words(folder / "words.bundle", "text-classification", _TOP, 2, ["good", "bad"], pooled=True),
        "loudness": loudness(folder / "loudness.bundle"),
        "answer": questions(folder / "answer.bundle"),
        "rank": words(folder / "rank.bundle", "text-ranking", _PLAIN, 1, pooled=True),
        "choose": words(folder / "choose.bundle", "zero-shot-classification", _PLAIN, 3, _NLI, pooled=True),
        "find": words(folder / "find.bundle", "token-classification", _FIND, 3, ["O", "B-LOC", "I-LOC"], offsets=True),
        "fill": words(folder / "fill.bundle", "fill-mask", _FILL, len(WORDS)),
        "faces": faces(folder / "faces.bundle"),
        "embed": words(
            folder / "embed.bundle", "feature-extraction", [{"step": "post.pool"}, {"step": "post.normalize"}]
        ),
    }


@pytest.fixture(scope="module")
def page(browser: BrowserThread, bundles: dict[str, Path], digits_bundle: Path) -> Iterator[BrowserPage]:
    """A page of a server with these bundles, with functions that make a Blob and an array of bytes."""
    with ServerThread(create_app({**bundles, "digits": digits_bundle}, find_web_root())) as server:
        page = BrowserPage(browser, f"{server.url}/blank.html")
        page.evaluate("""() => {
            globalThis.bytes = (text) => Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
            globalThis.text = (data) => btoa(data.reduce((all, one) => all + String.fromCharCode(one), ""));
        }""")
        yield page
        page.close()


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def noise(mode: str, width: int = 23, height: int = 17) -> Image.Image:
    count = width * height * len(Image.new(mode, (1, 1)).getbands())
    return Image.frombytes(mode, (width, height), random.Random(len(mode)).randbytes(count))


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def near(one: Any, other: Any) -> bool:
    """Whether two answers are the same but for 1e-4 in their numbers."""
    if isinstance(one, list):
        return len(one) == len(other) and all(near(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, dict):
        return set(one) == set(other) and all(near(one[key], other[key]) for key in one)
    return bool(one == other or (isinstance(one, float | int) and abs(one - other) <= 1e-4))


def test_images_are_answered_as_in_python(page: BrowserPage, bundles: dict[str, Path]) -> None:
    photos = [encoded(noise("RGB")), encoded(noise("L", 9, 30)), encoded(Image.new("RGB", (40, 20), (200, 30, 60)))]
    found = page.evaluate(
        """async (files) => {
            const { load, pipeline } = await import("/src/index.js");
            const session = await load("/models/digits");
            const fetched = performance.getEntriesByType("resource").map(({ name }) => name);
            const before = fetched.filter((name) => name.includes("/src/tasks/")).length;
            const classify = await pipeline("image-classification", "/models/colours");
            const blobs = files.map((one) => new Blob([bytes(one)]));
            const bitmap = await createImageBitmap(blobs[2]);
            const canvas = Object.assign(document.createElement("canvas"), { width: 40, height: 20 });
            canvas.getContext("2d").drawImage(bitmap, 0, 0);
            const image = new Image();
            image.src = URL.createObjectURL(blobs[2]);
            await image.decode();
            const pixels = canvas.getContext("2d").getImageData(0, 0, 40, 20);
            const file = await blobs[2].arrayBuffer();
            const forms = [bitmap, canvas, image, image.src, new URL(image.src), file, pixels];
            const answer = {
                before,
                task: classify.task,
                labels: classify.labels,
                list: await classify(blobs),
                one: await classify(blobs[0], { top_k: 1 }),
                forms: await classify(forms),
            };
            await classify.dispose();
            await session.dispose();
            return answer;
        }""",
        [base64_of(one) for one in photos],
    )

    classify = edge_infer.pipeline(bundles["colours"])
    assert found["before"] == 0
    assert (found["task"], found["labels"]) == ("image-classification", classify.labels)
    assert near(found["list"], classify(photos))
    assert near(found["one"], classify(photos[0], top_k=1))
    assert found["forms"] == [found["list"][2]] * 7


def test_texts_and_sounds_are_answered_as_in_python(page: BrowserPage, bundles: dict[str, Path]) -> None:
    sound = [0.0] * 800 + [0.9] * 1600 + [0.01] * 3200
    found = page.evaluate(
        """async ([texts, sound]) => {
            const { pipeline } = await import("/src/index.js");
            const [classify, hear] = [await pipeline("/models/words"), await pipeline("/models/loudness")];
            const answer = [await classify(texts), await classify(texts[0], { top_k: 1 })];
            answer.push(await hear(Float32Array.from(sound)), await hear(sound));
            await classify.dispose();
            await hear.dispose();
            return answer;
        }""",
        [TEXTS, sound],
    )

    classify, hear = edge_infer.pipeline(bundles["words"]), edge_infer.pipeline(bundles["loudness"])
    assert near(found[:2], [classify(TEXTS), classify(TEXTS[0], top_k=1)])
    assert near(found[2:], [hear(sound)] * 2)
    assert found[2]


def test_every_task_of_texts_is_answered_as_in_python(page: BrowserPage, bundles: dict[str, Path]) -> None:
    found = page.evaluate(
        """async (asked) => {
            const { pipeline } = await import("/src/index.js");
            const made = {};
            for (const [name] of asked) made[name] ??= await pipeline(`/models/${name}`);
            const answers = [];
            for (const [name, input, more] of asked) answers.push(await made[name](input, more));
            for (const one of Object.values(made)) await one.dispose();
            const plain = (value) => ArrayBuffer.isView(value) ? Array.from(value) : value;
            return JSON.parse(JSON.stringify(answers, (_, value) => plain(value)));
        }""",
        ASKED,
    )

    for (name, given, more), answer in zip(ASKED, found, strict=True):
        with edge_infer.pipeline(bundles[name]) as ask:
            expected = ask(given, **more)
        if name == "embed":
            expected = [{"data": one.tolist(), "dtype": "float32", "shape": list(one.shape)} for one in expected]
        assert near(answer, expected), (name, answer, expected)


def test_a_face_is_found_in_files_and_in_what_moves(page: BrowserPage, bundles: dict[str, Path]) -> None:
    photo = encoded(Image.open(FACES / "astronaut.jpg"))
    found = page.evaluate(
        """async (photo) => {
            const { pipeline } = await import("/src/index.js");
            const find = await pipeline("/models/faces");
            const bitmap = await createImageBitmap(new Blob([bytes(photo)]));
            const canvas = Object.assign(document.createElement("canvas"), { width: 320, height: 320 });
            const paint = () => canvas.getContext("2d", { willReadFrequently: true }).drawImage(bitmap, 0, 0);
            paint();
            const video = Object.assign(document.createElement("video"), { muted: true });
            const early = await find(video).catch((error) => error.message);
            video.srcObject = canvas.captureStream();
            const painting = setInterval(paint, 20);
            await video.play();
            const frame = new VideoFrame(canvas, { timestamp: 0 });
            const answers = [await find(bytes(photo)), await find(video), await find(frame)];
            clearInterval(painting);
            frame.close();
            await find.dispose();
            return { early, answers };
        }""",
        base64_of(photo),
    )

    with edge_infer.pipeline(bundles["faces"]) as find:
        expected = find(photo)
    assert len(expected) == 1
    assert "not loaded yet" in found["early"]
    assert near(found["answers"], [expected] * 3)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_the_pixels_of_files_are_those_of_pillow(page: BrowserPage, mode: str) -> None:
    linear = PngImagePlugin.PngInfo()
    linear.add(b"gAMA", (100_000).to_bytes(4, "big"))
    wide = noise("RGB").convert("P")
    files = {
        "colour": encoded(noise("RGB")),
        "grey": encoded(noise("L")),
        "palette": encoded(wide),
        "transparent": encoded(noise("RGBA")),
        "16 bits": encoded(Image.frombytes("I;16", (5, 4), random.Random(1).randbytes(40))),
        "linear light": encoded(noise("RGB"), pnginfo=linear),
        "gif": encoded(wide, "GIF"),
    }
    found = page.evaluate(
        """async ([files, mode]) => {
            const { prepare } = await import("/src/tasks/image/decode.js");
            const { Item } = await import("/src/tasks/item.js");
            const decode = prepare({ mode, background: null });
            const made = [];
            for (const file of files) made.push(await decode(bytes(file), new Item()));
            return made.map(({ data, width, height, channels }) => [text(data), width, height, channels]);
        }""",
        [[base64_of(one) for one in files.values()], mode],
    )

    read = decode.prepare({"mode": mode, "background": None}, None)  # type: ignore[arg-type]
    for (name, file), made in zip(files.items(), found, strict=True):
        image = read(file, Item())
        assert [base64.b64decode(made[0]), *made[1:]] == [image.data, image.width, image.height, image.channels], name


def test_photos_are_turned_upright_and_shine_through(page: BrowserPage) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = encoded(Image.new("RGB", (24, 16), (200, 30, 60)), "JPEG", exif=exif)
    pale = encoded(noise("RGBA"))
    found = page.evaluate(
        """async ([turned, pale]) => {
            const { prepare } = await import("/src/tasks/image/decode.js");
            const { Item } = await import("/src/tasks/item.js");
            const upright = await prepare({ mode: "RGB", background: null })(bytes(turned), new Item());
            const over = await prepare({ mode: "RGB", background: [10, 200, 30] })(bytes(pale), new Item());
            return [upright.width, upright.height, text(over.data)];
        }""",
        [base64_of(turned), base64_of(pale)],
    )

    over = decode.prepare({"mode": "RGB", "background": [10.0, 200.0, 30.0]}, None)(pale, Item())  # type: ignore[arg-type]
    assert found[:2] == [16, 24]
    assert base64.b64decode(found[2]) == over.data


def test_what_cannot_be_answered_says_why(page: BrowserPage) -> None:
    open_ = 'async (name) => { await (await import("/src/index.js")).pipeline(...name); }'
    with pytest.raises(UnsupportedError, match="does not say what stands before"):
        page.evaluate(open_, ["/models/digits"])
    with pytest.raises(UnsupportedError, match="one model file"):
        page.evaluate(open_, ["/models/digits/onnx/model.onnx"])
    with pytest.raises(InputError, match="is for image-classification, not for fill-mask"):
        page.evaluate(open_, ["fill-mask", "/models/colours"])
    with pytest.raises(InputError, match="no task `image-clasification`"):
        page.evaluate(open_, ["image-clasification", "/models/colours"])

    ask = """async ([name, input, more]) => {
        const { pipeline } = await import("/src/index.js");
        const ask = (globalThis[name] ??= await pipeline(name));
        await ask(input === "broken" ? new Blob(["nonsense"]) : input, more);
    }"""
    for name, given, more, said in (
        ("colours", "broken", {}, "image cannot be read"),
        ("colours", 7, {}, "not an image"),
        ("colours", {"data": None, "width": 20_000, "height": 20_000}, {}, "20000 x 20000 pixels"),
        ("colours", "broken", {"topk": 1}, "no argument `topk`"),
        ("words", "a", {"top_k": 0}, "`top_k` is 0"),
        ("words", 7, {}, "not a text"),
    ):
        with pytest.raises(InputError, match=said):
            page.evaluate(ask, [f"/models/{name}", given, more])


_LISTEN = """async (blocks) => {
    const { pipeline } = await import("/src/index.js");
    const detect = await pipeline("/models/loudness");
    const found = [];
    const source = blocks?.map((block) => Float32Array.from(block));
    for await (const one of detect.listen(source, { threshold: 0.3, min_silence_ms: 100 })) {
        found.push(one);
        if (!blocks && found.length === 2) break;
    }
    const wrong = await detect.listen(3).next().catch((error) => error.code);
    await detect.dispose();
    return { found, wrong };
}"""


def test_blocks_of_sound_are_listened_to_as_in_python(page: BrowserPage, bundles: dict[str, Path]) -> None:
    chance = random.Random(3)
    loud = [chance.random() < 0.5 for _ in range(30)]
    samples = [chance.uniform(-1, 1) * (0.9 if loud[at // 1600] else 0.1) for at in range(48_000)]
    cuts = [0, *sorted(chance.sample(range(48_000), 60)), 48_000]
    blocks = [samples[start:end] for start, end in pairwise(cuts)]

    answer = page.evaluate(_LISTEN, blocks)

    with edge_infer.pipeline(bundles["loudness"]) as detect:
        given = [array("f", block) for block in blocks]
        expected = list(detect.listen(given, threshold=0.3, min_silence_ms=100))
    assert len(expected) > 2
    assert near(answer["found"], expected)
    assert answer["wrong"] == "input_error"


@pytest.mark.long
def test_the_microphone_is_listened_to_and_turned_off(bundles: dict[str, Path], tmp_path: Path) -> None:
    """Chromium's microphone plays a file again and again: half a second of noise, half a second of nothing."""
    chance = random.Random(4)
    with wave.open(str(tmp_path / "noise.wav"), "wb") as file:
        file.setparams((1, 2, 48_000, 0, "NONE", ""))
        noise = array("h", [round(30_000 * chance.uniform(-1, 1)) if at < 24_000 else 0 for at in range(48_000)])
        file.writeframes(noise.tobytes())
    flags = ("--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream")
    with (
        BrowserThread(*flags, f"--use-file-for-fake-audio-capture={tmp_path / 'noise.wav'}") as thread,
        ServerThread(create_app({"loudness": bundles["loudness"]}, find_web_root())) as server,
    ):
        page = BrowserPage(thread, f"{server.url}/blank.html")
        answer = page.evaluate(_LISTEN, None)
        page.close()
    first, second = answer["found"]
    assert 0.3 < second["end"] - second["start"] < 0.7
    assert 0.7 < second["end"] - first["end"] < 1.3
