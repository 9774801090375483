"""Write docs/reference/estimators.md: fit, export and compare every estimator of scikit-learn, and the boosters.

    python docs/estimators.py

It takes some minutes, so that docs/generate.py leaves it out; `tests/project/test_estimators_page.py` compares.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from edge_infer.errors import EdgeInferError
from edge_infer_converters.compilation import compile_table
from edge_infer_converters.sources import boosting, catboost, onnx, sklearn
from edge_infer_converters.support import tflite_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edge_infer_converters.sources.framework import Framework

PAGE = Path(__file__).parent / "reference" / "estimators.md"
ROWS, COLUMNS, CHECKED, TREES = 200, 5, 1000, 20
_HEAD = """\
<!-- Written by docs/estimators.py; do not edit. -->

# Estimators

Each estimator below was fitted on 200 rows of 5 columns, ensembles with 20 members where they would have more (the two
classifiers that are forests with their 100), and exported; 1000 other rows were answered by its library and
by the ONNX file. Labels must be the same on all of them (equal); the number is the bound of the largest difference of
any other value, relative to the largest of its output. *TFLite* and *compiled* say whether the export can be written
so too. Estimators that answer no new rows, or that take other things than a table of numbers (texts, images,
distances), are not here. scikit-learn {versions}.

"""


def data() -> dict[str, np.ndarray]:
    """Return what estimators are fitted on."""
    chance = np.random.default_rng(0)
    x = chance.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    score = x[:, 0] + x[:, 1] * x[:, 2]
    classes = (score > 0).astype(int) + (score > 1)
    both = np.stack([score, x[:, 3]], 1)
    return {"x": x, "y": score, "classes": classes, "both": both, "positive": np.abs(x), "whole": np.floor(np.abs(x))}


def _inner() -> dict[str, Any]:
    """Return the arguments of estimators that hold others, or that need some."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.preprocessing import StandardScaler

    named = [("a", LogisticRegression()), ("b", RandomForestClassifier(5, random_state=0))]
    values = [("a", Ridge()), ("b", Ridge(alpha=5))]
    one, other = {"estimator": LogisticRegression()}, {"estimator": Ridge()}
    made: dict[str, Any] = dict.fromkeys(
        ("CalibratedClassifierCV", "ClassifierChain", "FixedThresholdClassifier", "MultiOutputClassifier", "RFE"), one
    )
    made |= dict.fromkeys(
        ("OneVsOneClassifier", "OneVsRestClassifier", "OutputCodeClassifier", "RFECV", "SelectFromModel"), one
    )
    made |= dict.fromkeys(("MultiOutputRegressor", "RegressorChain"), other)
    made |= dict.fromkeys(("SelfTrainingClassifier", "TunedThresholdClassifierCV"), one)
    made["GridSearchCV"] = {**one, "param_grid": {"C": [0.1, 1.0]}}
    made["RandomizedSearchCV"] = {**one, "param_distributions": {"C": [0.1, 1.0]}, "n_iter": 2}
    made["StackingClassifier"] = {"estimators": named}
    made["VotingClassifier"] = {"estimators": named, "voting": "soft"}
    made["StackingRegressor"] = made["VotingRegressor"] = {"estimators": values}
    made["FeatureUnion"] = {"transformer_list": [("a", StandardScaler())]}
    made["Pipeline"] = {"steps": [("a", StandardScaler()), ("b", LogisticRegression())]}
    made["ColumnTransformer"] = {"transformers": [("a", StandardScaler(), [0, 2]), ("b", "passthrough", [1])]}
    made["TransformedTargetRegressor"] = {"regressor": Ridge()}
    made["SparseCoder"] = {"dictionary": np.eye(COLUMNS, dtype=np.float32)}
    made["SVC"] = made["NuSVC"] = {"random_state": 0}
    return made


_POSITIVE = ("ComplementNB", "MultinomialNB", "NMF", "MiniBatchNMF", "LatentDirichletAllocation", "AdditiveChi2Sampler")
_WHOLE = ("CategoricalNB", "OneHotEncoder", "OrdinalEncoder", "TargetEncoder")
_VOTES = ("ExtraTreesClassifier", "RandomForestClassifier")  # those of few trees are even for some rows
_TWO = ("TunedThresholdClassifierCV", "FixedThresholdClassifier", "ClassifierChain", "MultiOutputClassifier")


