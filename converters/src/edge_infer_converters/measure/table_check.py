"""Compare a compiled model over tables with onnxruntime on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from edge_infer.errors import AccuracyError, BackendUnavailable, UnsupportedModel
from edge_infer_converters.measure.compiled_check import Image

if TYPE_CHECKING:
    import onnx

    from edge_infer_converters.writers.compiled.writer import Compiled

#: Floats may differ by so much of the root mean square of onnxruntime's output: it adds in float32.
MAX_ERROR = 1e-5
_ROWS = 256
_SEED = 21


def check(compiled: Compiled, model: onnx.ModelProto) -> str:
    """Compare a compiled model with the ONNX model that it was made of.

    Rows are drawn around the thresholds of its trees: at each, beside it, and between two. Labels must be equal.

    Args:
        compiled: The model.
        model: What it was made of.

    Returns:
        What was compared, in words; that nothing was where this CPU has no kernels.

    Raises:
        AccuracyError: They differ.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    (given,) = compiled.program.inputs
    rows = _rows(model, given.shape[1])
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_outputs()]
        wanted = dict(zip(names, session.run(None, {given.name: rows}), strict=True))
    except Exception as error:  # onnxruntime has classes of its own
        raise UnsupportedModel(
            f"onnxruntime, with which the compiled model is compared, does not run it: {str(error).strip()[:200]}",
            hint="export the model again",
        ) from error
    image = Image(compiled)
    try:
        results = [image.run({given.name: row[np.newaxis]}) for row in rows]
    except BackendUnavailable as error:
        return f"not compared with onnxruntime: {error.message}"
    for output in compiled.program.outputs:
        found = np.concatenate([result[output.name].reshape(1, -1) for result in results])
        want = np.asarray(wanted[output.name]).reshape(found.shape)
        if want.dtype.kind == "f":
            off = float(np.sqrt(np.mean((want - found) ** 2)) / max(float(np.sqrt(np.mean(want**2))), 1e-12))
            if off <= MAX_ERROR:
                continue
            said = f"by {off:.1e} of its root mean square, expected at most {MAX_ERROR:.0e}"
        elif (want == found).all():
            continue
        else:
            said = f"in {int((want != found).any(1).sum())} of {len(rows)} rows"
        raise AccuracyError(
            f"The compiled model differs from onnxruntime: `{output.name}` {said}",
            hint="use the .onnx file, and report the model",
        )
    return f"equal to onnxruntime on {len(rows)} rows"


def _rows(model: onnx.ModelProto, columns: int) -> np.ndarray:
    """Draw rows: normal numbers, and, where trees read a column, numbers around its thresholds."""
    rng = np.random.default_rng(_SEED)
    rows = rng.normal(size=(_ROWS, columns)).astype(np.float32)
    thresholds: dict[int, list[float]] = {}
    for node in model.graph.node:
        read = {one.name: one for one in node.attribute}
        if "nodes_values" in read:
            for column, value in zip(read["nodes_featureids"].ints, read["nodes_values"].floats, strict=True):
                thresholds.setdefault(column, []).append(value)
    for column, values in thresholds.items():
        if column < columns:
            known = np.array(values, np.float32)
            picked = rng.choice(known, _ROWS)
            beside = np.nextafter(picked, np.float32(np.inf))
            between = (picked + rng.choice(known, _ROWS)) / 2
            rows[:, column] = np.choose(rng.integers(0, 3, _ROWS), [picked, beside, between])
    return rows
