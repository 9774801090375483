"""Run golden examples on engines, and find the first node that differs."""
