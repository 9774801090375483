"""LiteRT as a backend, through its Python packages."""
