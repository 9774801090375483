"""TextModel: a bundle that generates text, as the server keeps it in memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import BackendError, InputError
from edge_infer.generation.generate import generate
from edge_infer.generation.slots import Slots
from edge_infer.generation.vectors import difference, read_vectors
from edge_infer.platform.cpu import usable_cpus
from edge_infer.runtime.options import DEFAULTS
from edge_infer.runtime.selection import Choice
from edge_infer.runtime.session import Report, Session
from edge_infer.server.execution.batch_probe import Probe
from edge_infer.server.execution.loaded_model import LoadedModel
from edge_infer.server.execution.no_tensors import NoTensors
from edge_infer.server.execution.text_request import no_tensors
from edge_infer.server.execution.text_runner import TextRunner

if TYPE_CHECKING:
    from edge_infer.bundle.bundle import Bundle
    from edge_infer.generation.generator import Generator
    from edge_infer.server.scheduling.batcher import BatchLimits


class TextLimits(NamedTuple):
    """How models that generate text run.

    Attributes:
        slots: How many answers of a model advance at once; each has a cache of its own.
        context: The most tokens of a prompt and its answer together; 0 for the model's own, at most 4096.
    """

    slots: int = 4
    context: int = 0


class TextModel(LoadedModel):
    """A model that generates text.

    Attributes:
        generator: Its tokenizer, its template and its decoder.
        slots: What runs its decoder, for the checks of prompts that need no run.
        runner: Runs its requests.
    """

    def __init__(self, name: str, session: TextSession, limits: BatchLimits) -> None:
        generator = session.generator
        # Each request has a slot; the queue is that of a model whose batches are of one.
        super().__init__(name, session, Probe(1, 0.0, "answers advance together, each in a slot"), limits)
        self.generator = generator
        self.slots = Slots(generator.decoder, generator.definition.eos)
        self.runner = TextRunner(self.slots, generator.decoder.slots, generator.vocabulary, generator.close)

    def close(self) -> None:
        """Give back the memory, once the step that runs has ended."""
        self.runner.stop()


class TextSession(Session):
    """What the server knows of a generator beside its text: specs, bundle and report. It runs no tensors.

    Args:
        bundle: The bundle.
        generator: Its generator.

    Attributes:
        generator: As given.
    """

    def __init__(self, bundle: Bundle, generator: Generator) -> None:
        variant = bundle.manifest.variant(generator.report().variant)
        choice = Choice(variant, "generation", "cpu", None, "it generates text")
        super().__init__(bundle, choice, NoTensors(partial(no_tensors, bundle.manifest.name)), DEFAULTS)
        self.generator = generator

    def report(self) -> Report:
        """Tell what runs."""
        found = self.generator.report()
        return Report(found.model, found.variant, "generation", "", "cpu", "cpu", (), 0, (), "it generates text", ())


def load_text_model(
    name: str, bundle: Bundle, limits: BatchLimits, text: TextLimits, *, variant: str = ""
) -> TextModel:
    """Open a bundle that generates text, and prove it by the vectors that it has.

    Args:
        name: The model's name in URLs.
        bundle: Its files.
        limits: How its requests are bounded.
        text: How many slots it has, and how long.
        variant: The id of the weights; empty to choose.

    Raises:
        BundleError: The files are wrong.
        BackendError: The context is longer than the model's, nothing here can run it, or it gives other tokens than
            its bundle says.
    """
    try:
        # One processor is left for the event loop, which answers for all models.
        threads = max(1, usable_cpus() - 1)
        generator = generate(
            bundle, variant=variant or None, slots=text.slots, context=text.context or None, threads=threads
        )
    except InputError as error:  # the server's own settings: no client's fault
        raise BackendError(error.message, hint=error.hint or "--slots, --context", **error.details) from error
    try:
        _prove(name, bundle, generator)
    except Exception:
        generator.close()
        raise
    return TextModel(name, TextSession(bundle, generator), limits)


def _prove(name: str, bundle: Bundle, generator: Generator) -> None:
    """Let a model give the tokens that its bundle says; those of other weights and longer ones are left out."""
    variant, context = generator.report().variant, generator.decoder.context
    for vector in read_vectors(bundle):
        if vector.variant == variant and len(vector.ids) + len(vector.tokens) <= context:
            problem = difference(generator, vector)
            if problem:
                raise BackendError(
                    f"Self-test failed: model `{name}` does not give the tokens of its bundle: {problem}",
                    hint=f"edge-infer verify {name}.bundle",
                )
