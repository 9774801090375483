"""`edge-infer device`: manage the service, the health report and the drop folder of a device."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING

import click

from edge_infer.cli import output
from edge_infer.errors import EdgeInferError, InputError

if TYPE_CHECKING:
    from edge_infer.tools.device.drop_folder import Taken


@click.group()
def device() -> None:
    """Run as a service, take models from a folder, tell how the device is."""


@device.command("install-service")
@click.argument("source", metavar="BUNDLE|STORE/MODEL")
@click.option("--name", help="The unit is edge-infer-NAME.service. Default: the model's name.")
@click.option("--user", help="The user to run as. Default: one that systemd makes for the service alone.")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to serve on; 0.0.0.0 for all.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(1, 65535), help="The port to serve on.")
@click.option(
    "--memory-max",
    default="256M",
    show_default=True,
    metavar="SIZE",
    help="The most memory; if it takes more, it is restarted.",
)
@click.option(
    "--watchdog-s",
    default=60,
    show_default=True,
    type=click.IntRange(5),
    metavar="S",
    help="Restart it after this many seconds without a sign of life.",
)
@click.option("--allow-devices", is_flag=True, help="Let it open devices: a camera, a GPU.")
@click.option(
    "--key",
    "key_file",
    metavar="KEYFILE",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="The key file of encrypted weights; systemd gives it to the service alone.",
)
@click.option(
    "--unit-dir",
    default=Path("/etc/systemd/system"),
    show_default=True,
    type=click.Path(path_type=Path),
    help="The folder to write the unit to.",
)
@click.option("--dry-run", is_flag=True, help="Print the unit and write nothing.")
def install_service(
    source: str,
    name: str | None,
    user: str | None,
    host: str,
    port: int,
    memory_max: str,
    watchdog_s: int,
    allow_devices: bool,
    key_file: Path | None,
    unit_dir: Path,
    dry_run: bool,
) -> None:
    """Write a systemd unit that starts at boot, is watched and restarted, and is shut off from the rest.

    A BUNDLE (a folder, such as `current` in a drop folder, a .zip or a model file) is served over HTTP; of
    STORE/MODEL the newest version is kept in /var/lib/edge-infer/MODEL.

    \b
    edge-infer device install-service digits.bundle --dry-run
    sudo edge-infer device install-service /srv/models/current --user pi --host 0.0.0.0
    """  # noqa: D301  click reads the \b
    from edge_infer.tools.device.service import Service, unit_text

    arguments = _arguments(source, host, port)
    short = name or _short_name(source)
    service = Service(short, arguments, user, memory_max, watchdog_s, allow_devices, key_file)
    text = unit_text(service)
    if dry_run:
        output.data(text.rstrip("\n"))
        return
    from edge_infer.platform.atomic_write import write_file

    path = unit_dir / service.unit
    if not unit_dir.is_dir():
        raise InputError(
            f"There is no folder `{unit_dir}`: this system has no systemd", hint="--dry-run prints the unit"
        )
    try:
        write_file(path, text.encode())
    except PermissionError as error:
        raise EdgeInferError(
            f"`{unit_dir}` cannot be written", hint="sudo edge-infer device install-service ..."
        ) from error
    output.data(str(path))
    output.talk(f"Start it: sudo systemctl daemon-reload && sudo systemctl enable --now {service.unit}")
    output.talk(f"Read what it says: journalctl -u {service.unit} -f")


def _arguments(source: str, host: str, port: int) -> tuple[str, ...]:
    """Return the command of a service: serve what lies here, or keep to a store."""
    place = Path(source)
    if place.exists():
        # Not resolved: the link `current` of a drop folder must stay a link.
        return "serve", str(place.absolute()), "--host", host, "--port", str(port), "--log-format", "json"
    if source.startswith(("http://", "https://")):
        return "watch", source, "--into", f"/var/lib/edge-infer/{_short_name(source)}"
    raise InputError(f"There is no bundle `{source}`", hint="give a path, or the URL of STORE/MODEL", got=source)


def _short_name(source: str) -> str:
    """Return a name for the unit: the bundle's, or the last piece of the address."""
    from edge_infer.bundle.bundle import Bundle

    if Path(source).exists():
        return Bundle.open(source).manifest.name
    return re.sub(r"[^A-Za-z0-9._-]+", "-", source.rstrip("/").rpartition("/")[2]).strip("-.") or "model"


@device.command()
@click.argument("folders", nargs=-1, metavar="[DIR]...", type=click.Path(path_type=Path))
@click.option("--root", hidden=True, default=Path("/"), type=click.Path(path_type=Path, exists=True, file_okay=False))
def status(folders: tuple[Path, ...], root: Path) -> None:
    """Print the health of this device as one JSON object; exit with 1 where something is wrong.

    A DIR is a folder that `pull` or `watch` fills, a drop folder, or a bundle. Without one: those in
    /var/lib/edge-infer.
    """
    from edge_infer.tools.device.status import read_status

    known = Path("/var/lib/edge-infer")
    if not folders and known.is_dir():
        folders = tuple(sorted(path for path in known.iterdir() if (path / "active.json").is_file()))
    found = read_status(folders, root)
    output.data_json(found)
    sys.exit(not found["healthy"])


@device.command("watch-folder")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--interval-s",
    default=2.0,
    show_default=True,
    type=click.FloatRange(0.01),
    metavar="S",
    help="Seconds between two looks.",
)
@click.option("--once", is_flag=True, help="Take what is there now, and exit with 1 where something was refused.")
def watch_folder(folder: Path, interval_s: float, once: bool) -> None:
    """Take bundles that are copied into DIR/incoming.

    One that is whole and gives its golden outputs becomes DIR/current, by one atomic rename; the one before it is kept.
    One that does not goes to DIR/refused, with the reason beside it.

    \b
    edge-infer device watch-folder /srv/models &
    edge-infer serve /srv/models/current     # serves the new version from the next request on
    """  # noqa: D301  click reads the \b
    from edge_infer.platform.posix import on_termination
    from edge_infer.platform.systemd import Watchdog, notify
    from edge_infer.tools.device.drop_folder import DropFolder

    drop = DropFolder(folder)
    if once:
        drop.look()  # the first look only remembers, the second takes what has not changed
        taken = drop.look()
        for one in taken:
            _tell(one)
        sys.exit(not all(one.is_current for one in taken))
    last = [monotonic()]
    stop = Event()
    on_termination(stop.set)
    notify("READY=1")
    watchdog = Watchdog(lambda: monotonic() - last[0] < max(600.0, 10 * interval_s))
    output.talk(f"Watching {folder}/incoming; Ctrl-C stops")
    try:
        while not stop.is_set():
            try:
                for one in drop.look():
                    _tell(one)
            except OSError as error:
                output.warn(f"{folder} cannot be changed: {error}", "edge-infer doctor")
            last[0] = monotonic()
            stop.wait(interval_s)
    except KeyboardInterrupt:
        pass
    finally:
        notify("STOPPING=1")
        watchdog.close()
    output.talk("Stopped")


def _tell(one: Taken) -> None:
    if one.is_current:
        output.data(f"{one.revision[:12]} {one.path}")
        output.talk(f"{one.name} is current")
    else:
        output.warn(f"{one.name} was refused: {one.reason}", f"it lies in {one.path}")
