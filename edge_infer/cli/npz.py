"""Arrays as an `.npz` file, under any names: `numpy.savez` takes no `file` or `allow_pickle`. Needs numpy."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

if TYPE_CHECKING:
    from collections.abc import Mapping


def write_npz(arrays: Mapping[str, Any]) -> bytes:
    """Return the bytes of a file that `numpy.load` reads."""
    from numpy.lib import format as npy

    file = io.BytesIO()
    with ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, array, allow_pickle=False)
    return file.getvalue()
