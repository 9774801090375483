"""Steps of plain tensors: constants and quantization."""
