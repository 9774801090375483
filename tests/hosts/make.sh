#!/usr/bin/env bash
# Installs the hosts of Python that tests/browser/test_real_hosts.py visits: PyScript and two Pyodides from npm; JupyterLite and marimo with
# the wheels that they install in a page, from PyPI. Quick when all is there; 300 MB.
set -euo pipefail
cd "$(dirname "$0")/../.."
made=.bench/hosts

[ -d tests/hosts/node_modules/pyodide-marimo ] || npm --prefix tests/hosts ci --no-audit --no-fund --ignore-scripts
[ -e $made/ready ] && exit

# Their own versions of packages that we use too.
unset UV_CONSTRAINT PIP_CONSTRAINT
rm -rf $made
.venv/bin/uv venv -q $made/venv
.venv/bin/uv pip install -q --python $made/venv/bin/python \
  pip setuptools 'jupyterlite-core==0.8.6' 'jupyterlite-pyodide-kernel==0.8.6' 'jupyter-server==2.21.1' 'marimo==0.25.2'
(mkdir -p $made/lite && cd $made/lite && ../venv/bin/jupyter lite build --output-dir ../jupyterlite >build.log 2>&1) || { cat $made/lite/build.log; exit 1; }

fetch() { # fetch FOLDER OPTIONS PACKAGE...: wheels for Pyodide
  $made/venv/bin/python -m pip download -q -d "$made/wheels/$1" --only-binary=:all: --implementation cp --python-version 3.14 \
    --platform pyemscripten_2026_0_wasm32 "${@:2}"
}
fetch jupyterlite micropip==0.11.1 ipython==9.12.0 jedi==0.20.1 comm==0.2.3
fetch marimo --no-deps micropip==0.11.1 marimo-base==0.25.2 msgspec==0.22.0 click==8.5.1 jedi==0.20.1 parso==0.8.7 pygments==2.21.0 \
  tomlkit==0.15.2 docutils==0.23 itsdangerous==2.2.0 starlette==1.10.0 anyio==4.16.0 markdown==3.11.3 pymdown-extensions==13.1.2 \
  narwhals==2.29.0 packaging==26.4 python-multipart==0.0.34 idna==3.20 pyodide-http==0.2.2
# PyYAML has no wheel for Pyodide on PyPI, and needs no C.
$made/venv/bin/python -m pip download -q --no-deps -d $made/yaml pyyaml==6.0.4
$made/venv/bin/python - $made/yaml/*.whl $made/wheels/marimo/pyyaml-6.0.4-py3-none-any.whl <<'PYTHON'
import sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as made, zipfile.ZipFile(sys.argv[2], "w") as plain:
    for name in made.namelist():
        if not name.startswith("_yaml") and not name.endswith(".so"):
            plain.writestr(name, made.read(name))
PYTHON
touch $made/ready