def fitted() -> Iterator[tuple[str, Any, np.ndarray]]:
    """Give each fitted estimator with its name and the rows it was fitted on."""
    from sklearn.utils import all_estimators

    known, arguments = data(), _inner()
    for name, kind in all_estimators():
        x = known["positive" if name in _POSITIVE else "whole" if name in _WHOLE else "x"]
        two = (known["classes"] > 0).astype(int)
        targets = [known["classes"], known["y"], known["both"], np.abs(known["y"]) + 0.1]
        targets = [np.stack([two, two], 1)] if name in ("ClassifierChain", "MultiOutputClassifier") else targets
        targets = [two] if name in _TWO[:2] else targets
        is_regressor = (
            "Regress" in name or "Lasso" in name or name.endswith(("SVR", "Ridge", "RidgeCV", "Net", "NetCV"))
        )
        for y in targets[1:] if is_regressor else targets:
            try:
                made = kind(**arguments.get(name, {}))
                if "random_state" in made.get_params():
                    made.set_params(random_state=0)
                many = "max_iter" if name.startswith("HistGradient") else "n_estimators"
                if name not in _VOTES and made.get_params().get(many, 0) > TREES:
                    made.set_params(**{many: TREES})
                made.fit(x, y)
                if not any(hasattr(made, one) for one in ("predict", "transform", "score_samples")):
                    break
                getattr(made, "predict", getattr(made, "transform", None))(x[:2])
            except Exception:  # it takes something else
                continue
            yield name, made, x
            break


def boosters() -> Iterator[tuple[str, Any, np.ndarray]]:
    """Give the fitted boosters."""
    import catboost
    import lightgbm
    import xgboost

    known = data()
    more = {
        lightgbm: {"n_estimators": TREES, "verbose": -1, "n_jobs": 1},
        xgboost: {"n_estimators": TREES, "n_jobs": 1},
        catboost: {"iterations": TREES, "verbose": 0, "allow_writing_files": False, "thread_count": 1},
    }
    for library, arguments in more.items():
        for end, y in (("Classifier", known["classes"]), ("Regressor", known["y"])):
            for start in ("LGBM", "XGB", "XGBRF", "CatBoost"):
                if kind := getattr(library, f"{start}{end}", None):
                    yield f"{library.__name__}.{start}{end}", kind(**arguments).fit(known["x"], y), known["x"]


def row(name: str, made: Any, x: np.ndarray) -> str:
    """Export an estimator, compare it, and return its line of the table."""
    exporter = next((one for one in (catboost, boosting) if one.takes(made)), sklearn)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{name}.onnx")
        try:
            framework = exporter.export(made, path, name)
            source = onnx.load_export(path, framework, name)
        except EdgeInferError as error:
            return f"| {name} | - | {_reason(error)} | - | - |"
        said = "not compared" if framework is None else _difference(framework, path, x)
        proto = source.cleaned(None, prunes=False)[0].proto
        writable = [_can(lambda: tflite_graph(proto, ("any",), name)), _can(lambda: compile_table(proto))]
        return " | ".join([f"| {name}", "yes", said, *("yes" if one else "-" for one in writable)]) + " |"


def _reason(error: EdgeInferError) -> str:
    text = error.message.partition("): ")[2] or error.message
    text = "skl2onnx has no converter" if "Unable to find a shape calculator" in text else text
    text = re.sub(r"Load model from \S+ failed:", "", re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : ", "", text))
    return " ".join(text.replace("|", "/").replace("`", "").split())[:90].strip()


def _can(write: Callable[[], object]) -> bool:
    try:
        write()
    except EdgeInferError:
        return False
    return True


def _difference(framework: Framework, path: Path, x: np.ndarray) -> str:
    import onnxruntime

    chance = np.random.default_rng(7)
    rows = x[chance.integers(0, len(x), CHECKED), :].copy()
    if (x % 1).any():
        rows = (rows + np.abs(chance.normal(0, 0.2, rows.shape))).astype(np.float32)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rows = rows[:, : session.get_inputs()[0].shape[1]]  # columns that no step reads are not taken
    ours = session.run(None, {"x": rows})
    worst, unequal = 0.0, 0
    for one, other in zip(ours, framework.run({"x": rows}), strict=True):
        if one.dtype.kind == "f":
            scale = float(np.abs(other).max()) or 1.0
            worst = max(worst, float(np.abs(one - other).max()) / scale)
        else:
            unequal += int((one != other).sum())
    bound = next((one for one in ("1e-6", "1e-5", "1e-4", "1e-3") if worst <= float(one)), f"{worst:.0e}")
    return f"{'equal' if not unequal else f'{unequal} labels differ'}, {bound}"


def page() -> str:
    """Return the page."""
    import sklearn as library

    lines = ["| estimator | ONNX | difference | TFLite | compiled |", "|---|---|---|---|---|"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, made, x in (*fitted(), *boosters()):
            sys.stderr.write(f"{name}\n")
            lines.append(row(name, made, x))
    return _HEAD.format(versions=library.__version__) + "\n".join(lines) + "\n"


def main(target: TextIO | None = None) -> None:
    """Write the page, into its file where no other place is given."""
    if target is not None:
        target.write(page())
        return
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
