"""Real models in C: those of `docs/reference/c_models.md` give their bytes here and on an emulated Cortex-M4.

The emulated board runs a model in its first rounding, and a small one in each: the large ones have the same kernels.
With `EDGE_INFER_SOAK=1` it runs all of them in each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import real_models, soak
from tests.support.microcontroller import models
from tests.support.microcontroller.folders import ARM, flash_of, make

if TYPE_CHECKING:
    from pathlib import Path

ZOO = real_models.folder()
LISTED = models.listed()
#: Of the estimate of the code by what the compiler makes; 32 bytes are the functions of inputs and outputs.
LOW, HIGH = 0.8, 1.25
#: Up to so many bytes of constants the emulated board runs a model in each rounding.
SMALL_BYTES = 100_000
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(ZOO is None, reason="EDGE_INFER_ZOO names no folder of real models"),
]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("model", [one for one in LISTED if one.roundings], ids=lambda one: one.name)
def test_a_real_model_gives_its_bytes_here_and_on_a_cortex_m4(model: models.Model, tmp_path: Path) -> None:
    assert ZOO is not None
    seen = set()
    for rounding in model.roundings:
        if rounding == "tflm":
            pytest.importorskip("tflite_micro")
        for way in ("size", "speed"):
            folder = tmp_path / f"{rounding}_{way}"
            said = models.tried(ZOO / model.name, rounding, way, folder)
            assert isinstance(said, dict), said
            assert said["checked"].startswith("equal to")
            text = "".join((folder / f"net{end}").read_text() for end in (".c", "_kernels.h", "_weights.h"))
            if text in seen:  # floats have one rounding
                continue
            seen.add(text)
            assert "net: 2 of 2 goldens" in make(folder, "test")
            is_first = rounding == model.roundings[0]
            if ARM and model.fits and (is_first or said["constant_bytes"] <= SMALL_BYTES or soak.is_on()):
                assert "net: 2 of 2 goldens" in make(folder, "qemu")
                code = flash_of(folder) - said["constant_bytes"]
                assert LOW <= (said["flash_bytes"] - said["constant_bytes"]) / code <= HIGH


@pytest.mark.timeout(900)
@pytest.mark.parametrize("model", [one for one in LISTED if not one.roundings], ids=lambda one: one.name)
def test_a_real_model_is_refused_for_the_reason_of_the_page(model: models.Model, tmp_path: Path) -> None:
    assert ZOO is not None

    assert models.tried(ZOO / model.name, "reference", "size", tmp_path / "out") == model.reason
    assert not (tmp_path / "out").exists()


def test_the_page_has_all_real_models() -> None:
    assert ZOO is not None

    assert sorted(one.name for one in LISTED) == sorted(path.name for path in real_models.paths(ZOO))
