from __future__ import annotations

import email.parser
import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urljoin

import pytest
from packaging.metadata import parse_email
from packaging.requirements import Requirement

import edge_infer
from edge_infer.errors import BundleError
from edge_infer.server.static import wheel as wheel_module
from edge_infer.server.static.lockfile import lock_file
from edge_infer.server.static.wheel import WheelBuilder, build_wheel

if TYPE_CHECKING:
    from tests.support.server.client import Client

NAME = f"edge_infer-{edge_infer.__version__}-py3-none-any.whl"


def unpacked(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_the_wheel_holds_the_whole_package_and_nothing_else() -> None:
    wheel = build_wheel()
    assert wheel.name == NAME
    assert len(wheel.data) < 1_500_000  # tests/project/test_packaging.py bounds what a page needs of it
    files = unpacked(wheel.data)
    tops = {name.split("/")[0] for name in files}
    assert tops == {"edge_infer", f"edge_infer-{edge_infer.__version__}.dist-info"}
    root = Path(edge_infer.__file__).parent
    sources = {f"edge_infer/{path.relative_to(root).as_posix()}" for path in root.rglob("*.py")}
    assert sources <= set(files)
    assert not [name for name in files if "__pycache__" in name or name.endswith((".pyc", "direct_url.json"))]


def test_the_same_files_give_the_same_bytes() -> None:
    assert build_wheel() == build_wheel()


def test_the_record_names_every_file_with_its_digest() -> None:
    files = unpacked(build_wheel().data)
    record = next(name for name in files if name.endswith("/RECORD"))
    lines = dict(line.split(",", 1) for line in files[record].decode().splitlines())
    assert set(lines) == set(files)
    for name, data in files.items():
        digest = urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        assert lines[name] == ("," if name == record else f"sha256={digest},{len(data)}")


def test_in_pyodide_the_wheel_depends_on_nothing() -> None:
    files = unpacked(build_wheel().data)
    metadata = next(data for name, data in files.items() if name.endswith("/METADATA"))
    parsed, unparsed = parse_email(metadata)
    assert not unparsed
    assert parsed["name"] == "edge-infer"
    needed = [
        text
        for text in parsed.get("requires_dist", [])
        if (marker := Requirement(text).marker) is None
        or marker.evaluate({"sys_platform": "emscripten", "platform_system": "Emscripten", "extra": ""})
    ]
    assert needed == []
    tags = email.parser.BytesParser().parsebytes(next(v for k, v in files.items() if k.endswith("/WHEEL")))
    assert (tags["Root-Is-Purelib"], tags["Tag"]) == ("true", "py3-none-any")


def test_the_installed_wheel_builds_itself(tmp_path: Path) -> None:
    """What is installed, not a checkout, is what the server sends on."""
    wheel = build_wheel()
    with zipfile.ZipFile(io.BytesIO(wheel.data)) as archive:
        archive.extractall(tmp_path)
    script = "from edge_infer.server.static.wheel import build_wheel; print(build_wheel().sha256)"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == wheel.sha256


def test_a_changed_file_makes_another_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "a.py"
    source.write_text("x = 1")
    monkeypatch.setattr(wheel_module, "package_files", lambda: [("edge_infer/a.py", source)])
    builder = WheelBuilder()
    first = builder.build()
    assert builder.build() is first
    source.write_text("x = 12")
    assert builder.build().sha256 != first.sha256


def test_the_index_leads_to_the_wheel(get: Client) -> None:
    answer = get("/simple/edge-infer/", accept="application/vnd.pypi.simple.v1+json, */*;q=0.01")
    assert answer.headers["content-type"] == "application/vnd.pypi.simple.v1+json"
    document = json.loads(answer.body)
    assert (document["name"], document["versions"]) == ("edge-infer", [edge_infer.__version__])
    (file,) = document["files"]
    assert file["filename"] == NAME
    assert file["url"] == f"{get.url}/wheels/{NAME}"
    wheel = get(file["url"].removeprefix(get.url))
    assert wheel.headers["content-type"] == "application/zip"
    assert hashlib.sha256(wheel.body).hexdigest() == file["hashes"]["sha256"]
    assert len(wheel.body) == file["size"]


def test_the_index_is_html_for_whoever_reads_html(get: Client) -> None:
    answer = get("/simple/edge-infer/", accept="text/html, application/xhtml+xml")
    assert answer.headers["content-type"].startswith("text/html")
    link = answer.body.decode().split('href="')[1].split('"')[0]
    target, _, digest = urljoin("/simple/edge-infer/", link).partition("#sha256=")
    assert hashlib.sha256(get(target).body).hexdigest() == digest
    assert b"edge-infer" in get("/simple/", accept="text/html").body


def test_the_index_has_one_project_by_any_spelling(get: Client) -> None:
    for name in ("edge_infer", "Edge.Infer", "edge--infer"):
        assert get(f"/simple/{name}/").status == 200
    assert json.loads(get("/simple/").body)["projects"] == [{"name": "edge-infer"}]
    missing = get("/simple/numpy/")
    assert missing.status == 404
    assert json.loads(missing.body)["hint"] == "it has `edge-infer` only"
    assert get("/wheels/edge_infer-9.9.9-py3-none-any.whl").status == 404


def test_the_lock_file_adds_the_wheel_to_those_beside_pyodide(tmp_path: Path) -> None:
    wheel = build_wheel()
    beside = {"name": "one", "file_name": "../wheels/one-1-py3-none-any.whl", "sha256": "0" * 64}
    near = {"name": "two", "file_name": "two-1-py3-none-any.whl", "sha256": "1" * 64}
    path = tmp_path / "pyodide-lock.json"
    path.write_text(json.dumps({"info": {"python": "3.14.2"}, "packages": {"one": beside, "two": near}}))

    lock = json.loads(lock_file(path, wheel))

    assert lock["info"] == {"python": "3.14.2"}
    places = {name: urljoin("/wheels/", entry["file_name"]) for name, entry in lock["packages"].items()}
    assert places == {
        "one": "/vendor/wheels/one-1-py3-none-any.whl",
        "two": "/vendor/pyodide/two-1-py3-none-any.whl",
        "edge-infer": f"/wheels/{NAME}",
    }
    assert lock["packages"]["edge-infer"]["sha256"] == wheel.sha256


@pytest.mark.parametrize("text", ["", "[]", '{"info": {}}', '{"packages": [1]}', '{"packages": {"one": 1}}'])
def test_a_lock_file_that_is_none_is_an_error(text: str, tmp_path: Path) -> None:
    path = tmp_path / "pyodide-lock.json"
    path.write_text(text)

    with pytest.raises(BundleError, match="cannot be read"):
        lock_file(path, build_wheel())
