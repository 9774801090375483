"""A folder on another machine, for as long as it is needed: slim folders go in, outputs and times come out."""

from __future__ import annotations

import io
import json
import re
import shlex
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from edge_infer.errors import EdgeInferError, ExecutionError, InputError, UnsupportedError
from edge_infer.formats.safetensors import read_examples, write_examples
from edge_infer.tools.bench.rows import Round, make_row
from edge_infer.tools.host.connection import Connection
from edge_infer.tools.slim.engine import PLATFORMS, find_library
from edge_infer.tools.slim.folder import chosen_variant, write_slim

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.bundle.variant import Variant
    from edge_infer.formats.safetensors import Example
    from edge_infer.tensors.tensor import Tensor
    from edge_infer.tools.bench.rows import Row
    from edge_infer.tools.slim.engine import Library

#: Of compiled models alone: there is no onnxruntime for it.
_ARMV7 = "armv7"
_SYNONYMS = {"amd64": "x86_64", "arm64": "aarch64", "armv7l": _ARMV7, "armv8l": _ARMV7}
_ASK = (
    "import platform, struct, sys; "
    "print(platform.machine(), 8 * struct.calcsize('P'), *sys.version_info[:3], platform.libc_ver()[0] or '-')"
)
_OLDEST = (3, 11)
_PROGRAM = Path(__file__).with_name("program.py")
#: A process ends when this is over; a round loads an engine as well.
_ROUND_S = 320


class Place(NamedTuple):
    """What the other machine is: its platform as `slim` names it, and its Python."""

    platform: str
    python: str


