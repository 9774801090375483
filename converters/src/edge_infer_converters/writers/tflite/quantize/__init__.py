"""Quantized TFLite, written directly: fewer bits for weights (`weights`), integer arithmetic (`activations`)."""
