"""The same server on Ray Serve: replicas, autoscaling, many machines; `serve run edge_infer.server.ray_app:deployment`.

The bundles are named by the environment's `EDGE_INFER_BUNDLES`, paths that every machine sees, separated as in PATH:

    EDGE_INFER_BUNDLES=/models/digits.bundle serve run edge_infer.server.ray_app:deployment

Each replica is one server with its own queue and batches, which has loaded its models before it takes requests; Ray
Serve distributes requests over them, adds and removes them by load, and replaces those that lost their device.
`EDGE_INFER_CONFIG` names a file of settings, as `edge-infer serve --config` takes it.
"""

from __future__ import annotations

import os
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_infer.errors import ServingError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.applications import Starlette
    from starlette.types import Receive, Scope, Send

    from edge_infer.server.app import Application

_VARIABLE = "EDGE_INFER_BUNDLES"
_CONFIG = "EDGE_INFER_CONFIG"
#: The application of this process, where it is a replica.
_running: list[Application] = []


def application() -> Application:
    """Make the application of one replica from the environment.

    Raises:
        ServingError: No bundle is named.
    """
    from edge_infer.server.app import create_app
    from edge_infer.server.config import read_settings
    from edge_infer.server.execution.repository import name_models

    places = [Path(place) for place in os.environ.get(_VARIABLE, "").split(os.pathsep) if place]
    if not places:
        raise ServingError("No bundle is named to serve", hint=f"{_VARIABLE}=/models/digits.bundle serve run ...")
    config = os.environ.get(_CONFIG)
    return create_app(name_models(places), settings=read_settings(Path(config)) if config else None)


def replica() -> Starlette:
    """Make what a replica runs: it loads its models when it starts and closes them when it ends.

    Ray sends a copy of it to each replica's process, so the application itself lies in this module there.
    """
    from starlette.applications import Starlette
    from starlette.routing import Mount

    return Starlette(routes=[Mount("/", app=_answer)], lifespan=_life)


@asynccontextmanager
async def _life(_app: Starlette) -> AsyncIterator[None]:
    app = application()
    _running.append(app)
    await app.engine.preload()
    try:
        yield
    finally:
        _running.remove(app)
        app.drain()
        await app.finish_streams()
        app.engine.close()


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    await _running[0](scope, receive, send)


def check_devices() -> None:
    """Raise where this process has lost a device: it does not come back, but another process may have it.

    Raises:
        DeviceLost: What its engine said.
    """
    for app in _running:
        for dispatcher in app.engine.dispatchers.values():
            if (lost := dispatcher.lost) is not None:
                raise lost


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

    class EdgeInfer:
        """The deployment that Ray starts."""

        def check_health(self) -> None:
            """Tell Ray whether the replica can go on; it replaces one that cannot."""
            check_devices()

    deployed: Any = ingress(replica())(EdgeInfer)
    return serve.deployment(name="edge-infer", **{"max_ongoing_requests": 512, **options})(deployed).bind()


def __getattr__(name: str) -> Any:
    """Make `deployment` when it is asked for, so that importing this needs no Ray."""
    if name == "deployment":
        return make_deployment(autoscaling_config={"min_replicas": 1, "max_replicas": os.cpu_count() or 1})
    raise AttributeError(name)
