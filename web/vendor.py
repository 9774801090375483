"""Fill `web/vendor/` with the engine files that a page needs and the demo's Python application, and nothing else.

    npm ci --prefix web && python web/vendor.py

The npm folders hold 190 MB of builds, maps and sources; a page needs some of those files, each only when it is used,
and the wheel of micropip so that `pyodide.loadPackage("micropip")` works with no outside network. Versions are pinned:
the engines by `package-lock.json`, micropip by its sha256 below. `vendor/versions.json` says what was put there; it is
written last, so that a run that was cut short is repaired by the next.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WEB = Path(__file__).resolve().parent
REPOSITORY = WEB.parent
VENDOR = WEB / "vendor"
MODULES = WEB / "node_modules"

#: The files to take from each npm package: path in the package -> path in `vendor/`. The npm package's own command,
#: `bin/edge-infer-files.js`, reads the same list.
ENGINE_FILES: dict[str, dict[str, str]] = {}
for _files in json.loads((WEB / "engine-files.json").read_bytes()).values():
    for _package, _paths in _files.items():
        ENGINE_FILES.setdefault(_package, {}).update(_paths)
#: Files of this repository that the page fetches and the wheel would lack: the application that also runs natively.
OWN_FILES = ("examples/digits_app.py",)
#: What Pyodide's own lock file calls micropip's version, as the package index has it. It carries its own `packaging`.
MICROPIP = ("0.11.1", "768de165adb8e66906039d8fec4127a57f522dfdf8e6fbff877a4616941ecfd3")
MICROPIP_WHEEL = f"micropip-{MICROPIP[0]}-py3-none-any.whl"

NOTICE = """\
The files in these folders are the work of others, unchanged but for pyodide/pyodide-lock.json, which lists only the
packages that lie here.

onnxruntime-web/   ONNX Runtime Web, Copyright (c) Microsoft Corporation.          MIT, see LICENSES/MIT.txt
                   Source: https://github.com/microsoft/onnxruntime
litert/            LiteRT.js, Copyright (c) Google LLC.                      Apache-2.0, see LICENSES/Apache-2.0.txt
                   Source: https://github.com/google-ai-edge/LiteRT
pyodide/           Pyodide, Copyright (c) the Pyodide contributors and Mozilla.     MPL-2.0, see LICENSES/MPL-2.0.txt
                   Source: https://github.com/pyodide/pyodide
                   python_stdlib.zip and pyodide.asm.wasm hold CPython, Copyright (c) 2001 Python Software
                   Foundation; all rights reserved.                                 PSF-2.0, see LICENSES/Python.txt
zstddec/           zstddec, Copyright (c) Don McCurdy; holds Zstandard, Copyright
                   (c) Yann Collet, Facebook, Inc.                                  MIT and BSD-3-Clause, see
                   Source: https://github.com/donmccurdy/zstddec                    LICENSES/zstddec.txt
jinja/             @huggingface/jinja, Copyright (c) Hugging Face.                  MIT, see LICENSES/jinja.txt
                   Source: https://github.com/huggingface/huggingface.js
wheels/            micropip, Copyright (c) the Pyodide contributors.                MPL-2.0, see LICENSES/MPL-2.0.txt
                   Source: https://github.com/pyodide/micropip
"""
MIT = """\
MIT License

