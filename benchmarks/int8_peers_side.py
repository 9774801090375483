"""Conversions to static int8 by peers, in their own environment: for `int8_peers.py`.

    PYTHON int8_peers_side.py RESULTS.jsonl < JOBS.json

JOBS is a list of `[peer, source, target, samples]`. A line of RESULTS is `[target, seconds, start, error]`: the
processor's seconds of the conversion alone, those of the process until its first one began, and what went wrong.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Batches:
    """The samples one by one, each with a label that nobody reads, as these peers want them."""

    batch_size = 1

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self._arrays = arrays
        self._count = len(next(iter(arrays.values())))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> tuple[dict[str, np.ndarray], int]:
        return {name: array[place : place + 1] for name, array in self._arrays.items()}, 0

    def __iter__(self) -> Iterator[tuple[dict[str, np.ndarray], int]]:
        return (self[place] for place in range(self._count))


def olive(source: Path, target: Path, batches: Batches, **options: Any) -> Callable[[], None]:
    """Olive's pass OnnxStaticQuantization with its defaults, and these options."""
    from olive.data.config import DataConfig
    from olive.data.registry import Registry
    from olive.model import ONNXModelHandler
    from olive.passes.olive_pass import create_pass_from_dict
    from olive.passes.onnx.quantization import OnnxStaticQuantization

    Registry.register_dataset("given_samples")(lambda **_: batches)
    Registry.register_dataloader("one_by_one")(lambda dataset, **_: dataset)
    data = DataConfig(
        name="samples",
        type="DataContainer",
        load_dataset_config={"type": "given_samples"},
        dataloader_config={"type": "one_by_one"},
        pre_process_data_config={"type": "skip_pre_process"},
        post_process_data_config={"type": "skip_post_process"},
    )

    def convert() -> None:
        made = create_pass_from_dict(OnnxStaticQuantization, {"data_config": data, **options}, disable_search=True)
        found = made.run(ONNXModelHandler(str(source)), str(target.with_suffix("")))
        shutil.copy(found.model_path, target)

    return convert


def compressor(source: Path, target: Path, batches: Batches, **options: Any) -> Callable[[], None]:
    """Intel's Neural Compressor, static, with its defaults, and these options."""
    from neural_compressor import PostTrainingQuantConfig, quantization

    def convert() -> None:
        settings = PostTrainingQuantConfig(approach="static", calibration_sampling_size=[len(batches)], **options)
        found = quantization.fit(str(source), settings, calib_dataloader=batches)
        if found is None:
            raise RuntimeError("no model meets the goal")
        found.save(str(target))

    return convert


def litert(source: Path, target: Path, batches: Batches, package: str) -> Callable[[], None]:
    """The static recipe of litert-quantizer, or of ai-edge-quantizer before it."""
    from ai_edge_litert.interpreter import Interpreter

    quantizer, recipe = import_module(f"{package}.quantizer"), import_module(f"{package}.recipe")

    def convert() -> None:
        key, signature = next(iter(Interpreter(str(source)).get_signature_list().items()))
        calls = [dict(zip(signature["inputs"], call.values(), strict=True)) for call, _ in batches]
        made = quantizer.Quantizer(str(source), recipe.static_wi8_ai8())
        made.quantize(made.calibrate({key: calls})).export_model(str(target))

    return convert


PEERS: dict[str, Callable[[Path, Path, Batches], Callable[[], None]]] = {
    "Olive": olive,
    "Olive by channel": lambda *given: olive(*given, per_channel=True),
    "INC": compressor,
    "INC as QDQ": lambda *given: compressor(*given, quant_format="QDQ"),
    "litert-quantizer": lambda *given: litert(*given, "litert_quantizer"),
    "ai-edge-quantizer": lambda *given: litert(*given, "ai_edge_quantizer"),
}


def main() -> None:
    begun = 0.0
    with Path(sys.argv[1]).open("w") as results:
        for peer, source, target, samples in json.load(sys.stdin):
            error, seconds = "", 0.0
            try:
                with np.load(samples) as archive:
                    convert = PEERS[peer](Path(source), Path(target), Batches(dict(archive)))
                start = time.process_time()
                begun = begun or start
                convert()
                seconds = time.process_time() - start
            except (Exception, SystemExit) as problem:  # whatever they raise
                error = f"{type(problem).__name__}: {problem}"[:120]
            print(json.dumps([target, seconds, begun, error]), file=results, flush=True)


if __name__ == "__main__":
    main()
