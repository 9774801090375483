"""The names of model files in a folder of the Hugging Face Hub."""

from __future__ import annotations

#: The model files of a folder, the one that is taken first; the names are those of transformers.js and of optimum.
MODEL_FILES = tuple(
    f"{folder}model{suffix}.onnx"
    for suffix in ("", "_quantized", "_int8", "_uint8", "_fp16", "_q4", "_q4f16", "_bnb4")
    for folder in ("onnx/", "")
)
