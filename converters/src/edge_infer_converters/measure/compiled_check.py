"""Compare a compiled model with LiteRT or TFLite Micro on this machine."""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from edge_infer.errors import AccuracyError, BackendUnavailable, UnsupportedModel
from edge_infer.formats import tflite
from edge_infer.formats.program import ALIGNMENT, call_arguments
from edge_infer.kernels.library import native_library

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edge_infer_converters.writers.compiled.writer import Compiled

#: Floats may differ by the order of additions: by so much of the root mean square of LiteRT's output.
MAX_FLOAT_ERROR = 1e-5
_RUNS = 4
#: A model with variables: long enough for what came first to be read again.
_STEPS = 24
_SEED = 20
#: How often the inputs are moved by one rounding, to see how much the outputs move.
_MOVES = 8
#: TFLite Micro keeps its own records beside the tensors.
_MICRO_BYTES = 2**20


def run(compiled: Compiled, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run a compiled model by the kernels for this CPU, from a fresh image.

    Args:
        compiled: The model.
        feeds: Each input, of its dtype and shape.

    Raises:
        BackendUnavailable: There are no kernels for this CPU.
    """
    return Image(compiled).run(feeds)


class Image:
    """A compiled model in memory, by the kernels for this CPU: its variables stay from run to run.

    Args:
        compiled: The model.
    """

    def __init__(self, compiled: Compiled) -> None:
        self._program = program = compiled.program
        self._memory = ctypes.create_string_buffer(program.image_bytes + ALIGNMENT)
        self._image = -(-ctypes.addressof(self._memory) // ALIGNMENT) * ALIGNMENT
        ctypes.memmove(self._image, compiled.constants, len(compiled.constants))
        for offset, nbytes, initial in program.state:
            first = bytes(nbytes) if initial < 0 else compiled.constants[initial : initial + nbytes]
            ctypes.memmove(self._image + offset, first, nbytes)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run it once; see `run`."""
        for tensor in self._program.inputs:
            data = np.ascontiguousarray(feeds[tensor.name], tensor.dtype).tobytes()
            ctypes.memmove(self._image + tensor.offset, data, len(data))
        native_library().run(self._image, self._program.calls)
        found = {}
        for tensor in self._program.outputs:
            size = int(np.prod(tensor.shape, dtype=np.int64)) * np.dtype(tensor.dtype).itemsize
            data = ctypes.string_at(self._image + tensor.offset, size)
            found[tensor.name] = np.frombuffer(data, tensor.dtype).reshape(tensor.shape)
        return found


def check(compiled: Compiled, content: bytes) -> str:
    """Compare a compiled model with the file that it was made of, on random inputs.

    Integers must be equal, bit for bit; floats within `MAX_FLOAT_ERROR`. Where values are quantized while the model
    runs, a value between two integers may become the other one: then floats may differ by twice as much as the
    engine's own outputs move when its inputs move by one rounding.

    Args:
        compiled: The model.
        content: The TFLite file.

    Returns:
        What was compared, in words; that nothing was where this CPU has no kernels, or the engine is not installed.

    Raises:
        AccuracyError: They differ.
        UnsupportedModel: The engine does not run the file.
    """
    is_micro = compiled.program.rounding == "tflm"
    name = "TFLite Micro" if is_micro else "LiteRT"
    with _translated(name):
        try:
            engine: _LiteRT | _Micro = _Micro(compiled, content) if is_micro else _LiteRT(compiled, content)
        except ModuleNotFoundError:
            return f"not compared with {name}, which is not installed: pip install tflite-micro"
    rng = np.random.default_rng(_SEED)
    image = Image(compiled)
    rows = _rows_of(compiled)
    limits = _limits(compiled, engine, name)
    runs = _STEPS if compiled.program.state else _RUNS
    for _ in range(runs):
        feeds = {
            one.name: _drawn(rng, one.shape, np.dtype(one.dtype), rows.get(one.name)) for one in compiled.program.inputs
        }
        with _translated(name):
            wanted = engine.run(feeds)
        try:
            results = image.run(feeds)
        except BackendUnavailable as error:
            return f"not compared with {name}: {error.message}"
        for output, want in wanted.items():
            _compare(output, want, results[output], limits.get(output, MAX_FLOAT_ERROR), name)
    said = "steps of a stream" if compiled.program.state else "random inputs"
    own = max(limits.values(), default=0.0)
    moved = f", up to {own:.0e}: the model's own change by one rounding of its inputs" if own > MAX_FLOAT_ERROR else ""
    return f"equal to {name} on {runs} {said}{moved}"


def _limits(compiled: Compiled, engine: _LiteRT | _Micro, name: str) -> dict[str, float]:
    """Return by how much floats may differ, by output, where values are quantized while the model runs."""
    is_hybrid = any(kernel == "quantize_rows" for kernel, _ in compiled.program.calls)
    if not is_hybrid or compiled.program.state:
        return {}
    rng = np.random.default_rng(_SEED + 1)
    found: dict[str, float] = {one.name: MAX_FLOAT_ERROR for one in compiled.program.outputs}
    for _ in range(_MOVES):
        feeds = {one.name: _drawn(rng, one.shape, np.dtype(one.dtype)) for one in compiled.program.inputs}
        with _translated(name):
            first = engine.run(feeds)
            second = engine.run({key: _moved(rng, value) for key, value in feeds.items()})
        for output, value in first.items():
            if value.dtype.kind == "f":
                found[output] = max(found[output], 2 * _relative(value, second[output]))
    return found


def _moved(rng: np.random.Generator, value: np.ndarray) -> np.ndarray:
    if value.dtype.kind != "f":
        return value
    ends = np.where(rng.random(value.shape) < 0.5, -np.inf, np.inf).astype(value.dtype)
    moved: np.ndarray = np.nextafter(value, ends)
    return moved


def samples(compiled: Compiled, count: int) -> list[tuple[dict[str, np.ndarray], dict[str, np.ndarray]]]:
    """Return random inputs and what a compiled model makes of them, run after run.

    Args:
        compiled: The model.
        count: How many runs.

    Raises:
        BackendUnavailable: There are no kernels for this CPU.
    """
    rng = np.random.default_rng(_SEED + 2)
    image, rows = Image(compiled), _rows_of(compiled)
    found = []
    for _ in range(count):
        feeds = {
            one.name: _drawn(rng, one.shape, np.dtype(one.dtype), rows.get(one.name)) for one in compiled.program.inputs
        }
        found.append((feeds, image.run(feeds)))
    return found


def has_separate_samples(compiled: Compiled, content: bytes) -> bool:
    """Tell whether a batch of two gives what each of its samples gives alone.

    Args:
        compiled: A model whose batch is free.
        content: The TFLite file.

    Returns:
        Also True where nothing can be compared, as this CPU has no kernels.
    """
    rng = np.random.default_rng(_SEED)
    program = compiled.program
    limits = _rows_of(compiled)
    feeds = {
        one.name: _drawn(rng, (2, *one.shape[1:]), np.dtype(one.dtype), limits.get(one.name)) for one in program.inputs
    }
    try:
        wanted = _LiteRT(compiled, content, 2).run(feeds)
        rows = [run(compiled, {name: value[i : i + 1] for name, value in feeds.items()}) for i in range(2)]
        for tensor in program.outputs:
            want = wanted[tensor.name]
            if want.shape != (2, *tensor.shape[1:]):
                return False
            _compare(tensor.name, want, np.concatenate([row[tensor.name] for row in rows]))
    except BackendUnavailable:
        return True
    except (AccuracyError, RuntimeError, ValueError):  # LiteRT raises these where it cannot take two samples
        return False
    return True


@contextmanager
def _translated(name: str) -> Iterator[None]:
    """Say in our words what an engine raises of a file that it does not run."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        why = str(error).strip().partition("\n")[0][:200]
        is_micro = name == "TFLite Micro"
        raise UnsupportedModel(
            f"{name}, with which a compiled model is compared, does not run the file: {why}",
            hint="--rounding reference" if is_micro else "look at the file with `edge-infer info MODEL.tflite`",
        ) from error


class _LiteRT:
    """A file in LiteRT as the model is compiled, with so many samples where its batch is free."""

    def __init__(self, compiled: Compiled, content: bytes, batch: int = 1) -> None:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        is_litert = compiled.program.rounding == "litert"
        self._program = compiled.program
        self._engine: Any = Interpreter(
            model_content=tflite.mended(content),
            num_threads=1,
            experimental_op_resolver_type=OpResolverType.AUTO if is_litert else OpResolverType.BUILTIN_REF,
        )
        for detail, tensor in zip(self._engine.get_input_details(), compiled.program.inputs, strict=True):
            shape = [batch, *tensor.shape[1:]] if compiled.program.is_row else list(tensor.shape)
            self._engine.resize_tensor_input(detail["index"], shape)
        self._engine.allocate_tensors()

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run it once."""
        for detail, tensor in zip(self._engine.get_input_details(), self._program.inputs, strict=True):
            self._engine.set_tensor(detail["index"], feeds[tensor.name])
        self._engine.invoke()
        ends = zip(self._engine.get_output_details(), self._program.outputs, strict=True)
        return {tensor.name: self._engine.get_tensor(detail["index"]) for detail, tensor in ends}


class _Micro:
    """A file in TFLite Micro, by PyPI's `tflite-micro`."""

    def __init__(self, compiled: Compiled, content: bytes) -> None:
        from tflite_micro.python.tflite_micro import runtime

        self._program = compiled.program
        arena = 8 * compiled.arena_bytes + _MICRO_BYTES
        self._engine: Any = runtime.Interpreter.from_bytes(tflite.mended(content), arena_size=arena)

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run it once."""
        for place, tensor in enumerate(self._program.inputs):
            self._engine.set_input(feeds[tensor.name], place)
        self._engine.invoke()
        return {tensor.name: self._engine.get_output(place) for place, tensor in enumerate(self._program.outputs)}


def _rows_of(compiled: Compiled) -> dict[str, int]:
    """Return how many rows a table has that an input picks from, by the input's name."""
    found: dict[str, int] = {}
    for kernel, place in compiled.program.calls:
        if kernel == "gather":
            given = call_arguments(compiled.constants, kernel, place)
            found |= {
                one.name: given.integers["rows"]
                for one in compiled.program.inputs
                if one.offset == given.tensors["positions"]
            }
    return found


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype, rows: int | None = None) -> np.ndarray:
    if rows is not None:
        return rng.integers(0, rows, shape).astype(dtype)
    if dtype.kind == "f":
        return rng.normal(size=shape).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def _compare(name: str, want: np.ndarray, got: np.ndarray, most: float = MAX_FLOAT_ERROR, peer: str = "LiteRT") -> None:
    if want.dtype.kind == "f":
        error = _relative(want, got)
        if error <= most:
            return
        said = f"by {error:.1e} of its root mean square, expected at most {most:.0e}"
    else:
        steps = np.abs(want.astype(np.int64) - got.astype(np.int64))
        if not steps.any():
            return
        said = f"in {np.count_nonzero(steps)} of {steps.size} elements, by up to {steps.max()} steps"
    raise AccuracyError(
        f"The compiled model differs from {peer}: `{name}` {said}", hint="use the .tflite file, and report the model"
    )


def _relative(want: np.ndarray, got: np.ndarray) -> float:
    """Return the difference in root mean squares of what was wanted."""
    return float(np.sqrt(np.mean((want - got) ** 2)) / max(float(np.sqrt(np.mean(want**2))), 1e-12))
