"""Counters: the same with numpy and without it, added up in any order, and references of a few kilobytes."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import edge_infer
from edge_infer.cli import cli
from edge_infer.errors import BundleError, InputError
from edge_infer.formats.safetensors import read_tensors, write_tensors
from edge_infer.monitor import counters as counters_module
from edge_infer.monitor import features
from edge_infer.monitor.counters import Counters, read_counters
from edge_infer.monitor.making import make_reference
from edge_infer.monitor.reference import Reference, read_reference
from edge_infer.tensors.tensor import Tensor, TensorSpec
from tests.support.tasks import tables

if TYPE_CHECKING:
    from pathlib import Path

CHANCE = np.random.default_rng(11)
COLUMNS = CHANCE.lognormal(size=(3000, 20)).astype("f4")
IMAGES = CHANCE.random((300, 3, 20, 33)).astype("f4")
VECTORS = (CHANCE.normal(size=(2000, 24)) @ CHANCE.normal(size=(24, 384))).astype("f4")
MADE: dict[str, tuple[Any, bytes]] = {}
for _name, _rows in {"columns": COLUMNS, "image": IMAGES, "vector": VECTORS}.items():
    _spec = TensorSpec("x", "float32", ["batch", *_rows.shape[1:]])
    MADE[_name] = (_rows, make_reference([({"x": _rows}, {})], [_spec], []))


def counted(reference: Reference, rows: Any) -> dict[str, list[int]]:
    found = Counters(reference)
    found.observe({"x": rows}, {})
    assert found.rows == len(rows)
    return found.counts


@pytest.mark.parametrize("kind", MADE)
def test_a_reference_takes_at_most_eight_kilobytes(kind: str) -> None:
    assert len(MADE[kind][1]) <= 8192


@pytest.mark.parametrize("kind", MADE)
def test_numpy_and_plain_python_count_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, data = MADE[kind]
    rows, known = rows[:40].copy(), read_reference(data)
    rows.reshape(len(rows), -1)[:2, :3] = [[np.nan, np.inf, -np.inf], [1e30, -1e30, 0]]

    by_numpy = counted(known, rows)
    for module in (features, counters_module):
        monkeypatch.setattr(module, "has_numpy", lambda: False)
    plain = counted(known, Tensor(rows.copy(), "float32", rows.shape))

    assert plain == by_numpy


def test_every_order_of_adding_gives_the_same() -> None:
    rows, data = MADE["columns"]
    known, parts = read_reference(data), []
    for piece in np.array_split(rows, 9):
        parts.append(Counters(known))
        parts[-1].observe({"x": piece}, {})
    whole = Counters(known)
    whole.observe({"x": rows}, {})
    for seed in range(5):
        random.Random(seed).shuffle(parts)
        total = Counters(known)
        for part in parts:
            total.merge(read_counters(json.dumps(part.to_json()), known))
        assert total.to_json() == whole.to_json()


def test_counters_of_another_reference_are_refused() -> None:
    one, other = (Counters(read_reference(MADE[kind][1])) for kind in ("columns", "vector"))
    with pytest.raises(InputError, match="another reference"):
        one.merge(other)
    with pytest.raises(InputError, match="another reference"):
        read_counters(json.dumps(other.to_json()), one.reference)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_damaged_reference_is_refused_or_counts(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(MADE)))
    rows, whole = MADE[kind]
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    try:
        known = read_reference(bytes(changed))
        counted(known, rows[:5])
    except (BundleError, InputError) as error:
        assert error.hint or error.message
    except AssertionError:  # a tensor of another name: no row is seen
        pass


@settings(max_examples=150, deadline=None)
@given(st.recursive(st.none() | st.integers() | st.text(max_size=4), lambda x: st.lists(x, max_size=3)))
def test_what_is_no_file_of_counters_is_refused(value: Any) -> None:
    known = read_reference(MADE["columns"][1])
    good = Counters(known).to_json()
    for document in (value, {**good, "rows": value}, {**good, "counts": value}, {**good, "version": value}):
        if document in (good, {**good, "rows": value}) and isinstance(value, int) and 0 <= value < 2**63:
            continue
        if document == good:
            continue
        with pytest.raises(InputError):
            read_counters(json.dumps(document), known)


def test_a_list_of_the_features_is_no_count_of_them() -> None:
    known = read_reference(MADE["columns"][1])
    good = Counters(known).to_json()

    with pytest.raises(InputError, match="cannot be read"):
        read_counters(json.dumps({**good, "counts": list(good["counts"])}), known)


@pytest.mark.parametrize("place", ["values", "scale"])
def test_a_number_that_no_float_holds_damages_a_reference(place: str) -> None:
    tensors = read_tensors(MADE["vector" if place == "scale" else "columns"][1])
    facts = json.loads(bytes(tensors["facts"].data()))
    if place == "scale":
        facts["groups"][0]["scale"] = 10**400
    else:
        facts["values"] = {facts["groups"][0]["names"][0]: [10**400]}
    text = json.dumps(facts).encode()
    tensors["facts"] = Tensor(text, "uint8", (len(text),))

    with pytest.raises(BundleError, match="OverflowError"):
        read_reference(write_tensors(tensors))


def test_the_commands_go_from_a_table_to_a_report(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    bundle = str(tables.risk(tmp_path / "risk.bundle"))
    usual, other = tables.rows(1500), tables.rows(1200, seed=5)
    other["age"] = [one + 25 for one in other["age"]]
    for name, rows in {"usual": usual, "again": tables.rows(1200, seed=9), "other": other}.items():
        pyarrow.parquet.write_table(pyarrow.table(rows), tmp_path / f"{name}.parquet")

    def run(*arguments: str) -> Any:
        done = CliRunner().invoke(cli, [*arguments])
        assert done.exit_code == 0, (done.output, done.exception)
        return done

    run("monitor", "reference", bundle, str(tmp_path / "usual.parquet"))
    words = {}
    for name in ("again", "other"):
        counters, out = str(tmp_path / f"{name}.json"), str(tmp_path / "out.csv")
        run("predict", bundle, str(tmp_path / f"{name}.parquet"), "-o", out, "--monitor", counters)
        said = run("monitor", "report", bundle, counters, "--json", "-o", str(tmp_path / f"{name}.html"))
        words[name] = json.loads(said.stdout)
    run("monitor", "merge", bundle, *(str(tmp_path / f"{n}.json") for n in words), "-o", str(tmp_path / "all.json"))

    assert words["again"]["word"] == "no drift"
    assert words["other"]["word"] == "drift"
    assert {one["feature"] for one in words["other"]["findings"] if one["drifted"]} >= {"age"}
    assert json.loads((tmp_path / "all.json").read_text())["rows"] == 2400
    assert "<strong>The data have changed" in (tmp_path / "other.html").read_text("utf-8")


def test_a_session_shows_its_runs(tmp_path: Path) -> None:
    seen: list[Any] = []
    with edge_infer.load(tables.risk(tmp_path / "risk.bundle")) as session:
        session.observe(lambda inputs, outputs: seen.append((inputs["x"].shape, outputs["probabilities"].shape)))
        session.run({"x": np.zeros((3, 3), "f4")})

    assert seen == [((3, 3), (3, 2))]
