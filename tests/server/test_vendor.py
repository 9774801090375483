"""`web/vendor.py` puts the engine files in their place, once."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

SCRIPT = Path(__file__).parents[2] / "web" / "vendor.py"


@pytest.fixture
def vendor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, on a stand-in for `web/` whose engine files are a line each."""
    specification = importlib.util.spec_from_file_location("vendor_script", SCRIPT)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    modules = tmp_path / "node_modules"
    for package, paths in module.ENGINE_FILES.items():
        for source in paths:
            (modules / package / source).parent.mkdir(parents=True, exist_ok=True)
            (modules / package / source).write_text(f"{package} {source}")
        (modules / package / "package.json").write_text('{"version": "1.2.3"}')
    entry = {"name": "micropip", "version": module.MICROPIP[0], "file_name": "x.whl", "sha256": "0", "depends": []}
    lock = {"info": {"python": "3.14.2"}, "packages": {"micropip": entry, "numpy": {"version": "2"}}}
    (modules / "pyodide" / "pyodide-lock.json").write_text(json.dumps(lock))
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"micropip-{module.MICROPIP[0]}.dist-info/licenses/LICENSE", "Mozilla Public License")
    data = wheel.getvalue()
    monkeypatch.setattr(module, "MICROPIP", (module.MICROPIP[0], hashlib.sha256(data).hexdigest()))
    monkeypatch.setattr(module, "MODULES", modules)
    monkeypatch.setattr(module, "REPOSITORY", tmp_path)
    (tmp_path / "LICENSE").write_text("Apache License")
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "digits_app.py").write_text("print('app')")
    monkeypatch.setattr(module, "VENDOR", tmp_path / "vendor")
    (tmp_path / "vendor" / "wheels").mkdir(parents=True)
    (tmp_path / "vendor" / "wheels" / module.MICROPIP_WHEEL).write_bytes(data)
    return module


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.relative_to(folder).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_the_folder_is_filled_and_described(vendor: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert vendor.main() == 0
    files = snapshot(vendor.VENDOR)
    versions = json.loads(files["versions.json"][0])
    assert versions["packages"] == {
        "@huggingface/jinja": "1.2.3",
        "@litertjs/core": "1.2.3",
        "micropip": vendor.MICROPIP[0],
        "onnxruntime-web": "1.2.3",
        "pyodide": "1.2.3",
        "zstddec": "1.2.3",
    }
    assert set(versions["files"]) == set(files) - {"versions.json"}
    for path, entry in versions["files"].items():
        assert hashlib.sha256(files[path][0]).hexdigest() == entry["sha256"]
    assert {"NOTICE", "LICENSES/MIT.txt", "LICENSES/MPL-2.0.txt", "pyodide/python_stdlib.zip"} <= set(files)
    lock = json.loads(files["pyodide/pyodide-lock.json"][0])
    assert list(lock["packages"]) == ["micropip"]
    assert (vendor.VENDOR / "pyodide" / lock["packages"]["micropip"]["file_name"]).is_file()
    assert "MB" in capsys.readouterr().err


def test_a_second_run_touches_nothing(vendor: Any, capsys: pytest.CaptureFixture[str]) -> None:
    vendor.main()
    before = snapshot(vendor.VENDOR)
    capsys.readouterr()
    assert vendor.main() == 0
    assert snapshot(vendor.VENDOR) == before
    assert capsys.readouterr().err == ""


def test_what_is_cut_short_missing_stale_or_new_is_put_right(vendor: Any) -> None:
    vendor.main()
    right = {path: data for path, (data, _) in snapshot(vendor.VENDOR).items()}
    (vendor.VENDOR / "pyodide" / "pyodide.mjs").write_bytes(b"pyo")
    (vendor.VENDOR / "NOTICE").unlink()
    (vendor.VENDOR / "stale.wasm").write_bytes(b"old")
    assert vendor.main() == 0
    assert {path: data for path, (data, _) in snapshot(vendor.VENDOR).items()} == right
    (vendor.REPOSITORY / "examples" / "digits_app.py").write_text("print('APP')")
    assert vendor.main() == 0
    assert (vendor.VENDOR / "examples" / "digits_app.py").read_text() == "print('APP')"
    (vendor.MODULES / "pyodide" / "package.json").write_text('{"version": "2.0.0"}')
    (vendor.MODULES / "pyodide" / "pyodide.mjs").write_text("new")
    assert vendor.main() == 0
    assert (vendor.VENDOR / "pyodide" / "pyodide.mjs").read_text() == "new"


def test_what_is_missing_is_named(vendor: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (vendor.MODULES / "pyodide" / "package.json").unlink()
    assert vendor.main() == 1
    assert capsys.readouterr().err == "error: web/node_modules has no pyodide\nhint: npm ci --prefix web\n"


def test_the_real_folder_serves_what_its_lock_promises() -> None:
    """`make setup` has filled it: Pyodide refuses a wheel whose digest is not the lock's."""
    folder = SCRIPT.with_name("vendor")
    entry = json.loads((folder / "pyodide" / "pyodide-lock.json").read_bytes())["packages"]["micropip"]
    wheel = (folder / "pyodide" / entry["file_name"]).read_bytes()
    assert hashlib.sha256(wheel).hexdigest() == entry["sha256"]
