"""`python -m edge_infer` is `edge-infer`."""

from edge_infer.cli import main

main()
