"""The dev server: page, weights, wheel and inference over HTTP (extra `edge-infer[server]`).

Imported by `edge-infer serve` and by whatever drives a browser; nothing else of edge_infer imports it.
"""
