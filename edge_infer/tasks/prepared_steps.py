"""The steps of one pipeline before and after its model, ready to run, and how their tensors become batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import ExecutionError, InputError, ManifestError, listed
from edge_infer.tasks.definition import ALL_INPUTS
from edge_infer.tasks.item import Item
from edge_infer.tasks.place import Place, no_input
from edge_infer.tasks.registry import get_task
from edge_infer.tasks.shared import beginnings
from edge_infer.tasks.steps import prepare_chain
from edge_infer.tasks.values import flat
from edge_infer.tensors import elements
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, Protocol

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.tasks.definition import Definition
    from edge_infer.tasks.shared import Beginning, Shared
    from edge_infer.tasks.steps import Apply
    from edge_infer.tensors.tensor import TensorSpec

    class Ends(Protocol):
        """What is needed of a session: its bundle, and what the model takes and gives."""

        @property
        def bundle(self) -> Bundle:
            """The bundle."""
            ...

        @property
        def inputs(self) -> Sequence[TensorSpec]:
            """The specs of the inputs."""
            ...

        @property
        def outputs(self) -> Sequence[TensorSpec]:
            """The specs of the outputs."""
            ...


class Ready(NamedTuple):
    """One raw input after the first steps.

    Attributes:
        item: What the later steps need to know of it.
        tensors: The tensors of the model's inputs, without the batch's dimension.
        frames: By name of an input, the frames that a streamed model takes one after the other; empty for one run.
    """

    item: Item
    tensors: dict[str, Tensor]
    frames: dict[str, list[Tensor]]

    @property
    def size(self) -> int:
        """How many elements its longest tensor has: tokens, for a text."""
        return max((tensor.size for tensor in self.tensors.values()), default=0)


#: The most tokens of a batch, those that only fill it up included: more of them are slower on a CPU, not faster.
_TOKENS = 512
#: The most rows of a table that run together.
_ROWS = 16_384
#: The most inputs of a batch that are no texts.
_ALIKE = 16


class PreparedSteps:
    """The steps of a pipeline, prepared for a model.

    Args:
        definition: What is done.
        session: The model that is between: a session, or what a manifest says of it.

    Raises:
        ManifestError: The definition does not fit the model or the bundle.
    """

    def __init__(self, definition: Definition, session: Ends) -> None:
        bundle, self._takes = session.bundle, get_task(definition.task).takes
        self._expand = get_task(definition.task).expand
        self._specs = {spec.name: spec for spec in session.inputs}
        self._outputs = session.outputs
        state = {one.input for variant in bundle.manifest.variants for one in variant.state if not one.is_hidden}

        def place(name: str) -> Place:
            return Place(bundle.read, bundle.labels(), session.inputs, session.outputs, name)

        self._before: list[tuple[str, list[Apply]]] = []
        #: What the steps before the model are up to each of them, for `Shared`; empty where several inputs have some.
        self.beginnings: list[Beginning] = []
        has_windows = "doc_stride" in get_task(definition.task).arguments
        #: What cuts a long text into windows, where a step does that.
        self._windows: Callable[[Any, Mapping[str, Any]], list[Any]] | None = None
        #: What fills shorter texts up, by input.
        self._pads: dict[str, int] = {}
        for name, steps in definition.inputs.items():
            if name != ALL_INPUTS and name not in self._specs:
                raise no_input(name, list(self._specs))
            here = place("" if name == ALL_INPUTS else name)
            self._before.append((name, prepare_chain(steps, here)))
            self.beginnings = beginnings(steps, here, bundle.manifest)
            for step, made in zip(steps, self._before[-1][1], strict=True):
                if (windows := getattr(made, "windows", None)) is not None and has_windows:
                    self._windows = windows
                if step.name == "text.tokenize":
                    self._pads[step.parameters["tensors"]["ids"]] = step.parameters["pad_id"]
        missing = [name for name in self._specs if name not in definition.inputs and name not in state]
        if missing and ALL_INPUTS not in definition.inputs:
            raise ManifestError(
                f"pipeline: nothing makes the model's input {listed(missing)}, expected steps for each",
                hint=f'"inputs": {{"{missing[0]}": [...]}}',
                field=missing[0],
            )
        if len(self._before) > 1:
            self.beginnings = []
        self.place = place("")
        self._after = prepare_chain(definition.outputs, self.place)
        self.can_batch = can_batch(session.inputs, session.outputs)
        #: The first state of a streamed model: zeros, one sound at a time.
        self.first_state = {name: _zeros(self._specs[name]) for name in sorted(state) if name in self._specs}

    def runs(self, value: Any, arguments: Mapping[str, Any]) -> list[Any]:
        """Return the raw inputs that one of the task takes: a run of the model for each.

        Args:
            value: The raw input of the task.
            arguments: What the caller asked for.

        Raises:
            InputError: It is not what the task takes.
        """
        found = [value] if self._expand is None else self._expand(value, arguments)
        if self._windows is not None:
            found = [window for one in found for window in self._windows(one, arguments)]
        return found

    def before(
        self, value: Any, arguments: Mapping[str, Any], item: Item | None = None, shared: Shared | None = None
    ) -> Ready:
        """Do the steps before the model on one raw input.

        Args:
            value: The raw input.
            arguments: What the caller asked for.
            item: What is known of the input already.
            shared: What other pipelines' first steps made of the same input.

        Raises:
            InputError: It is not what the task takes.
        """
        item, tensors, frames = item or Item(arguments), dict[str, Tensor](), dict[str, list[Tensor]]()
        for name, steps in self._before:
            made = value
            if shared is not None and self.beginnings:
                made, item = shared.through(value, steps, self.beginnings, item)
            else:
                for step in steps:
                    made = step(made, item)
            if name == ALL_INPUTS:
                tensors.update(made)
            elif isinstance(made, list):
                frames[name] = made
            else:
                tensors[name] = made
        return Ready(item, tensors, frames)

    def batches(self, ready: Sequence[Ready], most: int = 0, *, is_alike: bool = False) -> Iterator[list[int]]:
        """Group what can run together, by its place: texts of about one length, up to so many tokens in all.

        Args:
            ready: The raw inputs after the first steps.
            most: The most of a batch; 0 for any number.
            is_alike: Whether inputs that are no texts run together too where their tensors have the same shapes, 16 at
                once: those of a chain, which are there at the same time.
        """
        if self.can_batch and self._takes == "table":
            each = range(len(ready))
            yield from ([*each[at : at + (most or _ROWS)]] for at in each[:: most or _ROWS])
            return
        if self.can_batch and self._takes != "text" and is_alike:
            yield from _alike(ready)
            return
        if not self.can_batch or self._takes != "text":
            yield from ([i] for i in range(len(ready)))
            return
        batch: list[int] = []
        for i in sorted(range(len(ready)), key=lambda i: ready[i].size):
            if batch and ((len(batch) + 1) * ready[i].size > _TOKENS or len(batch) == most):
                yield batch
                batch = []
            batch.append(i)
        if batch:
            yield batch

    def feeds(self, batch: Sequence[Ready]) -> dict[str, Tensor]:
        """Return the model's inputs for some raw inputs: shorter texts are filled up to the longest."""
        return {
            name: joined([ready.tensors[name] for ready in batch], self._specs[name], self._pads.get(name, 0))
            for name in batch[0].tensors
        }

    def framed(self, ready: Ready) -> list[dict[str, Tensor]]:
        """Return the model's inputs for each step of a stream."""
        fixed = {name: joined([tensor], self._specs[name], 0) for name, tensor in ready.tensors.items()}
        counts = {len(frames) for frames in ready.frames.values()}
        return [
            {**fixed, **{name: joined([frames[i]], self._specs[name], 0) for name, frames in ready.frames.items()}}
            for i in range(min(counts))
        ]

    def of_one(self, outputs: Mapping[str, Tensor], index: int, count: int) -> dict[str, Tensor]:
        """Return the outputs of one input of a batch, without the batch's dimension."""
        found = {}
        for name, tensor in outputs.items():
            is_batched = bool(tensor.shape) and tensor.shape[0] == count
            found[name] = row_of(tensor, index) if is_batched else tensor
        return found

    def before_last(self, outputs: Any, item: Item) -> Any:
        """Do the steps after the model but the last one."""
        value = outputs
        for step in self._after[:-1]:
            value = step(value, item)
        return value

    def after(self, outputs: Any, item: Item) -> Any:
        """Do the steps after the model, and return the answer."""
        value = outputs
        for step in self._after:
            value = step(value, item)
        return value

    def of_stream(self, steps: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """Return the outputs of all steps of a stream, joined along a new first dimension."""
        made = {}
        for name in steps[0]:
            parts = [step[name] for step in steps]
            if all(part.shape == parts[0].shape for part in parts):
                data = b"".join(bytes(part.data()) for part in parts)
                made[name] = Tensor(data, parts[0].dtype, (len(parts), *parts[0].shape))
        return made

    def close(self) -> None:
        """Give back what the steps hold in engines."""
        for step in [*(step for _, steps in self._before for step in steps), *self._after]:
            if (close := getattr(step, "close", None)) is not None:
                close()


def _alike(ready: Sequence[Ready]) -> Iterator[list[int]]:
    """Group inputs whose tensors have the same shapes, in the order of their first ones."""
    groups: dict[Any, list[int]] = {}
    for i, one in enumerate(ready):
        shapes = tuple((name, tensor.shape) for name, tensor in one.tensors.items())
        groups.setdefault(i if one.frames else shapes, []).append(i)
    for group in groups.values():
        yield from (group[at : at + _ALIKE] for at in range(0, len(group), _ALIKE))


def can_batch(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> bool:
    """Tell whether several inputs can go through the model at once: all lead with a free dimension, alike."""
    leads = [spec.shape[0] if spec.shape else 1 for spec in inputs]
    free = all(isinstance(lead, str) for lead in leads) and len(set(leads)) == 1
    return free and all(spec.shape and isinstance(spec.shape[0], str) for spec in outputs)


def _zeros(spec: TensorSpec) -> Tensor:
    shape = [dim if isinstance(dim, int) else 1 for dim in spec.shape]
    return Tensor(bytes(spec.dtype.nbytes(shape)), spec.dtype, shape)


def row_of(tensor: Tensor, index: int) -> Tensor:
    """Return a row of a tensor without its first dimension."""
    shape = tensor.shape[1:]
    if tensor.dtype is DType.STRING:
        return Tensor(
            tensor.reshape(-1).tolist()[index * _size(shape) : (index + 1) * _size(shape)], tensor.dtype, shape
        )
    size = tensor.dtype.nbytes(shape)
    return Tensor(tensor.data()[index * size : (index + 1) * size], tensor.dtype, shape)


def _size(shape: Sequence[int]) -> int:
    made = 1
    for dim in shape:
        made *= dim
    return made


def joined(tensors: Sequence[Tensor], spec: TensorSpec, pad: int) -> Tensor:
    """Return the tensors of several raw inputs as the model takes them.

    Raises:
        InputError: They do not fit the model's input.
    """
    first = tensors[0]
    if len(tensors) == 1 and (len(first.shape) == len(spec.shape) or not spec.is_rank_known):
        return first
    if len(first.shape) + 1 != len(spec.shape):
        if (
            len(tensors) == 1
            and spec.is_fixed
            and _size([dim for dim in spec.shape if isinstance(dim, int)]) == first.size
        ):
            return first.reshape(*(dim for dim in spec.shape if isinstance(dim, int)))
        raise InputError(
            f"the steps make a tensor of shape {list(first.shape)}, which input `{spec}` does not take",
            hint="change the definition in manifest.json, or the step before the last",
        )
    shapes = {tensor.shape for tensor in tensors}
    if len(shapes) == 1:
        data = b"".join(bytes(tensor.data()) for tensor in tensors) if len(tensors) > 1 else first.data()
        return Tensor(data, first.dtype, (len(tensors), *first.shape))
    if any(len(shape) != 1 for shape in shapes):
        raise ExecutionError("inputs of different sizes cannot be run at once", hint="give them one by one")
    longest = max(shape[0] for shape in shapes)
    values = [number for tensor in tensors for number in (*flat(tensor), *[pad] * (longest - tensor.size))]
    return Tensor(elements.pack(values, first.dtype), first.dtype, (len(tensors), longest))
