"""Measure variants: quality, latency, saturation, batches."""
