"""Run `python -m edge_infer_converters`: the same as `edge-infer convert`."""

import sys

from edge_infer.cli import main

if __name__ == "__main__":
    sys.argv.insert(1, "convert")
    main()
