"""Compiled models, natively: a `model.wasm` of `edge-infer compile` by the kernels for this CPU.

The WebAssembly code of the file does not run. Its program does: the same calls of the same kernels, built for this CPU,
in the file's order. The numbers are those of the page, bit for bit: no kernel fuses a product and a sum. There is no
engine to install: the kernels are in the package, and numpy is not needed.
"""

from __future__ import annotations

import ctypes
import sys

from edge_infer.backends.base import Availability, Backend, Placement, Runnable
from edge_infer.errors import BackendUnavailable, InputError, listed
from edge_infer.platform.installed import installed_version
from edge_infer.tensors.arrays import writable_bytes
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor, TensorSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from edge_infer.bundle.variant import Variant
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

        return ProgramModel(read_compiled(model if isinstance(model, bytes) else _read(model), variant.file))


class ProgramModel(Runnable):
    """A program with its image: the constants, then the memory of its tensors.

    Args:
        compiled: What the file holds.
        keeps_state: Whether variables keep their values from run to run; each run starts from the first ones unless
            given.
    """

    def __init__(self, compiled: CompiledModel, *, keeps_state: bool = False) -> None:
        self._keeps_state = keeps_state
        program = compiled.program
        self.inputs = tuple(_spec(tensor, is_row=program.is_row) for tensor in program.inputs)
        self.outputs = tuple(_spec(tensor, is_row=program.is_row) for tensor in program.outputs)
        self.placement = Placement("cpu", 1, ("edge-infer kernels",))
        self.has_hidden_state = bool(program.state)
        self._image = _Image(compiled, keeps_state=keeps_state)
        # The image has the constants from here on: the content of the file is given back.
        self._compiled = compiled._replace(constants=self._image.constants)

    def keeping_state(self) -> ProgramModel:
        """Make a second model whose state stays from run to run; see `Runnable.keeping_state`."""
        return ProgramModel(self._compiled, keeps_state=True)

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model; see `Runnable.run`. Its memory is used again by each run: kept outputs are host tensors."""
        del keep
        rows = self._rows({name: value.shape for name, value in feeds.items()})
        results: dict[str, Array] = {}
        targets: dict[str, memoryview] = {}
        for name in outputs:
            part = self._image.output(name)
            shape = part.shape if rows is None else (rows, *part.shape[1:])
            if name in into:
                results[name] = into[name]
                targets[name] = writable_bytes(name, into[name], part.dtype, shape)
            else:
                made = bytearray(part.dtype.nbytes(shape))
                results[name], targets[name] = Tensor(made, part.dtype, shape), memoryview(made)
        self._image.run_rows({name: _bytes(value) for name, value in feeds.items()}, targets, rows)
        return results

    def _rows(self, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
        """Return the number of samples in a batch, or None where the batch is not free."""
        if not self._compiled.program.is_row:
            return None
        counts = {name: shape[0] for name, shape in shapes.items()}
        rows = next(iter(counts.values()), 1)
        for name, count in counts.items():
            if count != rows:
                raise InputError(
                    f"Input `{name}` has {count} samples, another one {rows}: all inputs share their batch",
                    input=name,
                    expected=rows,
                    got=count,
                )
        return rows

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> ProgramCall:
        """Make a call with an image of its own; see `Runnable.bind`."""
        return ProgramCall(_Image(self._compiled, keeps_state=self._keeps_state), self._rows(shapes))

    def close(self) -> None:
        """Give back the image; the runnable is not used again."""
        del self._image, self._compiled


class ProgramCall:
    """A run over an image of its own: the outputs of one sample lie in it, and the next run overwrites them."""

    def __init__(self, image: _Image, rows: int | None) -> None:
        self._image = image
        self._rows = rows
        # Not in the image: a run takes the memory of an input for others once it has been read.
        self.inputs: dict[str, Array] = {tensor.name: _zeros(tensor, rows) for tensor in image.inputs}
        self.outputs: dict[str, Array] = {
            tensor.name: image.output(tensor.name) if rows in (None, 1) else _zeros(tensor, rows)
            for tensor in image.outputs
        }

    def write(self, name: str, value: Array) -> None:
        """Copy a value into an input buffer."""
        self.inputs[name].data()[:] = _bytes(value)

    def run(self) -> None:
        """Run the model on what the buffers hold."""
        feeds = {name: _bytes(value) for name, value in self.inputs.items()}
        targets = {} if self._rows in (None, 1) else {name: _bytes(value) for name, value in self.outputs.items()}
        self._image.run_rows(feeds, targets, self._rows)

    def close(self) -> None:
        """Give the buffers back."""
        self.inputs = {}
        self.outputs = {}


class _Image:
    """The memory of a program, and its calls bound to it."""

    def __init__(self, compiled: CompiledModel, *, keeps_state: bool) -> None:
        from edge_infer.formats.program import ALIGNMENT
        from edge_infer.kernels.library import native_library

        program = compiled.program
        memory = (ctypes.c_ubyte * (program.image_bytes + ALIGNMENT))()
        address = ctypes.addressof(memory)
        start = -address % ALIGNMENT
        self._bytes = memoryview(memory).cast("B")[start : start + program.image_bytes]
        self._bytes[: program.constant_bytes] = compiled.constants
        self.constants = self._bytes[: program.constant_bytes].toreadonly()
        self.inputs, self.outputs = program.inputs, program.outputs
        self._parts = {
            side: {tensor.name: self._part(tensor) for tensor in tensors}
            for side, tensors in (("in", self.inputs), ("out", self.outputs))
        }
        self._state = program.state
        self._keeps_state = keeps_state
        self._run = native_library().bind(address + start, program.calls)
        self._start_over()

    def run_rows(self, feeds: Mapping[str, memoryview], targets: Mapping[str, memoryview], rows: int | None) -> None:
        """Run the program on each sample of a batch.

        Args:
            feeds: The bytes of each input, all samples one behind the other.
            targets: Where to copy outputs to.
            rows: The number of samples; None where the program takes its inputs as they are.
        """
        for row in range(1 if rows is None else rows):
            for name, data in feeds.items():
                part = self._parts["in"][name]
                part[:] = data[row * len(part) : (row + 1) * len(part)]
            if self._state and not self._keeps_state:
                self._start_over()
            self._run()
            for name, data in targets.items():
                part = self._parts["out"][name]
                data[row * len(part) : (row + 1) * len(part)] = part

    def _start_over(self) -> None:
        """Give the variables their first values."""
        for offset, nbytes, initial in self._state:
            first = bytes(nbytes) if initial < 0 else self._bytes[initial : initial + nbytes]
            self._bytes[offset : offset + nbytes] = first

    def output(self, name: str) -> Tensor:
        """Return an output where it lies."""
        tensor = next(one for one in self.outputs if one.name == name)
        return Tensor(self._parts["out"][name], tensor.dtype, tensor.shape)

    def _part(self, tensor: ProgramTensor) -> memoryview:
        part = self._bytes[tensor.offset : tensor.offset + DType(tensor.dtype).nbytes(tensor.shape)]
        # The arguments of calls are constants that were checked: nobody writes them, not through an output either.
        return part.toreadonly() if tensor.offset < len(self.constants) else part


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _spec(tensor: ProgramTensor, *, is_row: bool) -> TensorSpec:
    return TensorSpec(tensor.name, tensor.dtype, ("batch", *tensor.shape[1:]) if is_row else tensor.shape)


def _zeros(tensor: ProgramTensor, rows: int | None) -> Tensor:
    shape = tensor.shape if rows is None else (rows, *tensor.shape[1:])
    return Tensor(bytearray(DType(tensor.dtype).nbytes(shape)), tensor.dtype, shape)


def _bytes(value: Array) -> memoryview:
    """Return the bytes of an array, copied only where they are not contiguous."""
    if isinstance(value, Tensor):
        return value.to_host().data()
    view = memoryview(value)
    if not view.nbytes:
        return memoryview(b"")
    return view.cast("B") if view.c_contiguous else memoryview(view.tobytes())
