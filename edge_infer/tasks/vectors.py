"""Vectors: made-up raw inputs, the tensors that the steps make of them, and the answers of the whole pipeline.

They lie in the bundle as `examples/pipeline.json`, so that every place can prove that it does what the converter did.
The raw inputs are not kept: they are made again, by whole numbers alone, so that every language makes the same.

- An image: the generator of Numerical Recipes, `state = (1664525 * state + 1013904223) mod 2^32`, gives `state >> 24`.
  First the red, green and blue of 8 x 8 cells, row by row; then for each pixel, row by row, three numbers of noise. A
  level is `(3 * cell + noise) >> 2`; the cell of a pixel is `y * 8 / height`, `x * 8 / width`, cut to whole numbers.
- A sound: a triangle whose pitch rises from 100 to 2,000 Hz. `step` starts at `100 * 2^32 / rate` and grows by
  `1900 * 2^32 / rate / samples` with each sample, both cut to whole numbers; `phase` grows by `step`, modulo 2^32. With
  `t = phase >> 15` a sample is `((t if t < 65536 else 131071 - t) - 32768) >> 1`, as 16-bit PCM.
- Texts, and what else is JSON, stand in the file.

Tensors are compared by their sha256, since all steps are exact; those of `audio.log_mel` and `tensor.graph` differ
between hosts in the last bits and are compared by values. Answers are compared by label, score and overlap of boxes
(`tasks/agreement.py`).
"""

from __future__ import annotations

import json
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from edge_infer.errors import EdgeInferError, ExecutionError, ManifestError
from edge_infer.platform.hashing import sha256
from edge_infer.tasks.agreement import difference, plain
from edge_infer.tasks.definition import Definition, definition_of
from edge_infer.tasks.image.image import Image
from edge_infer.tasks.prepared_steps import PreparedSteps
from edge_infer.tasks.values import flat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.runtime.session import Session
    from edge_infer.tensors.tensor import Tensor, TensorSpec

    class Pipeline(Protocol):
        """What is needed of `edge_infer.tasks.pipeline.Pipeline`, which imports this file."""

        session: Session
        definition: Definition

        def __call__(self, inputs: Any, **arguments: Any) -> Any:
            """Answer."""

        async def run_async(self, inputs: Any, **arguments: Any) -> Any:
            """Answer, for engines that are asynchronous."""


VERSION = 1
#: Where they lie in a bundle.
PATH = "examples/pipeline.json"
#: So many values are kept of a tensor that cannot be compared by its sha256.
_MAX_VALUES = 256
#: More than the converter writes; a bundle of somebody else must not keep a machine busy.
_MAX_CASES = 32
_MAX_SIDE = 512
_MAX_SAMPLES = 2**20
_CLOSE = 1e-5
#: The steps whose numbers differ between hosts in the last bits.
_INEXACT = ("audio.log_mel", "tensor.graph")


class Case(NamedTuple):
    """One raw input.

    Attributes:
        raw: How it is made: `{"image": {"seed", "width", "height"}}`, `{"sound": {"rate", "samples"}}` or `{"value"}`.
        arguments: What the caller of the pipeline gives besides.
    """

    raw: dict[str, Any]
    arguments: dict[str, Any]


class Vectors(NamedTuple):
    """The contents of a file of vectors.

    Attributes:
        definition: The sha256 of the task and its steps.
        labels: The sha256 of the labels.
        cases: The raw inputs.
        runs: For each case, and each run of the model that it takes, what the tensors are by input.
        answers: For each case the answer of the source.
        own: By variant, its own answers where they are others than the source's.
    """

    definition: str
    labels: str
    cases: list[Case]
    runs: list[list[dict[str, Any]]]
    answers: list[Any]
    own: dict[str, list[Any]]


