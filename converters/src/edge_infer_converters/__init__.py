"""Convert models."""
