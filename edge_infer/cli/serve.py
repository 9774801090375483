"""`edge-infer serve`: the page, the models and inference over HTTP."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge_infer.cli import options, output
from edge_infer.errors import BundleError
from edge_infer.platform.host import cache_folder
from edge_infer.platform.systemd import Watchdog, answers, notify

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from edge_infer.server.store.followed import Followed


@click.command()
@click.argument("sources", nargs=-1, metavar="[BUNDLE|STORE]...")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on; 0.0.0.0 for all.")
@click.option(
    "--port",
    default=8080,
    show_default=True,
    type=click.IntRange(0, 65535),
    metavar="N",
    help="The port to listen on; 0 takes a free one.",
)
@click.option(
    "--web-root",
    type=click.Path(path_type=Path),
    help="A folder with src, demo and vendor, in place of the installed one.",
)
@click.option(
    "--device", default="auto", show_default=True, metavar="NAME", help="What models run on: auto, cpu, cuda or cuda:1."
)
@click.option(
    "--workers",
    default=0,
    show_default=True,
    type=click.IntRange(0, 64),
    metavar="N",
    help="How many batches run at once; 0: one per CPU, at most 4.",
)
@click.option(
    "--max-batch-size",
    default=32,
    show_default=True,
    type=click.IntRange(1, 4096),
    metavar="N",
    help="The most rows of a batch; measuring each model may lower it.",
)
@click.option(
    "--max-delay-ms",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0, 1000),
    metavar="N",
    help="How many ms a free worker waits for a batch to fill while others are busy.",
)
@click.option(
    "--max-queue-size",
    default=256,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="The most requests that wait for a model; the rest get 503.",
)
@click.option(
    "--max-wait-ms",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0),
    metavar="N",
    help="The longest wait in ms, by estimate, that a request is taken for; 0: the time of some batches.",
)
@click.option(
    "--max-rows",
    default=16384,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="The most rows of one request; 0 for any number.",
)
@click.option(
    "--max-body-mb",
    default=64,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="The most MiB of a request's body.",
)
@click.option(
    "--max-bodies-mb",
    default=512,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="The most MiB of all bodies that are read or wait; the rest get 503.",
)
@click.option(
    "--max-in-flight",
    default=256,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="The most requests of one WebSocket that wait or run; more are not read.",
)
@click.option(
    "--max-streams",
    default=1024,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="The most WebSockets at once.",
)
@click.option(
    "--config",
    "config",
    type=click.Path(path_type=Path),
    help="A TOML file of pools, routes, variants, canaries and tenants.",
)
@click.option(
    "--variant",
    default="",
    metavar="ID",
    help="The variant to run, such as onnx/fp32; default: the one chosen for here.",
)
@click.option(
    "--fast-variant", default="", metavar="ID", help="The variant, such as onnx/int8, to run while requests pile up."
)
@click.option("--lazy", is_flag=True, help="Load a model when it is first asked for, not at the start.")
@click.option("--refuse-nan", is_flag=True, help="An answer with a NaN in it is an error, 500.")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="A PEM file with the certificate's chain.")
@click.option("--tls-key", type=click.Path(path_type=Path), help="A PEM file with the certificate's private key.")
@click.option(
    "--cors-origin",
    "cors_origins",
    multiple=True,
    metavar="ORIGIN",
    help="Another server whose pages may ask, such as https://shop.example, or * for all; may be repeated.",
)
@click.option(
    "--max-connections",
    default=16384,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="The most connections at once.",
)
@click.option(
    "--max-header-kb",
    default=32,
    show_default=True,
    type=click.IntRange(1),
    metavar="N",
    help="The most KiB of headers.",
)
@click.option(
    "--header-timeout-s",
    default=15.0,
    show_default=True,
    type=click.FloatRange(0.1),
    metavar="N",
    help="How many seconds a request's headers may take to come.",
)
@click.option(
    "--read-timeout-s",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0.1),
    metavar="N",
    help="How many seconds a client may read nothing of its answer.",
)
@click.option(
    "--otel", is_flag=True, help="Send a span of each request to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names."
)
@click.option("--triton-metric-names", is_flag=True, help="Give /metrics the names of Triton too.")
@click.option(
    "--cache-mb",
    default=0,
    show_default=True,
    type=click.IntRange(0),
    metavar="N",
    help="MiB of answers to keep for each model; identical requests then run once. 0 keeps none.",
)
@click.option(
    "--cache-ttl-s",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0),
    metavar="N",
    help="How many seconds an answer is kept.",
)
@click.option(
    "--log-format",
    default="text",
    show_default=True,
    type=click.Choice(["text", "json", "none"]),
    help="How requests are logged; none logs errors only.",
)
@click.option(
    "--fleet", type=click.Path(path_type=Path), help="A file that keeps what devices report; default: memory."
)
@click.option(
    "--report-token",
    default="",
    envvar="EDGE_INFER_REPORT_TOKEN",
    show_envvar=True,
    metavar="TOKEN",
    help="What devices must show to report, and people to read /fleet; default: this machine alone may.",
)
@click.option(
    "--open",
    "open_browser",
    is_flag=True,
    help="Open a page where there is a desktop: the demo of the digits model, else /docs.",
)
@click.option("--no-isolation", is_flag=True, help="Leave out COOP and COEP: pages then have no threads.")
def serve(
    sources: tuple[str, ...],
    host: str,
    port: int,
    web_root: Path | None,
    device: str,
    workers: int,
    max_batch_size: int,
    max_delay_ms: float,
    max_queue_size: int,
    max_wait_ms: float,
    max_rows: int,
    max_body_mb: int,
    max_bodies_mb: int,
    max_in_flight: int,
    max_streams: int,
    config: Path | None,
    variant: str,
    fast_variant: str,
    lazy: bool,
    refuse_nan: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    cors_origins: tuple[str, ...],
    max_connections: int,
    max_header_kb: int,
    header_timeout_s: float,
    read_timeout_s: float,
    otel: bool,
    triton_metric_names: bool,
    cache_mb: int,
    cache_ttl_s: float,
    log_format: str,
    fleet: Path | None,
    report_token: str,
    open_browser: bool,
    no_isolation: bool,
) -> None:
    """Serve bundles over HTTP: inference, the files, and a demo page for the digits model.

    A BUNDLE is a folder, a .zip, or a bare .onnx or .tflite file; without one, every *.bundle in this folder. Bundles
    of one name are versions of one model. A STORE is a folder or URL of signed versions, or STORE/MODEL: its newest
    versions are pulled, tried, served, and followed. A store in a folder is also hosted for devices and pages, under
    /store/; what they report is shown at /fleet.
    """
    options.require_extra("server")
    bundles, stores = _sorted(sources)
    from edge_infer.server.app import Limits, create_app
    from edge_infer.server.config import Settings, check_device, read_settings
    from edge_infer.server.execution.repository import name_models
    from edge_infer.server.http.limits import DoorLimits
    from edge_infer.server.http.listener import Tls, is_local, listen, url_from_outside, url_of
    from edge_infer.server.http.listener import serve as serve_on
    from edge_infer.server.scheduling.batcher import BatchLimits
    from edge_infer.server.static.pages import find_web_root
    from edge_infer.server.store.routes import HostedStore

    models: dict[str, list[Path]] = {}
    if bundles or not stores:
        models = name_models(bundles or sorted(Path().glob("*.bundle")))
    check_device("--device", device)  # before a store's models are tried on it
    followed = _followed(stores, models, device, report_token) if stores else None
    local = [Path(store) for store in stores if Path(store, "tuf").is_dir()]
    try:
        root = find_web_root(web_root)
    except BundleError as error:
        if web_root is not None or not models:
            raise
        output.warn(f"{error.message}: models and inference only", error.hint)
        root = None
    settings = read_settings(config) if config is not None else Settings()
    if variant:
        settings = settings._replace(variants={"*": variant, **settings.variants})
    if fast_variant:
        settings = settings._replace(fast_variants={"*": fast_variant, **settings.fast_variants})
    provider = None
    if otel:
        from edge_infer.server.metrics.tracing import otlp_provider

        provider = otlp_provider()
    batch = BatchLimits(max_batch_size, max_delay_ms, max_queue_size, max_wait_ms, refuse_nan, max_rows)
    app = create_app(
        models,
        root,
        isolated=not no_isolation,
        cache_folder=cache_folder() / "encoded",
        device=device,
        limits=Limits(
            workers,
            batch,
            max_body_mb * 2**20,
            max_bodies_mb * 2**20,
            cache_bytes=cache_mb * 2**20,
            cache_ttl_s=cache_ttl_s,
            max_streams=max_streams,
            max_in_flight=max_in_flight,
            door=DoorLimits(max_connections, max_header_kb * 2**10, header_timeout_s, read_timeout_s=read_timeout_s),
            is_lazy=lazy,
        ),
        triton_metric_names=triton_metric_names,
        settings=settings,
        store=HostedStore(local[0] if local else None, fleet, report_token, is_local(host)),
        cors_origins=cors_origins,
        tracer_provider=provider,
    )
    if (tls_cert is None) != (tls_key is None):
        raise click.UsageError("--tls-cert and --tls-key go together")
    if local and not report_token and not is_local(host):
        output.warn("Other machines reach this server, so it takes no reports of devices", "--report-token TOKEN")
    tls = Tls(tls_cert, tls_key) if tls_cert is not None and tls_key is not None else None
    listening = listen(host, port)
    scheme = "http" if tls is None else "https"
    url, outside = url_of(listening, scheme), url_from_outside(listening, scheme)

    watchdogs: list[Watchdog] = []

    def announce() -> None:
        # The service is alive as long as its event loop answers; asked from a thread, as any client would.
        notify("READY=1")
        watchdogs.append(Watchdog(lambda: answers(f"{url}/v2/health/live")))
        what = ", ".join(models) if models else "no model"
        also = f" and {outside}" if outside else ""
        output.talk(f"Serving {url}{also} ({what}); Ctrl-C stops")
        if not models:
            output.talk("hint: edge-infer convert model.onnx -o model.bundle, then edge-infer serve model.bundle")
        if open_browser and _has_desktop():
            click.launch(url + _page_of(models, has_demo=root is not None, has_tenants=bool(settings.tenants)))

    _log_to_output(log_format)
    if followed is not None:
        followed.start(app.engine.repository)
    try:
        serve_on(app, listening, announce, tls)
    finally:
        notify("STOPPING=1")
        for watchdog in watchdogs:
            watchdog.close()
        if followed is not None:
            followed.stop()
        if provider is not None:
            provider.shutdown()  # it sends what it still has
    output.talk("Stopped")


def _sorted(sources: tuple[str, ...]) -> tuple[list[Path], list[str]]:
    """Tell bundles and stores apart."""
    bundles: list[Path] = []
    stores: list[str] = []
    for source in sources:
        is_url = source.startswith(("http://", "https://", "edge+"))
        is_folder = Path(source, "tuf").is_dir() or (
            not Path(source).exists() and Path(source).parent.joinpath("tuf").is_dir()
        )
        if is_url or is_folder:
            stores.append(source)
        else:
            bundles.append(Path(source))
    if len([store for store in stores if Path(store, "tuf").is_dir()]) > 1:
        raise click.UsageError("One server hosts one store in a folder; start another for the next")
    return bundles, stores


def _followed(stores: list[str], models: dict[str, list[Path]], device: str, token: str) -> Followed:
    """Pull the models of stores and add them to those that are served."""
    options.require_extra("sync")
    from edge_infer.server.store.followed import Followed

    followed = Followed(stores, device=device, token=token)
    for name, path in followed.bring().items():
        if name in models:
            raise click.UsageError(f"The model {name} comes from a store and from a bundle, or from two stores")
        models[name] = [path]
    return followed


def _page_of(models: Iterable[str], *, has_demo: bool, has_tenants: bool) -> str:
    """Return the page that `--open` opens: the demo draws digits, and only the dashboard asks for a key."""
    if has_tenants:
        return "/dashboard"
    return "/" if has_demo and "digits" in models else "/docs"


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


def _log_to_output(log_format: str = "text", names: Sequence[str] = ("edge_infer.server", "uvicorn.error")) -> None:
    handler: logging.Handler = _JsonHandler() if log_format == "json" else _OutputHandler()
    for name in names:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
        is_ours = name.startswith("edge_infer") and log_format != "none"
        logger.setLevel(logging.INFO if is_ours else logging.WARNING)
