"""Embeddings and top-k search: one index for Python and the page."""
