"""`edge-infer serve`: start the server of pages, models and inference."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from edge_infer.cli import output
from edge_infer.cli.options import require_extra
from edge_infer.errors import BundleError, listed
from edge_infer.platform.host import cache_folder
from edge_infer.platform.systemd import Watchdog, answers, notify
from edge_infer.server.options import ServeOptions, declared

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from edge_infer.server.app import Limits
    from edge_infer.server.config import Settings
    from edge_infer.server.store.followed import Followed


def _settings(ctx: click.Context, _parameter: click.Parameter, path: Path | None) -> Settings | None:
    """Read the file of settings before the other options, whose defaults its table `[server]` has."""
    if path is None or ctx.resilient_parsing:
        return None
    from edge_infer.server.config import read_settings

    settings = read_settings(path)
    ctx.default_map = dict(settings.options)
    return settings


def _declared_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of `ServeOptions` to the command."""
    for one in reversed(list(declared())):
        facts, kind = one.facts, one.kind
        given: dict[str, Any] = {"help": facts.help, "default": one.default}
        if kind == "bool":
            given["is_flag"] = True
        elif kind == "Path | None":
            given["type"] = click.Path(path_type=Path)
        elif facts.choices:
            given |= {"type": click.Choice(facts.choices), "show_default": True}
        elif kind in ("int", "float"):
            number = click.IntRange if kind == "int" else click.FloatRange
            given |= {"type": number(facts.least, facts.most), "metavar": facts.metavar, "show_default": True}
        else:
            given |= {"metavar": facts.metavar, "show_default": bool(one.default), "multiple": kind != "str"}
        if facts.variable:
            given |= {"envvar": facts.variable, "show_envvar": True}
        command = click.option(one.flag, one.key, **given)(command)
    return command


@click.command()
@click.argument("sources", nargs=-1, metavar="[BUNDLE|INDEX|STORE]...")
@click.option(
    "--config",
    "settings",
    type=click.Path(path_type=Path),
    is_eager=True,
    callback=_settings,
    help="A TOML file of these options, pools, routes, variants, canaries and tenants.",
)
@_declared_options
def serve(sources: tuple[str, ...], settings: Settings | None, **given: Any) -> None:
    """Serve bundles over HTTP: inference, the files, and a page for each model.

    A BUNDLE is a folder, a .zip, or a bare .onnx or .tflite file; without one, every *.bundle in this folder. A folder
    of the Hugging Face Hub with config.json and onnx/model.onnx is served as it is, by its own name. The name of
    others in URLs is that of their manifest: what `convert --name` said, else the name of the model's file. Bundles of
    one name are versions of one model. A STORE is a folder or URL of signed versions, or STORE/MODEL: its newest
    versions are pulled, tried, served, and followed. A store in a folder is also hosted for devices and pages, under
    /store/; what they report is shown at /fleet. An INDEX is a folder that `edge-infer index build` made: it is
    searched at /v2/indexes/NAME/search, by texts where the model that it was built by is served too.
    """
    require_extra("server")
    bundles, stores, indexes = _sorted(sources)
    options = ServeOptions(**given)
    from edge_infer.server.app import create_app
    from edge_infer.server.config import Settings, check_device
    from edge_infer.server.execution.indexes import name_indexes
    from edge_infer.server.execution.repository import name_models
    from edge_infer.server.feedback.log import FeedbackLog
    from edge_infer.server.http.listener import Tls, is_local, listen, url_from_outside, url_of
    from edge_infer.server.http.server import serve as serve_on
    from edge_infer.server.static.pages import find_web_root
    from edge_infer.server.store.routes import HostedStore

    models: dict[str, list[Path]] = {}
    if bundles or not (stores or indexes):
        models = name_models(bundles or sorted(Path().glob("*.bundle")))
    check_device("--device", options.device)  # before a store's models are tried on it
    followed = _followed(stores, models, options.device, options.report_token) if stores else None
    searched = name_indexes(indexes)
    local = [Path(store) for store in stores if Path(store, "tuf").is_dir()]
    try:
        root = find_web_root(options.web_root)
    except BundleError as error:
        if options.web_root is not None or not (models or indexes):
            raise
        output.warn(f"{error.message}: models and inference only", error.hint)
        root = None
    settings = settings or Settings()
    if options.variant:
        settings = settings._replace(variants={"*": options.variant, **settings.variants})
    if options.fast_variant:
        settings = settings._replace(fast_variants={"*": options.fast_variant, **settings.fast_variants})
    provider = None
    if options.otel:
        from edge_infer.server.metrics.tracing import otlp_provider

        provider = otlp_provider()
    if options.page is not None and not (options.page / "index.html").is_file():
        raise click.UsageError(f"--page {options.page} has no index.html")
    app = create_app(
        models,
        root,
        page=options.page,
        isolated=not options.no_isolation,
        cache_folder=cache_folder() / "encoded",
        device=options.device,
        limits=limits_of(options),
        triton_metric_names=options.triton_metric_names,
        settings=settings,
        store=HostedStore(local[0] if local else None, options.fleet, options.report_token, is_local(options.host)),
        cors_origins=options.cors_origins,
        tracer_provider=provider,
        indexes=searched,
        feedback=None if options.feedback is None else FeedbackLog(options.feedback, quota=options.feedback_mb * 2**20),
    )
    cert, key = options.tls_cert, options.tls_key
    if (cert is None) != (key is None):
        raise click.UsageError("--tls-cert and --tls-key go together")
    if local and not options.report_token and not is_local(options.host):
        output.warn("Other machines reach this server, so it takes no reports of devices", "--report-token TOKEN")
    tls = Tls(cert, key) if cert is not None and key is not None else None
    listening = listen(options.host, options.port)
    scheme = "http" if tls is None else "https"
    url, outside = url_of(listening, scheme), url_from_outside(listening, scheme)

    watchdogs: list[Watchdog] = []

    def announce() -> None:
        # The service is alive as long as its event loop answers; asked from a thread, as any client would.
        notify("READY=1")
        watchdogs.append(Watchdog(lambda: answers(f"{url}/v2/health/live")))
        named = (_called(name, paths) for name, paths in models.items())
        what = ", ".join([*named, *(f"the index {name}" for name in searched)]) or "no model"
        also = f" and {outside}" if outside else ""
        output.talk(f"Serving {url}{also} ({what}); Ctrl-C stops")
        if not (models or searched):
            output.talk("hint: edge-infer convert model.onnx -o model.bundle, then edge-infer serve model.bundle")
        if options.open_browser and _has_desktop():
            click.launch(
                url
                + _page_of(has_pages=root is not None or options.page is not None, has_tenants=bool(settings.tenants))
            )

    _log_to_output(options.log_format)
    if followed is not None:
        followed.start(app.engine.repository)
    try:
        serve_on(app, listening, announce, tls, options.drain_delay_s)
    finally:
        notify("STOPPING=1")
        for watchdog in watchdogs:
            watchdog.close()
        if followed is not None:
            followed.stop()
        if provider is not None:
            provider.shutdown()  # it sends what it still has
    output.talk("Stopped")


