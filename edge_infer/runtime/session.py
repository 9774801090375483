"""Session: run tensors through a model, after one check of the inputs.

A session's `run` may be called from any thread; a prepared call or a stream belongs to one.
"""

from __future__ import annotations

from edge_infer.backends.registry import get_backend
from edge_infer.errors import InputError, did_you_mean, listed
from edge_infer.platform import host
from edge_infer.platform.records import Record
from edge_infer.tensors.arrays import InputChecker, check_target, has_numpy, present

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any, Self

    from edge_infer.backends.base import Runnable
    from edge_infer.bundle.bundle import Bundle
    from edge_infer.runtime.options import LoadOptions
    from edge_infer.runtime.prepared_call import PreparedCall
    from edge_infer.runtime.selection import Choice
    from edge_infer.runtime.stream import Stream
    from edge_infer.tensors.tensor import Array, TensorSpec

    #: Called with the inputs and the outputs of a run by name.
    Observer = Callable[[Mapping[str, Any], Mapping[str, Any]], None]


def _on_host(outputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs that do not lie in an engine."""
    return {name: one for name, one in outputs.items() if getattr(one, "location", "host") == "host"}


class Report(Record):
    """The engine, device and settings that a session really uses.

    Attributes:
        model: The bundle's name and the first digits of its revision.
        variant: The variant's id.
        engine: The backend's name.
        engine_version: The engine's own version.
        device_asked: What `load` was asked for.
        device: What it runs on.
        providers: The engine's own names of what computes, the preferred first.
        threads: The threads that one operator may use; 0 where the engine decides and nothing tells.
        fallbacks: What was tried first or asked for, and why it was not taken.
        why: What decided on this variant and engine: `asked for`, or `rule`, `measured` or `budget` with the reason.
        nodes: How many of the model's nodes each provider computes; empty where the engine does not tell.
    """

    model: str
    variant: str
    engine: str
    engine_version: str
    device_asked: str
    device: str
    providers: tuple[str, ...]
    threads: int
    fallbacks: tuple[str, ...]
    why: str
    nodes: tuple[tuple[str, int], ...] = ()

    def _repr_html_(self) -> str:
        """Show the report as a table in a notebook."""
        from edge_infer.tensors.notebook import html_table

        nodes = [f"{count} on {provider}" for provider, count in self.nodes]
        rows = {**self._asdict(), "threads": self.threads or "", "nodes": nodes}
        return html_table("Report", ((name.replace("_", " "), value) for name, value in rows.items()))


class Session:
    """A model that is ready to run; made by `load`.

    Attributes:
        bundle: The bundle it came from.
        inputs: The specs of the inputs, in the model's order.
        outputs: The specs of the outputs.

    >>> session = load("examples/digits/digits.onnx")
    >>> result = session.run({"image": [[[[0.5] * 8] * 8]]})
    >>> result["logits"].shape
    (1, 10)
    """

    def __init__(
        self, bundle: Bundle, choice: Choice, runnable: Runnable, asked: LoadOptions, fallbacks: Sequence[str] = ()
    ) -> None:
        self.bundle = bundle
        self.inputs: tuple[TensorSpec, ...] = choice.variant.inputs or bundle.manifest.inputs or runnable.inputs
        self.outputs: tuple[TensorSpec, ...] = choice.variant.outputs or bundle.manifest.outputs or runnable.outputs
        self._choice = choice
        self._runnable: Runnable | None = runnable
        self._adopt = runnable.adopt
        self._check = InputChecker(self.inputs, adopt=self._adopt)
        self._output_specs = {spec.name: spec for spec in self.outputs}
        self._output_names = list(self._output_specs)
        self._arrays = ("numpy" if has_numpy() else "tensor") if asked.arrays == "auto" else asked.arrays
        self._options = asked
        self._fallbacks = tuple(fallbacks)
        self._observers: tuple[Observer, ...] = ()
        #: Whether the model keeps values of its own that no output shows: `run` starts from their first values each
        #: time, and `stream` keeps them.
        self.has_hidden_state = runnable.has_hidden_state
        self._lock: Any = None
        if not runnable.is_thread_safe:
            # A lock of `threading`, without the module: it is a tenth of the start of a small model.
            from _thread import allocate_lock

            self._lock = allocate_lock()

    @property
    def state_pairs(self) -> dict[str, str]:
        """Which output becomes which input of the next step where `stream()` is not told: what the manifest names."""
        return {pair.output: pair.input for pair in self._choice.variant.state if not pair.is_hidden}

    @property
    def labels(self) -> list[str]:
        """The class names of the bundle; an empty list where it has none."""
        return self.bundle.labels()

    # -- running --

    def run(
        self,
        inputs: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        *,
        into: Mapping[str, Array] | None = None,
        keep: Collection[str] = (),
    ) -> dict[str, Array]:
        """Run the model once.

        Args:
            inputs: A value for each input: `numpy.ndarray`, `Tensor`, anything else with the buffer protocol, nested
                lists, or on a GPU another library's tensor with DLPack, which is taken without a copy. The dtype must
                be the spec's (lists have none); nothing is cast. NaN and infinity are values like any other and reach
                the model.
            outputs: The names of the outputs to compute; None for all.
            into: Writable buffers of the right dtype and shape to write outputs into.
            keep: Outputs whose tensors stay in the engine: each is returned as a `Tensor` that can be fed to a later
                run without a copy, read by `.to_host()`, and given back by `.close()`.

        Returns:
            The outputs by name: `numpy.ndarray` or `Tensor`, as `load(arrays=...)` says.

        Raises:
            InputError: An input is missing, unknown, or of another dtype or shape; or an output is unknown.
            UnsupportedError: The engine cannot keep tensors or write into buffers.
            ExecutionError: The engine failed.
        """
        feeds = self._check(inputs)
        names = self._output_names if outputs is None else self._known(outputs, self._output_names)
        if into or keep:
            keep = self._check_places(names, into or {}, keep)
        if not names:
            return {}
        found = self._run_checked(feeds, names, into or {}, keep)
        for observer in self._observers:
            observer(feeds, _on_host(found))
        return found

    def _run_checked(
        self, feeds: dict[str, Array], names: list[str], into: Mapping[str, Array], keep: Collection[str]
    ) -> dict[str, Array]:
        """Run what was checked already."""
        if self._lock is None:
            results = (self._runnable or self._closed()).run(feeds, names, into, keep)
        else:
            with self._lock:
                results = (self._runnable or self._closed()).run(feeds, names, into, keep)
        return present(results, self._arrays)

    def observe(self, observer: Observer) -> None:
        """Show the inputs and outputs of each later `run` and `run_async` to a function, such as counters of drift.

        Streams and prepared calls are not shown, nor are outputs that stay in the engine.

        Args:
            observer: Called with the inputs and the outputs by name after each run; what it raises, `run` raises.

        >>> session = load("examples/digits/digits.onnx")
        >>> session.observe(lambda inputs, outputs: print(sorted(outputs)))
        >>> _ = session.run({"image": [[[[0.5] * 8] * 8]]})
        ['logits']
        """
        self._observers = (*self._observers, observer)

    async def run_async(
        self,
        inputs: Mapping[str, Any],
        outputs: Sequence[str] | None = None,
        *,
        into: Mapping[str, Array] | None = None,
        keep: Collection[str] = (),
    ) -> dict[str, Array]:
        """Run the model once as `run` does, without blocking the event loop: natively in a thread."""
        runnable = self._runnable or self._closed()
        if runnable.is_asynchronous:
            feeds = self._check(inputs)
            names = self._output_names if outputs is None else self._known(outputs, self._output_names)
            keep = self._check_places(names, into or {}, keep)
            found = present(await runnable.run_async(feeds, names, into or {}, keep) if names else {}, self._arrays)
            for observer in self._observers if names else ():
                observer(feeds, _on_host(found))
            return found
        return await host.run_in_thread(lambda: self.run(inputs, outputs, into=into, keep=keep))

    def _check_places(self, names: list[str], into: Mapping[str, Array], keep: Collection[str]) -> frozenset[str]:
        """Refuse buffers that do not fit their outputs, and names that are not computed; return those to keep."""
        kept = frozenset(self._known(keep, names))
        for name in self._known(into, names):
            check_target(self._output_specs[name], into[name])
        return kept

    def prepare(self, shapes: Mapping[str, Sequence[int]] | None = None) -> PreparedCall:
        """Make a call with fixed shapes and buffers that are used again: the fast path.

        Args:
            shapes: The shape of each input; those whose spec is fixed may be left out.

        Raises:
            InputError: A shape is missing or does not fit the spec.

        >>> session = load("examples/digits/digits.onnx")
        >>> with session.prepare({"image": (1, 1, 8, 8)}) as call:
        ...     result = call({"image": [[[[0.5] * 8] * 8]]})
        """
        from edge_infer.runtime.prepared_call import PreparedCall

        runnable = self._runnable or self._closed()
        fixed: dict[str, tuple[int, ...]] = {}
        given = dict(shapes or {})
        for spec in self.inputs:
            wanted: Sequence[Any] = given.pop(spec.name, spec.shape)
            shape = tuple(dim.__index__() for dim in wanted if hasattr(dim, "__index__"))
            if len(shape) != len(wanted) or not spec.accepts(shape) or any(dim < 0 for dim in shape):
                raise InputError(
                    f"Input `{spec.name}` is prepared for shape {tuple(wanted)}, expected numbers that fit {spec}",
                    hint=f'session.prepare({{"{spec.name}": (1, ...)}})',
                    input=spec.name,
                )
            fixed[spec.name] = shape
        if given:
            self._check.refuse_unknown(list(given))
        return PreparedCall(runnable.bind(fixed), InputChecker(self.inputs, fixed, self._adopt), self._arrays)

    def stream(self, state: Mapping[str, str] | None = None, *, initial: Mapping[str, Any] | None = None) -> Stream:
        """Run the model step by step, its state staying in the engine: an RNN, or a decoder's KV cache.

        Args:
            state: Which output becomes which input of the next step: `{"h_out": "h_in"}`. It may be left out where the
                bundle's manifest names the pairs, or where the state is hidden: variables of a TFLite file, of which
                each stream has its own.
            initial: The first value of state inputs; zeros where the spec is fixed.

        Raises:
            InputError: A name is unknown, a state of free shape has no initial value, or the model has no state that is
                known.
        """
        from edge_infer.runtime.stream import Stream

        pairs = self.state_pairs if state is None else dict(state)
        if not pairs and not self.has_hidden_state:
            raise InputError(
                "stream() needs to know which output becomes which input",
                hint='session.stream(state={"h_out": "h_in"})',
            )
        self._known(pairs, self._output_names)
        self._check.refuse_unknown(list(pairs.values()))
        if len(set(pairs.values())) != len(pairs):
            raise InputError(
                f"Two outputs become one input: {listed(list(pairs.values()))}", hint="name each input once"
            )
        if not self.has_hidden_state:
            return Stream(self, pairs, dict(initial or {}))
        own = (self._runnable or self._closed()).keeping_state()
        session = Session(self.bundle, self._choice, own, self._options, self._fallbacks)
        return Stream(session, pairs, dict(initial or {}), owns_session=True)

    # -- what it is --

    def report(self) -> Report:
        """Tell what this session really runs on."""
        runnable = self._runnable or self._closed()
        placement = runnable.examined()
        return Report(
            self.bundle.label,
            self._choice.variant.id,
            self._choice.backend,
            get_backend(self._choice.backend).version(),
            self._options.device,
            placement.device,
            placement.providers,
            placement.threads,
            (*self._fallbacks, *placement.fallbacks),
            self._choice.why,
            placement.nodes,
        )

    def __repr__(self) -> str:
        runnable, choice = self._runnable, self._choice
        device = runnable.placement.device if runnable is not None else "closed"
        return f"Session({self.bundle.label}, {choice.variant.id}, {choice.backend} on {device})"

    def _repr_html_(self) -> str:
        """Show the session as a table in a notebook."""
        from edge_infer.tensors.notebook import html_table

        runnable, choice = self._runnable, self._choice
        device = runnable.placement.device if runnable is not None else "closed"
        rows = [("model", self.bundle.label), ("runs", f"{choice.variant.id} by {choice.backend} on {device}")]
        return html_table("Session", [*rows, ("inputs", self.inputs), ("outputs", self.outputs), ("why", choice.why)])

    def close(self) -> None:
        """Give back the model's memory. A second call does nothing."""
        if self._lock is None:
            self._close()
        else:
            with self._lock:  # after the run that is under way
                self._close()

    def _close(self) -> None:
        runnable, self._runnable = self._runnable, None
        if runnable is not None:
            runnable.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _closed(self) -> Runnable:
        raise InputError(f"The session of `{self.bundle.manifest.name}` is closed", hint="load the model again")

    @staticmethod
    def _known(names: Iterable[str], allowed: list[str]) -> list[str]:
        """Return names of outputs as a list, if each is allowed."""
        wanted = list(names)
        for name in wanted:
            if name not in allowed:
                raise InputError(
                    f"Output `{name}` is not known or not wanted; choose from {listed(allowed)}",
                    hint=did_you_mean(str(name), allowed),
                    output=str(name),
                    allowed=allowed,
                )
        return wanted
