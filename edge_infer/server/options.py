"""The options of `edge-infer serve`, declared once: for its command line, its file, its defaults and the reference."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import InputError, did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_KINDS: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "Path | None": (str,),
    "tuple[str, ...]": (list,),
}


class Facts(NamedTuple):
    """The declaration of an option.

    Attributes:
        help: Its meaning, for people.
        least: The least number; None for any.
        most: The greatest number; None for any.
        metavar: How its value is called in the help.
        flag: Its name on the command line where the key's is another.
        choices: The values that it may have; empty for any.
        variable: The environment variable that it is read from.
    """

    help: str
    least: float | None = None
    most: float | None = None
    metavar: str = "N"
    flag: str = ""
    choices: tuple[str, ...] = ()
    variable: str = ""


def _option(default: Any, text: str, least: float | None = None, most: float | None = None, **more: Any) -> Any:
    return field(default=default, metadata={"facts": Facts(text, least, most, **more)})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions:
    """The options of `edge-infer serve`; each is a key of the table `[server]` in the file of `--config` too."""

    host: str = _option("127.0.0.1", "The address to listen on; 0.0.0.0 for all.", metavar="TEXT")
    port: int = _option(8080, "The port to listen on; 0 takes a free one.", 0, 65535)
    web_root: Path | None = _option(None, "A folder with src, studio, demo and vendor, not the installed one.")
    page: Path | None = _option(None, "A folder with a page of your own, shown at / in place of the studio.")
    device: str = _option("auto", "What models run on: auto, cpu, cuda or cuda:1.", metavar="NAME")
    workers: int = _option(0, "How many batches run at once; 0: one per CPU, at most 4.", 0, 64)
    max_batch_size: int = _option(32, "The most rows of a batch; measuring each model may lower it.", 1, 4096)
    max_delay_ms: float = _option(
        5.0, "How many ms a free worker waits for a batch to fill while others are busy.", 0, 1000
    )
    max_queue_size: int = _option(256, "The most requests that wait for a model; the rest get 503.", 1)
    max_wait_ms: float = _option(
        0.0, "The longest wait in ms, by estimate, that a request is taken for; 0: the time of some batches.", 0
    )
    max_rows: int = _option(16384, "The most rows of one request; 0 for any number.", 0)
    max_body_mb: int = _option(64, "The most MiB of a request's body.", 1)
    max_json_mb: int = _option(16, "The most MiB of a request's JSON; tensors in binary are not JSON.", 1)
    max_bodies_mb: int = _option(512, "The most MiB of all bodies that are read or wait; the rest get 503.", 1)
    max_answer_mb: int = _option(64, "The most MiB of an answer's tensors, or of its JSON; 0 for any number.", 0)
    max_in_flight: int = _option(256, "The most requests of one WebSocket that wait or run; more are not read.", 1)
    max_streams: int = _option(1024, "The most WebSockets at once.", 0)
    slots: int = _option(4, "The most answers of generated text that advance at once, for each such model.", 1, 256)
    context: int = _option(
        0, "The most tokens of a prompt and its answer together; 0: the model's own, at most 4096.", 0
    )
    variant: str = _option("", "The variant to run, such as onnx/fp32; default: the one chosen for here.", metavar="ID")
    fast_variant: str = _option(
        "", "The variant, such as onnx/int8, to run while requests pile up; auto chooses it.", metavar="ID"
    )
    lazy: bool = _option(False, "Load a model when it is first asked for, not at the start.")
    refuse_nan: bool = _option(False, "An answer with a NaN in it is an error, 500.")
    tls_cert: Path | None = _option(None, "A PEM file with the certificate's chain.")
    tls_key: Path | None = _option(None, "A PEM file with the certificate's private key.")
    cors_origins: tuple[str, ...] = _option(
        (),
        "Another server whose pages may ask, such as https://shop.example, or * for all; may be repeated.",
        metavar="ORIGIN",
        flag="--cors-origin",
    )
    max_connections: int = _option(16384, "The most connections at once.", 1)
    max_header_kb: int = _option(32, "The most KiB of headers.", 1)
    header_timeout_s: float = _option(15.0, "How many seconds a request's headers may take to come.", 0.1)
    read_timeout_s: float = _option(60.0, "How many seconds a client may read nothing of its answer.", 0.1)
    drain_delay_s: float = _option(
        1.0, "How many seconds a stopping server still answers new connections, with 503, before it closes.", 0
    )
    otel: bool = _option(False, "Send a span of each request to the collector that OTEL_EXPORTER_OTLP_ENDPOINT names.")
    drift: bool = _option(
        False, "Count what models are given where their bundles have a reference of `edge-infer monitor`; see /metrics."
    )
    triton_metric_names: bool = _option(False, "Give /metrics the names of Triton too.")
    cache_mb: int = _option(
        0, "MiB of answers to keep for each model; identical requests then run once. 0 keeps none.", 0
    )
    cache_ttl_s: float = _option(60.0, "How many seconds an answer is kept.", 0)
    log_format: str = _option(
        "text", "How requests are logged; none logs errors only.", choices=("text", "json", "none")
    )
    fleet: Path | None = _option(None, "A file that keeps what devices report; default: memory.")
    report_token: str = _option(
        "",
        "What devices must show to report, and people to read /fleet; default: this machine alone may.",
        metavar="TOKEN",
        variable="EDGE_INFER_REPORT_TOKEN",
    )
    feedback: Path | None = _option(None, "A folder that keeps what people say of answers; default: none is taken.")
    feedback_mb: int = _option(256, "The most MiB of that folder.", 1)
    open_browser: bool = _option(
        False,
        "Open the studio, or your own page, where there is a desktop.",
        flag="--open",
    )
    no_isolation: bool = _option(False, "Leave out COOP and COEP: pages then have no threads.")


class Declared(NamedTuple):
    """A declared option: its key, the flag of the command line, the kind and the default of its value, its facts."""

    key: str
    flag: str
    kind: str
    default: Any
    facts: Facts


def declared() -> Iterator[Declared]:
    """Give the options in the order of the help."""
    for one in fields(ServeOptions):
        facts: Facts = one.metadata["facts"]
        yield Declared(one.name, facts.flag or f"--{one.name.replace('_', '-')}", str(one.type), one.default, facts)


def check_table(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the table `[server]` of a file; the command line checks the ranges.

    Raises:
        InputError: A key is not known, or its value is of another kind.
    """
    known = {one.key: one for one in declared()}
    for key, value in table.items():
        if key not in known:
            hint = did_you_mean(key, list(known)) or "leave it out"
            raise InputError(f"`{key}` is not known in server; choose from {listed(list(known))}", hint=hint)
        kinds = _KINDS[known[key].kind]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise InputError(
                f"`server.{key}` is {type(value).__name__}, expected {kinds[0].__name__}",
                hint=f"edge-infer serve --help: {known[key].flag}",
            )
    return table
