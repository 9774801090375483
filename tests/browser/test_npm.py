"""The npm package as a user has it: packed, installed beside Vite, typed, and from another origin."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.support.browser.npm_project import ROOT, WEB, run, unpack_package

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from playwright.sync_api import Route

    from tests.support.browser.pages import BrowserPage

_USER = ROOT / "tests/npm"
_KINDS = {".html": "text/html", ".js": "text/javascript", ".mjs": "text/javascript", ".wasm": "application/wasm"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's project with the packed package in its node_modules; what it depends on is linked, not downloaded."""
    assert (_USER / "node_modules/vite").is_dir(), "run tests/setup.sh: Vite is not installed"
    folder = tmp_path_factory.mktemp("project")
    for file in _USER.iterdir():
        if file.is_file():
            shutil.copy(file, folder)
    unpack_package(folder, _USER)
    return folder


@pytest.mark.long
def test_a_page_built_by_vite_runs_a_model(
    open_page: Callable[..., BrowserPage], plain_server: str, project: Path
) -> None:
    said = run("node", "node_modules/edge-infer/bin/edge-infer-files.js", "public/edge-infer", cwd=project)
    run("node", "node_modules/vite/bin/vite.js", "build", cwd=project)
    built = project / "dist"

    def answer(route: Route) -> None:
        file = built / route.request.url.partition("?")[0].removeprefix(f"{plain_server}/")
        route.fulfill(status=200, body=file.read_bytes(), content_type=_KINDS.get(file.suffix, "text/plain"))

    page = open_page(f"{plain_server}/blank.html")
    page.do(lambda page: page.context.route(re.compile("/index.html|/assets/|/edge-infer/"), answer))
    page.do(lambda page: page.goto(f"{plain_server}/index.html"))
    page.do(lambda page: page.wait_for_function("document.querySelector('#said').textContent !== 'loading'"))

    assert "MB" in said
    modules = project / "public/edge-infer/src"
    assert (modules / "page/worker.js").read_bytes() == (WEB / "src/page/worker.js").read_bytes()
    assert json.loads(page.evaluate("() => document.querySelector('#said').textContent")) == {
        "engine": "ort-web",
        "variant": "onnx/int8",
        "shape": [1, 10],
    }


def test_typescript_knows_the_package(project: Path) -> None:
    """`typed.ts` has right calls, and wrong ones that must not compile."""
    run("node", str(WEB / "node_modules/typescript/bin/tsc"), "-p", "tsconfig.json", cwd=project)


def test_the_package_has_what_a_page_imports_and_no_engine(project: Path) -> None:
    package = project / "node_modules/edge-infer"
    sources = {path.relative_to(WEB / "src") for path in (WEB / "src").rglob("*.js")}

    assert {path.relative_to(package / "src") for path in (package / "src").rglob("*.js")} == sources
    modules = ["generation-threads.wasm", "generation.wasm", "vectors.wasm"]
    assert sorted(path.name for path in package.rglob("*.wasm")) == modules


@pytest.mark.parametrize("way", ["isolated", "plain"])
def test_modules_of_another_origin_run_a_model_of_this_one(
    open_page: Callable[..., BrowserPage], server: str, plain_server: str, elsewhere: str, way: str
) -> None:
    page = open_page(f"{server if way == 'isolated' else plain_server}/blank.html")

    found = page.evaluate(
        """async (cdn) => {
            const script = document.createElement("script");
            script.type = "module";
            script.textContent = `
                import { load } from "${cdn}/src/index.js";
                globalThis.said = (async () => {
                    const session = await load("/models/digits");
                    const { logits } = await session.run({ image: new Float32Array(64) });
                    await session.dispose();
                    return [logits.shape, session.report().engine];
                })();
                dispatchEvent(new Event("begun"));`;
            const begun = new Promise((resolve) => addEventListener("begun", resolve));
            document.head.append(script);
            await begun;
            return globalThis.said;
        }""",
        elsewhere,
    )

    assert found == [[1, 10], "ort-web"]
