"""The vectors of a chain: raw inputs with the answers that it gave when it was built, in `examples/chain.json`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import EdgeInferError, ManifestError
from edge_infer.tasks.agreement import difference, plain
from edge_infer.tasks.vectors import Case, made

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.chains.chain import Chain
    from edge_infer.chains.definition import ChainDefinition

#: The file in the bundle.
PATH = "examples/chain.json"
VERSION = 1
#: The most cases of one file.
MAX_CASES = 32
_MADE: dict[str, tuple[dict[str, Any], ...]] = {
    "image": ({"image": {"seed": 1, "width": 67, "height": 43}}, {"image": {"seed": 2, "width": 241, "height": 159}}),
    "sound": ({"sound": {"rate": 16_000, "samples": 16_001}}, {"sound": {"rate": 16_000, "samples": 30_869}}),
    "text": ({"value": "The quick brown fox jumps over 13 lazy dogs."}, {"value": "Who wrote the first program?"}),
}
_AGAIN = "build the chain again: edge-infer chain"


class ChainVectors(NamedTuple):
    """What proves a chain.

    Attributes:
        cases: By input of the chain how its raw value is made, as in the vectors of pipelines.
        answers: The answers, shortened by `edge_infer.tasks.agreement.plain`.
    """

    cases: list[dict[str, Any]]
    answers: list[Any]

    def to_bytes(self) -> bytes:
        """Write the file."""
        document = {"version": VERSION, "cases": self.cases, "answers": self.answers}
        return (json.dumps(document, ensure_ascii=False, indent=1) + "\n").encode()


def cases_for(definition: ChainDefinition, examples: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
    """Return raw inputs for a chain: made-up ones, with the texts and numbers of the examples in their place.

    Args:
        definition: The chain.
        examples: By input a text or numbers; an input that is left out is made up.

    Returns:
        The cases; none where an input is a tensor and there is no example of it.
    """
    found = []
    for number in range(len(examples) or 2):
        case: dict[str, Any] = {}
        for name, kind in definition.inputs.items():
            if examples and name in examples[number]:
                case[name] = {"value": examples[number][name]}
            elif kind in _MADE:
                case[name] = _MADE[kind][number % 2]
            else:
                return []
        found.append(case)
    return found


def raw_of(case: Mapping[str, Any]) -> dict[str, Any]:
    """Make the raw inputs of a case.

    Raises:
        ManifestError: The file does not say how.
    """
    return {name: made(Case(raw if isinstance(raw, dict) else {}, {})) for name, raw in case.items()}


def answers_to(chain: Chain, cases: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the shortened answers of a chain to some cases."""
    return [plain(chain(raw_of(case))) for case in cases]


def read_vectors(bundle: Bundle, path: str) -> ChainVectors:
    """Read the vectors of a chain.

    Raises:
        ManifestError: The file is wrong, or of another version.
    """
    try:
        document = json.loads(bundle.read(path))
        cases, answers = document["cases"], document["answers"]
        is_right = document["version"] == VERSION and len(cases) == len(answers) <= MAX_CASES
        if not is_right or not all(isinstance(case, dict) for case in cases):
            raise ValueError("its fields do not fit together")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ManifestError(f"`{path}` is not the file of a chain's vectors: {error}", hint=_AGAIN) from error
    return ChainVectors(cases, answers)


def check_answers(chain: Chain, vectors: ChainVectors) -> list[str]:
    """Return what a chain answers otherwise than when it was built; an empty list where nothing is."""
    found = []
    for number, (case, expected) in enumerate(zip(vectors.cases, vectors.answers, strict=True)):
        try:
            said = difference(expected, plain(chain(raw_of(case))))
        except EdgeInferError as error:
            said = error.message
        if said:
            found.append(f"case {number}: {said}")
    return found
