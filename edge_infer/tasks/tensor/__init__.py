"""Steps of plain tensors: constants, shapes, frames, quantization, small graphs."""
