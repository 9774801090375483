"""The decision: seldom wrong without drift, seldom blind with it, and its mathematics as scipy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from edge_infer.monitor.counters import Counters
from edge_infer.monitor.decision import chi_square, decide, kolmogorov, upper_gamma
from edge_infer.monitor.making import make_reference
from edge_infer.monitor.reference import read_reference
from edge_infer.tensors.tensor import TensorSpec

SPEC = TensorSpec("x", "float32", ["batch", 1])
REFERENCE = 50_000


def reference(columns: int = 1, seed: int = 0) -> Any:
    chance = np.random.default_rng(seed)
    rows = chance.lognormal(size=(REFERENCE, columns)).astype("f4")
    spec = TensorSpec("x", "float32", ["batch", columns])
    return read_reference(make_reference([({"x": rows}, {})], [spec], []))


def share(columns: int, rows: int, shift: float, trials: int) -> float:
    """Return how often drift is seen where the logarithm of one column moves by so many deviations."""
    known, chance, seen = reference(columns), np.random.default_rng(7), 0
    for _ in range(trials):
        values = chance.normal(size=(rows, columns))
        values[:, 0] += shift
        counters = Counters(known)
        counters.observe({"x": np.exp(values).astype("f4")}, {})
        seen += decide(counters, least_rows=0).word == "drift"
    return seen / trials


@pytest.mark.parametrize("rows", [200, 500, 1000, 5000])
@pytest.mark.parametrize("columns", [1, pytest.param(20, marks=pytest.mark.long)])
def test_false_alarms_are_rarer_than_one_in_two_hundred(rows: int, columns: int) -> None:
    assert share(columns, rows, 0.0, 400) <= 0.005


def test_a_shift_of_a_fifth_of_a_deviation_is_seen_in_a_thousand_rows() -> None:
    assert share(1, 1000, 0.2, 400) >= 0.9


def test_less_than_five_hundred_rows_decide_nothing() -> None:
    counters = Counters(reference())
    counters.observe({"x": np.full((499, 1), 9, "f4")}, {})

    assert decide(counters).word == "not enough data"
    counters.observe({"x": np.full((1, 1), 9, "f4")}, {})
    assert decide(counters).word == "drift"


def test_the_functions_are_those_of_scipy() -> None:
    for value in (0.1, 0.3, 0.8, 1.3, 2.4):
        assert kolmogorov(value) == pytest.approx(special.kolmogorov(value), abs=1e-12)
    for a in (0.5, 1, 3.5, 20):
        for x in (0.01, 0.7, 3, 25, 90):
            assert upper_gamma(a, x) == pytest.approx(special.gammaincc(a, x), rel=1e-9, abs=1e-300)
    table = ([30, 50, 20], [300, 420, 280])
    assert chi_square(*table) == pytest.approx(stats.chi2_contingency(table).pvalue, rel=1e-9)


def test_missing_values_and_unknown_categories_are_seen() -> None:
    chance = np.random.default_rng(3)
    rows = np.stack([chance.normal(size=2000), chance.integers(0, 3, 2000)], 1).astype("f4")
    specs = [TensorSpec("x", "float32", ["batch", 2])]
    known = read_reference(
        make_reference([({"x": rows}, {})], specs, [], {"x": ["size", "city"]}, {"city": ["Bern", "Chur", "Genf"]})
    )
    assert sorted(known.features[1].labels) == ["Bern", "Chur", "Genf"]
    rows[:300, 0] = np.nan
    rows[:200, 1] = -1
    counters = Counters(known)
    counters.observe({"x": rows}, {})

    size, city = decide(counters).findings

    assert size.missing_drifted
    assert not size.drifted
    assert city.drifted
    assert city.outside == 0.1
