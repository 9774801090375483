"""Steps of plain tensors."""
