"""The three wheels: what is in them, how big they are, that they install and work without this checkout."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import brotli
import pytest

from edge_infer.rooms import runs_in
from edge_infer_converters.writers.microcontroller.kernel_source import SHARED

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build the three wheels, each by its distribution's name."""
    folder = tmp_path_factory.mktemp("wheels")
    for part in (".", "converters", "web"):
        command = [
            sys.executable,
            "-m",
            "build",
            "--wheel",
            "--no-isolation",
            "--outdir",
            str(folder),
            str(ROOT / part),
        ]
        subprocess.run(command, check=True, capture_output=True)
    return {path.name.split("-")[0]: path for path in folder.glob("*.whl")}


def top_level(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name.split("/")[0] for name in archive.namelist() if ".dist-info/" not in name}


@pytest.mark.parametrize("name", ["edge_infer", "edge_infer_converters", "edge_infer_web"])
def test_a_wheel_is_pure_python_and_holds_one_package(wheels: dict[str, Path], name: str) -> None:
    assert wheels[name].name.endswith("-py3-none-any.whl")
    assert top_level(wheels[name]) == {name}


def test_the_runtime_wheel_is_small(wheels: dict[str, Path]) -> None:
    """All of it, server and tools too; and by itself what runs a model on a bare device."""
    with zipfile.ZipFile(wheels["edge_infer"]) as archive:
        runs_models = sum(
            one.compress_size
            for one in archive.infolist()
            if one.filename.startswith("edge_infer/") and runs_in(one.filename.partition("/")[2], "device")
        )

    # The kernels, for wasm and five CPUs, are 283 kB of it: text generation 148 (its module with threads 19 of them),
    # compiled models 122, search 14. The steps of tasks are some 62 kB; the operators of the reference engine 55.
    assert wheels["edge_infer"].stat().st_size < 1_720_000
    assert runs_models < 405_000


def test_the_runtime_wheel_has_the_kernels_that_models_in_c_take(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["edge_infer"]) as archive:
        found = {name.rpartition("/")[2] for name in archive.namelist() if "kernels/source/" in name}

    assert found == {f"{name}.c" for name in SHARED}


def test_the_web_wheel_holds_modules_pages_and_engine_files(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["edge_infer_web"]) as archive:
        names = set(archive.namelist())

    for path in (
        "src/index.js",
        "src/engines/ort.js",
        "demo/index.html",
        "studio/index.html",
        "studio/widgets/registry.js",
        "vendor/onnxruntime-web/ort-wasm-simd-threaded.wasm",
        "vendor/pyodide/pyodide.asm.wasm",
        "vendor/examples/digits_app.py",
    ):
        assert f"edge_infer_web/{path}" in names


def test_the_web_wheel_has_each_module_of_the_checkout_made_small(wheels: dict[str, Path]) -> None:
    parts = ("src", "demo", "studio")
    web = ROOT / "web"
    sources = {str(path.relative_to(web)): path for part in parts for path in (web / part).rglob("*.*")}
    with zipfile.ZipFile(wheels["edge_infer_web"]) as archive:
        inside = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}

    assert {name for name in inside if name.startswith(parts)} == set(sources)
    for name, path in sources.items():
        if path.suffix in (".js", ".css"):
            assert len(inside[name]) <= path.stat().st_size, name
        else:
            assert inside[name] == path.read_bytes(), name
    studio = sum(len(brotli.compress(data)) for name, data in inside.items() if name.startswith("studio/"))
    assert studio < 48_000  # 68 kB with comments and spaces


def test_one_version_everywhere() -> None:
    versions = {
        str(path): tomllib.loads((ROOT / path).read_text("utf-8"))["project"]["version"]
        for path in ("pyproject.toml", "converters/pyproject.toml", "web/pyproject.toml")
    }
    versions["package.json"] = json.loads((ROOT / "web/package.json").read_text("utf-8"))["version"]
    for path in (
        "edge_infer/__init__.py",
        "converters/src/edge_infer_converters/__init__.py",
        "web/src/version.js",
    ):
        (found,) = re.findall(r'(?:__version__|VERSION) = "([^"]+)"', (ROOT / path).read_text("utf-8"))
        versions[path] = found
    for path in ("pyproject.toml", "converters/pyproject.toml"):
        (versions[f"{path} pin"],) = re.findall(r'"edge-infer(?:-web)?==([^"]+)"', (ROOT / path).read_text("utf-8"))

    assert len(set(versions.values())) == 1, versions


def test_no_lock_file_names_a_download_address() -> None:
    text = (ROOT / "web/package-lock.json").read_text("utf-8")

    assert '"resolved"' not in text


@pytest.mark.long
def test_an_installation_without_the_checkout_serves_and_verifies(wheels: dict[str, Path], tmp_path: Path) -> None:
    """Non-editable wheels in an empty folder: convert, verify in Chromium, with no Node and no checkout."""
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    # The dependencies are those of this environment, seen through a .pth file; the three packages are the wheels'.
    (site,) = (folder / "lib").glob("python*/site-packages")
    for wheel in wheels.values():
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    own = Path(sys.prefix, "lib", site.parent.name, "site-packages")
    visible = tmp_path / "dependencies"
    visible.mkdir()
    for path in own.iterdir():
        if not path.name.startswith(("edge_infer", "_editable", "__editable__", "_edge_infer")):
            (visible / path.name).symlink_to(path)
    (site / "dependencies.pth").write_text(f"{visible}\n")
    digits = tmp_path / "digits.onnx"
    digits.write_bytes((ROOT / "examples/digits/digits.onnx").read_bytes())
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)} | {
        name: value for name, value in os.environ.items() if name == "EDGE_INFER_CHROMIUM"
    }

    def edge_infer(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(python), "-m", "edge_infer", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)

    where = subprocess.run(
        [str(python), "-c", "import edge_infer; print(edge_infer.__file__)"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert where.stdout.startswith(str(site))
    converted = edge_infer("convert", "digits.onnx", "-o", "digits.bundle")
    assert converted.returncode == 0, converted.stderr
    verified = edge_infer("verify", "digits.bundle", "--backend", "ort-web", "--json")
    assert verified.returncode == 0, verified.stderr
    assert {row["backend"] for row in json.loads(verified.stdout)["rows"]} == {"ort-web"}
