"""Pictures and sounds that a bundle brings along, for its page to start with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.errors import InputError

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from edge_infer_converters.bundle_writer import BundleWriter

    FilePath = str | os.PathLike[str]

#: The folder of a bundle that holds them.
FOLDER = "samples"
#: A sample is fetched before the first answer of a page.
MAX_BYTES = 2 * 2**20


def add_samples(writer: BundleWriter, samples: Sequence[FilePath]) -> None:
    """Copy the files into the bundle, under `samples/`.

    Raises:
        InputError: One is missing, empty, larger than 2 MiB, or has the name of another.
    """
    names: set[str] = set()
    for sample in map(Path, samples):
        try:
            data = sample.read_bytes()
        except OSError as error:
            raise InputError(f"The sample `{sample}` cannot be read: {error.strerror}", hint="--sample FILE") from error
        if not 0 < len(data) <= MAX_BYTES:
            raise InputError(
                f"The sample `{sample}` has {len(data)} bytes, expected 1 to {MAX_BYTES}",
                hint="give a smaller picture or a shorter sound",
            )
        if sample.name in names:
            raise InputError(f"Two samples are named `{sample.name}`", hint="rename one of them")
        names.add(sample.name)
        writer.add(f"{FOLDER}/{sample.name}", data)
