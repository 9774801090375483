"""The built kernels of the search in an index, for this CPU."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

from edge_infer.errors import BackendUnavailable
from edge_infer.kernels.library import library_path

if TYPE_CHECKING:
    from pathlib import Path

_ABI = 1
_ADDRESS, _COUNT = ctypes.c_void_p, ctypes.c_uint32


class SearchLibrary:
    """A shared library of the search's kernels; `source/vectors/search.c` says what each takes.

    A kernel checks nothing, and holds no lock of Python while it runs.

    Args:
        path: Its file.

    Raises:
        BackendUnavailable: It does not load, or is of another version.

    Attributes:
        scan: Puts the best rows by their 8-bit numbers into a heap, and returns how many it holds.
        differ: Writes in how many bits each row's code differs from the query's.
        select: Writes the rows that differ least, and returns how many.
    """

    def __init__(self, path: Path) -> None:
        try:
            library = ctypes.CDLL(str(path))
            abi = int(library.vectors_abi())
        except (OSError, AttributeError) as error:
            raise BackendUnavailable(f"The kernels `{path.name}` do not load: {error}", hint="make kernels") from error
        if abi != _ABI:
            raise BackendUnavailable(
                f"The kernels `{path.name}` are of version {abi}, expected {_ABI}", hint="make kernels"
            )
        self.path = path
        self.scan = library.vectors_scan
        self.scan.argtypes = (*(_ADDRESS,) * 6, *(_COUNT,) * 4, _ADDRESS, _ADDRESS)
        self.scan.restype = _COUNT
        self.differ = library.vectors_differ
        self.differ.argtypes = (*(_ADDRESS,) * 3, *(_COUNT,) * 3, _ADDRESS)
        self.differ.restype = None
        self.select = library.vectors_select
        self.select.argtypes = (_ADDRESS, _COUNT, _COUNT, _ADDRESS, _COUNT, _ADDRESS)
        self.select.restype = _COUNT


@cache
def search_library() -> SearchLibrary:
    """Return the library for this CPU.

    Raises:
        BackendUnavailable: There is none for this system or CPU.
    """
    return SearchLibrary(library_path("vectors"))
