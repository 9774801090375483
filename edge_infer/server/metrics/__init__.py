"""Measurements of the server: Prometheus metrics, statistics, the access log, traces."""
