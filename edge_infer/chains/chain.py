"""Public `Chain`: bundles that feed one another, called like one model."""

from __future__ import annotations

import json
import os
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.bundle.bundle import Bundle
from edge_infer.chains.cache import IN_MEMORY
from edge_infer.chains.checked import CheckedChain, check_chain
from edge_infer.chains.plain_values import digest
from edge_infer.chains.spread import gather, spread
from edge_infer.chains.steps.described import Opening
from edge_infer.errors import EdgeInferError, InputError, did_you_mean, listed
from edge_infer.platform.hashing import sha256
from edge_infer.platform.host import run_in_thread
from edge_infer.tasks.audio.decode import MAX_BYTES as MAX_SOUND_BYTES
from edge_infer.tasks.image.decode import MAX_BYTES as MAX_IMAGE_BYTES
from edge_infer.tasks.raw_file import read_raw
from edge_infer.tasks.shared import Shared, common

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Self

    from edge_infer.chains.cache import StepCache
    from edge_infer.chains.definition import ChainDefinition
    from edge_infer.chains.steps.described import Described, Doing


class StepTiming(NamedTuple):
    """What a step of a run took.

    Attributes:
        name: The step's name.
        ms: The milliseconds that it took, for all inputs together.
        values: How many single values it made.
        cached: How many of them were kept from before.
    """

    name: str
    ms: float
    values: int
    cached: int


class ChainRun(NamedTuple):
    """One run of a chain.

    Attributes:
        answer: The answer, or the answers to a list of inputs.
        timings: What each step took, in the order in which they ran.
        spared: How many first steps of models were not done again, because another model begins with the same.
    """

    answer: Any
    timings: tuple[StepTiming, ...]
    spared: int


