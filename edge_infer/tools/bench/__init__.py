"""Benchmarks of a bundle: each engine in fresh processes, the page in a real Chromium."""
