"""Calibration and evaluation data, labels, golden examples."""
