"""ONNX Runtime on the CPU by its C interface, without numpy and without the Python binding.

`onnxruntime.py` takes it where numpy is not imported: there the way to the first result is the interpreter, ctypes and
one library (a third of the Python binding's start, which is mostly numpy's), and the process is smaller by both.
"""

from __future__ import annotations

import ctypes
import sys

from edge_infer.backends.base import Placement, Runnable
from edge_infer.backends.onnxruntime.api import OrtError, load_api
from edge_infer.backends.onnxruntime.c_call import OrtCCall
from edge_infer.backends.onnxruntime.c_values import (
    NUMBERS,
    Handle,
    OrtCTensor,
    copied,
    description,
    kept_copy,
    overwrite,
    source,
    specs_of,
    target,
    value_of_texts,
    value_over,
)
from edge_infer.backends.onnxruntime.entries import session_entries
from edge_infer.backends.onnxruntime.errors import described
from edge_infer.backends.onnxruntime.shapes import passed_through
from edge_infer.errors import ExecutionError, InputError, UnsupportedError, UnsupportedModel
from edge_infer.platform.cpu import physical_cores
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import EngineTensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from typing import Any

    from edge_infer.tensors.tensor import Array

# A run whose tensors are together no larger than this goes over the buffers of an idle prepared call: their copies cost
# less than the engine's values do. For as many shapes as these calls are kept.
_MAX_POOLED_BYTES = 2**18
_MAX_SHAPES = 4


def load_model(model: str | bytes, file: str | None, options: Mapping[str, str]) -> OrtCModel:
    """Load a model on the CPU.

    Args:
        model: The model file or its bytes.
        file: What errors call it.
        options: The engine's settings, as `Backend.prepare` takes them.

    Raises:
        BackendUnavailable: The library cannot be used here.
        ManifestError: A setting is not one that a bundle may set.
        UnsupportedModel: The engine cannot load the model.
    """
    entries = session_entries(options)
    threads = int(options.get("intra_op_threads", 0))
    api = load_api()
    try:
        settings = Handle(api, "SessionOptions", api.make("CreateSessionOptions"))
        api.call("SetSessionLogSeverityLevel", settings.pointer, 4)
        api.call("SetIntraOpNumThreads", settings.pointer, threads)
        for key, value in entries.items():
            api.call("AddSessionConfigEntry", settings.pointer, key.encode(), value.encode())
        if isinstance(model, bytes):
            pointer = api.make("CreateSessionFromArray", api.env, model, len(model), settings.pointer)
        else:
            pointer = api.make("CreateSession", api.env, str(model).encode(), settings.pointer)
    except OrtError as error:
        raise described(error.kind, error.text, f"load `{file}`", UnsupportedModel) from error
    return OrtCModel(Handle(api, "Session", pointer), threads)


