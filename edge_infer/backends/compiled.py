"""Compiled models, natively: a `model.wasm` of `edge-infer compile` by the kernels for this CPU.

The WebAssembly code of the file does not run. Its program does: the same calls of the same kernels, built for this CPU,
in the file's order. The numbers are those of the page, bit for bit: no kernel fuses a product and a sum. There is no
engine to install: the kernels are in the package, and numpy is not needed.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edge_infer.backends.base import Availability, Backend, Placement, Runnable
from edge_infer.errors import BackendUnavailable, InputError, listed
from edge_infer.platform.installed import installed_version
from edge_infer.tensors.arrays import writable_bytes
from edge_infer.tensors.tensor import Tensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from edge_infer.bundle.manifest import Variant
    from edge_infer.formats.program import CompiledModel, ProgramTensor
    from edge_infer.tensors.tensor import Array


class CompiledBackend(Backend):
    """The adapter of the kernels in `edge_infer.kernels`."""

    name = "compiled"
    formats = ("compiled",)
    is_exact = True

    def availability(self) -> Availability:
        """Say whether there are kernels for this system and CPU."""
        if sys.platform == "emscripten":
            return Availability(False, reason="its kernels are native; a page runs the file itself")
        try:
            from edge_infer.kernels.library import native_library

            native_library()
        except ImportError:
            return Availability(False, reason="the kernels are left out here", hint="pip install edge-infer")
        except BackendUnavailable as error:
            return Availability(False, reason=error.message, hint=error.hint)
        return Availability(True, ("cpu",))

    def version(self) -> str:
        """Return the version of edge-infer, whose kernels they are."""
        return installed_version("edge_infer", "edge-infer")

    def prepare(self, model: str | bytes, variant: Variant, *, device: str, options: Mapping[str, str]) -> ProgramModel:
        """Load a model; see `Backend.prepare`. The engine takes no options but `strict`, which always holds."""
        del device
        unknown = [key for key in options if key != "strict"]
        if unknown:
            raise InputError(f"compiled takes no option {listed(unknown)}, as `{variant.id}` has", variant=variant.id)
        from edge_infer.formats.program import read_compiled

        content = model if isinstance(model, bytes) else Path(model).read_bytes()
        return ProgramModel(read_compiled(content, variant.file))


class ProgramModel(Runnable):
    """A program with its image: the constants, then the memory of its tensors."""

    def __init__(self, compiled: CompiledModel) -> None:
        self._compiled = compiled
        program = compiled.program
        self.inputs = tuple(_spec(tensor) for tensor in program.inputs)
        self.outputs = tuple(_spec(tensor) for tensor in program.outputs)
        self.placement = Placement("cpu", 1, ("edge-infer kernels",))
        self._image = _Image(compiled)

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model; see `Runnable.run`. Its memory is used again by each run: kept outputs are host tensors."""
        del keep
        image = self._image
        for name, value in feeds.items():
            image.write(name, value)
        image.run()
        results: dict[str, Array] = {}
        for name in outputs:
            result = image.output(name)
            if name in into:
                writable_bytes(name, into[name], result.dtype, result.shape)[:] = result.data()
                results[name] = into[name]
            else:
                results[name] = Tensor(bytearray(result.data()), result.dtype, result.shape)
        return results

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> ProgramCall:
        """Make a call with an image of its own; see `Runnable.bind`."""
        del shapes  # every shape of a compiled model is fixed
        return ProgramCall(_Image(self._compiled), self.inputs, self.outputs)

    def close(self) -> None:
        """Give back the image; the runnable is not used again."""
        del self._image, self._compiled


class ProgramCall:
    """A run over an image of its own: its outputs lie in it, and the next run overwrites them."""

    def __init__(self, image: _Image, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> None:
        self._image = image
        # Not in the image: a run takes the memory of an input for others once it has been read.
        self.inputs: dict[str, Array] = {spec.name: _zeros(spec) for spec in inputs}
        self.outputs: dict[str, Array] = {spec.name: image.output(spec.name) for spec in outputs}

    def write(self, name: str, value: Array) -> None:
        """Copy a value into an input buffer."""
        self.inputs[name].data()[:] = _bytes(value)

    def run(self) -> None:
        """Run the model on what the buffers hold."""
        for name, value in self.inputs.items():
            self._image.write(name, value)
        self._image.run()

    def close(self) -> None:
        """Give the buffers back."""
        self.inputs = {}
        self.outputs = {}


class _Image:
    """The memory of a program, and its calls bound to it."""

    def __init__(self, compiled: CompiledModel) -> None:
        from edge_infer.formats.program import ALIGNMENT
        from edge_infer.kernels.library import native_library

        program = compiled.program
        memory = (ctypes.c_ubyte * (program.image_bytes + ALIGNMENT))()
        address = ctypes.addressof(memory)
        start = -address % ALIGNMENT
        self._bytes = memoryview(memory).cast("B")[start : start + program.image_bytes]
        self._bytes[: program.constant_bytes] = compiled.constants
        self._inputs = {tensor.name: tensor for tensor in program.inputs}
        self._outputs = {tensor.name: tensor for tensor in program.outputs}
        self.run = native_library().bind(address + start, program.calls)

    def write(self, name: str, value: Array) -> None:
        """Copy an input into its place."""
        self._part(self._inputs[name])[:] = _bytes(value)

    def output(self, name: str) -> Tensor:
        """Return an output where it lies."""
        tensor = self._outputs[name]
        return Tensor(self._part(tensor), tensor.dtype, tensor.shape)

    def _part(self, tensor: ProgramTensor) -> memoryview:
        return self._bytes[tensor.offset : tensor.offset + _spec(tensor).dtype.nbytes(tensor.shape)]


def _spec(tensor: ProgramTensor) -> TensorSpec:
    return TensorSpec(tensor.name, tensor.dtype, tensor.shape)


def _zeros(spec: TensorSpec) -> Tensor:
    shape = tuple(dim for dim in spec.shape if isinstance(dim, int))
    return Tensor(bytearray(spec.dtype.nbytes(shape)), spec.dtype, shape)


def _bytes(value: Array) -> memoryview:
    """Return the bytes of an array, copied only where they are not contiguous."""
    if isinstance(value, Tensor):
        return value.to_host().data()
    view = memoryview(value)
    if not view.nbytes:
        return memoryview(b"")
    return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
