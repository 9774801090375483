"""Compare a compiled model with LiteRT on this machine."""

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

    Integers must be equal, bit for bit; floats within `MAX_FLOAT_ERROR`.

    Args:
        compiled: The model.
        content: The TFLite file.

    Returns:
        What was compared, in words; that nothing was where this CPU has no kernels.

    Raises:
        AccuracyError: They differ.
        UnsupportedModel: LiteRT does not run the file.
    """
    with _translated():
        engine = _engine(compiled, content, 1)
    rng = np.random.default_rng(_SEED)
    image = Image(compiled)
    rows = _rows_of(compiled)
    runs = _STEPS if compiled.program.state else _RUNS
    for _ in range(runs):
        feeds = {}
        for detail, tensor in zip(engine.get_input_details(), compiled.program.inputs, strict=True):
            feeds[tensor.name] = _drawn(rng, tensor.shape, np.dtype(tensor.dtype), rows.get(tensor.name))
            engine.set_tensor(detail["index"], feeds[tensor.name])
        with _translated():
            engine.invoke()
        try:
            results = image.run(feeds)
        except BackendUnavailable as error:
            return f"not compared with LiteRT: {error.message}"
        for detail, tensor in zip(engine.get_output_details(), compiled.program.outputs, strict=True):
            _compare(tensor.name, engine.get_tensor(detail["index"]), results[tensor.name])
    said = "steps of a stream" if compiled.program.state else "random inputs"
    return f"equal to LiteRT on {runs} {said}"


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
        engine = _engine(compiled, content, 2)
        for detail, tensor in zip(engine.get_input_details(), program.inputs, strict=True):
            engine.set_tensor(detail["index"], feeds[tensor.name])
        engine.invoke()
        rows = [run(compiled, {name: value[i : i + 1] for name, value in feeds.items()}) for i in range(2)]
        for detail, tensor in zip(engine.get_output_details(), program.outputs, strict=True):
            wanted = engine.get_tensor(detail["index"])
            if wanted.shape != (2, *tensor.shape[1:]):
                return False
            _compare(tensor.name, wanted, np.concatenate([row[tensor.name] for row in rows]))
    except BackendUnavailable:
        return True
    except (AccuracyError, RuntimeError, ValueError):  # LiteRT raises these where it cannot take two samples
        return False
    return True


@contextmanager
def _translated() -> Iterator[None]:
    """Say in our words what LiteRT raises of a file that it does not run."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        why = str(error).strip().partition("\n")[0][:200]
        raise UnsupportedModel(
            f"LiteRT, with which a compiled model is compared, does not run the file: {why}",
            hint="look at the file with `edge-infer info MODEL.tflite`",
        ) from error


def _engine(compiled: Compiled, content: bytes, batch: int) -> Any:
    """Load a file into LiteRT as the model is compiled, with so many samples where its batch is free."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolvers = {"litert": OpResolverType.AUTO, "reference": OpResolverType.BUILTIN_REF}
    engine: Any = Interpreter(
        model_content=tflite.mended(content),
        num_threads=1,
        experimental_op_resolver_type=resolvers[compiled.program.rounding],
    )
    for detail, tensor in zip(engine.get_input_details(), compiled.program.inputs, strict=True):
        shape = [batch, *tensor.shape[1:]] if compiled.program.is_row else list(tensor.shape)
        engine.resize_tensor_input(detail["index"], shape)
    engine.allocate_tensors()
    return engine


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


def _compare(name: str, want: np.ndarray, got: np.ndarray) -> None:
    if want.dtype.kind == "f":
        error = float(np.sqrt(np.mean((want - got) ** 2)) / max(float(np.sqrt(np.mean(want**2))), 1e-12))
        if error <= MAX_FLOAT_ERROR:
            return
        said = f"by {error:.1e} of its root mean square, expected at most {MAX_FLOAT_ERROR:.0e}"
    else:
        steps = np.abs(want.astype(np.int64) - got.astype(np.int64))
        if not steps.any():
            return
        said = f"in {np.count_nonzero(steps)} of {steps.size} elements, by up to {steps.max()} steps"
    raise AccuracyError(
        f"The compiled model differs from LiteRT: `{name}` {said}", hint="use the .tflite file, and report the model"
    )