Copyright (c) Microsoft Corporation

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
"""


def main() -> int:
    """Fill the folder; return 0, or 1 where something that it needs is missing."""
    packages = {"micropip": MICROPIP[0]}
    for package in ENGINE_FILES:
        description = MODULES / package / "package.json"
        if not description.is_file():
            return _fail(f"web/node_modules has no {package}", "npm ci --prefix web")
        packages[package] = json.loads(description.read_bytes())["version"]
    own = {path: (REPOSITORY / path).read_bytes() for path in OWN_FILES if (REPOSITORY / path).is_file()}
    if _is_current(packages, own):
        return 0

    wheel = _micropip_wheel()
    if wheel is None:
        return 1
    files: dict[str, bytes] = {f"wheels/{MICROPIP_WHEEL}": wheel, **own}
    for package, paths in ENGINE_FILES.items():
        files |= {target: (MODULES / package / source).read_bytes() for source, target in paths.items()}
    files["pyodide/pyodide-lock.json"] = _lock((MODULES / "pyodide" / "pyodide-lock.json").read_bytes())
    files["LICENSES/MIT.txt"] = MIT.encode()
    files["LICENSES/Apache-2.0.txt"] = (REPOSITORY / "LICENSE").read_bytes()
    files["LICENSES/MPL-2.0.txt"] = _license_in(wheel)
    python_license = Path(os.__file__).with_name("LICENSE.txt")
    if python_license.is_file():
        files["LICENSES/Python.txt"] = python_license.read_bytes()
    files["NOTICE"] = NOTICE.encode()

    for path, data in files.items():
        _write(path, data)
    for stale in sorted({path for path in VENDOR.rglob("*") if path.is_file()}):
        if stale.relative_to(VENDOR).as_posix() not in {*files, ".keep"}:
            stale.unlink()
    entries = {
        path: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for path, data in sorted(files.items())
    }
    versions = {"script": _script(), "packages": dict(sorted(packages.items())), "files": entries}
    _write("versions.json", (json.dumps(versions, indent=1) + "\n").encode())
    total = sum(len(data) for data in files.values())
    sys.stderr.write(f"web/vendor: {len(files)} files, {total / 1e6:.1f} MB\n")
    return 0


def _is_current(packages: dict[str, str], own: dict[str, bytes]) -> bool:
    """Tell whether this very script and list put these versions there, and all is still there."""
    try:
        versions = json.loads((VENDOR / "versions.json").read_bytes())
        return bool(
            versions["script"] == _script()
            and versions["packages"] == packages
            and set(own) <= set(versions["files"])
            and all((VENDOR / path).stat().st_size == entry["size"] for path, entry in versions["files"].items())
            and all((VENDOR / path).read_bytes() == data for path, data in own.items())
        )
    except (OSError, ValueError, KeyError):
        return False


def _script() -> str:
    """Return the digest of this script and of the list it reads."""
    return hashlib.sha256(Path(__file__).read_bytes() + (WEB / "engine-files.json").read_bytes()).hexdigest()


def _micropip_wheel() -> bytes | None:
    """Return the bytes of the pinned wheel: the one that lies there already, else downloaded by pip."""
    version, sha256 = MICROPIP
    present = VENDOR / "wheels" / MICROPIP_WHEEL
    if present.is_file() and hashlib.sha256(present.read_bytes()).hexdigest() == sha256:
        return present.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        # micropip declares the Python that it runs on, which is Pyodide's and not this one.
        options = ["--no-deps", "--only-binary=:all:", "--python-version=3.14", "--quiet", f"--dest={folder}"]
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", *options]
        done = subprocess.run([*command, f"micropip=={version}"], capture_output=True, text=True, check=False)
        found = Path(folder) / MICROPIP_WHEEL
        if done.returncode or not found.is_file():
            _fail(f"pip could not download micropip {version}: {done.stderr.strip()}", "python -m ensurepip")
            return None
        data = found.read_bytes()
    got = hashlib.sha256(data).hexdigest()
    if got != sha256:
        _fail(f"{MICROPIP_WHEEL} has sha256 {got}, expected {sha256}", "update MICROPIP in web/vendor.py")
        return None
    return data


def _lock(data: bytes) -> bytes:
    """Reduce Pyodide's lock file to the packages that lie here, with the places and hashes that they have here."""
    lock = json.loads(data)
    entry = lock["packages"]["micropip"]
    if entry["version"] != MICROPIP[0]:
        raise SystemExit(f"Pyodide wants micropip {entry['version']}: update MICROPIP in web/vendor.py")
    entry |= {"file_name": f"../wheels/{MICROPIP_WHEEL}", "sha256": MICROPIP[1]}
    lock["packages"] = {"micropip": entry}
    return (json.dumps(lock, indent=1) + "\n").encode()


def _license_in(wheel: bytes) -> bytes:
    """Return the Mozilla Public License that micropip's wheel carries; Pyodide's npm package has no copy of it."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        return archive.read(f"micropip-{MICROPIP[0]}.dist-info/licenses/LICENSE")


def _write(path: str, data: bytes) -> None:
    """Write a file under `vendor/` whole or not at all, and leave one alone that is right already."""
    target = VENDOR / path
    if target.is_file() and target.stat().st_size == len(data) and target.read_bytes() == data:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".part")
    partial.write_bytes(data)
    partial.replace(target)


def _fail(message: str, hint: str) -> int:
    sys.stderr.write(f"error: {message}\nhint: {hint}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
