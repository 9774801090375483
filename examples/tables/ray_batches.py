"""Predict a table on several machines: a callable for Ray Data's `map_batches`, each worker with a pipeline of its own.

python examples/tables/ray_batches.py risk.bundle people.parquet answers
"""

from __future__ import annotations

import sys
from typing import Any

import edge_infer


class Predict:
    """Answers a batch; Ray makes one object for each worker.

    Args:
        bundle: The bundle, at a place that every machine reads.
    """

    def __init__(self, bundle: str) -> None:
        self._pipeline = edge_infer.pipeline(bundle, threads=1)

    def __call__(self, batch: Any) -> Any:
        """Return the batch with its answers.

        Args:
            batch: A table of pyarrow, as `batch_format="pyarrow"` gives it.
        """
        answers = self._pipeline.predict_table(batch)
        for name in answers.column_names:
            batch = batch.append_column(name, answers.column(name))
        return batch


def main() -> None:
    """Read, answer and write the files of a table."""
    import ray

    bundle, source, target = sys.argv[1:]
    rows = ray.data.read_parquet(source)
    answered = rows.map_batches(Predict, fn_constructor_args=(bundle,), batch_format="pyarrow", concurrency=2)
    answered.write_parquet(target)


if __name__ == "__main__":
    main()