def limits_of(options: ServeOptions) -> Limits:
    """Return the limits of an application with these options."""
    from edge_infer.server.app import Limits
    from edge_infer.server.execution.text_model import TextLimits
    from edge_infer.server.http.limits import DoorLimits
    from edge_infer.server.scheduling.batcher import BatchLimits

    return Limits(
        options.workers,
        BatchLimits(
            options.max_batch_size,
            options.max_delay_ms,
            options.max_queue_size,
            options.max_wait_ms,
            options.refuse_nan,
            options.max_rows,
            options.max_answer_mb * 2**20,
            options.drift,
        ),
        options.max_body_mb * 2**20,
        options.max_json_mb * 2**20,
        options.max_bodies_mb * 2**20,
        cache_bytes=options.cache_mb * 2**20,
        cache_ttl_s=options.cache_ttl_s,
        max_streams=options.max_streams,
        max_in_flight=options.max_in_flight,
        door=DoorLimits(
            options.max_connections,
            options.max_header_kb * 2**10,
            options.header_timeout_s,
            read_timeout_s=options.read_timeout_s,
        ),
        is_lazy=options.lazy,
        text=TextLimits(options.slots, options.context),
    )


def _called(name: str, paths: list[Path]) -> str:
    """Name a model, and its bundles where theirs is another name."""
    places = [path.resolve() for path in paths]
    return name if all(place.stem == name for place in places) else f"{name} of {listed([one.name for one in places])}"


def _sorted(sources: tuple[str, ...]) -> tuple[list[Path], list[str], list[Path]]:
    """Tell bundles, stores and indexes apart."""
    bundles: list[Path] = []
    stores: list[str] = []
    indexes: list[Path] = []
    for source in sources:
        is_url = source.startswith(("http://", "https://", "edge+"))
        is_folder = Path(source, "tuf").is_dir() or (
            not Path(source).exists() and Path(source).parent.joinpath("tuf").is_dir()
        )
        if is_url or is_folder:
            stores.append(source)
        elif source.rstrip("/").endswith(".index") or Path(source, "index.json").is_file():
            indexes.append(Path(source))
        else:
            bundles.append(Path(source))
    if len([store for store in stores if Path(store, "tuf").is_dir()]) > 1:
        raise click.UsageError("One server hosts one store in a folder; start another for the next")
    return bundles, stores, indexes


def _followed(stores: list[str], models: dict[str, list[Path]], device: str, token: str) -> Followed:
    """Pull the models of stores and add them to those that are served."""
    require_extra("sync")
    from edge_infer.server.store.followed import Followed

    followed = Followed(stores, device=device, token=token)
    for name, path in followed.bring().items():
        if name in models:
            raise click.UsageError(f"The model {name} comes from a store and from a bundle, or from two stores")
        models[name] = [path]
    return followed


def _page_of(*, has_pages: bool, has_tenants: bool) -> str:
    """Return the page that `--open` opens: only the dashboard asks for a key."""
    if has_tenants:
        return "/dashboard"
    return "/" if has_pages else "/docs"


def _has_desktop() -> bool:
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class _OutputHandler(logging.Handler):
    """Prints what the server logs: requests as they are, all else with its level."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            output.talk(self.line(record))
        except Exception:  # as every handler: what logs goes on though the disk is full or nobody reads
            self.handleError(record)

    def line(self, record: logging.LogRecord) -> str:
        """Write a record as a line."""
        text = self.format(record)
        return text if record.levelno == logging.INFO else f"{record.levelname.lower()}: {text}"


class _JsonHandler(_OutputHandler):
    """Prints what the server logs as one JSON object a line; a request's facts are fields of their own."""

    def line(self, record: logging.LogRecord) -> str:
        """Write a record as a line."""
        line: dict[str, object] = {"time": round(record.created, 6), "level": record.levelname.lower()}
        facts = getattr(record, "facts", None)
        if isinstance(facts, dict):
            line |= facts
        else:
            line |= {"logger": record.name, "message": self.format(record)}
        return json.dumps(line, ensure_ascii=False, default=str)


def _log_to_output(log_format: str = "text", names: Sequence[str] = ("edge_infer.server",)) -> None:
    handler: logging.Handler = _JsonHandler() if log_format == "json" else _OutputHandler()
    for name in names:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        is_ours = name.startswith("edge_infer") and log_format != "none"
        logger.setLevel(logging.INFO if is_ours else logging.WARNING)
