"""ChainModel: a chain, as the server keeps it in memory: one revision, one queue, all its models."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from edge_infer.bundle.variant import Variant
from edge_infer.chains.chain import Chain
from edge_infer.chains.vectors import check_answers, read_vectors
from edge_infer.errors import BackendError, InputError
from edge_infer.runtime.options import DEFAULTS
from edge_infer.runtime.selection import Choice
from edge_infer.runtime.session import Report, Session
from edge_infer.server.execution.batch_probe import Probe
from edge_infer.server.execution.loaded_model import LoadedModel
from edge_infer.server.execution.no_tensors import NoTensors

if TYPE_CHECKING:
    from edge_infer.bundle.bundle import Bundle
    from edge_infer.server.scheduling.batcher import BatchLimits


class ChainModel(LoadedModel):
    """A chain that takes requests of raw data.

    Attributes:
        chain: The chain.
    """

    def __init__(self, name: str, session: ChainSession, limits: BatchLimits) -> None:
        super().__init__(name, session, Probe(1, 0.0, "the steps of a chain batch what one request gives them"), limits)
        self.chain = session.chain

    def close(self) -> None:
        """Give back the memory of all models."""
        if not self.is_abandoned:
            self.chain.close()


class ChainSession(Session):
    """What the server knows of a chain beside its steps: its bundle and a report. It runs no tensors.

    Args:
        bundle: The chain's bundle.
        chain: The chain.

    Attributes:
        chain: As given.
    """

    def __init__(self, bundle: Bundle, chain: Chain) -> None:
        variant = Variant("chain/steps", "chain", "mixed", "")
        choice = Choice(variant, "chain", "cpu", None, "its steps choose their own engines")
        super().__init__(bundle, choice, NoTensors(partial(_no_tensors, bundle.manifest.name)), DEFAULTS)
        self.chain = chain

    def report(self) -> Report:
        """Tell what runs."""
        steps = ", ".join(self.chain.steps)
        return Report(self.bundle.label, "chain/steps", "chain", "", "auto", "cpu", (), 0, (), f"steps {steps}", ())


def _no_tensors(name: str) -> InputError:
    return InputError(f"`{name}` is a chain: it takes raw data, not tensors", hint=f"POST /v2/models/{name}/predict")


def load_chain_model(name: str, bundle: Bundle, device: str, limits: BatchLimits) -> ChainModel:
    """Open a chain, and prove it by the answers that it has.

    Args:
        name: The model's name in URLs.
        bundle: Its files.
        device: What its models run on.
        limits: How its requests are bounded.

    Raises:
        BundleError: The files are wrong.
        BackendError: A model cannot be run here, or the chain gives other answers than its bundle says.
    """
    try:
        chain = Chain.open(bundle, device=device)
    except InputError as error:  # the server's own settings: no client's fault
        raise BackendError(error.message, hint=error.hint, **error.details) from error
    try:
        vectors = chain.definition.vectors
        said = check_answers(chain, read_vectors(bundle, vectors)) if vectors is not None else []
        if said:
            raise BackendError(
                f"Self-test failed: chain `{name}` does not give the answers of its bundle: {said[0]}",
                hint=f"edge-infer verify {name}.bundle",
            )
    except Exception:
        chain.close()
        raise
    return ChainModel(name, ChainSession(bundle, chain), limits)
