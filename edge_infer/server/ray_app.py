"""The same server on Ray Serve: replicas, autoscaling, many machines; `serve run edge_infer.server.ray_app:deployment`.

The bundles are named by the environment's `EDGE_INFER_BUNDLES`, paths that every machine sees, separated as in PATH:

    EDGE_INFER_BUNDLES=/models/digits.bundle serve run edge_infer.server.ray_app:deployment

Each replica is one server with its own queue and batches; Ray Serve distributes requests over them, adds and removes
them by load, and restarts those whose health check fails. `EDGE_INFER_CONFIG` names a file of settings, as
`edge-infer serve --config` takes it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.errors import ServingError

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from edge_infer.server.app import Application

_VARIABLE = "EDGE_INFER_BUNDLES"
_CONFIG = "EDGE_INFER_CONFIG"


def application() -> Application:
    """Make the application of one replica from the environment.

    Raises:
        ServingError: No bundle is named.
    """
    from edge_infer.server.app import create_app
    from edge_infer.server.repository import name_models
    from edge_infer.server.settings import read_settings

    places = [Path(place) for place in os.environ.get(_VARIABLE, "").split(os.pathsep) if place]
    if not places:
        raise ServingError("No bundle is named to serve", hint=f"{_VARIABLE}=/models/digits.bundle serve run ...")
    config = os.environ.get(_CONFIG)
    return create_app(name_models(places), settings=read_settings(Path(config)) if config else None)


def make_deployment(**options: Any) -> Any:
    """Make a Ray Serve application.

    Args:
        **options: Of `ray.serve.deployment`, such as `num_replicas` or `autoscaling_config`.

    Raises:
        ServingError: Ray Serve is not installed.
    """
    try:
        from ray import serve
        from ray.serve import ingress
    except ImportError as error:
        raise ServingError("Ray Serve is not installed", hint="pip install 'ray[serve]'") from error

    from starlette.applications import Starlette
    from starlette.routing import Mount

    replica: list[Application] = []

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if not replica:  # in the replica's own process and event loop
            replica.append(application())
        await replica[0](scope, receive, send)

    class EdgeInfer:
        """What Ray starts."""

    deployed: Any = ingress(Starlette(routes=[Mount("/", app=answer)]))(EdgeInfer)
    return serve.deployment(name="edge-infer", **{"max_ongoing_requests": 512, **options})(deployed).bind()


def __getattr__(name: str) -> Any:
    """Make `deployment` when it is asked for, so that importing this needs no Ray."""
    if name == "deployment":
        return make_deployment(autoscaling_config={"min_replicas": 1, "max_replicas": os.cpu_count() or 1})
    raise AttributeError(name)