class _Model:
    """What `PreparedSteps` needs of a session: the specs of the manifest, which no engine or variant changes."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self.inputs: Sequence[TensorSpec] = bundle.manifest.inputs
        self.outputs: Sequence[TensorSpec] = bundle.manifest.outputs


# -- raw inputs --


def made(case: Case) -> Any:
    """Make the raw input of a case.

    Raises:
        ManifestError: The file does not say how.
    """
    if isinstance(facts := case.raw.get("image"), dict):
        seed, width, height = (_whole(facts, name, _MAX_SIDE) for name in ("seed", "width", "height"))
        return _image(seed, width, height)
    if isinstance(facts := case.raw.get("sound"), dict):
        rate, count = _whole(facts, "rate", 768_000), _whole(facts, "samples", _MAX_SAMPLES)
        return {"array": _sound(rate, count), "sampling_rate": rate}
    if "value" not in case.raw:
        raise ManifestError(f"`{PATH}` has a case that is neither an image, a sound nor a value", hint=_AGAIN)
    return case.raw["value"]


_AGAIN = "convert the bundle again"


def _whole(facts: Mapping[str, Any], name: str, most: int) -> int:
    value = facts.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ManifestError(f"`{PATH}`: `{name}` is {value!r}, expected 1 to {most}", hint=_AGAIN, field=name)
    return value


def _image(seed: int, width: int, height: int) -> Image:
    state = seed

    def byte() -> int:
        nonlocal state
        state = (1664525 * state + 1013904223) & 0xFFFFFFFF
        return state >> 24

    cells = [byte() for _ in range(8 * 8 * 3)]
    pixels = bytearray()
    for y in range(height):
        row = y * 8 // height
        for x in range(width):
            at = 3 * (8 * row + x * 8 // width)
            pixels += bytes(((3 * cells[at + channel] + byte()) >> 2) for channel in range(3))
    return Image(bytes(pixels), width, height, 3)


def _sound(rate: int, count: int) -> array[int]:
    step, slope, phase = 100 * 2**32 // rate, 1900 * 2**32 // rate // count, 0
    samples = array("h")
    for _ in range(count):
        t = phase >> 15
        samples.append(((t if t < 65536 else 131071 - t) - 32768) >> 1)
        phase = (phase + step) & 0xFFFFFFFF
        step += slope
    return samples


def tensors(bundle: Bundle, cases: Sequence[Case]) -> list[list[dict[str, Any]]]:
    """Return for each case, and each run of the model that it takes, what the steps make, by input."""
    definition = definition_of(bundle.manifest)
    prepared = PreparedSteps(definition, _Model(bundle))
    inexact = {name for name, chain in definition.inputs.items() if any(step.name in _INEXACT for step in chain)}
    found = []
    for case in cases:
        runs = []
        for one in prepared.runs(made(case), case.arguments):
            ready = prepared.before(one, case.arguments)
            facts = {name: _facts([tensor], name in inexact) for name, tensor in ready.tensors.items()}
            facts |= {name: _facts(frames, name in inexact) for name, frames in ready.frames.items()}
            runs.append(facts)
        found.append(runs)
    return found


def _facts(parts: Sequence[Tensor], is_inexact: bool) -> dict[str, Any]:
    shape = list(parts[0].shape) if len(parts) == 1 else [len(parts), *parts[0].shape]
    facts: dict[str, Any] = {"dtype": str(parts[0].dtype), "shape": shape}
    if not is_inexact:
        return {**facts, "sha256": sha256(b"".join(bytes(part.data()) for part in parts))}
    values = [value for part in parts for value in flat(part)]
    every = -(-len(values) // _MAX_VALUES)
    return {**facts, "every": every, "values": [float(f"{value:.9g}") for value in values[::every]]}


def digests(bundle: Bundle) -> tuple[str, str]:
    """Return the sha256 of what is done, wherever it was found, and of the labels."""
    definition = definition_of(bundle.manifest)
    document = definition._replace(source="", vectors=None).to_json()
    return _digest({"task": definition.task, "pipeline": document}), _digest(bundle.labels())


def _digest(value: Any) -> str:
    return sha256(json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode())


# -- reading and checking --


def read(bundle: Bundle) -> Vectors | None:
    """Return a bundle's vectors; None where it has none.

    Raises:
        ManifestError: The file is not one of vectors, or the definition is wrong.
        BundleError: The file is missing or damaged.
    """
    if bundle.manifest.pipeline is None or bundle.manifest.task is None:
        return None
    path = definition_of(bundle.manifest).vectors
    if path is None:
        return None
    try:
        document = json.loads(bundle.read(path))
        version, cases = document["version"], document["cases"]
        if version != VERSION or len(cases) > _MAX_CASES:
            raise ValueError(f"version {version!r} with {len(cases)} cases")
        own: dict[str, list[Any]] = {}
        for entry in cases:
            for variant, answer in entry.get("own", {}).items():
                own.setdefault(variant, []).append(answer)
        vectors = Vectors(
            str(document["definition"]),
            str(document["labels"]),
            [Case(dict(entry["raw"]), dict(entry["arguments"])) for entry in cases],
            [[dict(run) for run in entry["runs"]] for entry in cases],
            [entry["answer"] for entry in cases],
            own,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ManifestError(f"`{path}` does not hold vectors of version {VERSION}: {error}", hint=_AGAIN) from error
    if any(len(answers) != len(cases) for answers in own.values()):
        raise ManifestError(f"`{path}` has answers of a variant for some cases only", hint=_AGAIN)
    return vectors


def check_steps(bundle: Bundle, vectors: Vectors) -> list[str]:
    """Do the steps before the model, without an engine, and return what differs: nothing where all is right."""
    found = []
    definition, labels = digests(bundle)
    if definition != vectors.definition:
        found.append("the steps were changed after their vectors were made")
    if labels != vectors.labels:
        found.append("the labels were changed after the vectors were made")
    for i, case in enumerate(vectors.cases):
        try:
            (runs,) = tensors(bundle, [case])
        except EdgeInferError as error:
            found.append(f"case {i}: {error.message}")
            continue
        if len(runs) != len(vectors.runs[i]):
            found.append(f"case {i}: {len(runs)} runs, expected {len(vectors.runs[i])}")
        for run, expected in zip(runs, vectors.runs[i], strict=False):
            names = sorted({*run, *expected})
            found += [f"case {i}: the tensor `{one}` differs" for one in names if not _same(run, expected, one)]
    return found


def _same(run: Mapping[str, Any], expected: Mapping[str, Any], name: str) -> bool:
    one, other = run.get(name), expected.get(name)
    if not isinstance(one, dict) or not isinstance(other, dict) or "values" not in one or "values" not in other:
        return one == other
    values = other["values"]
    is_alike = {**one, "values": 0} == {**other, "values": 0} and isinstance(values, list)
    if not is_alike or len(values) != len(one["values"]) or not all(isinstance(v, (int, float)) for v in values):
        return False
    # A whole number is a rounded one: it may be the next.
    least = _CLOSE if str(one.get("dtype")).startswith("float") else 1.0
    return all(abs(a - b) <= max(least, _CLOSE * abs(b)) for a, b in zip(one["values"], values, strict=True))


def ask(pipeline: Pipeline, case: Case) -> Any:
    """Return the pipeline's answer to a case.

    Raises:
        EdgeInferError: A step, or the engine, fails.
    """
    return pipeline([made(case)], **case.arguments)[0]


def check_answers(pipeline: Pipeline, vectors: Vectors, variant: str) -> list[str]:
    """Answer every case, and return what differs from the answers of the file: nothing where all is right.

    Args:
        pipeline: The pipeline on an engine.
        vectors: The bundle's vectors.
        variant: The variant that the engine runs.
    """
    found = []
    for i, case in enumerate(_all_classes(pipeline.definition, vectors.cases)):
        try:
            answer = ask(pipeline, case)
        except EdgeInferError as error:
            found.append(f"case {i}: {error.message}")
            continue
        found += _differences(pipeline.definition, vectors, variant, i, answer)
    return found


async def check_answers_async(pipeline: Pipeline, vectors: Vectors, variant: str) -> list[str]:
    """Do what `check_answers` does on engines that are asynchronous, such as a GPU of a page."""
    found = []
    for i, case in enumerate(_all_classes(pipeline.definition, vectors.cases)):
        try:
            (answer,) = await pipeline.run_async([made(case)], **case.arguments)
        except EdgeInferError as error:
            found.append(f"case {i}: {error.message}")
            continue
        found += _differences(pipeline.definition, vectors, variant, i, answer)
    return found


def _all_classes(definition: Definition, cases: Sequence[Case]) -> list[Case]:
    """Ask for all classes, and not the best alone: those near to one another may change places."""
    if all(step.name != "post.top_k" for step in definition.outputs):
        return list(cases)
    return [case._replace(arguments={**case.arguments, "top_k": 2**20}) for case in cases]


def _differences(definition: Definition, vectors: Vectors, variant: str, at: int, answer: Any) -> list[str]:
    expected = vectors.own.get(variant, vectors.answers)
    said = difference(expected[at], plain(answer), least_score(definition, vectors.cases[at]))
    return [f"case {at}: {said}"] if said else []


def least_score(definition: Definition, case: Case) -> float:
    """Return the score that a detection must have to be told at all."""
    if "threshold" in case.arguments:
        return float(case.arguments["threshold"])
    return max((step.parameters["threshold"] for step in definition.outputs if step.name == "post.boxes"), default=0.0)


def prove(pipeline: Pipeline) -> None:
    """Compare a pipeline with the vectors of its bundle.

    Raises:
        ExecutionError: It gives something else.
        ManifestError: The vectors cannot be read.
    """
    bundle = pipeline.session.bundle
    vectors = read(bundle)
    if vectors is not None:
        found = check_steps(bundle, vectors)
        _refuse(bundle, found + check_answers(pipeline, vectors, pipeline.session.report().variant))


async def prove_async(pipeline: Pipeline) -> None:
    """Compare a pipeline with the vectors of its bundle as `prove` does, on engines that are asynchronous.

    Raises:
        ExecutionError: It gives something else.
        ManifestError: The vectors cannot be read.
    """
    bundle = pipeline.session.bundle
    vectors = read(bundle)
    if vectors is not None:
        found = check_steps(bundle, vectors)
        _refuse(bundle, found + await check_answers_async(pipeline, vectors, pipeline.session.report().variant))


def _refuse(bundle: Bundle, found: list[str]) -> None:
    if found:
        raise ExecutionError(
            f"`{bundle.manifest.name}` does not give the answers of its vectors: {found[0]}",
            hint="edge-infer verify BUNDLE, or convert it again",
            differences=found,
        )
