"""A process that parses large JSON bodies: a parser holds Python's lock until it is through, seconds for a bad body.

A question and an answer have one form: the lengths of JSON and of bytes, the JSON, the bytes. The question's bytes are
the request's body, the answer's are the tensors, one behind the other. The process ends when its input does.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from contextlib import suppress
from threading import Timer
from typing import IO, TYPE_CHECKING, Any

from edge_infer.errors import EdgeInferError, PayloadTooLarge, error_from_json
from edge_infer.formats.safetensors import read_strings, write_strings
from edge_infer.platform.posix import limit_memory, lower_priority
from edge_infer.server.errors import InternalError
from edge_infer.server.protocol.fast import Parser
from edge_infer.server.protocol.requests import InferRequest
from edge_infer.server.protocol.steps import Plan, parse_plan
from edge_infer.tensors.arrays import to_numpy, to_tensor
from edge_infer.tensors.dtypes import DType
from edge_infer.tensors.tensor import Tensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.tensors.tensor import Array

_LENGTHS = struct.Struct("<IQ")
#: The memory of the process. JSON of 16 MiB takes up to 300 MiB (`MAX_CAREFUL_VALUES`), with its tensors and copies.
_MEMORY_BYTES = 2**30
#: How long a body may take to parse: 16 MiB take a tenth of a second, the worst of them one and a half.
_MAX_S = 60.0
_CODE = "from edge_infer.server.protocol.parsing_process import main; main()"


class ParsingProcess:
    """One such process.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self) -> None:
        path = os.pathsep.join(entry for entry in sys.path if entry)
        environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def infer(
        self,
        body: bytes,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        max_rows: int,
        json_length: int | None,
    ) -> InferRequest:
        """Parse a request as `fast.Parser` does.

        Raises:
            EdgeInferError: It is not what it must be, or the process failed.
        """
        answer, data = self._ask({"json_length": json_length, **_described(inputs, outputs, max_rows)}, body)
        return _request_from(answer, data)

    def steps(
        self,
        body: bytes,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        max_rows: int,
        known_state: Mapping[str, str] | None = None,
    ) -> Plan:
        """Parse a request for steps as `parse_plan` does.

        Raises:
            EdgeInferError: It is not what it must be, or the process failed.
        """
        answer, data = self._ask(
            {"steps": True, "known_state": dict(known_state or {}), **_described(inputs, outputs, max_rows)}, body
        )
        return Plan(_request_from(answer, data), answer["state"], tuple(answer["sequence"]), answer["steps"])

    def close(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):  # what it did not read cannot be sent any more
                pipe.close()

    def _ask(self, question: dict[str, Any], body: bytes) -> tuple[dict[str, Any], bytes]:
        to, back = self._process.stdin, self._process.stdout
        assert to is not None and back is not None
        timer = Timer(_MAX_S, self._process.kill)
        timer.start()
        try:
            _write(to, question, [body])
            answer, data = _read(back)
        except (OSError, EOFError) as error:
            raise InternalError("The process that parses JSON ended", hint="send tensors in binary") from error
        finally:
            timer.cancel()
        if "error" in answer:
            raise error_from_json(answer["error"])
        return answer, data


def main() -> None:
    """Answer questions until there are no more."""
    for one in (signal.SIGINT, signal.SIGTERM):  # the server may need it to finish what it has accepted
        signal.signal(one, signal.SIG_IGN)
    lower_priority()
    limit_memory(_MEMORY_BYTES)
    asked, answered = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            question, body = _read(asked)
        except EOFError:
            return
        try:
            answer, values = _parsed(question, body)
        except EdgeInferError as error:
            answer, values = {"error": error.to_json()}, []
        except MemoryError:
            told = PayloadTooLarge("The JSON takes too much memory to parse", hint="send tensors in binary")
            answer, values = {"error": told.to_json()}, []
        del body
        _write(answered, answer, values)


def _parsed(question: dict[str, Any], body: bytes) -> tuple[dict[str, Any], list[Any]]:
    inputs, outputs = ([_spec(entry) for entry in question[side]] for side in ("inputs", "outputs"))
    plan = None
    if question.get("steps"):
        plan = parse_plan(body, inputs, outputs, question["max_rows"], question["known_state"])
        request = plan.request
    else:
        request = Parser(inputs, outputs, question["max_rows"]).parse(body, question["json_length"])
    tensors, values = [], []
    for name, value in request.inputs.items():
        tensor = value if isinstance(value, Tensor) else to_tensor(value)
        data = write_strings(tensor) if tensor.dtype is DType.STRING else tensor.data()
        tensors.append([name, str(tensor.dtype), list(tensor.shape), len(data)])
        values.append(data)
    answer: dict[str, Any] = {**request._asdict(), "inputs": tensors, "binary": sorted(request.binary)}
    if plan is not None:
        answer |= {"state": plan.state, "sequence": plan.sequence, "steps": plan.steps}
    return answer, values


def _request_from(answer: dict[str, Any], data: bytes) -> InferRequest:
    inputs: dict[str, Array] = {}
    at = 0
    for name, dtype_name, shape, size in answer["inputs"]:
        dtype, part = DType(dtype_name), memoryview(data)[at : at + size]
        at += size
        if dtype is DType.STRING:
            inputs[name] = Tensor(read_strings(part), dtype, shape)
        else:
            inputs[name] = to_numpy(Tensor(part, dtype, shape))
    fields = {name: answer[name] for name in InferRequest._fields}
    return InferRequest(**{**fields, "inputs": inputs, "binary": frozenset(answer["binary"])})


def _described(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], max_rows: int) -> dict[str, Any]:
    sides = {"inputs": inputs, "outputs": outputs}
    described = {
        side: [[spec.name, str(spec.dtype), list(spec.shape), spec.is_rank_known] for spec in specs]
        for side, specs in sides.items()
    }
    return {"max_rows": max_rows, **described}


def _spec(entry: list[Any]) -> TensorSpec:
    name, dtype, shape, is_rank_known = entry
    return TensorSpec(name, dtype, shape, is_rank_known=is_rank_known)


def _write(file: IO[bytes], head: dict[str, Any], parts: Sequence[Any]) -> None:
    text = json.dumps(head).encode()
    file.write(_LENGTHS.pack(len(text), sum(map(len, parts))) + text)
    for part in parts:
        file.write(part)
    file.flush()


def _read(file: IO[bytes]) -> tuple[dict[str, Any], bytes]:
    text_length, size = _LENGTHS.unpack(_exactly(file, _LENGTHS.size))
    head: dict[str, Any] = json.loads(_exactly(file, text_length))
    return head, _exactly(file, size)


def _exactly(file: IO[bytes], size: int) -> bytes:
    """Read so many bytes.

    Raises:
        EOFError: The other end was closed.
    """
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data
