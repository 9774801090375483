"""Damaged files of boosters and of skops: an error that names the file, and nothing half-written."""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING

import numpy as np
import pytest

from edge_infer.errors import ConversionError
from edge_infer_converters import convert
from edge_infer_converters.sources.file_trees import check_trees

if TYPE_CHECKING:
    from pathlib import Path

CHANCE = np.random.default_rng(0)
X = CHANCE.normal(size=(80, 4))


def archive(**files: str) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, text in files.items():
            file.writestr(name.replace("_", "."), text)
    return made.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.json", b"{", "is no JSON"),
        ("a.json", b"\xff\xfe\x00", "is no JSON"),
        ("a.json", b"[" * 100_000, "is no JSON"),
        ("a.json", b"{}", "is not a model of XGBoost"),
        ("a.json", json.dumps({"learner": {}, "version": [99, 1, 0]}).encode(), r"was written by XGBoost 99\.1\.0"),
        (
            "a.ubj",
            b"{L" + bytes(7) + b"\x07version[#L" + bytes(7) + b"\x03i\x63i\x01i\x00}",
            r"was written by XGBoost 99\.1\.0",
        ),
        ("a.ubj", b"PK", "is not a model of XGBoost in UBJSON"),
        ("a.txt", b"hello\nworld", "whose first line is `tree`"),
        ("a.txt", b"tree", "has the version ''"),
        ("a.txt", b"tree\nversion=v9\n", "has the version 'v9' of LightGBM's format"),
        ("a.cbm", b"CBM", "which begins with CBM1"),
        pytest.param("a.skops", b"\x80\x04K\x01.", "skops cannot read `a.skops`", marks=pytest.mark.long),
        ("a.skops", archive(schema_json="{"), "skops cannot read `a.skops`"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    if name.endswith(".skops"):
        pytest.importorskip("skops")
    if name.endswith(".cbm"):
        pytest.importorskip("catboost")
    (tmp_path / name).write_bytes(data)

    with pytest.raises(ConversionError, match=said) as caught:
        convert(tmp_path / name, tmp_path / "a.bundle")

    assert caught.value.hint
    assert [one.name for one in tmp_path.iterdir()] == [name]


@pytest.mark.long
def test_a_reader_that_ends_its_process_is_an_error(tmp_path: Path) -> None:
    """LightGBM 4.7 calls `terminate` at some files that are cut short."""
    import lightgbm

    chance = np.random.default_rng(0)
    x = chance.normal(size=(300, 4))
    made = lightgbm.LGBMRegressor(n_estimators=5, n_jobs=1, verbose=-1).fit(x, x[:, 0])
    text = made.booster_.model_to_string()
    (tmp_path / "a.txt").write_text(text[:1500], "utf-8")

    with pytest.raises(ConversionError, match=r"lightgbm cannot read `a\.txt`"):
        convert(tmp_path / "a.txt", tmp_path / "a.bundle")

    assert not (tmp_path / "a.bundle").exists()


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("left_child", 10**7, "leads to node 10000000"),
        ("left_child", -5, "leads to node -5"),
        ("right_child", 0, "leads to node 0"),
        ("feature", 99, "asks for column 99 of 4"),
        ("feature", -1, "asks for column -1 of 4"),
    ],
)
def test_a_tree_that_leads_out_of_its_arrays_is_refused(tmp_path: Path, field: str, value: int, said: str) -> None:
    """scikit-learn's compiled code would read beside them, or never end."""
    skops = pytest.importorskip("skops.io")
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.tree._tree import Tree

    made = RandomForestRegressor(2, random_state=0).fit(X, X[:, 0])
    check_trees(made, "a.skops")
    state = made.estimators_[1].tree_.__getstate__()
    state["nodes"] = state["nodes"].copy()
    state["nodes"][field][0] = value
    made.estimators_[1].tree_ = Tree(4, np.ones(1, np.intp), 1)
    made.estimators_[1].tree_.__setstate__(state)
    skops.dump(made, tmp_path / "a.skops")

    with pytest.raises(ConversionError, match=rf"`a\.skops` holds a Tree .*{said}") as caught:
        convert(tmp_path / "a.skops", tmp_path / "a.bundle")

    assert "skops.io.dump" in (caught.value.hint or "")
    assert [one.name for one in tmp_path.iterdir()] == ["a.skops"]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("left", 4_000_000_000, "leads to node 4000000000"),
        ("right", 0, "leads to node 0"),
        ("feature_idx", 7, "asks for column 7 of 4"),
        ("is_categorical", 1, "whose sets of categories are not there"),
    ],
)
def test_a_histogram_tree_that_leads_out_of_its_arrays_is_refused(field: str, value: int, said: str) -> None:
    from sklearn.ensemble import HistGradientBoostingRegressor

    made = HistGradientBoostingRegressor(max_iter=2, min_samples_leaf=5).fit(X, X[:, 0])
    check_trees(made, "a.skops")
    made._predictors[1][0].nodes[field][0] = value

    with pytest.raises(ConversionError, match=said):
        check_trees({"inside": [made]}, "a.skops")


def test_types_of_scikit_learn_that_nothing_checks_are_refused_with_what_to_type(tmp_path: Path) -> None:
    skops = pytest.importorskip("skops.io")
    from sklearn.neighbors import KNeighborsClassifier

    skops.dump(KNeighborsClassifier(algorithm="kd_tree").fit(X, X[:, 0] > 0), tmp_path / "a.skops")

    with pytest.raises(ConversionError, match="KDTree") as caught:
        convert(tmp_path / "a.skops", tmp_path / "a.bundle")

    hint = caught.value.hint or ""
    assert "def model(): return skops.io.load('a.skops', trusted=[" in hint
    assert "'sklearn.neighbors._kd_tree.KDTree'" in hint
