"""Tokenizers: equality with the package `tokenizers` in CPython and in JavaScript, and megabytes per second.

Six kinds (`tests/support/tasks/trained_tokenizers.py`), 2,606 real texts, 2,500 odd ones and 300 with characters that
Unicode has not assigned: ids, offsets, decoded text, truncation and padding. Speeds are of the processor's time, one
text after the other, with vocabularies of 30,000: that of all-MiniLM-L6-v2, and a BPE that is trained here. The peers
in JavaScript lie in `.bench/tasks_js`:

    npm install --prefix .bench/tasks_js --ignore-scripts @huggingface/tokenizers @huggingface/transformers \
        @ricky0123/vad-web

    python benchmarks/tasks_tokenizers.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import pydoc_data.topics
import random
import statistics
import subprocess
import sys
import tempfile
import time
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers

sys.path.insert(0, str(Path(__file__).parents[1]))

from convert_models import minilm_folder
from table import publish

from edge_infer import Padding, Tokenizer, Truncation
from tests.support.tasks.trained_tokenizers import KINDS, SENTENCES, corpus, odd_text, trained, written

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parents[1]
PEERS = ROOT / ".bench/tasks_js"
_JAVASCRIPT = PEERS / "node_modules/@huggingface/tokenizers/dist/tokenizers.mjs"
REAL, ODD, UNASSIGNED = 2606, 2500, 300
_TIMED_BYTES = 200_000


def real_texts(count: int) -> list[str]:
    """Return paragraphs of Python's own documents, then lines of its modules and sentences in several scripts."""
    parts = (part.strip() for text in pydoc_data.topics.topics.values() for part in text.split("\n\n"))
    found = [part for part in dict.fromkeys((*parts, *SENTENCES, *corpus())) if part][:count]
    assert len(found) == count or count > REAL
    return found


def checked_texts() -> list[str]:
    """Return the real texts, the odd ones, and those with characters that are not assigned."""
    chance = random.Random(20)
    odd = [odd_text(chance) for _ in range(ODD)]
    free = [code for code in range(0x370, 0x31350) if unicodedata.category(chr(code)) == "Cn"]
    unassigned = [
        " ".join(
            f"{chance.choice(('a', 'Straße', ''))}{chr(chance.choice(free))}b" for _ in range(chance.randrange(1, 9))
        )
        for _ in range(UNASSIGNED)
    ]
    return [*real_texts(REAL), *odd, *unassigned]


def timed_texts() -> list[str]:
    """Return some 200 kB of real text."""
    found, size = [], 0
    for text in real_texts(10_000):
        found.append(text)
        size += len(text.encode())
        if size > _TIMED_BYTES:
            break
    return found


def byte_pairs() -> tokenizers.Tokenizer:
    """Train a BPE of bytes with a vocabulary of 30,000 tokens."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=30_000, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator([*pydoc_data.topics.topics.values()], trainer)
    return made


def expected(kind: str, texts: Sequence[str]) -> list[Any]:
    """Return what the package gives."""
    theirs = tokenizers.Tokenizer.from_str(trained(kind).to_str())
    plain = [
        (one.ids, [list(pair) for pair in one.offsets], theirs.decode(one.ids)) for one in map(theirs.encode, texts)
    ]
    theirs.enable_truncation(32)
    theirs.enable_padding(pad_id=0, pad_to_multiple_of=8)
    cut = [(one.ids, one.attention_mask) for one in map(theirs.encode, texts)]
    return [[*one, *other] for one, other in zip(plain, cut, strict=True)]


def in_python(kind: str, texts: Sequence[str]) -> list[Any]:
    """Return what `edge_infer.Tokenizer` gives."""
    mine, found = Tokenizer.from_bytes(written(trained(kind))), []
    for text in texts:
        one = mine.encode(text, offsets=True)
        cut = mine.encode(text, truncation=Truncation(32), padding=Padding(multiple_of=8))
        offsets = [list(pair) for pair in one.offsets or []]
        found.append([one.ids, offsets, mine.decode(one.ids), cut.ids, cut.attention_mask])
    return found


def speeds(folder: Path, rounds: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Measure CPython beside the package, then Node; return the rows, and what Node gave."""
    texts, rows = timed_texts(), []
    size = sum(len(text.encode()) for text in texts) / 1e6
    place = minilm_folder()
    assert place is not None
    files = {"wordpiece-30k": (place / "tokenizer.json").read_bytes(), "bpe-30k": written(byte_pairs())}
    unigram = json.loads(written(trained("t5")))
    unigram["normalizer"]["normalizers"] = [one for one in unigram["normalizer"]["normalizers"] if one["type"] != "Nmt"]
    files["unigram"] = json.dumps(unigram).encode()  # the peer in JavaScript knows no Nmt
    for name, data in files.items():
        own, peer, loads = [], [], []
        for _ in range(rounds):  # new ones each time: both remember words
            start = time.process_time()
            mine = Tokenizer.from_bytes(data)
            loads.append(time.process_time() - start)
            theirs = tokenizers.Tokenizer.from_str(data.decode())
            theirs.no_truncation()
            theirs.no_padding()
            own.append(spent(lambda mine=mine: [mine.encode(text, truncation=None, padding=None) for text in texts]))
            peer.append(spent(lambda theirs=theirs: [theirs.encode(text) for text in texts]))
        target = None if name == "unigram" else 0.7
        rows.append(_row(f"{name}, CPython", own, "tokenizers (Rust)", peer, size, target))
        if name != "unigram":
            loading = statistics.median(loads)
            row: dict[str, Any] = {"name": f"load {name}, CPython", "metric": "s of a processor", "ours": loading}
            rows.append(row | {"target": "<= 0.2", "met": loading <= 0.2})
    (folder / "texts.json").write_text(json.dumps({"check": checked_texts(), "timed": texts}), "utf-8")
    for name, data in {**files, **{kind: written(trained(kind)) for kind in KINDS}}.items():
        (folder / f"{name}.json").write_bytes(data)
    program = Path(__file__).with_suffix(".mjs")
    subprocess.run(["node", str(program), str(folder), _JAVASCRIPT.as_uri(), str(rounds)], check=True)
    node = json.loads((folder / "found").read_text("utf-8"))
    for name in files:
        seconds = node[name]["seconds"]
        target = None if name == "unigram" else 1.0
        rows.append(_row(f"{name}, Node", seconds["ours"], "@huggingface/tokenizers", seconds["theirs"], size, target))
    return rows, node


