"""Stream: runs of a model that carry state from step to step; used by one thread.

The first step tells the shapes. Where the state keeps its own, later steps go over buffers that are bound once; a step
of other shapes goes without, and buffers are bound anew when its shapes have come again.
"""

from __future__ import annotations

from edge_infer.errors import BackendError, InputError, UnsupportedError, listed
from edge_infer.tensors.arrays import InputChecker, present
from edge_infer.tensors.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any, Protocol, Self

    from edge_infer.backends.base import BoundSteps, Runnable
    from edge_infer.tensors.tensor import Array, TensorSpec

    class Session(Protocol):
        """What a stream uses of the session that made it."""

        inputs: tuple[TensorSpec, ...]
        outputs: tuple[TensorSpec, ...]
        _runnable: Runnable | None
        _arrays: str
        _check: InputChecker

        def _run_checked(
            self, feeds: dict[str, Any], names: list[str], into: Mapping[str, Any], keep: Collection[str]
        ) -> dict[str, Array]: ...

        def _closed(self) -> Runnable: ...

        def close(self) -> None:
            """Give back its memory."""


#: The most steps of the same shapes that a stream waits for before it binds buffers again.
_MOST_WAITED = 64


class Stream:
    """Runs of a model that carry state from step to step inside the engine; made by `Session.stream`."""

    def __init__(
        self, session: Session, state: dict[str, str], initial: dict[str, Any], *, owns_session: bool = False
    ) -> None:
        self._session = session
        self._owns_session = owns_session
        self._state = state
        self._outputs = [spec.name for spec in session.outputs]
        specs = {spec.name: spec for spec in session.inputs}
        self._check = InputChecker([spec for spec in session.inputs if spec.name not in state.values()])
        self._targets = frozenset(state.values())
        self._held: dict[str, Any] = {}
        self._own: list[Tensor] = []  # what this stream has made: the caller's own tensors are not its to close
        self._bound: BoundSteps | None = None
        self._may_bind = bool(state)
        # Steps of the same shapes before buffers are bound: twice as many each time that they did not fit any more.
        self._wait = 1
        self._same = 0
        self._last: dict[str, tuple[int, ...]] = {}
        self._is_closed = False
        for name in state.values():
            spec = specs[name]
            if name in initial:
                self._held[name] = initial.pop(name)
            elif spec.is_fixed:
                shape = tuple(int(dim) for dim in spec.shape)
                self._held[name] = Tensor(bytes(spec.dtype.nbytes(shape)), spec.dtype, shape)
            else:
                raise InputError(
                    f"State `{name}` has the free shape {spec}, expected an initial value",
                    hint=f'session.stream(..., initial={{"{name}": ...}})',
                    input=name,
                )
        if initial:
            self.close()
            raise InputError(
                f"{listed(list(initial))} is not state of this stream; choose from {listed(list(state.values()))}"
                if state
                else f"{listed(list(initial))} is not state of this stream: its state is hidden, and starts anew"
            )

    def step(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run one step.

        Args:
            inputs: The inputs that are not state.

        Returns:
            The outputs that are not state.

        Raises:
            InputError: An input does not fit, or is a state.
            ExecutionError: The engine failed; the state stays as it was, hidden state apart.
        """
        if self._is_closed:
            raise InputError("The stream is closed", hint="open another, with `initial=` what `state()` returned")
        for name in inputs:
            if name in self._targets:
                raise InputError(f"Input `{name}` is a state of this stream, which feeds it itself", input=name)
        if self._bound is not None:
            found = self._bound_step(self._bound, inputs)
            if found is not None:
                return found
        return self._free_step(inputs)

    def _bound_step(self, bound: BoundSteps, inputs: Mapping[str, Any]) -> dict[str, Array] | None:
        """Run one step over the bound buffers; None, and they are given up, where it does not fit them."""
        session, feeds = self._session, self._check(inputs)
        if session._runnable is None:
            session._closed()
        found = bound.step(feeds) if bound.fits(feeds) else None
        if found is not None:
            return present(found, session._arrays)
        self._held, self._bound = bound.state(), None
        self._wait, self._same = min(2 * self._wait, _MOST_WAITED), 0
        bound.close()
        return None

    def _free_step(self, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Run one step as any run, its state staying in the engine."""
        session = self._session
        feeds = session._check({**inputs, **self._held})
        results = session._run_checked(feeds, self._outputs, {}, frozenset(self._state))
        spent, shapes = self._own, {name: tuple(value.shape) for name, value in results.items()}
        self._held = {target: results.pop(source) for source, target in self._state.items()}
        self._own = [value for value in self._held.values() if isinstance(value, Tensor)]
        if self._may_bind:
            self._try_to_bind({name: tuple(value.shape) for name, value in feeds.items()}, shapes)
        for tensor in spent:
            tensor.close()
        return results

    def _try_to_bind(self, given: dict[str, tuple[int, ...]], made: dict[str, tuple[int, ...]]) -> None:
        """Bind buffers of these shapes, those of a step that is done, where enough steps had them."""
        runnable, keeps = self._session._runnable, all(made[one] == given[other] for one, other in self._state.items())
        self._same = self._same + 1 if given == self._last else 1
        self._last = given
        if runnable is None or not keeps or self._same < self._wait:
            return
        try:
            self._bound = runnable.bind_steps(given, made, self._state, self._held)
        except (BackendError, MemoryError):  # the step itself went well, and so will the next
            self._bound = None
        self._may_bind = self._bound is not None

    def state(self) -> dict[str, Array]:
        """Return the state by input name, copied to the host: `initial` of a stream that goes on from here.

        Raises:
            UnsupportedError: The state is hidden in the engine.
        """
        if self._owns_session:
            raise UnsupportedError(
                "The state of this stream is hidden in the model, and no engine gives it out",
                hint="keep the stream open, or feed a new one the last inputs again",
            )
        held = self._held if self._bound is None else self._bound.state()
        return {name: value.to_host() if isinstance(value, Tensor) else value for name, value in held.items()}

    def close(self) -> None:
        """Give back the state's memory. A second call does nothing."""
        self._is_closed = True
        if self._bound is not None:
            self._bound.close()
            self._bound = None
        for tensor in self._own:
            tensor.close()
        self._own = []
        self._held = {}
        if self._owns_session:
            self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
