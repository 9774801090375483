"""Kernels of our own in C, built once for the page and for each CPU: what compiled models call."""
