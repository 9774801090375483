"""What the server counts and tells: Prometheus metrics, statistics, the access log, traces."""