class OrtCModel(Runnable):
    """A loaded session."""

    is_thread_safe = True

    def __init__(self, session: Handle, threads: int) -> None:
        self._session: Handle | None = session
        api = session.api
        self.inputs = tuple(specs_of(api, session.pointer, "Input"))
        self.outputs = tuple(specs_of(api, session.pointer, "Output"))
        self._passed = passed_through(self.inputs, self.outputs)
        self._texts = [spec.name for spec in (*self.inputs, *self.outputs) if spec.dtype is DType.STRING]
        self.placement = Placement("cpu", threads, ("CPUExecutionProvider",))
        self._numbers = {spec.name: NUMBERS[spec.dtype] for spec in self.inputs}
        self._out_numbers = {spec.name: NUMBERS[spec.dtype] for spec in self.outputs}
        self._has_numpy = False
        self._idle: dict[Any, list[OrtCCall] | None] = {}
        self._names = {spec.name: spec.name.encode() for spec in (*self.inputs, *self.outputs)}

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model; see `Runnable.run`."""
        session = self._session
        if session is None:
            raise InputError("The session is closed", hint="load the model again")
        for name in self._texts if keep or into else ():
            if name in feeds or name in keep:
                raise UnsupportedError(
                    f"onnxruntime runs `{name}`, which is of strings, neither with kept tensors nor into buffers",
                    hint="run it without `keep` and `into`",
                    tensor=name,
                )
        if not keep and not into and len(outputs) == len(self.outputs):
            idle = self._pool(feeds)
            if idle is not None:
                try:
                    call = idle.pop()  # from here on it is this thread's own
                except IndexError:
                    call = self.bind({name: value.shape for name, value in feeds.items()})
                try:
                    copies = call.run_once(feeds, outputs)
                except ExecutionError:
                    # It may be that an output has not the shape that the model promises: then only this way fails.
                    self._idle[_shapes(feeds)] = None
                else:
                    idle.append(call)
                    return copies
        api = session.api
        ours: list[Any] = []  # values made here, over memory of the caller's or ours
        held: list[Any] = []  # that memory
        given = (ctypes.c_void_p * len(outputs))()
        try:
            pointers = []
            for name, value in feeds.items():
                if isinstance(value, OrtCTensor):
                    held.append(value.handle())  # closed by another thread, it would be gone during the run
                    pointers.append(held[-1].pointer)
                    continue
                if name in self._texts:
                    pointers.append(value_of_texts(api, value))
                else:
                    address, shape, owner = source(value)
                    held.append(owner)
                    pointers.append(value_over(api, address, self._numbers[name], shape))
                ours.append(pointers[-1])
            for i, name in enumerate(outputs):
                if name in self._passed:  # the engine would not write into the target
                    continue
                if isinstance(into.get(name), OrtCTensor):
                    held.append(into[name].handle())
                    given[i] = held[-1].pointer
                elif name in into:
                    address, shape, owner = target(into[name])
                    held.append(owner)
                    given[i] = value_over(api, address, self._out_numbers[name], shape)
                    ours.append(given[i])
            status = api.run(
                session.pointer,
                None,
                (ctypes.c_char_p * len(pointers))(*[self._names[name] for name in feeds]),
                (ctypes.c_void_p * len(pointers))(*pointers),
                len(pointers),
                (ctypes.c_char_p * len(outputs))(*[self._names[name] for name in outputs]),
                len(outputs),
                given,
            )
            if status:
                api.fail(status)
            results: dict[str, Array] = {}
            for i, name in enumerate(outputs):
                if name in into and name not in self._passed:
                    results[name] = into[name]
                    continue
                made = Handle(api, "Value", given[i])
                dtype, shape = description(api, given[i])
                if name in self._passed:  # it lies in the caller's memory
                    copy = copied(made, dtype, shape)
                    if name in into:
                        overwrite(name, into[name], copy)
                        results[name] = into[name]
                    else:
                        results[name] = kept_copy(api, copy) if name in keep else copy
                    continue
                results[name] = OrtCTensor(made, dtype, shape) if name in keep else copied(made, dtype, shape)
            return results
        except OrtError as error:
            raise described(error.kind, error.text, "run the model", ExecutionError) from error
        finally:
            for pointer in ours:
                api.release_value(pointer)

    def _pool(self, feeds: Mapping[str, Array]) -> list[OrtCCall] | None:
        """Return the idle calls for the shapes of these inputs; None where a run should not go over one."""
        if self._texts or any(isinstance(value, EngineTensor) for value in feeds.values()):
            return None
        if self._has_numpy is not ("numpy" in sys.modules):  # what a call gives depends on it
            self._has_numpy = "numpy" in sys.modules
            self._idle = {}
        key = _shapes(feeds)
        if key in self._idle:
            return self._idle[key]
        if len(self._idle) >= _MAX_SHAPES:
            return None
        sizes = sum(spec.dtype.nbytes(feeds[spec.name].shape) for spec in self.inputs)
        call = self.bind({name: value.shape for name, value in feeds.items()}) if sizes <= _MAX_POOLED_BYTES else None
        fits = call is not None and call.nbytes <= _MAX_POOLED_BYTES and call.has_fixed_outputs
        self._idle[key] = [call] if call is not None and fits else None
        return self._idle[key]

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> OrtCCall:
        """Make a call with an input buffer of each of these shapes; see `Runnable.bind`."""
        if self._session is None:
            raise InputError("The session is closed", hint="load the model again")
        return OrtCCall(self._session, self.inputs, self.outputs, shapes)

    def examined(self) -> Placement:
        """Return where it runs, with the threads of its pool: one for each core where nobody sets them."""
        return self.placement._replace(threads=self.placement.threads or physical_cores())

    def close(self) -> None:
        """Give back the session's memory, once no run or prepared call uses it."""
        self._session = None
        self._idle = {}


def _shapes(feeds: Mapping[str, Array]) -> tuple[Any, ...]:
    return tuple([value.shape for value in feeds.values()])
