"""The contract between a session and an engine.

A backend is found by `backends.registry`, says whether it can work here, and prepares a model as a `Runnable`.
`Session` has checked names, dtypes and shapes before it calls one; each input arrives as a `numpy.ndarray` or an
`edge_infer.Tensor`, each output leaves as either, whichever is natural to the engine.
"""

from __future__ import annotations

from edge_infer.platform.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, Protocol, TypeGuard

    from edge_infer.bundle.manifest import Variant
    from edge_infer.errors import BackendUnavailable
    from edge_infer.tensors.tensor import Array, TensorSpec
else:  # what the classes below are for is done before a program runs
    Any, Protocol = object, object


class Availability(Record):
    """Whether an engine can work here: on which devices, the preferred first; why not, or not on more; what to type."""

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
    """Settings of one engine, typed: `OnnxRuntimeOptions`."""

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

    inputs: Mapping[str, Array]
    """The engine's input buffers: write into them, or let `write` do it."""

    outputs: dict[str, Array]
    """The output buffers; each run overwrites them, or puts another dict here where a buffer had to change."""

    def write(self, name: str, value: Array) -> None:
        """Copy a checked value into an input buffer."""

    def run(self) -> None:
        """Run the model on what the input buffers hold."""

    def close(self) -> None:
        """Give the buffers back."""


class Runnable(Protocol):
    """A model that an engine has prepared.

    One that takes the device tensors of other libraries without a copy also has `adopt(value) -> Tensor`.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    is_thread_safe: bool

    @property
    def placement(self) -> Placement:
        """Where it really runs."""

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

    def bind(self, shapes: Mapping[str, tuple[int, ...]]) -> Call:
        """Make a call with an input buffer of each of these shapes."""

    def close(self) -> None:
        """Give back the model's memory; the runnable is not used again."""


class AsyncRunnable(Protocol):
    """What a runnable has besides, whose engine is asynchronous by nature; its `run` waits where that can be done."""

    async def run_async(
        self, feeds: Mapping[str, Array], outputs: Sequence[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run the model as `Runnable.run` does, without blocking."""


class Backend(Protocol):
    """An engine adapter."""

    name: str
    formats: tuple[str, ...]

    def availability(self) -> Availability:
        """Say whether this engine can work here; never raises."""

    def version(self) -> str:
        """Return the engine's version; empty where it is not installed."""

    async def start(self) -> None:
        """Start an engine whose start is asynchronous; the others do nothing."""

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


class AsyncBackend(Protocol):
    """What a backend has besides, that loads some models asynchronously; its `prepare` waits where that can be done."""

    async def prepare_async(
        self, model: str | bytes, variant: Variant, *, device: str, options: Mapping[str, str]
    ) -> Runnable:
        """Load a model as `Backend.prepare` does, without blocking."""


class HasReasons(Protocol):
    """What a backend has besides, that knows in detail what a device wants which it could run on."""

    def why_not(self, device: str) -> BackendUnavailable | None:
        """Tell why a kind of device does not work here, and what to type; None where it knows nothing of it."""


class HasHeadStart(Protocol):
    """What a backend has besides, part of whose start needs neither the model nor this thread."""

    formats: tuple[str, ...]

    def head_start(self, device: str) -> AbstractContextManager[None] | None:
        """Begin that part: it goes on beside what is done in the `with`; None where it would not be used."""


def is_asynchronous(runnable: Runnable) -> TypeGuard[AsyncRunnable]:
    """Tell whether a runnable is one whose engine is asynchronous by nature."""
    return hasattr(runnable, "run_async")


def has_reasons(backend: object) -> TypeGuard[HasReasons]:
    """Tell whether a backend knows in detail what a device wants."""
    return hasattr(backend, "why_not")


def loads_asynchronously(backend: Backend) -> TypeGuard[AsyncBackend]:
    """Tell whether a backend loads some models asynchronously."""
    return hasattr(backend, "prepare_async")
