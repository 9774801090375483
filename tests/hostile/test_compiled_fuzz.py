"""Compiled models with seeded damage, natively and as WebAssembly in Node: a clear error or an answer, never an end.

`make test` takes a share of the seeds, `make soak` 500 of them.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from edge_infer.backends.compiled import ProgramModel
from edge_infer.errors import UnsupportedModel
from edge_infer.formats import wasm
from edge_infer.formats.program import SECTION, read_compiled
from edge_infer.tensors.tensor import Tensor
from tests.support.kernels.compiled_models import COMPILED, FILTERED, RECURRENT
from tests.support.soak import rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from edge_infer.tensors.tensor import Array

ROOT = Path(__file__).parents[2]
MODELS = (COMPILED.wasm, RECURRENT.wasm, FILTERED.wasm)
SEEDS = rounds(90, 500)
_CODE = 10
_EDGES = (
    "-1",
    "0",
    "1",
    "3",
    "16",
    "255",
    "65536",
    "2147483647",
    "-2147483648",
    "1e99",
    "0.5",
    "NaN",
    "true",
    '""',
    "[]",
)
#: Load and run each file of a folder, in a worker: code that was damaged may go round for ever, and a page can end it.
_IN_NODE = """
import {{ readFileSync }} from "node:fs";
import {{ isMainThread, parentPort, Worker, workerData }} from "node:worker_threads";
import {{ fileURLToPath }} from "node:url";
import {{ CompiledEngine }} from {engine};
import {{ arrayOver, nbytesOf }} from {tensors};

function answer(name) {{
  try {{
    const session = new CompiledEngine().createSession(readFileSync(name));
    const feeds = {{}};
    for (const {{ name, dtype, shape }} of session.inputs) {{
      const bytes = nbytesOf(dtype, shape.map((dim) => (typeof dim === "string" ? 1 : dim)));
      feeds[name] = arrayOver(dtype, new Uint8Array(bytes).fill(bytes % 4 ? 1 : 0x3f));
    }}
    session.run(feeds);
    return "answer";
  }} catch (error) {{
    return error.code ?? `${{error}}`;
  }}
}}

if (isMainThread) {{
  const names = process.argv.slice(2);
  const found = {{}};
  while (names.length > 0) {{
    await new Promise((done) => {{
      const worker = new Worker(fileURLToPath(import.meta.url), {{ workerData: names }});
      const end = () => {{ found[names.shift()] = "endless"; worker.terminate(); }};
      let guard = setTimeout(end, 30_000);
      worker.on("message", (said) => {{
        found[names.shift()] = said;
        clearTimeout(guard);
        guard = setTimeout(end, 5_000);
      }});
      worker.on("exit", () => {{ clearTimeout(guard); done(); }});
    }});
  }}
  console.log(JSON.stringify(found));
}} else {{
  for (const name of workerData) parentPort.postMessage(answer(name));
}}
"""


def damaged(seed: int) -> tuple[str, bytes]:
    """Return the kind of a damage, and a model that has it."""
    chance = Random(seed)
    content = chance.choice(MODELS)
    kind = chance.choice(("program", "constants", "code", "bytes", "cut"))
    if kind == "bytes":
        return kind, bytes(_changed(bytearray(content), chance))
    if kind == "cut":
        start, size = chance.randrange(len(content)), chance.randrange(1, 600)
        middle = b"" if chance.randrange(2) else content[start : start + size] * 2
        return kind, content[:start] + middle + content[start + size :]
    found = bytearray(wasm.MAGIC)
    for number, section in wasm.sections(content):
        part = bytes(section)
        if number == wasm.CUSTOM and kind == "program":
            title, place = wasm.name(section)
            part = part[:place] + _other_text(part[place:].decode(), chance).encode() if title == SECTION else part
        elif number == {"constants": wasm.DATA, "code": _CODE}.get(kind):
            part = bytes(_changed(bytearray(part), chance))
        found += bytes([number]) + _size(len(part)) + part
    return kind, bytes(found)


def _changed(content: bytearray, chance: Random) -> bytearray:
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(content))
        content[place] = chance.choice((0, 1, 127, 128, 255, content[place] ^ (1 << chance.randrange(8))))
    return content


def _other_text(text: str, chance: Random) -> str:
    """Put something else in the place of a number of the program, or leave one of its parts out."""
    numbers = [*re.finditer(r"-?\d+", text)]
    chosen = chance.choice(numbers)
    if chance.randrange(8):
        return text[: chosen.start()] + chance.choice(_EDGES) + text[chosen.end() :]
    document: dict[str, Any] = json.loads(text)
    document.pop(chance.choice([*document]))
    return json.dumps(document)


def _size(value: int) -> bytes:
    return bytes([value & 127 | 128, value >> 7 & 127 | 128, value >> 14 & 127])


def run(content: bytes) -> dict[str, Array]:
    """Run a model natively, on bytes that are numbers of each type."""
    model = ProgramModel(read_compiled(content))
    feeds = {}
    for spec in model.inputs:
        shape = tuple(1 if isinstance(dim, str) else dim for dim in spec.shape)
        size = spec.dtype.nbytes(shape)
        feeds[spec.name] = Tensor((b"\x01" if size % 4 else b"\x3f") * size, spec.dtype, shape)
    return model.run(feeds, [spec.name for spec in model.outputs], {}, ())


def natively(seeds: range) -> Iterator[str]:
    """Say of each damage whether its model is refused, or answers."""
    for seed in seeds:
        _, content = damaged(seed)
        try:
            found = run(content)
        except UnsupportedModel as error:
            assert error.hint
            yield "refused"
            continue
        same = [whole for whole in MODELS if read_compiled(content) == read_compiled(whole)]
        if same:  # the code of the file does not run here
            assert {name: bytes(one) for name, one in found.items()} == {
                name: bytes(one) for name, one in run(same[0]).items()
            }
        yield "answer"


def test_damaged_models_are_refused_or_answer_natively() -> None:
    script = f"from tests.hostile import test_compiled_fuzz as fuzz; print(*fuzz.natively(range({SEEDS})))"

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )

    assert done.returncode == 0, done.stderr[-2000:]
    said = done.stdout.split()
    assert len(said) == SEEDS
    assert min(said.count("refused"), said.count("answer")) > SEEDS // 10, "both happen"


def test_damaged_models_are_refused_or_answer_in_node(tmp_path: Path) -> None:
    kinds = {}
    for seed in range(SEEDS):
        kinds[f"{seed}.wasm"], content = damaged(seed)
        (tmp_path / f"{seed}.wasm").write_bytes(content)
    places = {
        name: json.dumps((ROOT / "web/src" / file).as_uri())
        for name, file in (("engine", "engines/compiled.js"), ("tensors", "tensors.js"))
    }
    (tmp_path / "run.mjs").write_text(_IN_NODE.format(**places))

    done = subprocess.run(
        ["node", "run.mjs", *kinds], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )

    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str] = json.loads(done.stdout)
    assert found.keys() == kinds.keys()
    for name, said in found.items():
        # Only code may go round for ever: a page ends its worker, and in a bundle the digest is checked before.
        allowed = {"unsupported_model", "execution_error", "answer", *(["endless"] if kinds[name] != "program" else [])}
        assert said in allowed, (name, kinds[name])
    assert min(sum(said == one for said in found.values()) for one in ("unsupported_model", "answer")) > SEEDS // 10
