"""The contract between a session and an engine.

A backend is found by `backends.registry`, says whether it can work here, and prepares a model as a `Runnable`. An
adapter subclasses `Backend`, its model `Runnable`; their optional members have defaults here.
`Session` has checked names, dtypes and shapes before it calls one; each input arrives as a `numpy.ndarray` or an
`edge_infer.Tensor`, each output leaves as either, whichever is natural to the engine.
"""

from __future__ import annotations

from edge_infer.errors import UnsupportedError
from edge_infer.platform.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, Protocol

    from edge_infer.bundle.variant import Variant
    from edge_infer.errors import BackendUnavailable
    from edge_infer.tensors.tensor import Array, Tensor, TensorSpec
else:  # a plain base class at run time
    Protocol = object


class Availability(Record):
    """Whether an engine works here, its devices, the preferred first, and the reason and hint for those that do not."""

    ready: bool
    devices: tuple[str, ...] = ()
    reason: str = ""
    hint: str = ""


class Placement(Record):
    """Where a prepared model really runs.

    Attributes:
        device: `cpu`, `cuda`, `wasm` or `webgpu`.
        threads: The threads that one operator may use; 0 where the engine decides.
        providers: The engine's own names of what computes, the preferred first.
        fallbacks: What was asked for and not given, each with the reason.
        nodes: How many nodes each provider computes; empty where the engine does not tell.
    """

    device: str
    threads: int = 0
    providers: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    nodes: tuple[tuple[str, int], ...] = ()


class EngineOptions(Protocol):
    """Settings of one engine, typed: `OnnxRuntimeOptions`, `LiteRTOptions`."""

    @property
    def backend(self) -> str:
        """The backend that they are for."""

    @property
    def device(self) -> str | None:
        """The device that they imply; None where they fit each."""

    def settings(self) -> dict[str, str]:
        """Return what `Backend.prepare` takes as options, beside the bundle's own."""


class Call(Protocol):
    """A run with fixed shapes and buffers that are used again: made by `Runnable.bind`, used by one thread."""

    @property
    def inputs(self) -> Mapping[str, Array]:
        """The engine's input buffers: write into them, or let `write` do it."""

    @property
    def outputs(self) -> dict[str, Array]:
        """The output buffers; each run overwrites them, or puts another dict here where a buffer had to change."""

    def write(self, name: str, value: Array) -> None:
        """Copy a checked value into an input buffer."""

    def run(self) -> None:
        """Run the model on what the input buffers hold."""

    def close(self) -> None:
        """Give the buffers back."""


class BoundSteps(Protocol):
    """The steps of one stream over buffers that are used again: made by `Runnable.bind_steps`, used by one thread."""

    def fits(self, feeds: Mapping[str, Array]) -> bool:
        """Tell whether checked inputs have the shapes of the buffers."""

    def step(self, feeds: Mapping[str, Array]) -> dict[str, Array] | None:
        """Run one step on the inputs that are not state, and return copies of the outputs that are not.

        None where an output has another shape than its buffer: then nothing has been done.

        Raises:
            ExecutionError: The engine failed; the state stays as it was.
        """

    def state(self) -> dict[str, Array]:
        """Return a copy of the state, by input."""

    def close(self) -> None:
        """Give the buffers back."""


class Runnable(Protocol):
    """A model that an engine has prepared."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    #: Where it really runs.
    placement: Placement
    #: Whether several threads may run it at once.
    is_thread_safe: bool = False
    #: Whether the engine is asynchronous by nature: then it has `run_async`, and `run` waits where that is possible.
    is_asynchronous: bool = False
    #: Whether the model keeps values of its own that no input or output shows. Each run starts from their first values.
    has_hidden_state: bool = False
    #: Optional: takes another library's device tensor without a copy.
    adopt: Callable[[Any], Tensor] | None = None

    def run(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model.

        Args:
            feeds: One checked value for each input; a kept tensor of this engine is fed without a copy.
            outputs: The names of the outputs to compute.
            into: Buffers to write outputs into; each is returned under its name.
            keep: Outputs to leave in the engine, returned as `Tensor` whose `location` is not `host`.

        Raises:
            ExecutionError: The engine failed.
            UnsupportedError: The engine cannot keep tensors or write into buffers.
        """

    async def run_async(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model as `run` does, without blocking where the engine is asynchronous."""
        return self.run(feeds, outputs, into, keep)

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> Call:
        """Make a call with an input buffer of each of these shapes."""

    def bind_steps(
        self,
        given: Mapping[str, tuple[int, ...]],  # noqa: ARG002
        made: Mapping[str, tuple[int, ...]],  # noqa: ARG002
        state: Mapping[str, str],  # noqa: ARG002
        first: Mapping[str, Array],  # noqa: ARG002
    ) -> BoundSteps | None:
        """Optional: binds buffers for the steps of a stream; None where `run` with kept tensors is as good.

        Args:
            given: The shape of each input.
            made: The shape of each output, as a step with these inputs gave it; a state keeps its shape.
            state: Which output becomes which input.
            first: The state to go on from, by input.

        Raises:
            BackendError: The engine cannot bind them; a stream goes on without.
            MemoryError: There is no room for them.
        """
        return None

    def keeping_state(self) -> Runnable:
        """Optional: makes a second runnable whose hidden state starts anew and stays from run to run."""
        raise UnsupportedError(
            "This engine cannot keep the hidden state of a model", hint="use a backend that runs the file itself"
        )

    def examined(self) -> Placement:
        """Optional: returns `placement` with what takes time to find out: default threads, the nodes of a provider."""
        return self.placement

    def close(self) -> None:
        """Give back the model's memory; the runnable is not used again."""


class Backend(Protocol):
    """An engine adapter."""

    #: The name that `load(backend=...)` takes.
    name: str
    #: The model formats that it reads, as variants name them.
    formats: tuple[str, ...]
    #: The devices that it has in a page, the preferred first; empty for an engine that runs natively.
    page_devices: tuple[str, ...] = ()
    #: Whether it computes integer models of its formats exactly, and so judges other engines and measures variants.
    is_exact: bool = False
    #: Whether it is right by definition and slow: it judges the others, and is taken only when it is named.
    is_reference: bool = False
    #: Whether it takes the number of threads of an operator, as its option `intra_op_threads`.
    takes_threads: bool = False

    def availability(self) -> Availability:
        """Say whether this engine can work here; never raises."""

    def why_not(self, device: str) -> BackendUnavailable | None:  # noqa: ARG002
        """Optional: explains why a device is unavailable; None where there is nothing to say."""
        return None

    def version(self) -> str:
        """Return the engine's version; empty where it is not installed."""

    def head_start(self, device: str) -> AbstractContextManager[None] | None:  # noqa: ARG002
        """Optional: starts initialising in the background before the model is read, for the time of the `with`."""
        return None

    async def start(self) -> None:
        """Optional: starts an engine whose start is asynchronous."""

    def prepare(self, model: str | bytes, variant: Variant, *, device: str, options: Mapping[str, str]) -> Runnable:
        """Load a model.

        Args:
            model: The path of the model file, or its bytes.
            variant: What it is.
            device: One of the devices that `availability` names.
            options: Engine settings, as the engine spells them; `strict` where all of the model must run on `device`.

        Raises:
            UnsupportedModel: The engine cannot load it.
            BackendUnavailable: The engine cannot work here.
        """

    async def prepare_async(
        self, model: str | bytes, variant: Variant, *, device: str, options: Mapping[str, str]
    ) -> Runnable:
        """Load a model as `prepare` does, without blocking where the engine is asynchronous."""
        return self.prepare(model, variant, device=device, options=options)
