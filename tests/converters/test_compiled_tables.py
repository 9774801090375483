"""Models over tables, compiled: scikit-learn's own labels, its numbers within 1e-6, and onnxruntime's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import edge_infer
from edge_infer.errors import AccuracyError, UnsupportedModel, UnsupportedOperator
from edge_infer_converters import convert
from edge_infer_converters.compilation import compile_table
from edge_infer_converters.compile_command import compile_
from edge_infer_converters.measure.compiled_check import Image
from edge_infer_converters.sources import sklearn
from edge_infer_converters.writers.compiled.tables import nodes

if TYPE_CHECKING:
    from pathlib import Path

datasets = pytest.importorskip("sklearn.datasets")
pytest.importorskip("skl2onnx")


def estimators() -> dict[str, Any]:
    from sklearn import cluster, ensemble, linear_model, neural_network, pipeline, preprocessing, svm, tree

    scaled = pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression())
    return {
        "tree": tree.DecisionTreeClassifier(random_state=0),
        "forest": ensemble.RandomForestClassifier(10, random_state=0),
        "boosting": ensemble.GradientBoostingClassifier(n_estimators=8, random_state=0),
        "logistic": linear_model.LogisticRegression(max_iter=1000),
        "scaled": scaled,
        "normalized": pipeline.make_pipeline(preprocessing.Normalizer(), linear_model.LogisticRegression()),
        "linear machine": svm.LinearSVC(random_state=0),
        "machine": svm.SVC(probability=True, random_state=0),
        "means": cluster.KMeans(3, n_init=2, random_state=0),
        "network": neural_network.MLPClassifier((8,), max_iter=60, random_state=0),
    }


def regressors() -> dict[str, Any]:
    from sklearn import ensemble, linear_model, svm, tree

    return {
        "tree": tree.DecisionTreeRegressor(random_state=0),
        "forest": ensemble.RandomForestRegressor(8, random_state=0),
        "boosting": ensemble.GradientBoostingRegressor(n_estimators=8, random_state=0),
        "linear": linear_model.LinearRegression(),
        "machine": svm.SVR(),
    }


def exported(estimator: Any, folder: Path) -> onnx.ModelProto:
    path = folder / "model.onnx"
    sklearn.export(estimator, path, "the estimator")
    return onnx.load(path)


def answers(model: onnx.ModelProto, rows: np.ndarray) -> list[np.ndarray]:
    """What the compiled model gives for each row, by output."""
    compiled, checked = compile_table(model)
    assert checked.startswith("equal to onnxruntime")
    image = Image(compiled)
    results = [image.run({"x": row[np.newaxis]}) for row in rows]
    return [np.concatenate([result[one.name] for result in results]) for one in compiled.program.outputs]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("classes", [pytest.param(2, marks=pytest.mark.long), 3])
@pytest.mark.parametrize("name", [*estimators()])
def test_a_classifier_gives_the_labels_and_numbers_of_scikit_learn(name: str, classes: int, tmp_path: Path) -> None:
    rows, wanted = datasets.load_iris(return_X_y=True)
    kept = wanted < classes if classes == 3 else wanted > 0
    rows, wanted = rows[kept].astype(np.float32), wanted[kept] + 10
    estimator = estimators()[name].fit(rows, wanted)

    labels, scores = answers(exported(estimator, tmp_path), rows)

    np.testing.assert_array_equal(labels.reshape(-1), estimator.predict(rows))
    method = next(one for one in ("predict_proba", "decision_function", "transform") if hasattr(estimator, one))
    numbers = np.asarray(getattr(estimator, method)(rows))
    if numbers.ndim == 1:  # of two classes, the second's
        scores = scores.reshape(len(rows), -1)[:, -1]
    limit = 5e-6 if name in ("machine", "means") else 1e-6
    assert np.sqrt(np.mean((scores.reshape(numbers.shape) - numbers) ** 2)) <= limit * np.sqrt(np.mean(numbers**2))


def test_the_sign_of_nothing_is_nothing(tmp_path: Path) -> None:
    smallest, largest = np.float32(1e-45), np.finfo(np.float32).max
    rows = np.array([[0.0, -0.0, 1e-30], [smallest, -smallest, 0.5], [-np.inf, np.inf, -largest]], np.float32)
    node = helper.make_node("Sign", ["x"], ["y"])
    shapes = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None, 3]) for name in "xy"]
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(
        helper.make_graph([node], "g", shapes[:1], shapes[1:]), opset_imports=[opset], ir_version=8
    )

    (signs,) = answers(model, rows)

    np.testing.assert_array_equal(signs.reshape(rows.shape), np.sign(rows))


@pytest.mark.parametrize("name", [*regressors()])
def test_a_regressor_gives_the_numbers_of_scikit_learn(name: str, tmp_path: Path) -> None:
    rows, wanted = datasets.load_diabetes(return_X_y=True)
    rows = rows[:200].astype(np.float32)
    estimator = regressors()[name].fit(rows, wanted[:200])

    (numbers,) = answers(exported(estimator, tmp_path), rows)

    want = estimator.predict(rows)
    assert np.sqrt(np.mean((numbers.reshape(-1) - want) ** 2)) <= 1e-6 * np.sqrt(np.mean(want**2))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_trees(data: st.DataObject) -> None:
    """Every comparison, missing values, several targets, several trees: as onnxruntime."""
    import onnxruntime

    columns, targets, trees = 3, data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    made: dict[str, Any] = {f"nodes_{name}": [] for name in names} | {"nodes_missing_value_tracks_true": []}
    made |= {f"target_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    modes = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
    for tree in range(trees):
        branches = data.draw(st.integers(0, 5))
        for node in range(2 * branches + 1):
            is_leaf = node >= branches
            row = (
                tree,
                node,
                data.draw(st.integers(0, columns - 1)),
                "LEAF" if is_leaf else data.draw(st.sampled_from(modes)),
            )
            ends = (0, 0) if is_leaf else (2 * node + 1, 2 * node + 2)
            for name, value in zip(names, (*row, float(data.draw(st.integers(-1, 1))), *ends), strict=True):
                made[f"nodes_{name}"].append(value)
            made["nodes_missing_value_tracks_true"].append(int(not is_leaf and data.draw(st.booleans())))
            if is_leaf:
                for name, value in zip(
                    ("treeids", "nodeids", "ids", "weights"),
                    (tree, node, data.draw(st.integers(0, targets - 1)), float(data.draw(st.integers(-9, 9)))),
                    strict=True,
                ):
                    made[f"target_{name}"].append(value)
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=targets, **made)
    model = one_node(node, columns, targets)
    rows = np.array(
        [[data.draw(st.sampled_from([-1.0, 0.0, 1.0, 0.5, np.nan])) for _ in range(columns)] for _ in range(8)],
        np.float32,
    )

    (numbers,) = answers(model, rows)

    (want,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": rows})
    np.testing.assert_array_equal(numbers, want)


def one_node(node: onnx.NodeProto, columns: int, targets: int) -> onnx.ModelProto:
    x, y = (
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", size])
        for name, size in (("x", columns), ("y", targets))
    )
    graph = helper.make_graph([node], "one", [x], [y])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def test_a_bundle_has_the_compiled_variant_and_runs_batches(tmp_path: Path) -> None:
    rows, wanted = datasets.load_iris(return_X_y=True)
    estimator = estimators()["forest"].fit(rows, wanted)
    exported(estimator, tmp_path)

    made = convert(tmp_path / "model.onnx", tmp_path / "forest.bundle")

    assert "compiled/fp32" in {one.variant.id for one in made.variants if one.is_kept}
    with edge_infer.load(tmp_path / "forest.bundle", backend="compiled", arrays="numpy") as session:
        results = session.run({"x": rows[::7].astype(np.float32)})
    np.testing.assert_array_equal(results["label"], estimator.predict(rows[::7]))


def test_the_command_takes_the_file_and_the_bundle(tmp_path: Path) -> None:
    rows, wanted = datasets.load_iris(return_X_y=True)
    exported(estimators()["tree"].fit(rows, wanted), tmp_path)
    convert(tmp_path / "model.onnx", tmp_path / "tree.bundle")

    for source in ("model.onnx", "tree.bundle"):
        done = CliRunner().invoke(compile_, [str(tmp_path / source), "-o", str(tmp_path / "out"), "--json"])
        document = json.loads(done.stdout)
        assert document["checked"] == "equal to onnxruntime on 256 rows"
        assert document["layers"][0]["kernel"] == "trees"


@pytest.mark.parametrize("name", ["tree", "linear"])
def test_an_input_of_other_columns_than_the_model_reads_is_refused(name: str, tmp_path: Path) -> None:
    from sklearn import linear_model, tree

    rows, wanted = datasets.load_iris(return_X_y=True)
    made = {
        "tree": tree.DecisionTreeClassifier(random_state=0),
        "linear": linear_model.LogisticRegression(max_iter=1000),
    }[name]
    model = exported(made.fit(rows, wanted), tmp_path)
    columns = model.graph.input[0].type.tensor_type.shape.dim[1]
    columns.dim_value = 2
    said = r"read column 3, the input has 2" if name == "tree" else r"12 coefficients for 3 sums of 2 columns"
    with pytest.raises(UnsupportedOperator, match=said):
        compile_table(model)

    columns.ClearField("dim_value")
    with pytest.raises(UnsupportedModel, match="expected rows") as refused:
        compile_table(model)
    assert refused.value.hint.startswith(f"--shape x=?x{4 if name == 'tree' else 13},")


def test_what_is_not_supported_is_named_at_once(tmp_path: Path) -> None:
    rows, wanted = datasets.load_iris(return_X_y=True)
    from sklearn import neighbors, tree

    model = exported(neighbors.KNeighborsClassifier(3).fit(rows, wanted), tmp_path)
    with pytest.raises(UnsupportedOperator, match=r"`Scan`.*`TopK`"):
        compile_table(model)
    names = np.array(["setosa", "versicolor", "virginica"])[wanted]
    with pytest.raises(UnsupportedModel, match="`label` is a text") as refused:
        compile_table(exported(tree.DecisionTreeClassifier().fit(rows, names), tmp_path))
    assert "--labels" in refused.value.hint


@pytest.mark.parametrize(
    ("shape", "reason"), [([None, None], "rows of so many numbers"), ([4, 3], "4 rows"), ([3], "rows of so many")]
)
def test_other_inputs_are_refused(shape: list[int | None], reason: str) -> None:
    node = helper.make_node("Normalizer", ["x"], ["y"], domain="ai.onnx.ml", norm="L2")
    model = one_node(node, 3, 3)
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape))

    with pytest.raises(UnsupportedModel, match=reason):
        compile_table(model)


def test_a_model_that_contradicts_itself_is_refused() -> None:
    parts: dict[str, Any] = {"nodes_treeids": [0], "nodes_nodeids": [0], "nodes_featureids": [0]}
    parts |= {"nodes_modes": ["BRANCH_LEQ"], "nodes_values": [0.0], "nodes_truenodeids": [0], "nodes_falsenodeids": [5]}
    votes: dict[str, Any] = {"target_treeids": [0], "target_nodeids": [0], "target_ids": [0], "target_weights": [1.0]}
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, **parts, **votes)

    with pytest.raises(UnsupportedOperator, match="TreeEnsembleRegressor"):
        compile_table(one_node(node, 3, 1))


def test_other_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    node = helper.make_node("Normalizer", ["x"], ["y"], domain="ai.onnx.ml", norm="L2")
    monkeypatch.setitem(nodes._NORMS, "L2", 0)

    with pytest.raises(AccuracyError, match="differs from onnxruntime: `y`"):
        compile_table(one_node(node, 3, 3))


@pytest.mark.filterwarnings("ignore")
def test_a_label_keeps_the_type_that_the_model_says(tmp_path: Path) -> None:
    rows, wanted = datasets.load_iris(return_X_y=True)
    model = exported(estimators()["network"].fit(rows[wanted > 0], wanted[wanted > 0]), tmp_path)

    labels, _ = answers(model, rows[:3].astype(np.float32))
    assert labels.dtype == np.int64

    model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT32
    with pytest.raises(UnsupportedModel, match="`label` is of int32, and is computed in int64"):
        compile_table(model)
