"""From raw data to an answer: what stands between a text and a model's tensors."""
