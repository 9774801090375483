"""The models: each cuts one word into tokens of its vocabulary."""
