"""Python in the page decodes with the bits of the native kernels."""

from __future__ import annotations

import base64
import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import edge_infer
from edge_infer.generation.decoder import Decoder
from edge_infer.rooms import runs_in
from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from tests.support.browser.pages import BrowserPage, PagePython
from tests.support.generation.decoders import random_decoder
from tests.support.generation.families import FAMILIES

if TYPE_CHECKING:
    from tests.support.browser.pages import BrowserThread

# The rooms that the first archive leaves out come from the wheel; here they are unpacked beside the others.
_OPEN = """
import base64, io, pathlib, zipfile
import edge_infer
zipfile.ZipFile(io.BytesIO(base64.b64decode(rooms))).extractall(pathlib.Path(edge_infer.__file__).parent)
pathlib.Path("model").write_bytes(base64.b64decode(content))
from edge_infer.errors import InputError
from edge_infer.generation.decoder import Decoder
decoder = await Decoder.open_async("model", slots=2, context=40)
decoder.context
"""
_RUN = """
decoder.run(tokens, [0] * len(tokens), range(len(tokens)), [0, len(tokens) - 1])
found = [bytes(decoder.logits(row)).hex() for row in range(2)]
decoder.logits(1)[7] = 1000.0
best = decoder.top(1, 3)
decoder.copy(0, 1, 10)
decoder.run([5], [1], [10], [0])
found.append(bytes(decoder.logits(0)).hex())
said = []
for batch in ([97], [0], [0], []), ([1], [0], [40], []):
    try:
        decoder.run(*batch)
    except InputError as error:
        said.append(error.message)
decoder.close()
[found, best, said]
"""


def _rooms() -> str:
    package, buffer = Path(edge_infer.__file__).parent, io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for room in ("generation", "kernels"):
            for path in sorted((package / room).glob("*.py")):
                if runs_in(f"{room}/{path.name}", "page"):
                    archive.write(path, f"{room}/{path.name}")
    return base64.b64encode(buffer.getvalue()).decode()


@pytest.mark.long
@pytest.mark.parametrize("encoding", ["int4"])
def test_python_in_the_page_gives_the_native_bits(browser: BrowserThread, tmp_path: Path, encoding: str) -> None:
    config, optional = FAMILIES["gemma"]
    path = random_decoder(config, encoding, optional=optional).write(tmp_path / "model")  # type: ignore[arg-type]
    tokens = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
    with ServerThread(create_app({}, find_web_root())) as running:
        page = BrowserPage(browser, f"{running.url}/blank.html")
        try:
            python = PagePython(page, engines=["compiled"])
            content = base64.b64encode(path.read_bytes()).decode()
            assert python.run(_OPEN, content=content, rooms=_rooms()) == 40
            found, best, said = python.run(_RUN, tokens=tokens)
        finally:
            page.close()

    with Decoder.open(path, slots=2, context=40) as decoder:
        decoder.run(tokens, [0] * 12, range(12), [0, 11])
        want = [bytes(decoder.logits(row)).hex() for row in range(2)]
        decoder.logits(1)[7] = 1000.0
        assert best == [list(pair) for pair in decoder.top(1, 3)]
        assert best[0] == [7, 1000.0]
        decoder.copy(0, 1, 10)
        decoder.run([5], [1], [10], [0])
        assert found == [*want, bytes(decoder.logits(0)).hex()]
    assert said == ["tokens[0] is 97, expected 0 to 96", "positions[0] is 40, expected 0 to 39, rising within a slot"]
