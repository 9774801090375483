"""Run one Python file natively and in a browser, and compare what it says.

    python examples/03_same_file_everywhere.py

`digits_app.py` is imported by this Python, and sent to a headless Chromium, where Pyodide imports it. Both load the
same bundle, one from the disk and one from a server, and recognise the same drawings.

Needs: pip install 'edge-infer[onnxruntime,browser]' edge-infer-converters, and Chromium
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

import digits_app

from edge_infer.server.app import create_app
from edge_infer.server.http.in_thread import ServerThread
from edge_infer.server.static.pages import find_web_root
from edge_infer.tools.browser.page import PagePython
from edge_infer_converters import convert

DIGITS = Path(__file__).parent / "digits"

# Run in the page; `source` is the file's text and `url` the bundle's address there.
IN_PAGE = """
from pathlib import Path
Path("digits_app.py").write_text(source)
import digits_app
engine = digits_app.open_model(url)["engine"]
[engine, [digits_app.classify(*digits_app.drawing(text)) for text in digits_app.DRAWINGS.values()]]
"""


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    logging.basicConfig(level=logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        bundle = Path(folder) / "digits.bundle"
        convert(DIGITS / "digits.onnx", bundle, calibration=DIGITS / "calibration.npz")
        here = recognise_here(bundle)
        there = recognise_in_page(bundle)

    print(f"{'drawn':>5} {here[0]:>12} {there[0]:>12}")
    agree = True
    for drawn, native, page in zip(digits_app.DRAWINGS, here[1], there[1], strict=True):
        apart = max(abs(one - other) for one, other in zip(native["scores"], page["scores"], strict=True))
        same = native["digit"] == page["digit"] and native["image"] == page["image"] and apart < 0.01
        verdict = "same" if same else f"scores differ by {apart:.1e}"
        print(f"{drawn:>5} {native['digit']:>12} {page['digit']:>12}   {verdict}")
        agree = agree and same
    print("The same file says the same." if agree else "They differ.")
    return 0 if agree else 1


def recognise_here(bundle: Path) -> tuple[str, list[dict[str, Any]]]:
    engine = digits_app.open_model(str(bundle))["engine"]
    return engine, [digits_app.classify(*digits_app.drawing(text)) for text in digits_app.DRAWINGS.values()]


def recognise_in_page(bundle: Path) -> tuple[str, list[dict[str, Any]]]:
    source = Path(digits_app.__file__).read_text("utf-8")
    with ServerThread(create_app({"digits": bundle}, find_web_root())) as server, PagePython(server.url) as page:
        engine, answers = page.run(IN_PAGE, {"source": source, "url": f"{server.url}/models/digits"})
    return engine, answers


if __name__ == "__main__":
    sys.exit(main())
