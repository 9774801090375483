"""Export a fitted scikit-learn estimator by skl2onnx: one float32 input `x`, plain tensors out.

Probabilities come as an array and not as a list of dicts (ZipMap), which no engine of the page or of a device takes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from edge_infer.errors import ConversionError
from edge_infer_converters.sources.made import first_of

if TYPE_CHECKING:
    from pathlib import Path

_OPSET = 20


def takes(made: object) -> bool:
    """Tell whether an object is a fitted estimator with scikit-learn's interface."""
    first = first_of(made)
    return hasattr(first, "n_features_in_") and hasattr(first, "get_params")


def export(made: object, path: Path, where: str, opset: int | None = None) -> None:
    """Export an estimator.

    Args:
        made: A fitted scikit-learn estimator or pipeline over numbers.
        path: The `.onnx` file to write.
        where: What the user calls it.
        opset: The operator set to write, or None for one that suits.

    Raises:
        ConversionError: skl2onnx is not installed, or does not know the estimator.
    """
    estimator: Any = first_of(made)
    try:
        skl2onnx = import_module("skl2onnx")
        types = import_module("skl2onnx.common.data_types")
    except ImportError as error:
        raise ConversionError(
            "Exporting from scikit-learn needs skl2onnx, which is not installed",
            hint='pip install "edge-infer-converters[sklearn]"',
        ) from error
    inputs = [("x", types.FloatTensorType([None, int(estimator.n_features_in_)]))]
    options = {id(estimator): {"zipmap": False}} if hasattr(estimator, "predict_proba") else None
    try:
        opsets = {"": opset or _OPSET, "ai.onnx.ml": 3}
        model = skl2onnx.to_onnx(estimator, initial_types=inputs, options=options, target_opset=opsets)
    except Exception as error:  # skl2onnx has many classes of its own
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        kind = type(estimator).__name__
        raise ConversionError(f"skl2onnx cannot export `{where}` ({kind}): {said}") from error
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.shape.dim:
            value.type.tensor_type.shape.dim[0].dim_param = "batch"
    path.write_bytes(model.SerializeToString())
