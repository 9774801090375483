"""Write `family_logits.json`: what transformers computes of the folders of `hub_folders`, for quick tests without it.

PYTHONPATH=.bench/transformers:. python tests/support/generation/record_family_logits.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

TOKENS = [1, 17, 250, 33, 4, 99, 180, 301, 12, 5, 64, 77, 210, 8, 150, 3]
#: Every so many logits of the last tokens are kept.
STEP, ROWS = 16, 2


def main() -> None:
    """Compute and write the logits."""
    import torch
    import transformers

    from tests.support.generation.hub_folders import CONFIGS, write_folder

    found: dict[str, Any] = {"made_with": f"transformers {transformers.__version__}", "tokens": TOKENS}
    for family in CONFIGS:
        with tempfile.TemporaryDirectory() as folder:
            write_folder(Path(folder), family)
            model = (
                transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval().float()
            )
            with torch.no_grad():
                logits = model(torch.tensor([TOKENS]), use_cache=False).logits[0, -ROWS:, ::STEP]
        found[family] = [[float(f"{one:.7g}") for one in row] for row in logits.tolist()]
    path = Path(__file__).with_name("family_logits.json")
    path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