class Workplace:
    """A temporary folder on another machine, taken away at the end.

    Args:
        destination: As ssh takes it.
        wheel: A wheel of onnxruntime for that machine, or a folder with one; None where it is one like this.

    Raises:
        BackendUnavailable: It cannot be reached.
        UnsupportedError: It has no Python, an old one, or a processor that nothing is built for.
        ExecutionError: It says other things than it was asked for.
    """

    def __init__(self, destination: str, wheel: Path | None = None) -> None:
        self._connection = Connection(destination)
        self.destination = destination
        self._wheel = wheel
        self._library: Library | None = None
        self._sent: dict[str, str] = {}
        self.place = self._look()
        made = self._connection.run("mktemp -d /tmp/edge-infer.XXXXXXXX")
        self._folder = made.output.decode("utf-8", "replace").strip()
        if made.status or not re.fullmatch(r"/tmp/edge-infer\.\w{8}", self._folder):
            raise ExecutionError(f"`{destination}` gives no folder to work in: {made.said or self._folder}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        try:
            self._connection.run(f"rm -rf {self._folder}")
        except EdgeInferError:
            if error is None:
                raise

    def outputs(self, bundle: Bundle, variant: Variant, examples: Sequence[Example]) -> list[dict[str, Tensor]]:
        """Run a variant there on the inputs of some examples.

        Raises:
            UnsupportedError: The variant is a TFLite file, whose engine needs numpy.
            InputError: The engine here is for another processor, and no wheel is given.
            ExecutionError: It failed there; the message is what it said.
        """
        self._send(bundle, variant, examples)
        answer = self._program("outputs")
        return [dict(outputs) for _, outputs in read_examples(answer)]

    def measure(
        self,
        bundle: Bundle,
        variant: Variant,
        examples: Sequence[Example],
        *,
        rounds: int,
        seconds: float,
        threads: int | None = None,
    ) -> tuple[Row, dict[str, Any]]:
        """Time a variant there, in fresh processes; return its row, and what the machine is.

        Raises:
            UnsupportedError, InputError, ExecutionError: As for `outputs`.
        """
        self._send(bundle, variant, examples)
        wishes = {"rounds": rounds, "seconds": seconds, "threads": threads}
        answer = self._program("measure", wishes, timeout_s=rounds * (_ROUND_S + 3 * seconds))
        try:
            found = json.loads(answer)
            measured = [Round(**{**one, "times_ms": tuple(one["times_ms"])}) for one in found["rounds"]]
            row = make_row(variant.id, engine_of(variant), bundle.manifest.size_of(variant), measured)
            return row, dict(found["machine"])
        except (ValueError, TypeError, KeyError, ArithmeticError, LookupError, RecursionError) as error:
            raise ExecutionError(
                f"`{self.destination}` was asked for times and says `{answer[:80].decode('utf-8', 'replace').strip()}`"
            ) from error

    def _look(self) -> Place:
        answer = self._connection.run(f"python3 -I -S -c {shlex.quote(_ASK)}")
        if answer.status:
            raise UnsupportedError(
                f"`{self.destination}` has no python3: {answer.said}", hint="apt install python3, on the device"
            )
        given = answer.output.decode("utf-8", "replace")
        words = given.split()
        if len(words) != 6 or not all(word.isdecimal() and len(word) < 9 for word in words[1:5]):
            raise ExecutionError(
                f"`{self.destination}` was asked for its platform and says `{given[:80].strip()}`",
                hint=f"does its shell greet? `ssh {self.destination} true` has to print nothing",
            )
        machine, bits, *version, libc = words
        if tuple(map(int, version[:2])) < _OLDEST:
            raise UnsupportedError(
                f"`{self.destination}` has Python {'.'.join(version)}, expected 3.11 or newer",
                hint="Raspberry Pi OS 12 (bookworm) has it",
            )
        name = _SYNONYMS.get(machine.lower(), machine.lower())
        if name == "aarch64" and bits == "32":
            name = _ARMV7
        if name not in (*PLATFORMS, _ARMV7) or libc == "-":
            raise UnsupportedError(
                f"`{self.destination}` is {machine} with {'another libc than glibc' if libc == '-' else libc}, "
                f"expected {', '.join(PLATFORMS)} or {_ARMV7} with glibc",
                hint="compile the model for a microcontroller: edge-infer compile model.onnx --target c",
            )
        return Place(name, ".".join(version))

    def _send(self, bundle: Bundle, variant: Variant, examples: Sequence[Example]) -> None:
        """Bring the slim folder of a variant over, but for the files that are there already."""
        chosen_variant(bundle, variant.id)
        if variant.format != "compiled":
            if self.place.platform == _ARMV7:
                raise UnsupportedError(
                    f"`{self.destination}` is {_ARMV7}, for which there is no onnxruntime",
                    hint="edge-infer convert ... --format compiled",
                )
            self._library = self._library or find_library(self.place.platform, self._wheel)
        library = self._library if variant.format != "compiled" else None
        with tempfile.TemporaryDirectory() as local:
            folder = Path(local, "slim")
            platform = self.place.platform
            write_slim(bundle.location, folder, library, platform=platform, variant=variant.id)
            (folder / "program.py").write_bytes(_PROGRAM.read_bytes())
            if examples:
                (folder / "examples.safetensors").write_bytes(write_examples([(inputs, {}) for inputs, _ in examples]))
            files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
            digests = {name: sha256(path.read_bytes()).hexdigest() for name, path in files.items()}
            old = [name for name in self._sent if name not in files]
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
                for name, path in files.items():
                    if self._sent.get(name) != digests[name]:
                        archive.add(path, name)
        gone = f"rm -f {' '.join(map(shlex.quote, old))} && " if old else ""
        answer = self._connection.run(f"cd {self._folder} && {gone}tar -xzf -", given=packed.getvalue())
        if answer.status:
            raise ExecutionError(f"`{self.destination}` cannot take the model: {answer.said}", hint="is its disk full?")
        self._sent = digests

    def _program(self, what: str, wishes: object = None, timeout_s: float = 600) -> bytes:
        given = "" if wishes is None else shlex.quote(json.dumps(wishes))
        command = f"cd {self._folder} && python3 -I -S program.py {what} {given}"
        answer = self._connection.run(command, timeout_s=timeout_s)
        if answer.status:
            lines = answer.said.splitlines()
            raise ExecutionError(f"On `{self.destination}`: {lines[-1] if lines else f'ended with {answer.status}'}")
        return answer.output


def engine_of(variant: Variant) -> str:
    """Name the engine that a slim folder runs a variant with.

    Raises:
        InputError: A slim folder has none for it.
    """
    if variant.format not in ("onnx", "compiled"):
        raise InputError(
            f"`{variant.id}` is {variant.format}, which needs numpy there; expected onnx, compiled",
            hint="--variant onnx/fp32",
        )
    return "compiled" if variant.format == "compiled" else "onnxruntime"