class Chain:
    """Bundles that feed one another; made by `Chain.open`.

    Each step runs once for all inputs, and once for all that an earlier step found in them: the crops of a detector go
    through the classifier in batches. Steps before the models that two of them begin with are done once.

    Attributes:
        bundle: The bundle of the chain, with those of its steps inside.
        inputs: The kinds of what the caller gives, by name.

    A chain may be called from any thread.
    """

    def __init__(self, checked: CheckedChain, opening: Opening, cache: StepCache) -> None:
        self.bundle, self.inputs = checked.bundle, checked.definition.inputs
        self._checked, self._opening, self._cache = checked, opening, cache
        self._steps: list[tuple[Described, Doing]] = []
        try:
            for described in checked.steps:
                self._steps.append((described, described.open(opening)))
        except BaseException:
            self.close()
            raise
        self._common = common(doing.beginnings for _, doing in self._steps)

    @classmethod
    def open(
        cls,
        source: str | os.PathLike[str] | Bundle,
        *,
        device: str = "auto",
        backend: str | None = None,
        threads: int | None = None,
        cache: StepCache | None = None,
    ) -> Self:
        """Open a chain: everything is checked by name and kind before a model is loaded.

        Args:
            source: A bundle that `edge-infer chain` made: a folder, a `.zip` or a URL.
            device: What the models run on, as `load` takes it.
            backend: The engine of the models; None to choose.
            threads: The threads that one operator may use; None to choose.
            cache: Where steps that are marked `cache` keep their results; this process's memory unless given.

        Raises:
            ManifestError: The chain is wrong: a circle, a name that is not there, kinds that do not fit.
            EdgeInferError: What `load` raises of a step's model.
        """
        bundle = source if isinstance(source, Bundle) else Bundle.open(source)
        options = {"device": device, "backend": backend, "threads": threads}
        return cls(check_chain(bundle), Opening(options, {}), IN_MEMORY if cache is None else cache)

    @classmethod
    async def open_async(cls, source: str | os.PathLike[str] | Bundle, **options: Any) -> Self:
        """Open a chain as `open` does, without blocking."""
        return await run_in_thread(lambda: cls.open(source, **options))

    @property
    def definition(self) -> ChainDefinition:
        """What the manifest says."""
        return self._checked.definition

    def __repr__(self) -> str:
        return f"Chain({self.bundle.label}, {' -> '.join(self.steps)})"

    @property
    def steps(self) -> list[str]:
        """The names of the steps in the order in which they run."""
        return [step.name for step in self._checked.definition.steps]

    def __call__(self, inputs: Any) -> Any:
        """Answer; see `run`."""
        return self.run(inputs).answer

    def run(self, inputs: Any) -> ChainRun:
        """Answer, and tell what each step took.

        Args:
            inputs: What the chain takes: of one input its value, of several an object of them by name; or a list, whose
                members are answered together. Images, sounds and texts are given as to `pipeline`, tensors as arrays.

        Returns:
            The answer: that of the last step, or an object of what the chain names as its outputs; a list for a list.

        Raises:
            InputError: An input lacks, is unknown, or is not what a step takes; the message names the step.
            ExecutionError: An engine failed.
        """
        is_list = self._is_list(inputs)
        given = [self._named(one) for one in (inputs if is_list else [inputs])]
        values: dict[str, list[Any]] = {name: [self._read(name, one[name]) for one in given] for name in self.inputs}
        shared, timings = Shared(self._common), list[StepTiming]()
        for described, doing in self._steps if given else ():
            name, start = described.step.name, perf_counter()
            try:
                made, count, cached = self._made(described, doing, values, shared)
            except EdgeInferError as error:
                error.message = f"step `{name}`: {error.message}"
                error.args = (error.message,)
                raise
            values[name] = made
            timings.append(StepTiming(name, (perf_counter() - start) * 1000, count, cached))
        answers = [self._answer(values, row) for row in range(len(given))]
        return ChainRun(answers if is_list else answers[0], tuple(timings), shared.spared)

    async def run_async(self, inputs: Any) -> ChainRun:
        """Answer as `run` does, without blocking."""
        return await run_in_thread(lambda: self.run(inputs))

    def close(self) -> None:
        """Give the memory of all models back."""
        for _, doing in self._steps:
            doing.close()
        for one in self._opening.opened.values():
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- inside --

    def _made(
        self, described: Described, doing: Doing, values: Mapping[str, list[Any]], shared: Shared
    ) -> tuple[list[Any], int, int]:
        """Run a step on everything that it reads, and return what it made for each input of the chain."""
        step, depths = described.step, self._checked.depths[described.step.name]
        read = {
            name: [_part(one, depths[name], ref.field) for one in values[ref.name]] for name, ref in step.reads.items()
        }
        single, shape = spread(read, {name: depth + 1 for name, depth in depths.items()}, step.name)
        keys = [self._key(described, one) if step.is_cached else None for one in single]
        results: list[Any] = [None] * len(single)
        wanted: list[int] = []
        first: dict[str, int] = {}
        for i, key in enumerate(keys):
            found, kept = (False, None) if key is None else self._cache.get(key)
            if found:
                results[i] = kept
            elif key is None or key not in first:
                wanted.append(i)
                if key is not None:
                    first[key] = i
        for i, result in zip(wanted, doing.run([single[i] for i in wanted], shared) if wanted else [], strict=True):
            results[i] = result
            if (key := keys[i]) is not None:
                self._cache.put(key, result)
        for i, key in enumerate(keys):
            if key in first:
                results[i] = results[first[key]]
        made: list[Any] = gather(shape, results)
        return made, len(single), len(single) - len(wanted)

    def _key(self, described: Described, read: Mapping[str, Any]) -> str | None:
        digests = {name: digest(value) for name, value in read.items()}
        if None in digests.values():
            return None
        # Another device or engine may take another variant.
        place = [described.step.server, self._opening.options["device"], self._opening.options["backend"]]
        facts = [described.identity, place, sorted(digests.items())]
        return sha256(json.dumps(facts, sort_keys=True).encode())

    def _answer(self, values: Mapping[str, list[Any]], row: int) -> Any:
        definition = self._checked.definition
        found = {
            name: _part(values[ref.name][row], self._checked.kinds[ref.name].depth, ref.field)
            for name, ref in definition.answers.items()
        }
        return found if isinstance(definition.outputs, dict) else found[""]

    def _is_list(self, inputs: Any) -> bool:
        if type(inputs) not in (list, tuple):
            return False
        kinds = [*self.inputs.values()]
        # The samples of one sound and the numbers of one tensor are a list themselves.
        is_flat = bool(inputs) and isinstance(inputs[0], (int, float))
        return not (len(kinds) == 1 and kinds[0] in ("sound", "tensor") and is_flat)

    def _named(self, given: Any) -> dict[str, Any]:
        """Return what the caller gave by the names of the chain's inputs.

        Raises:
            InputError: A name lacks or is unknown.
        """
        names = [*self.inputs]
        is_named = isinstance(given, dict) and (len(names) > 1 or set(given) == set(names))
        if not is_named:
            if len(names) > 1:
                raise InputError(
                    f"the chain takes {listed(names)}, and one value is given",
                    hint="{" + ", ".join(f'"{name}": ...' for name in names) + "}",
                )
            return {names[0]: given}
        for name in given:
            if name not in names:
                raise InputError(
                    f"the chain takes no `{name}`", hint=did_you_mean(name, names) or f"it takes {listed(names)}"
                )
        for name in names:
            if name not in given:
                raise InputError(f"the chain's input `{name}` is not given", hint=f"it takes {listed(names)}")
        return dict(given)

    def _read(self, name: str, value: Any) -> Any:
        """Return an input with the bytes of a file in the place of its path, and an array in that of numbers.

        Raises:
            InputError: It is not what the input takes, or the file cannot be read.
        """
        kind = self.inputs[name]
        if kind in ("image", "sound") and isinstance(value, (str, os.PathLike)):
            return read_raw(os.fspath(value), MAX_IMAGE_BYTES if kind == "image" else MAX_SOUND_BYTES, kind)
        if kind == "text" and not isinstance(value, str):
            raise InputError(f"`{name}` is {type(value).__name__}, expected a text", hint="give a `str`")
        if kind == "tensor" and isinstance(value, (list, tuple)):
            from edge_infer.tensors.dtypes import DType
            from edge_infer.tensors.tensor import Tensor

            return Tensor.from_list(list(value), DType.FLOAT32)
        return value


def _part(value: Any, depth: int, field: str) -> Any:
    """Return one output of each model's tensors in lists of some depth; without a field the value itself.

    Raises:
        InputError: The model gives no such output.
    """
    if not field:
        return value
    if depth:
        return [_part(one, depth - 1, field) for one in value]
    if field not in value:
        raise InputError(f"there is no output `{field}`", hint=f"the model gives {listed(sorted(value))}", field=field)
    return value[field]
