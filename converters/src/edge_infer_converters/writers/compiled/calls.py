"""The calls of a program while it is built: their values have no place in memory yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from edge_infer.errors import ConversionError, UnsupportedModel
from edge_infer.kernels.declarations import KERNELS, scratch_bytes
from edge_infer.kernels.extents import extents
from edge_infer_converters.writers.compiled.numbers import signed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer_converters.writers.tflite.graph import Tensor

#: The arguments of the kernels are 32-bit integers.
_MAX_BYTES = 2**31


@dataclass(eq=False, slots=True)
class Value:
    """Memory of a program: a constant, or bytes of the arena from one call to another.

    Attributes:
        name: What it is, for messages.
        nbytes: Its size.
        data: The bytes of a constant, else None.
        first: The call that writes it first; -1 for an input.
        last: The call that uses it last; the number of calls for an output.
        shares: The value whose memory it takes, or None.
    """

    name: str
    nbytes: int
    data: bytes | None = None
    first: int = -1
    last: int = -1
    shares: Value | None = None

    @property
    def root(self) -> Value:
        """The value that owns the memory."""
        value = self
        while value.shares is not None:
            value = value.shares
        return value


class Variable(NamedTuple):
    """Memory that is kept from run to run.

    Attributes:
        value: The memory.
        initial: What it holds before the first run; None for zeros.
    """

    value: Value
    initial: Value | None


class Part(NamedTuple):
    """A value from some byte on."""

    value: Value
    offset: int = 0


@dataclass(eq=False, slots=True)
class Call:
    """One call of a kernel.

    Attributes:
        kernel: Its name in `KERNELS`.
        tensors: By argument the memory; None for an absent one.
        integers: By argument.
        floats: By argument.
        in_place: The values that the output may overwrite where nothing reads them later.
        operator: The operator of the model that it computes.
        layer: Its number in the model.
    """

    kernel: str
    tensors: dict[str, Part | None]
    integers: dict[str, int]
    floats: dict[str, float]
    in_place: tuple[Value, ...] = ()
    operator: str = ""
    layer: int = -1


@dataclass(eq=False, slots=True)
class Calls:
    """Calls in their order, and the values that they use.

    Attributes:
        rounding: How integers are rounded: `litert`, `reference` or `tflm`.
        calls: What was added so far.
        operator: The operator that is being lowered.
        layer: Its number in the model.
        initial: The first values of variables, by name.
        filter_lanes: How many filters of a convolution of floats lie beside each other.
        handles: By the identity of a handle's tensor the name of its variable.
        variables: Memory that is kept from run to run, by the name of a resource or the identity of a tensor.
    """

    rounding: str
    calls: list[Call] = field(default_factory=list)
    operator: str = ""
    layer: int = -1
    initial: Mapping[str, np.ndarray] = field(default_factory=dict)
    filter_lanes: int = 8
    handles: dict[int, str] = field(default_factory=dict)
    variables: dict[object, Variable] = field(default_factory=dict)
    _values: dict[int, Value] = field(default_factory=dict)
    _constants: dict[bytes, Value] = field(default_factory=dict)

    def of(self, tensor: Tensor) -> Value:
        """Return the memory of a tensor of the model."""
        value = self._values.get(id(tensor))
        if value is None:
            is_constant = tensor.data is not None
            value = self.constant(signed(tensor)) if is_constant else Value(tensor.name, nbytes(tensor))
            self._values[id(tensor)] = value
        return value

    def constant(self, array: np.ndarray) -> Value:
        """Return the memory of a constant; equal bytes are kept once."""
        data = np.ascontiguousarray(array).tobytes()
        if data not in self._constants:
            self._constants[data] = Value("constant", len(data), data)
        return self._constants[data]

    def temporary(self, size: int) -> Value:
        """Return memory that no tensor of the model has."""
        return Value(f"temporary of {self.operator}", size)

    def variable(self, key: object, tensor: Tensor, first: np.ndarray | None = None) -> Value:
        """Return the memory of a variable.

        Args:
            key: What names it.
            tensor: A tensor of its dtype and shape.
            first: What it holds before the first run; for a resource what the file says, else zeros.

        Raises:
            UnsupportedModel: It is used in two sizes, or its first value has another one.
        """
        if key not in self.variables:
            found = self.initial.get(key) if isinstance(key, str) else first
            if found is not None and found.dtype == np.uint8:
                found = (found.astype(np.int16) - 128).astype(np.int8)
            start = None if found is None or not found.any() else self.constant(found)
            self.variables[key] = Variable(Value(f"variable {key}", nbytes(tensor)), start)
        value, start = self.variables[key]
        if value.nbytes != nbytes(tensor) or (start is not None and start.nbytes != value.nbytes):
            raise UnsupportedModel(
                f"the variable `{key}` has {value.nbytes} bytes, and `{tensor.name}` {nbytes(tensor)}"
            )
        return value

    def copy(self, source: Value, target: Value) -> None:
        """Append a copy of one value into another of its size."""
        if source.nbytes != target.nbytes:
            raise UnsupportedModel(f"{source.nbytes} bytes become {target.nbytes}")
        sizes = {f"size_{i}": 1 for i in range(5)}
        steps = {f"{side}_{i}": 0 for side in ("input", "output") for i in range(5)}
        self.add("copy", {"input": source, "output": target}, sizes | steps | {"block": source.nbytes})

    def share(self, output: Tensor, given: Tensor) -> None:
        """Let an output be its input's memory: the same bytes in another shape."""
        value = self.of(given)
        if value.nbytes != nbytes(output):
            raise UnsupportedModel(f"{value.nbytes} bytes become {nbytes(output)} by another shape alone")
        if value.data is not None:
            self._values[id(output)] = value
        else:
            self.of(output).shares = value

    def add(
        self,
        kernel: str,
        tensors: Mapping[str, Part | Value | None],
        integers: Mapping[str, int],
        floats: Mapping[str, float] | None = None,
        in_place: Sequence[Value] = (),
    ) -> None:
        """Append a call; its scratch memory is added."""
        declared = KERNELS[kernel]
        parts = {name: Part(one) if isinstance(one, Value) else one for name, one in tensors.items()}
        size = scratch_bytes(kernel, integers)
        if "scratch" in declared.tensors:
            parts["scratch"] = Part(Value("scratch", size))
        call = Call(
            kernel,
            {name: parts[name] for name in declared.tensors},
            {name: int(integers[name]) for name in declared.integers},
            {name: float((floats or {})[name]) for name in declared.floats},
            tuple(in_place),
            self.operator,
            self.layer,
        )
        if any(not -_MAX_BYTES <= number < _MAX_BYTES for number in call.integers.values()):
            raise ConversionError(
                f"{self.operator} has a size of 2^31 or more, which no argument of a kernel holds",
                hint="a smaller input: --shape NAME=1,224,224,3",
            )
        self._check(call)
        self.calls.append(call)

    def _check(self, call: Call) -> None:
        """Refuse a call that would leave the memory of its tensors: the sizes of the model contradict each other."""
        try:
            touched = extents(call.kernel, call.integers)
        except ValueError as error:
            raise UnsupportedModel(f"its sizes contradict each other: {error}") from error
        for name, part in call.tensors.items():
            if part is None:
                continue
            low, high = touched[name]
            if part.offset + low < 0 or part.offset + high > part.value.root.nbytes:
                raise UnsupportedModel(
                    f"its {name} has {part.value.root.nbytes} bytes, and {part.offset + low} to {part.offset + high} "
                    "are used: its sizes contradict each other"
                )

    def settle(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        """Find out how long each value lives, and let outputs overwrite inputs where they may.

        Returns:
            The inputs, and the outputs.
        """
        kept = [one.value for one in self.variables.values()]
        self._mark([*inputs, *kept], [*outputs, *kept])
        ends = [one.root for one in (*inputs, *kept)]
        for place, call in enumerate(self.calls):
            output = call.tensors["output"]
            if output is None:
                continue
            new = output.value.root
            for value in call.in_place:
                old = value.root
                is_free = old.data is None and old is not new and old.last == place and old.nbytes == new.nbytes
                if is_free and new.first == place and old not in ends:
                    new.shares = old
                    old.last = new.last
                    break
        return list(inputs), list(outputs)

    def _mark(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        seen = {id(value.root) for value in inputs}
        for place, call in enumerate(self.calls):
            for part in call.tensors.values():
                if part is None or part.value.data is not None:
                    continue
                root = part.value.root
                if id(root) not in seen:
                    root.first = place
                    seen.add(id(root))
                root.last = place
        for value in outputs:
            value.root.last = len(self.calls)


def nbytes(tensor: Tensor) -> int:
    """Return the bytes of a tensor."""
    return int(np.prod(tensor.shape, dtype=np.int64)) * tensor.dtype.itemsize
