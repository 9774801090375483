"""The native kernels of text generation: one shared library for each CPU, called through ctypes."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import TYPE_CHECKING

from edge_infer.errors import BackendUnavailable
from edge_infer.kernels.decoder_words import VERSION
from edge_infer.kernels.library import library_path

if TYPE_CHECKING:
    from pathlib import Path

_ADDRESS, _WORD, _SIZE = ctypes.c_void_p, ctypes.c_int32, ctypes.c_double
#: By function what it takes and gives (kernels/source/generation).
_FUNCTIONS = {
    "decoder_check": (_WORD, (_ADDRESS, _WORD, _SIZE)),
    "decoder_check_rows": (_WORD, (_ADDRESS, _WORD, _WORD, _ADDRESS, _WORD, _ADDRESS, _WORD)),
    "decoder_cache_bytes": (_SIZE, (_ADDRESS, _WORD, _WORD)),
    "decoder_scratch_bytes": (_SIZE, (_ADDRESS, _WORD)),
    "decoder_run": (None, (*(4 * (_ADDRESS,)), _WORD, _WORD, _ADDRESS, _WORD, _ADDRESS, _WORD, _ADDRESS)),
    "decoder_run_shared": (None, (*(5 * (_ADDRESS,)), _WORD, _WORD, _ADDRESS, _WORD, _ADDRESS, _WORD, _ADDRESS)),
    "decoder_team_bytes": (_SIZE, (_ADDRESS, _WORD, _WORD)),
    "decoder_team_begin": (None, (_ADDRESS, _WORD)),
    "decoder_team_end": (None, (_ADDRESS,)),
    "decoder_join": (None, (_ADDRESS, _WORD)),
    "decoder_copy": (None, (_ADDRESS, _ADDRESS, _WORD, _WORD, _WORD, _WORD, _WORD)),
    "decoder_top": (None, (_ADDRESS, _WORD, _WORD, _ADDRESS, _ADDRESS)),
}


class GenerationLibrary:
    """A shared library of the kernels of text generation; its functions are those of the C sources.

    Args:
        path: Its file.

    Raises:
        BackendUnavailable: It does not load, or is of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            library = ctypes.CDLL(str(path))
            version = int(library.decoder_version())
            for name, (result, arguments) in _FUNCTIONS.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as error:
            raise BackendUnavailable(f"The kernels `{path.name}` do not load: {error}", hint="make kernels") from error
        if version != VERSION:
            raise BackendUnavailable(
                f"The kernels `{path.name}` are of version {version}, expected {VERSION}", hint="make kernels"
            )
        self.check = library.decoder_check
        self.check_rows = library.decoder_check_rows
        self.cache_bytes = library.decoder_cache_bytes
        self.scratch_bytes = library.decoder_scratch_bytes
        self.run = library.decoder_run
        self.run_shared = library.decoder_run_shared
        self.team_bytes = library.decoder_team_bytes
        self.team_begin = library.decoder_team_begin
        self.team_end = library.decoder_team_end
        self.join = library.decoder_join
        self.copy = library.decoder_copy
        self.top = library.decoder_top


@cache
def generation_library() -> GenerationLibrary:
    """Return the library for this CPU.

    Raises:
        BackendUnavailable: There is none for this system or CPU.
    """
    return GenerationLibrary(library_path("generation"))
