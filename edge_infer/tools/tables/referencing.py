"""Add a reference of a table's rows to a bundle that is there."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from edge_infer.bundle.manifest import MANIFEST_NAME, FileEntry, Manifest
from edge_infer.errors import InputError
from edge_infer.monitor.making import described, make_reference
from edge_infer.monitor.reference import PATH
from edge_infer.platform.atomic_write import write_file
from edge_infer.tasks.tabular.batch import check_task, names_of
from edge_infer.tools.tables.job import BATCH, predicted
from edge_infer.tools.tables.reading import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edge_infer.tasks.pipeline import Pipeline

#: More rows than this move no bin by much.
MAX_ROWS = 200_000


def add_reference(pipeline: Pipeline, folder: Path, table: Path) -> tuple[int, int]:
    """Answer the rows of a table, and keep in the bundle what they and the answers look like.

    Returns:
        The bytes of the reference, and how many rows it is of.

    Raises:
        InputError: The bundle is not a folder, or the table has too few rows.
        UnsupportedError: The pipeline is not for tables.
    """
    check_task(pipeline)
    if not (folder / MANIFEST_NAME).is_file():
        raise InputError(f"`{folder}` is not the folder of a bundle", hint="unzip it first", got=str(folder))
    runs: list[tuple[Mapping[str, Any], Mapping[str, Any]]] = []
    pipeline.session.observe(lambda inputs, outputs: runs.append((dict(inputs), dict(outputs))))
    rows = 0
    for batch in Reader(table, names_of(pipeline)).batches(BATCH):
        if batch.rows:
            predicted(pipeline, batch)
        rows += batch.rows
        if rows >= MAX_ROWS:
            break
    manifest = pipeline.session.bundle.manifest
    data = make_reference(
        runs, pipeline.session.inputs, pipeline.session.outputs, *described(pipeline.definition), pipeline.labels
    )
    entry = FileEntry(PATH, len(data), hashlib.sha256(data).hexdigest())
    changed = Manifest.from_bytes(manifest.to_bytes())
    changed.files[PATH] = entry
    changed.monitor = {"reference": PATH}
    (folder / PATH).parent.mkdir(exist_ok=True)
    write_file(folder / PATH, data)
    write_file(folder / MANIFEST_NAME, changed.to_bytes())
    return len(data), rows
