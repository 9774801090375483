"""Real models of other people become bundles that `verify` passes, or are refused with the true reason.

`models.toml` lists the models that fall short and those that are refused. It is strict: a listed model that is
converted and verified fails here, until it is taken out of the list.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.support import limited, real_models

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.limited import Finished

ZOO = real_models.folder()
NOT_HERE = pytest.mark.skip("EDGE_INFER_ZOO names no folder of real models")
REFUSED = real_models.listed("refused")
FALLS_SHORT = real_models.listed("falls_short")
PATHS = real_models.paths(ZOO) if ZOO else []
_SECONDS = 300

pytestmark = pytest.mark.long


def attempt(*arguments: str) -> Finished:
    """Run the command line on a model within 8 GB, and the time after which it counts as hanging."""
    return limited.run((*real_models.EDGE_INFER, *arguments), seconds=_SECONDS, env={"OMP_NUM_THREADS": "2"})


def fault(command: str, done: Finished) -> str:
    """Return how a command failed, empty where it did not."""
    if done.is_late:
        return f"{command} takes more than {_SECONDS} s"
    if done.code < 0:
        return f"{command} is ended by signal {-done.code}"
    if done.code == 0:
        return ""
    try:
        rows = json.loads(done.out)["rows"]
    except (ValueError, KeyError):
        return f"{command}: {real_models.said_last(done.err)}"
    failed = [f"{row['variant']} on {row['backend']}: {row['reason']}" for row in rows if row["verdict"] == "fail"]
    return f"{command}: {'; '.join(failed)}"


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(
            path,
            id=path.name,
            marks=[pytest.mark.xfail(reason=FALLS_SHORT[path.name], raises=AssertionError, strict=False)]
            if path.name in FALLS_SHORT
            else [],
        )
        for path in PATHS
        if path.name not in REFUSED
    ]
    or [pytest.param(None, marks=NOT_HERE)],
)
def test_a_real_model_is_converted_and_verified(path: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "model.bundle"

    made = attempt("convert", os.fspath(path), "-o", os.fspath(bundle), "--json")
    assert not fault("convert", made)

    verified = attempt("verify", os.fspath(bundle), "--json")
    assert not fault("verify", verified)


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.name) for path in PATHS if path.name in REFUSED]
    or [pytest.param(None, marks=NOT_HERE)],
)
def test_a_model_that_no_engine_runs_is_refused_with_the_reason(path: Path, tmp_path: Path) -> None:
    assert real_models.engine_alone(path).code != 0, "the engine alone runs it"

    made = attempt("convert", os.fspath(path), "-o", os.fspath(tmp_path / "model.bundle"))

    assert made.code == 1
    assert REFUSED[path.name] in made.err
    assert "Traceback" not in made.err
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(ZOO is None, reason="EDGE_INFER_ZOO names no folder of real models")
def test_every_listed_model_is_there() -> None:
    assert {*REFUSED, *FALLS_SHORT} <= {path.name for path in PATHS}
