"""`edge-infer info` for a compiled model, `model.wasm`: interface, memory, calls."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from edge_infer.cli import output
from edge_infer.errors import InputError
from edge_infer.formats.program import call_arguments, read_compiled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from edge_infer.bundle.bundle import Bundle


def show(path: Path, *, with_calls: bool, as_json: bool) -> None:
    """Print a file; see `show_program`."""
    show_program(path.name, path.read_bytes(), with_calls=with_calls, as_json=as_json)


def show_variants(bundle: Bundle, *, as_json: bool) -> None:
    """Print the programs of a bundle's compiled variants, each call with its arguments.

    Raises:
        InputError: It has none.
        UnsupportedModel: One is damaged.
    """
    found = [variant for variant in bundle.manifest.variants if variant.format == "compiled"]
    if not found:
        raise InputError(
            f"`{bundle.label}` has no compiled variant", hint="edge-infer convert MODEL --format compiled -o BUNDLE"
        )
    for variant in found:
        show_program(variant.id, bundle.read(variant.file), with_calls=True, as_json=as_json)


def show_program(name: str, content: bytes, *, with_calls: bool, as_json: bool) -> None:
    """Print a compiled model.

    Args:
        name: What to call it.
        content: The bytes of its file.
        with_calls: Whether each call is listed with its arguments, in the order of a run.
        as_json: Whether as one JSON object.

    Raises:
        UnsupportedModel: It is not a compiled model, or is damaged.
    """
    program, constants = read_compiled(content, name)
    kernels = Counter(kernel for kernel, _ in program.calls)
    calls = [(kernel, call_arguments(constants, kernel, place)) for kernel, place in program.calls]
    arena = program.image_bytes - program.constant_bytes
    if as_json:
        document: dict[str, Any] = {
            "name": name.removesuffix(".wasm"),
            "size": len(content),
            "rounding": program.rounding,
            "constants": program.constant_bytes,
            "arena": arena,
            "inputs": [one._asdict() for one in program.inputs],
            "outputs": [one._asdict() for one in program.outputs],
            "kernels": dict(kernels),
        }
        if with_calls:
            document["calls"] = [{"kernel": kernel, **given._asdict()} for kernel, given in calls]
        output.data_json(document)
        return
    output.data(
        f"{name}  {output.size(len(content))}, compiled, {len(calls)} calls, rounded as {program.rounding} does"
    )
    for kind, tensors in (("input ", program.inputs), ("output", program.outputs)):
        for one in tensors:
            scale = f", steps of {one.scale:.6g}, zero at {one.zero}" if one.scale else ""
            output.data(f"{kind}  {one.name}: {one.dtype}[{', '.join(map(str, one.shape))}]{scale}")
    output.data(f"memory  {output.size(program.constant_bytes)} of constants, {output.size(arena)} of tensors")
    output.data("")
    if with_calls:
        rows = [
            (i, kernel, _listed(given.tensors), _listed({**given.integers, **given.floats}))
            for i, (kernel, given) in enumerate(calls)
        ]
        output.table(["call", "kernel", "places", "arguments"], rows, right=["call"])
    else:
        output.table(["kernel", "calls"], [*kernels.items()], right=["calls"])


def _listed(values: Mapping[str, float]) -> str:
    return " ".join(f"{name}={value:.9g}" for name, value in values.items())
