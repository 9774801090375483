"""`edge-infer pull` and `watch`: bring a device's folder to the newest version of a store, and keep it there."""

from __future__ import annotations

import functools
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from edge_infer.cli import options, output
from edge_infer.platform.posix import on_termination
from edge_infer.platform.systemd import Watchdog, notify

if TYPE_CHECKING:
    from collections.abc import Callable

    from edge_infer.errors import EdgeInferError
    from edge_infer.sync.client import Pulled


#: A whole model over a line of 1 Mbit/s takes this long at 450 MB.
_LONGEST_LOOK_S = 3600.0


def _device_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add what `pull` and `watch` share."""
    into = click.option("--into", required=True, type=click.Path(path_type=Path), help="The device's folder.")
    root = click.option(
        "--root",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="The store's first root.json, brought here by hand; default: trust what the store shows first.",
    )
    retry = click.option("--retry", is_flag=True, help="Try a version again that failed its trial.")
    name = click.option("--name", help="What the device is called in roll-outs and reports; default: a random word.")
    key = click.option(
        "--key",
        type=click.Path(path_type=Path),  # that it is there is checked by whose errors show no key
        envvar="EDGE_INFER_KEY_FILE",
        show_envvar=True,
        metavar="KEYFILE",
        help="The key file of weights that are encrypted.",
    )
    return click.argument("address", metavar="STORE/MODEL")(into(root(retry(name(key(options.model_choice(command)))))))


@click.command()
@_device_options
@options.as_json
def pull(
    address: str, into: Path, root: Path | None, retry: bool, name: str | None, as_json: bool, **choice: Any
) -> None:
    """Bring a device's folder to the newest version of a model in a store.

    STORE is a URL or a folder. What is here already is not fetched again; the new version runs its golden examples
    before it becomes the active one. Load it from `edge-infer store status DIR`, or by
    `edge_infer.runtime.live.LiveSession`.
    """
    options.require_extra("sync")
    _rename(into, name)
    pulled = _pull(address, into, root, retry, choice)
    if as_json:
        output.data_json({**pulled._asdict(), "path": str(pulled.path)})
        return
    output.data(str(pulled.path))
    _talk(pulled)


@click.command()
@_device_options
@click.option(
    "--interval-s",
    default=60.0,
    show_default=True,
    type=click.FloatRange(0.01),
    metavar="S",
    help="Mean seconds between two looks.",
)
@click.option("--once", is_flag=True, help="Look once and exit.")
@click.option(
    "--server", metavar="URL", help="The `edge-infer serve` to listen and report to; default: the store's host."
)
@click.option("--no-server", is_flag=True, help="Look at intervals only, and report to nobody.")
@click.option(
    "--report-token",
    default="",
    envvar="EDGE_INFER_REPORT_TOKEN",
    show_envvar=True,
    metavar="TOKEN",
    help="The --report-token of that server.",
)
def watch(
    address: str,
    into: Path,
    root: Path | None,
    retry: bool,
    name: str | None,
    interval_s: float,
    once: bool,
    server: str | None,
    no_server: bool,
    report_token: str,
    **choice: Any,
) -> None:
    """Pull again and again: when the store's server says so, else with jitter, and waiting longer while it fails.

    Where the store's host is an `edge-infer serve`, it is also told how each update went, and asked whether a roll-out
    in steps fails elsewhere. Ctrl-C stops. One line for each change is printed: the version and the folder to load.
    """
    options.require_extra("sync")
    if server and no_server:
        raise click.UsageError("--server and --no-server exclude each other")
    from edge_infer.sync.client import split_address
    from edge_infer.sync.device import DeviceStore
    from edge_infer.sync.follow import Server, follow, reported, server_of
    from edge_infer.sync.watch import MAX_BACKOFF, wait_s

    _rename(into, name)
    store, model = split_address(address)
    url = "" if no_server else (server or server_of(store)).rstrip("/")
    told = Server(url, DeviceStore(into), model, token=report_token) if url else None

    def changed(pulled: Pulled) -> None:
        output.data(f"{pulled.version} {pulled.path}")
        _talk(pulled)

    halted = {} if told is None else {"is_halted": told.is_halted}
    look = functools.partial(_pull, address, into, root, retry, choice, **halted)
    if once:
        pulled = reported(look, told)()
        if pulled.changed:
            changed(pulled)
        else:
            _talk(pulled)
        return
    # A look may take long on a thin line, and waits grow while the store does not answer; beyond both it hangs.
    patience_s = _LONGEST_LOOK_S + wait_s(interval_s, MAX_BACKOFF, 1.0)
    last = [monotonic()]

    def alive_look() -> Pulled:
        last[0] = monotonic()
        return look()

    stop, wake = Event(), Event()

    def end() -> None:
        stop.set()
        wake.set()

    on_termination(end)  # after the pull that is under way
    notify("READY=1")
    watchdog = Watchdog(lambda: monotonic() - last[0] < patience_s)
    try:
        follow(alive_look, told, interval_s=interval_s, stop=stop, wake=wake, on_update=changed, on_error=_complain)
    except KeyboardInterrupt:
        pass
    finally:
        notify("STOPPING=1")
        watchdog.close()
    output.talk("Stopped")


def _complain(error: EdgeInferError) -> None:
    output.warn(error.message, error.hint)


def _rename(into: Path, name: str | None) -> None:
    if name is not None:
        from edge_infer.sync.device import DeviceStore

        DeviceStore(into).rename(name)


def _pull(
    address: str,
    into: Path,
    root: Path | None,
    retry: bool,
    choice: dict[str, Any],
    is_halted: Callable[[int, int], bool] = lambda _sequence, _stage: False,
) -> Pulled:
    from edge_infer.bundle.bundle import Bundle
    from edge_infer.runtime.loader import trial
    from edge_infer.runtime.options import LoadOptions
    from edge_infer.sync.client import pull as pull_model
    from edge_infer.sync.client import split_address
    from edge_infer.sync.device import DeviceStore
    from edge_infer.vectors.published import index_trial, is_index
    from edge_infer.verify.chains import chain_trial

    def try_it(path: Path) -> None:
        if is_index(path):
            index_trial(path)
        elif Bundle.open(path, key=choice["key"]).manifest.chain is not None:
            chain_trial(path, choice["key"])
        else:
            trial(path, LoadOptions(**choice))

    store, model = split_address(address)
    device = DeviceStore(into)
    if root is None and not (into / "root.json").exists():
        output.warn(f"Trusting the keys that {store} shows at this first pull", "name them with --root root.json")
    with output.progress(f"Pulling {model}") as step:
        return pull_model(
            store,
            model,
            device,
            try_it,
            root=None if root is None else root.read_bytes(),
            retry=retry,
            progress=step,
            is_halted=is_halted,
            key=choice["key"],
        )


def _talk(pulled: Pulled) -> None:
    if pulled.note:
        output.warn(pulled.note)
    if pulled.method == "none":
        output.talk(f"{pulled.model} {pulled.version} is active already; nothing was fetched")
        return
    share = pulled.bytes_moved / pulled.bytes_full
    output.talk(
        f"{pulled.model} {pulled.version} is active: {output.size(pulled.bytes_moved)} fetched, "
        f"{share:.1%} of a full download ({output.size(pulled.bytes_full)}); method {pulled.method}"
    )
