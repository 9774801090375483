"""Export a fitted CatBoost model by its own exporter: one float32 input `x`, plain tensors out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge_infer.errors import ConversionError, listed
from edge_infer_converters.engine import first_line
from edge_infer_converters.sources.made import first_of, libraries_of
from edge_infer_converters.sources.sklearn import of_estimator
from edge_infer_converters.sources.table import describe

if TYPE_CHECKING:
    from pathlib import Path

    from edge_infer_converters.sources.framework import Framework

_HINT = "fit it on numbers: an OrdinalEncoder or OneHotEncoder of scikit-learn makes numbers of categories"
_LABELS = "fit it on labels that are whole numbers or texts: y.astype(int) of booleans"
_NAMES = {"features": "x", "predictions": "variable"}


def takes(made: object) -> bool:
    """Tell whether an object is a model of CatBoost."""
    return "catboost" in libraries_of(made)


def export(made: object, path: Path, where: str, opset: int | None = None) -> Framework | None:  # noqa: ARG001
    """Export a model.

    Args:
        made: A fitted `CatBoostClassifier` or `CatBoostRegressor` over numbers.
        path: The `.onnx` file to write.
        where: What the user calls it.
        opset: Not read: newer ones are made by `passes.opset`.

    Returns:
        The model, to be compared with its export; None where its answers have another form.

    Raises:
        ConversionError: CatBoost does not export it, as one with categories or texts.
    """
    import onnx

    model: Any = first_of(made)
    if places := [*model.get_cat_feature_indices(), *model.get_text_feature_indices()]:
        named = listed([f"`{model.feature_names_[place]}`" for place in places[:8]])
        raise ConversionError(
            f"CatBoost cannot export `{where}` to ONNX: {named} are categorical features or texts", hint=_HINT
        )
    try:
        model.save_model(str(path), format="onnx")
        proto = onnx.load(path)
    except Exception as error:  # CatBoost has classes of its own
        said = first_line(error).rpartition(": ")[2]
        raise ConversionError(
            f"CatBoost cannot export `{where}` to ONNX: {said}", hint=_LABELS if "label" in said else _HINT
        ) from error
    _drop_maps(proto)
    for value in (*proto.graph.input, *proto.graph.output):
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    if not any(entry.domain == "" for entry in proto.opset_import):
        proto.opset_import.add(domain="", version=15)
    count = len(model.feature_names_)
    describe(proto, model, "catboost", count)
    path.write_bytes(proto.SerializeToString())
    return of_estimator("catboost", model, count, path)


def _drop_maps(proto: Any) -> None:
    """Replace, in place, lists of maps by their arrays, and give inputs and outputs the names of other exports."""
    import onnx

    names = dict(_NAMES)
    maps = [node for node in proto.graph.node if node.op_type == "ZipMap"]
    for node in maps:
        names[node.input[0]] = node.output[0]
        value = next(one for one in proto.graph.output if one.name == node.output[0])
        count = max(len(one.ints or one.strings) for one in node.attribute)
        value.CopyFrom(onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, [None, count]))
        proto.graph.node.remove(node)
    for value in proto.graph.output:
        if value.name == "predictions":
            value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, onnx.TensorProto.FLOAT, [None, 1]))
    for node in proto.graph.node:
        for side in (node.input, node.output):
            for place, name in enumerate(side):
                side[place] = names.get(name, name)
    for value in (*proto.graph.input, *proto.graph.output):
        value.name = names.get(value.name, value.name)
