"""Search for the precision of each layer within a budget of size or quality."""
