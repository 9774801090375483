"""The guide to compiled models does what it says: its commands and its page are run, from the file itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from edge_infer.tools.browser.chromium import chromium

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/guide/compile.md"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name in the base class
        pass


@pytest.mark.browser
@pytest.mark.long
def test_the_commands_and_the_page_of_the_guide_work(tmp_path: Path) -> None:
    text = GUIDE.read_text("utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    said = ""
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)
    files = {block.split()[1]: block for block in blocks if block.startswith("# ")}
    for name, block in files.items():
        (tmp_path / name).write_text(block)
    environment = {**os.environ, "KERAS_BACKEND": "torch"}
    for command in "\n".join(re.findall(r"^```sh\n(.*?)\n```$", text, re.M | re.S)).splitlines():
        program, *rest = command.split()
        words = [sys.executable, *(["-m", "edge_infer"] if program == "edge-infer" else []), *rest]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        said += done.stdout + done.stderr
    assert [*files] == ["net.py", "save_keras.py"]
    for folder in ("from_torch", "from_keras"):
        assert sum(path.stat().st_size for path in (tmp_path / folder).iterdir()) < 20_500
    (code,) = (block for block in blocks if block not in files.values())
    printed = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() in code
    (page_text,) = re.findall(r"^```html\n(.*?)^```$", text, re.M | re.S)
    (tmp_path / "site/index.html").write_text(page_text)

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "site")))
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        with chromium() as browser:
            page = browser.new_page()
            fetched: list[str] = []
            page.on("request", lambda request: fetched.append(request.url.rpartition("/")[2]))
            page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
            page.wait_for_function("document.querySelector('#answer').textContent.startsWith('This')", timeout=20_000)
            answer = page.locator("#answer").inner_text()
    finally:
        server.shutdown()
        server.server_close()

    assert "equal to LiteRT" in said
    assert answer == "This is a 1."
    assert [name for name in fetched if name and "favicon" not in name] == ["model.js", "model.wasm"]
    sizes = {name: (tmp_path / "site" / name).stat().st_size for name in ("model.wasm", "model.js")}
    stated = re.search(r"`model\.wasm` \((\d+) kB\), `model\.js` \((\d+) kB\)", text)
    assert stated is not None
    assert [round(size / 1000) for size in sizes.values()] == [int(one) for one in stated.groups()]
