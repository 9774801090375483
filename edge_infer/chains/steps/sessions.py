"""The session of a step's bundle: the model here, or the same model on a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_infer.backends.remote.http import RemoteModel
from edge_infer.bundle.variant import Variant
from edge_infer.errors import ManifestError
from edge_infer.platform import fetch
from edge_infer.runtime.load import load
from edge_infer.runtime.options import DEFAULTS
from edge_infer.runtime.selection import Choice
from edge_infer.runtime.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from edge_infer.bundle.bundle import Bundle
    from edge_infer.chains.definition import ChainStep


def open_session(step: ChainStep, bundle: Bundle, options: Mapping[str, Any]) -> Session:
    """Open the model of a step.

    Args:
        step: The step.
        bundle: Its bundle. Where a server computes, its tokenizer and labels are still the ones of here.
        options: What `load` takes.

    A chain may name any server: it is told an API key only where the bundle came from there, or one was given for it.

    Raises:
        ManifestError: The server's model has other tensors than the bundle's.
        EdgeInferError: The model cannot be loaded, or the server does not answer.
    """
    if not step.server:
        return load(bundle, arrays="tensor", **options)
    model = RemoteModel(step.server, headers=fetch.key_told_to(step.server, bundle.location))
    for what, here, there in (
        ("inputs", bundle.manifest.inputs, model.inputs),
        ("outputs", bundle.manifest.outputs, model.outputs),
    ):
        mine, other = ({spec.name: spec.dtype for spec in specs} for specs in (here, there))
        if mine != other:
            raise ManifestError(
                f"chain: step `{step.name}`: the model at {step.server} has the {what} {sorted(other)}, the bundle "
                f"{sorted(mine)}",
                hint="serve the same bundle there",
                expected=sorted(mine),
                got=sorted(other),
            )
    choice = Choice(Variant("remote/v2", "v2", "", ""), "remote", "remote", why="the chain says so")
    return Session(bundle, choice, model, DEFAULTS._replace(arrays="tensor"))
