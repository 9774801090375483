"""The engines that `edge-infer verify` runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.backends.registry import backend_names, get_backend
from edge_infer.errors import InputError, listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_infer.bundle.variant import Variant

# Devices of a page: their engines run in a real browser.
_IN_PAGE = ("wasm", "webgpu")


def engines_for(asked: Sequence[str], device: str, wanted: Sequence[Variant]) -> list[str]:
    """Return the engines to run on: those asked for, else all here that users run, and that have the device.

    Args:
        asked: Their names; empty for all.
        device: What they run on.
        wanted: The variants that they shall read.

    Raises:
        InputError: One that was asked for reads none of the variants, or there is none.
    """
    formats = {variant.format for variant in wanted}
    kind = device.partition(":")[0]
    names = list(asked)
    if not names and device in _IN_PAGE:
        engines = [get_backend(name) for name in backend_names()]
        names = [one.name for one in engines if device in one.page_devices and formats.intersection(one.formats)]
    elif not names:
        states = {name: get_backend(name).availability() for name in backend_names()}
        names = [name for name, state in states.items() if state.ready and kind in ("auto", *state.devices)]
        names = [name for name in names if formats.intersection(get_backend(name).formats)]
        # The reference is slow and no user runs it: it is taken by its name, or where nothing else reads the variants.
        names = [name for name in names if not get_backend(name).is_reference] or names
    for name in names:
        if not formats.intersection(get_backend(name).formats):
            raise InputError(
                f"Backend `{name}` reads {listed(list(get_backend(name).formats))}, none of the variants",
                hint="edge-infer info BUNDLE lists the variants, edge-infer backends what each engine reads",
            )
    if not names:
        raise InputError(
            f"No engine here reads {listed(sorted(formats))} on device `{device}`", hint="edge-infer backends"
        )
    return names
