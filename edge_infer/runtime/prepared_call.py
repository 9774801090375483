"""PreparedCall: a run with fixed shapes and buffers that are used again."""

from __future__ import annotations

from edge_infer.errors import InputError
from edge_infer.tensors.arrays import present

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Self

    from edge_infer.backends.base import Call
    from edge_infer.tensors.arrays import InputChecker
    from edge_infer.tensors.tensor import Array


class PreparedCall:
    """A run with fixed shapes and reused buffers; made by `Session.prepare`, used by one thread.

    The arrays that a call returns are overwritten by the next call.
    """

    def __init__(self, call: Call, check: InputChecker, arrays: str) -> None:
        self._call = call
        self._write = call.write
        self._check = check
        self._arrays = arrays
        self._outputs: Any = None  # the call's buffers that `_presented` shows
        self._presented: dict[str, Array] = {}
        self._is_closed = False

    @property
    def inputs(self) -> Mapping[str, Array]:
        """The input buffers; whoever writes into them may then call with no argument."""
        return self._call.inputs

    def __call__(self, inputs: Mapping[str, Any] | None = None) -> dict[str, Array]:
        """Run the model.

        Args:
            inputs: A value for each input, checked as in `Session.run`; None to run on what the buffers hold.

        Raises:
            InputError: An input does not fit.
            ExecutionError: The engine failed.
        """
        if self._is_closed:
            raise InputError("The prepared call is closed", hint="prepare another")
        call = self._call
        if inputs is not None:
            for name, value in self._check(inputs).items():
                self._write(name, value)
        call.run()
        if call.outputs is not self._outputs:
            self._outputs = call.outputs
            self._presented = present(call.outputs, self._arrays)
        return self._presented.copy()

    def close(self) -> None:
        """Give back the buffers. A second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._call.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
