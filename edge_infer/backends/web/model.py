"""A model in the memory of a page's engine, whose calls are synchronous: ONNX Runtime's or LiteRT's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from edge_infer.backends.base import Placement, Runnable
from edge_infer.backends.web.call import Crossing, PageTensor, Plan, flat_bytes, translated
from edge_infer.errors import InputError, UnsupportedError
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from edge_infer.tensors.tensor import Array


class PageModel(Runnable):
    """A model in the engine's memory."""

    # There is one thread.
    is_thread_safe = True
    #: Calls, with their buffers, that a model keeps for the shapes it saw last.
    max_calls = 4

    def __init__(self, js_session: Any, threads: int, providers: tuple[str, ...]) -> None:
        self._js_session = js_session
        specs = json.loads(js_session.describe())
        self.inputs = tuple(TensorSpec(**spec) for spec in specs["inputs"])
        self.outputs = tuple(TensorSpec(**spec) for spec in specs["outputs"])
        self.has_hidden_state = bool(specs.get("hasHiddenState"))
        self.placement = Placement("wasm", threads, providers)
        self._calls: dict[Plan, Crossing] = {}

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model; see `Runnable.run`."""
        values = [feeds[spec.name] for spec in self.inputs]
        shapes = tuple(None if type(value) is PageTensor else value.shape for value in values)
        placed = tuple(name for name in outputs if type(into.get(name)) is PageTensor) if into else ()
        plan = Plan(shapes, tuple(outputs), tuple(keep), placed)
        call = self._calls.get(plan)
        with translated:
            if call is None:
                call = self._calls[plan] = Crossing(self._js_session, self.inputs, plan)
                if len(self._calls) > self.max_calls:
                    self._calls.pop(next(iter(self._calls))).close()
            tensors = []
            for value, write in zip(values, call.writers, strict=True):
                if write is None:
                    tensors.append(value.js_tensor())
                else:
                    write(value)
            tensors += [into[name].js_tensor() for name in placed]
            call.run(*tensors)
            return {name: call.read(i, into.get(name)) for i, name in enumerate(outputs)}

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> PageCall:
        """Make a call with an input buffer of each of these shapes; see `Runnable.bind`."""
        in_order = tuple(shapes[spec.name] for spec in self.inputs)
        with translated:
            call = Crossing(self._js_session, self.inputs, Plan(in_order, tuple(spec.name for spec in self.outputs)))
        return PageCall(call, self.inputs, self.outputs, shapes)

    def close(self) -> None:
        """Give back the model's memory."""
        for call in self._calls.values():
            call.close()
        self._calls.clear()
        self._js_session.close()


class HostPageModel(PageModel):
    """A model of an engine that keeps no tensors in its memory: kept outputs are host tensors."""

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model; see `Runnable.run`."""
        del keep
        for name, target in into.items():
            if isinstance(target, Tensor) and target.location != "host":
                raise UnsupportedError(
                    f"Output `{name}` cannot be written into a tensor on the {target.location}: this engine keeps none",
                    hint="give a buffer of Python",
                )
        feeds = {name: value.to_host() if isinstance(value, Tensor) else value for name, value in feeds.items()}
        return super().run(feeds, outputs, into, ())


class PageCall:
    """A run over buffers that are used again."""

    def __init__(
        self,
        call: Crossing,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        self._call = call
        self._inputs = inputs
        self._shapes = shapes
        self._places = {spec.name: place for place, spec in enumerate(inputs)}
        self._buffers: dict[str, Tensor] = {}
        # Whether the outputs lie in the buffer that both languages see: each run renews them where they are.
        self._is_shared = False
        self._outputs = [spec.name for spec in outputs]
        self.outputs: dict[str, Array] = {}

    @property
    def inputs(self) -> Mapping[str, Array]:
        """The input buffers, made when they are first asked for: from then on each run copies them to the engine."""
        if not self._buffers:
            for spec in self._inputs:
                if spec.dtype is DType.STRING:
                    raise InputError(
                        f"Input `{spec.name}` is of strings, which have no buffer", hint="pass them to the call"
                    )
                shape = self._shapes[spec.name]
                self._buffers[spec.name] = Tensor(bytearray(spec.dtype.nbytes(shape)), spec.dtype, shape)
        return self._buffers

    def write(self, name: str, value: Array) -> None:
        """Copy a value into the engine, and into the input buffer where there is one."""
        if self._buffers:
            self._buffers[name].data()[:] = flat_bytes(value)
            return
        with translated:
            self._write(name, value)

    def run(self) -> None:
        """Run the model on what was written."""
        with translated:
            for name, buffer in self._buffers.items():
                self._write(name, buffer)
            self._call.run()
            if self._is_shared:
                return
            for i, name in enumerate(self._outputs):
                known = self.outputs.get(name)
                result = self._call.shared(i)
                self._is_shared = result is not None
                if result is None:
                    result = self._call.read(i, known if self._call.is_fixed(i) else None)
                if result is not known:
                    # Another dict: whoever shows these outputs sees by it that a buffer has changed.
                    self.outputs = {**self.outputs, name: result}

    def _write(self, name: str, value: Array) -> None:
        write = self._call.writers[self._places[name]]
        if write is not None:
            write(value)

    def close(self) -> None:
        """Give the buffers back."""
        self._call.close()
