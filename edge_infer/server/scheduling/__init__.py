"""Scheduling: which requests run together, in which order, and which are refused. No HTTP, no threads, no clock."""
