"""Drift and data quality: counters that add up, compared with a reference that the bundle holds."""
