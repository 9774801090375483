"""A model on a server as a backend, over the Open Inference Protocol v2."""
