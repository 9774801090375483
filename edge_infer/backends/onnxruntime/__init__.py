"""ONNX Runtime as a backend: through its Python package, or its C interface by ctypes."""
