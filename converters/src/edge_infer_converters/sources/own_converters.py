"""What exports the estimators that skl2onnx does not know, or writes wrongly: its custom converters."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace
from typing import Any

from edge_infer.errors import ConversionError
from edge_infer_converters.sources import histogram_trees, normal_quantiles
from edge_infer_converters.sources.lookup import Lookup, trees_of


def own_converters(types: Any) -> tuple[dict[type, Any], dict[type, Any]]:
    """Return what exports the estimators that skl2onnx does not: functions, and those of the shapes.

    Args:
        types: The types of skl2onnx (`skl2onnx.common.data_types`).
    """
    from sklearn import feature_selection
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.preprocessing import PowerTransformer, QuantileTransformer

    def lookup(scope: Any, operator: Any, container: Any) -> None:
        container.add_node(
            "TreeEnsembleRegressor",
            [operator.inputs[0].full_name],
            operator.outputs[0].full_name,
            op_domain="ai.onnx.ml",
            op_version=3,
            name=scope.get_unique_operator_name("Lookup"),
            **trees_of(operator.raw_operator),
        )

    def table(operator: Any) -> None:
        operator.outputs[0].type = types.FloatTensorType([None, operator.raw_operator.width])

    def classes(operator: Any) -> None:
        names = operator.raw_operator.classes_
        kind = types.StringTensorType if names.dtype.kind in "OUS" else types.Int64TensorType
        operator.outputs[0].type = kind([None])
        operator.outputs[1].type = types.FloatTensorType([None, len(names)])

    def value(operator: Any) -> None:
        operator.outputs[0].type = types.FloatTensorType([None, 1])

    def same(operator: Any) -> None:
        operator.outputs[0].type = types.FloatTensorType(operator.inputs[0].type.shape)

    def selection(scope: Any, operator: Any, container: Any) -> None:
        chosen = [int(place) for place in operator.raw_operator.get_support(indices=True)]
        name = scope.get_unique_variable_name("columns")
        container.add_initializer(name, 7, [len(chosen)], chosen)
        given, made = operator.inputs[0].full_name, operator.outputs[0].full_name
        own = scope.get_unique_operator_name("Columns")
        container.add_node("ArrayFeatureExtractor", [given, name], made, op_domain="ai.onnx.ml", name=own)

    def selected(operator: Any) -> None:
        made, given = operator.raw_operator, operator.inputs[0].type
        count = int(made.get_support().sum())
        if not count:
            kind = type(made).__name__
            raise ConversionError(
                f"{kind} selects none of its {len(made.get_support())} columns, so that nothing is left",
                hint=f"fit {kind} with a weaker limit, such as SelectKBest(k=1)",
            )
        operator.outputs[0].type = type(given)([None, count])

    trees = (HistGradientBoostingClassifier, HistGradientBoostingRegressor)
    functions = {Lookup: lookup, QuantileTransformer: normal_quantiles.convert, PowerTransformer: _power}
    functions |= dict.fromkeys(trees, histogram_trees.convert)
    # With column 0 alone, that of skl2onnx fails.
    selectors = [kind for kind in vars(feature_selection).values() if hasattr(kind, "get_support")]
    functions |= dict.fromkeys(selectors, selection)
    shapes = {Lookup: table, trees[0]: classes, trees[1]: value, QuantileTransformer: same, PowerTransformer: same}
    return functions, shapes | dict.fromkeys(selectors, selected)


def _power(scope: Any, operator: Any, container: Any) -> None:
    """Write a PowerTransformer that leaves missing values as they are; that of skl2onnx gives them numbers."""
    known = import_module("skl2onnx.operator_converters.power_transformer")
    given, made = operator.inputs[0].full_name, operator.outputs[0].full_name
    power, missing = (scope.get_unique_variable_name(name) for name in ("power", "missing"))
    inner = SimpleNamespace(
        raw_operator=operator.raw_operator, inputs=operator.inputs, outputs=[SimpleNamespace(full_name=power)]
    )
    known.convert_powertransformer(scope, inner, container)
    opset = container.target_opset
    container.add_node("IsNaN", [given], missing, op_version=opset, name=scope.get_unique_operator_name("IsNaN"))
    container.add_node(
        "Where", [missing, given, power], made, op_version=opset, name=scope.get_unique_operator_name("Where")
    )
