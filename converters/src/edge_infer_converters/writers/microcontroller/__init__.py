"""Compiled models as C99 for microcontrollers: kernels, weights, one arena, and what tests them."""
