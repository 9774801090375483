"""Read the files of boosters (XGBoost, LightGBM, CatBoost) and of skops, by the libraries that wrote them.

No file is unpickled. The libraries' own readers may end the process at a damaged file, so that each file is read in a
process of its own first.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.errors import ConversionError
from edge_infer_converters.sources import boosting, catboost, file_trees, onnx, sklearn

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from edge_infer_converters.sources.options import SourceOptions
    from edge_infer_converters.sources.source import Source

_LIGHTGBM_VERSIONS = ("v2", "v3", "v4")
_TRIAL_S = 300
#: Three small integers at the end of a file of UBJSON.
_UBJSON_VERSION = re.compile(rb"\x07version\[#L.{8}[iU](.)[iU](.)[iU](.)", re.DOTALL)
_END = 256
#: Types that skops does not trust by itself and that run no code: of arrays of texts, and trees, which are checked.
_TRUSTED = ["numpy.dtype", *file_trees.TYPES]
_OPEN = {
    "xgboost": "import sys, xgboost; xgboost.Booster(model_file=sys.argv[1])",
    "lightgbm": "import sys, lightgbm; lightgbm.Booster(model_file=sys.argv[1])",
    "catboost": "import sys, catboost; catboost.CatBoost().load_model(sys.argv[1], format=sys.argv[2])",
}


def load(where: str | os.PathLike[str], options: SourceOptions) -> Source:
    """Read a file: `.json` or `.ubj` of XGBoost, `.txt` of LightGBM, `.cbm` or `.json` of CatBoost, `.skops`.

    Args:
        where: The file.
        options: As for an ONNX file.

    Raises:
        ConversionError: The file is damaged, of a newer version, of something else, or its library is not installed.
    """
    path = Path(where)
    try:
        with path.open("rb") as file:
            start = file.read(None if path.suffix == ".json" else 64)
    except OSError as error:
        raise ConversionError(f"`{path}` cannot be read: {error.strerror}", hint="give the path of a file") from error
    library = _library(path, start)
    if find_spec(library) is None:
        raise ConversionError(
            f"Reading `{path.name}` needs {library}, which is not installed", hint=f"pip install {library}"
        )
    if library == "skops":
        made, exporter = _of_skops(path), None
    else:
        _try(library, path)
        made, exporter = _READERS[library](path), {"catboost": catboost}.get(library, boosting)
    if exporter is None:
        exporter = next((one for one in (catboost, boosting) if one.takes(made)), sklearn)
        if exporter is sklearn and not sklearn.takes(made):
            raise ConversionError(
                f"`{path.name}` holds {type(made).__name__}, expected a fitted estimator", hint="skops.io.dump(model)"
            )
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, f"{path.stem}.onnx")
        return onnx.load_export(target, exporter.export(made, target, path.name, options.opset), path.name, options)


def _library(path: Path, start: bytes) -> str:
    """Return the library that wrote a file.

    Raises:
        ConversionError: It is none of theirs, or of a newer version.
    """
    suffix = path.suffix
    if suffix == ".skops":
        return "skops"
    if suffix == ".cbm":
        if start[:4] != b"CBM1":
            raise _strange(path, "a model of CatBoost, which begins with CBM1", start)
        return "catboost"
    if suffix == ".ubj":
        if start[:1] != b"{":
            raise _strange(path, "a model of XGBoost in UBJSON, which begins with {", start)
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - _END, 0))
            found = _UBJSON_VERSION.search(file.read())
        _refuse_newer(path, [int(part[0]) for part in found.groups()] if found else None)
        return "xgboost"
    if suffix == ".txt":
        lines = start.split(b"\n")
        if lines[0].strip() != b"tree":
            raise _strange(path, "a model of LightGBM, whose first line is `tree`", start)
        version = b"".join(lines[1:2]).partition(b"=")[2].decode("ascii", "replace").strip()
        if version not in _LIGHTGBM_VERSIONS:
            raise ConversionError(
                f"`{path.name}` has the version {version!r} of LightGBM's format, expected "
                f"{_LIGHTGBM_VERSIONS[-1]} or older",
                hint="save it again: lightgbm.Booster(model_file=...).save_model(...) of LightGBM 4",
            )
        return "lightgbm"
    return _of_json(path, start)


def _of_json(path: Path, data: bytes) -> str:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConversionError(
            f"`{path.name}` is no JSON: {error}", hint="save the model again: model.save_model('model.json')"
        ) from error
    if isinstance(found, dict) and "oblivious_trees" in found:
        return "catboost"
    if not isinstance(found, dict) or not isinstance(found.get("learner"), dict):
        raise _strange(path, "a model of XGBoost (with `learner`) or CatBoost (with `oblivious_trees`)", data[:32])
    _refuse_newer(path, found.get("version"))
    return "xgboost"


def _refuse_newer(path: Path, version: Any) -> None:
    """Refuse a booster of a newer XGBoost than that which is installed: its reader ignores what it does not know."""
    if find_spec("xgboost") is None or not isinstance(version, list) or not version or not isinstance(version[0], int):
        return
    own = str(import_module("xgboost").__version__)
    if version[0] > int(own.partition(".")[0]):
        raise ConversionError(
            f"`{path.name}` was written by XGBoost {'.'.join(map(str, version))}, and {own} is installed",
            hint=f'pip install "xgboost>={version[0]}"',
        )


def _strange(path: Path, expected: str, start: bytes) -> ConversionError:
    return ConversionError(
        f"`{path.name}` is not {expected}: it begins with {start[:16]!r}",
        hint="save the model again with its library's save_model, or export it as .onnx",
    )


def _try(library: str, path: Path) -> None:
    """Let a library read a file in another process.

    Raises:
        ConversionError: It failed, or the process ended.
    """
    command = [sys.executable, "-c", _OPEN[library], str(path.resolve()), path.suffix.removeprefix(".")]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_TRIAL_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ConversionError(
            f"{library} does not read `{path.name}` within {_TRIAL_S} s", hint="save the model again"
        ) from error
    if done.returncode:
        lines = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines()]
        said = next(
            (line for line in reversed(lines) if "Error" in line or "Check failed" in line or "Fatal" in line), ""
        )
        raise ConversionError(
            f"{library} cannot read `{path.name}`: {said[:200] or f'its reader ended with {done.returncode}'}",
            hint=f"the file is damaged or of another version of {library}: save it again with save_model",
        )


def _of_xgboost(path: Path) -> Any:
    import xgboost

    booster = xgboost.Booster(model_file=str(path))
    goal = str(json.loads(booster.save_config())["learner"]["objective"]["name"])
    is_classifier = goal.partition(":")[0] in ("binary", "multi")
    made = (xgboost.XGBClassifier if is_classifier else xgboost.XGBRegressor)()
    made.load_model(str(path))
    return made


def _of_lightgbm(path: Path) -> Any:
    import lightgbm

    return lightgbm.Booster(model_file=str(path))


def _of_catboost(path: Path) -> Any:
    import catboost as library

    format_ = path.suffix.removeprefix(".")
    made = library.CatBoostClassifier()
    made.load_model(str(path), format=format_)
    if len(made.classes_):
        return made
    made = library.CatBoostRegressor()
    made.load_model(str(path), format=format_)
    return made


def _of_skops(path: Path) -> Any:
    """Read a file of skops; types that it does not trust by itself are refused, but for trees, which are checked.

    Raises:
        ConversionError: The file is damaged, or holds other types.
    """
    import skops.io

    try:
        strange = sorted({*skops.io.get_untrusted_types(file=path)} - {*_TRUSTED})
        made = None if strange else skops.io.load(path, trusted=_TRUSTED)
    except Exception as error:  # zipfile, json and skops have many classes
        raise ConversionError(
            f"skops cannot read `{path.name}`: {type(error).__name__}: {str(error)[:200]}",
            hint="save it again: skops.io.dump(model, 'model.skops')",
        ) from error
    if strange:
        raise ConversionError(
            f"`{path.name}` holds types that skops does not trust: {', '.join(strange[:5])}",
            hint=_hint_of(strange, path),
        )
    file_trees.check_trees(made, path.name)
    return made


def _hint_of(strange: Sequence[str], path: Path) -> str:
    """Return what to type where a file holds types that nothing checks."""
    load = f"skops.io.load({path.name!r}, trusted={[*_TRUSTED, *strange]})"
    if all(one.startswith("sklearn.") for one in strange):
        return f"of a file that you trust: in a module, def model(): return {load}; convert module:model"
    return f"look at these types; of a file that you trust: def model(): return {load}, and convert module:model"


_READERS = {"xgboost": _of_xgboost, "lightgbm": _of_lightgbm, "catboost": _of_catboost}
