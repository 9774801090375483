"""The same TFLite file gives the same numbers on native LiteRT and on LiteRT.js: every rule, every precision."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import onnx
import pytest

from edge_infer.errors import ConversionError, EdgeInferError
from edge_infer_converters.writers.tflite import FloatGraph
from tests.support.converters.engines import random_feeds, run_tflite
from tests.support.converters.recurrent import SAYABLE, recurrent
from tests.support.converters.small_models import MODELS, calls_of
from tests.support.converters.tflite_cases import CASES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.browser.pages import BrowserPage, BrowserThread

Arrays = dict[str, np.ndarray[Any, Any]]
#: How far apart two engines may be, as noise to signal of an output: other orders of sums, and one rounding of an
#: integer more or less where they multiply integers.
NOISE = {"fp32": 1e-9, "fp16": 1e-9, "int8": 1e-3, "int8x16": 1e-6, "int8-dynamic": 1e-3, "int4": 1e-3, "mixed": 1e-3}
#: What LiteRT.js 2.5.3 refuses that native LiteRT 2.3 runs, and what it says.
EXCUSED = {f"lstm {name}": "Variable tensors not yet supported" for name in SAYABLE}
_PAGE = """async ([text, feeds]) => {
    const { startLiteRtEngine } = await import("/src/engines/litert.js");
    globalThis.engine ??= await startLiteRtEngine();
    const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const arrays = { float32: Float32Array, int32: Int32Array, int64: BigInt64Array, bool: Uint8Array };
    const given = Object.fromEntries(Object.entries(feeds).map(([name, [dtype, shape, data]]) => {
        return [name, { data: new arrays[dtype](bytes(data).buffer), shape, dtype }];
    }));
    const session = engine.createSession(bytes(text));
    try {
        const found = session.run(given);
        return Object.fromEntries(Object.entries(found).map(([name, { dtype, shape, data }]) => {
            let text = "";
            for (const one of new Uint8Array(data.buffer, data.byteOffset, data.byteLength)) {
                text += String.fromCharCode(one);
            }
            return [name, [dtype, shape, btoa(text)]];
        }));
    } finally {
        session.close();
    }
}"""


class File(NamedTuple):
    """A TFLite file with inputs, and the noise that an engine may add."""

    data: bytes
    feeds: Arrays
    noise: float


def in_page(page: BrowserPage, file: File) -> Arrays:
    """Run a file on LiteRT.js."""
    feeds = {
        name: [str(array.dtype), list(array.shape), base64.b64encode(array.tobytes()).decode()]
        for name, array in file.feeds.items()
    }
    found = page.evaluate(_PAGE, [base64.b64encode(file.data).decode(), feeds])
    return {
        name: np.frombuffer(base64.b64decode(data), dtype).reshape(shape)
        for name, (dtype, shape, data) in found.items()
    }


def difference(page: BrowserPage, file: File) -> str:
    """Say how the page differs from native LiteRT, empty where it does not."""
    wanted = run_tflite(file.data, file.feeds)
    try:
        got = in_page(page, file)
    except EdgeInferError as error:
        return f"refused: {error.message}"
    for name, want in wanted.items():
        if (got[name].shape, got[name].dtype) != (want.shape, want.dtype):
            return f"{name}: {got[name].dtype}{got[name].shape}, natively {want.dtype}{want.shape}"
        if want.dtype.kind != "f":
            if not np.array_equal(got[name], want):
                return f"{name}: other integers"
            continue
        power, noise = float(np.square(want).mean()), float(np.square(got[name] - want).mean())
        if not noise <= file.noise * power + 1e-12:
            return f"{name}: noise {noise / power if power else noise:.2g} of the signal"
    return ""


def rules() -> dict[str, File]:
    found = {}
    for name, case in CASES.items():
        model = case.model()
        found[name] = File(FloatGraph.of_onnx(onnx.load_from_string(model)).write().data, random_feeds(model), 1e-9)
    return found


def layers() -> dict[str, File]:
    found = {}
    for name, settings in SAYABLE.items():
        model = recurrent(**settings)
        data = FloatGraph.of_onnx(onnx.load_from_string(model), for_page=False).write().data
        found[f"lstm {name}"] = File(data, random_feeds(model), 1e-9)
    return found


def networks(word: str) -> dict[str, File]:
    found = {}
    for name, make in MODELS.items():
        model = make()
        calls = calls_of(model, 8)
        try:
            written = FloatGraph.of_onnx(onnx.load_from_string(model)).write(word, calls)
        except ConversionError:
            continue  # nothing of it is worth storing so
        found[f"{name} {word}"] = File(written.data, calls[0], NOISE[word])
    return found


@pytest.fixture(scope="module")
def page(browser: BrowserThread, server: str) -> Iterator[BrowserPage]:
    from tests.support.browser.pages import BrowserPage

    page = BrowserPage(browser, f"{server}/blank.html")
    yield page
    page.close()


def check(page: BrowserPage, files: dict[str, File]) -> None:
    """Compare all, and hold the list of excuses against what happened."""
    said = {name: difference(page, file) for name, file in files.items()}
    wrong = {name: text for name, text in said.items() if text and name not in EXCUSED}
    assert wrong == {}
    excused = {name: EXCUSED[name] for name in said if name in EXCUSED}
    assert {name: reason for name, reason in excused.items() if reason not in said[name]} == {}


def test_every_rule_gives_the_same_numbers_in_the_page(page: BrowserPage) -> None:
    check(page, rules())


def test_the_lstm_of_tflite_is_refused_in_the_page_with_its_reason(page: BrowserPage) -> None:
    check(page, layers())


@pytest.mark.parametrize("word", NOISE)
def test_every_network_gives_the_same_numbers_in_the_page(page: BrowserPage, word: str) -> None:
    files = networks(word)

    assert len(files) >= 3
    check(page, files)
