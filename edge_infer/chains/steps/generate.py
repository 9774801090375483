"""`generate`: a text to what a language model writes after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.chains.steps.described import Described, Opening, of_work
from edge_infer.errors import InputError, ManifestError, UnsupportedError
from edge_infer.generation.definition import definition_of
from edge_infer.generation.generate import generate
from edge_infer.generation.options import GenerationOptions

#: What `with` may say besides the options of a generation.
_OF_TEMPLATE = ("tools", "template_values")

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.chains.definition import ChainStep
    from edge_infer.generation.generator import Generator
    from edge_infer.tasks.shared import Beginning, Shared


def describe(step: ChainStep, bundle: Bundle) -> Described:
    """Describe the step.

    Raises:
        ManifestError: The bundle generates no text from text alone, or `with` has an option that a generation does not.
    """
    where = f"chain: step `{step.name}`"
    if bundle.manifest.generate is None:
        raise ManifestError(
            f"{where} generates, and `{bundle.manifest.name}` generates no text",
            hint="edge-infer convert FOLDER makes a bundle that does",
        )
    try:
        definition_of(bundle.manifest)
        GenerationOptions.of({name: one for name, one in step.parameters.items() if name not in _OF_TEMPLATE})
    except UnsupportedError as error:
        raise ManifestError(f"{where}: {error.message}", hint="take a decoder of text", field=step.name) from error
    except InputError as error:
        raise ManifestError(f"{where}: {error.message}", hint=error.hint, field=step.name) from error
    identity = [bundle.revision, step.parameters]
    return of_work(step, identity, lambda opening: _Generate(step, bundle, opening), bundle)


class _Generate:
    beginnings: Sequence[Beginning] = ()

    def __init__(self, step: ChainStep, bundle: Bundle, opening: Opening) -> None:
        # Without a seed of its own a chain answers the same question alike.
        self._options = {"seed": 0, **step.parameters}
        self._is_chat = bool(bundle.manifest.generate and bundle.manifest.generate.get("chat_template"))
        key = (bundle.revision, "generator")
        if key not in opening.opened:
            given = {name: one for name, one in opening.options.items() if name == "threads" and one is not None}
            opening.opened[key] = generate(bundle, **given)
        self._generator: Generator = opening.opened[key]

    def run(self, values: Sequence[Mapping[str, Any]], shared: Shared) -> list[Any]:  # noqa: ARG002
        found = []
        for one in values:
            asked: Any = [{"role": "user", "content": one["text"]}] if self._is_chat else one["text"]
            found.append(self._generator.stream(asked, **self._options).result().text)
        return found

    def close(self) -> None:
        """Give back nothing: the chain closes what its steps share."""