def spent(work: Callable[[], Any]) -> float:
    """Return the processor's seconds that a function takes."""
    start = time.process_time()
    work()
    return time.process_time() - start


def _row(
    name: str, ours: Sequence[float], peer_name: str, peer: Sequence[float], size: float, target: float | None
) -> dict[str, Any]:
    ratios = sorted(theirs / mine for mine, theirs in zip(ours, peer, strict=True))
    row: dict[str, Any] = {"name": name, "metric": "MB/s of a processor", "ours": size / statistics.median(ours)}
    row |= {"peer_name": peer_name, "peer": size / statistics.median(peer), "ratio": statistics.median(ratios)}
    row["spread"] = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
    if target is not None:
        row |= {"target": f">= {target:g}x", "met": ratios[-(len(ratios) // 4) - 1] >= target}
    return row


def equality(node: dict[str, Any]) -> list[dict[str, Any]]:
    """Count the texts that differ from the package, by kind of text, in CPython and Node."""
    texts, counts = checked_texts(), dict[str, list[int]]()
    bounds = ((0, REAL), (REAL, REAL + ODD), (REAL + ODD, len(texts)))
    for kind in KINDS:
        right = expected(kind, texts)
        ids = [one[0] for one in right]
        for side, found, wanted in (
            ("ours in CPython", in_python(kind, texts), right),
            ("ours in Node", node[kind]["answers"], right),
            ("@huggingface/tokenizers, ids", node[kind]["others"], ids),
        ):
            differ = [one != other for one, other in zip(found, wanted, strict=True)]
            held = counts.setdefault(side, [0, 0, 0])
            for place, (start, end) in enumerate(bounds):
                held[place] += sum(differ[start:end])
    return [
        {
            "name": f"six kinds, {what} texts that differ, {side}",
            "metric": f"of {6 * (end - start)}",
            "ours": count,
            **({"target": "0", "met": count == 0} if side.startswith("ours") else {}),
        }
        for side, held in counts.items()
        for what, count, (start, end) in zip(("real", "odd", "unassigned"), held, bounds, strict=True)
    ]


def rows_of(rounds: int) -> list[dict[str, Any]]:
    """Measure, and return the rows.

    Raises:
        ImportError: The peer in JavaScript is not there.
    """
    if not _JAVASCRIPT.is_file():
        raise ImportError(f"@huggingface/tokenizers is not in {PEERS.name}: see the head of {Path(__file__).name}")
    with tempfile.TemporaryDirectory() as name:
        rows, node = speeds(Path(name), rounds)
    return [*rows, *equality(node)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="three rounds in place of seven")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    publish(rows_of(3 if options.quick else 7), ("tokenizers",), as_json=options.json)


if __name__ == "__main__":
    main()
