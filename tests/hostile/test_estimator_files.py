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

if TYPE_CHECKING:
    from pathlib import Path


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
