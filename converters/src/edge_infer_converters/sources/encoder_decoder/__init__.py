"""Hugging Face folders of models with an encoder and a decoder: written as two ONNX graphs, without torch."""
