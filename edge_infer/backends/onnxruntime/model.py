"""A model that ONNX Runtime's Python binding has loaded.

Plain runs go through `InferenceSession.run`; kept tensors, `into` buffers and prepared calls through IO binding, which
skips the checks and allocations of a run (3.8 us against 10.7 us on an identity model).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from edge_infer.backends.base import Runnable
from edge_infer.backends.onnxruntime.errors import translate, translated
from edge_infer.backends.onnxruntime.shapes import output_shapes, passed_through
from edge_infer.backends.onnxruntime.values import ONNX_TYPE, OrtTensor, from_ort_value, spec_of, to_ort_value
from edge_infer.errors import ExecutionError, InputError, UnsupportedError
from edge_infer.platform.cpu import physical_cores
from edge_infer.tensors.arrays import as_array, fill, to_numpy
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from edge_infer.backends.base import BoundSteps, Call, Placement
    from edge_infer.tensors.tensor import Array


#: After outputs of so many bytes and more the arena gives back what it has free: else it keeps the most it ever had.
#: A run that does nothing but copy takes .27 ms for 5 MiB and not .25 then, and 20 ms for 20 MiB and not 11.
_LARGE_BYTES = 4 * 2**20
_NO_ARENA = "Did not find an arena"


class OnnxRuntimeModel(Runnable):
    """A loaded ONNX Runtime session."""

    is_thread_safe = True

    def __init__(self, session: Any, placement: Placement, *, index: int = 0, has_graph: bool = False) -> None:
        self._session = session
        self._place = (placement.device, index)
        self.placement = placement
        self.inputs = tuple(spec_of(node) for node in session.get_inputs())
        self.outputs = tuple(spec_of(node) for node in session.get_outputs())
        # Values that numpy cannot carry into or out of `InferenceSession.run` take the way of IO binding.
        self._passed = passed_through(self.inputs, self.outputs)
        self._needs_binding = any(spec.dtype in ONNX_TYPE for spec in (*self.inputs, *self.outputs))
        self._options: Any = None
        self._shrinking: Any = None
        self._has_arena = placement.device == "cpu" and not has_graph
        specs = (*self.inputs, *self.outputs)
        self._tells_shapes = placement.device == "cpu" and all(spec.dtype is not DType.STRING for spec in specs)
        self._growth = 0.0  # the most bytes of outputs for a byte of inputs so far
        if has_graph:  # a captured graph reads and writes the buffers of its prepared call, and no others
            import onnxruntime

            self._options = onnxruntime.RunOptions()
            self._options.add_run_config_entry("gpu_graph_id", "-1")

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model; see `Runnable.run`."""
        session = self._session
        if session is None:
            raise InputError("The session is closed", hint="load the model again")
        for name, value in feeds.items():
            if isinstance(value, Tensor):
                if self._needs_binding or value.location != "host":
                    break
                feeds = {**feeds, name: to_numpy(value)}
        else:
            if not (into or keep or self._needs_binding):
                size = sum(value.nbytes for value in feeds.values())
                options = self._options
                memory: dict[str, Array] | None = None
                if size * self._growth >= _LARGE_BYTES:
                    options = self._shrink()
                    memory = self._outside_arena(feeds, outputs) if self._tells_shapes else None
                    if memory is not None:
                        with suppress(ExecutionError):  # a plain run says why, or takes shapes that the model hides
                            return self._run_bound(session, feeds, outputs, memory, keep, options)
                try:
                    results = self._run_plain(session, outputs, feeds, options)
                except Exception as error:
                    raise translate(error, "run the model", ExecutionError) from error
                self._tells_shapes = self._tells_shapes and memory is None
                total = sum(value.nbytes for value in results)
                if total > self._growth * size:
                    self._growth = total / max(size, 1)
                named = dict(zip(outputs, results, strict=True))
                for name in self._passed.intersection(named):
                    # ONNX Runtime 1.24 gives a view of the input's memory, which may be gone when it is read.
                    named[name] = named[name].copy()
                return named
        return self._run_bound(session, feeds, outputs, into, keep)

    def _run_plain(self, session: Any, outputs: Sequence[str], feeds: Mapping[str, Array], options: Any) -> list[Any]:
        try:
            results: list[Any] = session.run(outputs, feeds, options)
        except Exception as error:
            # It is refused before anything runs where a session has no arena, as on 32-bit processors.
            if options is None or options is self._options or _NO_ARENA not in str(error):
                raise
            self._has_arena = False
            results = session.run(outputs, feeds, self._options)
        return results

    def _outside_arena(self, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array] | None:
        """Return numpy's memory for all outputs, or None where the inputs do not tell their shapes.

        An output that ONNX Runtime makes is a view of its arena, which could give nothing of it back at the end of the
        run, and kept it until the end of the next large one.
        """
        import numpy

        if not all(value.flags.c_contiguous for value in feeds.values()):  # binding copies nothing
            return None
        wanted = [spec for spec in self.outputs if spec.name in outputs]
        shapes = output_shapes(self.inputs, wanted, {name: value.shape for name, value in feeds.items()})
        if any(shape is None for _, shape in shapes):
            return None
        return {spec.name: numpy.empty(shape, str(spec.dtype)) for spec, shape in shapes if shape is not None}

    def _shrink(self) -> Any:
        """Return options with which a run on the CPU gives back what the arena has free when it ends.

        `memory.enable_memory_arena_shrinkage` is an entry of onnxruntime_run_options_config_keys.h.
        """
        if not self._has_arena:
            return self._options
        if self._shrinking is None:
            import onnxruntime

            options = onnxruntime.RunOptions()
            options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
            self._shrinking = options
        return self._shrinking

    def _run_bound(
        self,
        session: Any,
        feeds: Mapping[str, Array],
        outputs: Sequence[str],
        into: Mapping[str, Array],
        keep: Collection[str],
        options: Any = None,
    ) -> dict[str, Array]:
        import onnxruntime

        texts = [spec.name for spec in (*self.inputs, *self.outputs) if spec.dtype is DType.STRING]
        refused = [name for name in texts if name in feeds or name in keep]
        if refused:
            raise UnsupportedError(
                f"onnxruntime runs `{refused[0]}`, which is of strings, neither with kept tensors nor into buffers",
                hint="run it without `keep` and `into`",
                tensor=refused[0],
            )
        binding = session.io_binding()
        held = {name: to_ort_value(value) for name, value in feeds.items()}
        with translated("run the model", ExecutionError):
            for name, value in held.items():
                binding.bind_ortvalue_input(name, value)
            for name in outputs:
                target = into.get(name)
                if name in self._passed:  # the engine would not write into the target
                    binding.bind_output(name, "cpu")
                elif isinstance(target, OrtTensor):
                    binding.bind_ortvalue_output(name, target.value())
                elif target is not None:
                    binding.bind_ortvalue_output(name, onnxruntime.OrtValue.ortvalue_from_numpy(as_array(target)))
                else:
                    binding.bind_output(name, *(self._place if name in keep else ("cpu", 0)))
            session.run_with_iobinding(binding, options or self._options)
            values = dict(zip(outputs, binding.get_outputs(), strict=True))
        results: dict[str, Array] = {}
        for name, value in values.items():
            if name in self._passed:
                results[name] = _handed_on(name, value, into.get(name), is_kept=name in keep)
            elif name in into:
                results[name] = into[name]
            else:
                results[name] = OrtTensor(value) if name in keep else from_ort_value(value)
        return results

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> Call:
        """Make a call with an input buffer of each of these shapes; see `Runnable.bind`."""
        if self._place[0] != "cpu":
            from edge_infer.backends.onnxruntime.device_call import DeviceCall

            has_graph = self._options is not None
            return DeviceCall(self._session, self.inputs, self.outputs, shapes, place=self._place, has_graph=has_graph)
        from edge_infer.backends.onnxruntime.call import OnnxRuntimeCall

        return OnnxRuntimeCall(self._session, self.inputs, self.outputs, shapes)

    def bind_steps(
        self,
        given: Mapping[str, tuple[int, ...]],
        made: Mapping[str, tuple[int, ...]],
        state: Mapping[str, str],
        first: Mapping[str, Array],
    ) -> BoundSteps | None:
        """Bind buffers for the steps of a stream on the CPU; see `Runnable.bind_steps`."""
        from edge_infer.backends.onnxruntime.steps import OnnxRuntimeSteps, can_bind_steps

        if self._place[0] != "cpu" or self._session is None or not can_bind_steps(self.inputs, self.outputs):
            return None
        with translated("bind the buffers of a stream", ExecutionError):
            return OnnxRuntimeSteps(self._session, self.inputs, self.outputs, given, made, state, first)

    def adopt(self, value: Any) -> Tensor:
        """Take a tensor of another library that lies on a device, without a copy: anything with DLPack."""
        import onnxruntime

        with translated("take the tensor", ExecutionError):
            return OrtTensor(onnxruntime.OrtValue.from_dlpack(value))

    def examined(self) -> Placement:
        """Return where it runs, with the threads of its pool and the nodes of each provider."""
        from edge_infer.backends.onnxruntime import placement

        nodes = self.placement.nodes or placement.counted(placement.assigned_nodes(self._session) or [])
        return self.placement._replace(threads=self.placement.threads or physical_cores(), nodes=nodes)

    def close(self) -> None:
        """Give back the session's memory."""
        self._session = None


def _handed_on(name: str, value: Any, target: Array | None, *, is_kept: bool) -> Array:
    """Return a copy of an output that is also an input: its value lies in the caller's memory."""
    copy = from_ort_value(value)
    if not isinstance(copy, Tensor):
        copy = copy.copy()
    if target is None:
        return OrtTensor(to_ort_value(copy)) if is_kept else copy
    if isinstance(target, OrtTensor):
        target.value().update_inplace(to_numpy(copy) if isinstance(copy, Tensor) else copy)
        return target
    fill(name, target, copy)
    return target
