"""Convert the digits model into every variant, and compare size and accuracy.

    python examples/02_convert_and_compare.py

Needs: pip install edge-infer edge-infer-converters
"""

from __future__ import annotations

import argparse
import logging
import tempfile
from pathlib import Path

from edge_infer_converters import convert

DIGITS = Path(__file__).parent / "digits"


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    logging.basicConfig(level=logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        result = convert(
            DIGITS / "digits.onnx",
            Path(folder) / "digits.bundle",
            calibration=DIGITS / "calibration.npz",  # typical inputs: they set the ranges of int8
            evaluation=DIGITS / "eval.npz",  # images held out, and the right answers
            labels=DIGITS / "labels.json",
        )

    source = (DIGITS / "digits.onnx").stat().st_size
    print(f"{'variant':12} {'size':>9} {'of source':>9} {'accuracy':>9} {'SQNR':>7}  engine")
    for one in result.variants:
        quality = one.quality
        print(
            f"{one.variant.id:12} {one.nbytes / 1000:6.1f} kB {one.nbytes / source:9.0%} "
            f"{quality.accuracy or 0:9.2%} {quality.parity.sqnr_db:4.0f} dB  {quality.engine.split()[0]}"
        )


if __name__ == "__main__":
    main()
