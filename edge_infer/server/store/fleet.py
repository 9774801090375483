"""The reports of devices: the last of each, totals, and the roll-outs that fail. In SQLite, in memory or in a file."""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import InputError, StoreError
from edge_infer.server.errors import StorageFailed
from edge_infer.server.protocol.reports import FAILURES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from edge_infer.server.protocol.reports import Report

#: The most devices that are remembered; those not heard of for longest are forgotten first.
MAX_DEVICES = 100_000
#: A roll-out is halted when so many devices failed their trial ...
HALT_FAILURES = 3
#: ... and they are so large a share of those that tried.
HALT_SHARE = 0.05
#: The most models that reports may name where no store says which there are.
MAX_MODELS = 1000
_KEPT_TRIALS = 8

_SCHEMA = """
CREATE TABLE IF NOT EXISTS devices (
    device TEXT, model TEXT, kind TEXT, version TEXT, sequence INTEGER, wanted INTEGER, stage INTEGER, bundle TEXT,
    method TEXT, result TEXT, error TEXT, bytes_moved INTEGER, bytes_full INTEGER, seconds REAL, trial_s REAL,
    seen REAL, PRIMARY KEY (device, model)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_seen ON devices (seen);
CREATE INDEX IF NOT EXISTS by_version ON devices (model, sequence);
CREATE TABLE IF NOT EXISTS totals (
    model TEXT PRIMARY KEY, updates INTEGER, bytes_moved INTEGER, bytes_full INTEGER, failures INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trials (
    model TEXT, sequence INTEGER, stage INTEGER, device TEXT, failed INTEGER,
    PRIMARY KEY (model, sequence, stage, device)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_device ON trials (device, model, sequence);
"""
_COLUMNS = (
    "device, model, kind, version, sequence, wanted, stage, bundle, method, result, error, bytes_moved, bytes_full, "
    "seconds, trial_s"
)


class Halt(NamedTuple):
    """A step of a roll-out that devices are advised not to take: too many failed."""

    model: str
    sequence: int
    stage: int
    failed: int
    tried: int


class Overview(NamedTuple):
    """The devices at one moment: how many, and the rows of each table."""

    devices: int
    versions: list[dict[str, Any]]
    totals: list[dict[str, Any]]
    halts: list[Halt]
    failing: list[dict[str, Any]]
    latest: list[dict[str, Any]]


class Fleet:
    """The devices that reported.

    Args:
        path: A database file that outlives the server; None for memory.
        max_devices: How many are remembered.

    Raises:
        StoreError: The file cannot be opened, or is not a database of a fleet.
    """

    def __init__(self, path: Path | None = None, *, max_devices: int = MAX_DEVICES) -> None:
        self._max_devices = max_devices
        self._lock = RLock()
        try:
            self._database = sqlite3.connect(":memory:" if path is None else path, check_same_thread=False)
            self._database.row_factory = sqlite3.Row
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._database.executescript(_SCHEMA)
            self._count = self._database.execute("SELECT count(*) FROM devices").fetchone()[0]
        except sqlite3.Error as error:
            raise StoreError(
                f"`{path}` cannot keep what devices report: {error}",
                hint="--fleet FILE, in a folder that can be written",
            ) from error

    def add(self, report: Report, *, now_s: float | None = None) -> None:
        """Take a report, whole or not at all.

        Raises:
            InputError: It names one model more than are remembered.
            StorageFailed: The disk is full, or fails.
        """
        seen = time.time() if now_s is None else now_s
        with self._asking():
            with self._database as database:
                count = self._take(database, report, seen)
            self._count = count

    def _take(self, database: sqlite3.Connection, report: Report, seen: float) -> int:
        """Write a report; return how many devices there are then."""
        known = database.execute(
            "SELECT 1 FROM devices WHERE device = ? AND model = ?", (report.device, report.model)
        ).fetchone()
        self._check_model(database, report.model)
        database.execute(
            f"INSERT OR REPLACE INTO devices ({_COLUMNS}, seen) VALUES ({', '.join('?' * 16)})", (*report, seen)
        )
        has_failed = report.result in FAILURES
        is_update = report.result == "ok"
        database.execute(
            "INSERT INTO totals VALUES (?, ?, ?, ?, ?) ON CONFLICT (model) DO UPDATE SET updates = updates + ?2, "
            "bytes_moved = bytes_moved + ?3, bytes_full = bytes_full + ?4, failures = failures + ?5",
            (
                report.model,
                int(is_update),
                report.bytes_moved if is_update else 0,
                report.bytes_full if is_update else 0,
                int(has_failed),
            ),
        )
        if report.result in ("ok", "trial_failed") and report.wanted:
            mine = (report.model, report.device)
            database.execute(
                "DELETE FROM trials WHERE model = ? AND device = ? AND sequence = ?", (*mine, report.wanted)
            )
            database.execute(
                "INSERT INTO trials (model, device, sequence, stage, failed) VALUES (?, ?, ?, ?, ?)",
                (*mine, report.wanted, report.stage, int(report.result == "trial_failed")),
            )
            database.execute(
                "DELETE FROM trials WHERE model = ?1 AND device = ?2 AND sequence NOT IN (SELECT sequence FROM "
                "trials WHERE model = ?1 AND device = ?2 ORDER BY sequence DESC LIMIT ?3)",
                (*mine, _KEPT_TRIALS),
            )
        count: int = self._count + (known is None)
        return count - self._forget(database, count) if count > self._max_devices else count

    def _check_model(self, database: sqlite3.Connection, model: str) -> None:
        if database.execute("SELECT 1 FROM totals WHERE model = ?", (model,)).fetchone() is None:
            count = database.execute("SELECT count(*) FROM totals").fetchone()[0]
            if count >= MAX_MODELS:
                raise InputError(f"Reports named {MAX_MODELS} other models already", hint="edge-infer serve STORE")

    def _forget(self, database: sqlite3.Connection, count: int) -> int:
        """Forget a hundredth of the devices, so that this is rare; return how many."""
        count += self._max_devices // 100 - self._max_devices
        database.execute(
            "DELETE FROM devices WHERE (device, model) IN (SELECT device, model FROM devices ORDER BY seen LIMIT ?)",
            (count,),
        )
        database.execute("DELETE FROM trials WHERE device NOT IN (SELECT device FROM devices)")
        return count

    def halts(self, model: str | None = None) -> list[Halt]:
        """List the steps of roll-outs in which too many devices failed their trial."""
        with self._asking():
            rows = self._database.execute(
                "SELECT model, sequence, stage, sum(failed) AS failed, count(*) AS tried FROM trials "
                "WHERE stage > 0 AND (?1 IS NULL OR model = ?1) GROUP BY model, sequence, stage "
                "HAVING sum(failed) >= ?2 AND sum(failed) >= ?3 * count(*) ORDER BY model, sequence, stage",
                (model, HALT_FAILURES, HALT_SHARE),
            ).fetchall()
        return [Halt(**dict(row)) for row in rows]

    def overview(self, *, latest: int = 100) -> Overview:
        """Read all that the fleet's pages show at one moment: no report is taken in between."""
        with self._lock:
            return Overview(
                len(self), self.versions(), self.totals(), self.halts(), self.failing(), self.latest(latest)
            )

    def versions(self) -> list[dict[str, Any]]:
        """Count the devices of each model by the version that they run, the newest first."""
        return self._rows(
            "SELECT model, version, sequence, count(*) AS devices FROM devices GROUP BY model, version, sequence "
            "ORDER BY model, sequence DESC"
        )

    def totals(self) -> list[dict[str, Any]]:
        """Sum up updates, failures and bytes of each model."""
        return self._rows("SELECT * FROM totals ORDER BY model")

    def failing(self, limit: int = 100) -> list[dict[str, Any]]:
        """List the devices whose last report was a failure, the last one first."""
        return self._rows(
            f"SELECT {_COLUMNS}, seen FROM devices WHERE result IN ({', '.join('?' * len(FAILURES))}) "
            "ORDER BY seen DESC LIMIT ?",
            *FAILURES,
            limit,
        )

    def latest(self, limit: int = 100) -> list[dict[str, Any]]:
        """List the devices that were heard of last."""
        return self._rows(f"SELECT {_COLUMNS}, seen FROM devices ORDER BY seen DESC LIMIT ?", limit)

    def __len__(self) -> int:
        """Count the devices."""
        return int(self._count)

    def close(self) -> None:
        """Close the database."""
        with self._lock:
            self._database.close()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Hold the database alone, and say in our words what is wrong with it."""
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise StorageFailed(
                    f"The server cannot keep or read what devices report: {error}",
                    hint="make room on the disk of its --fleet FILE",
                ) from error

    def _rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        with self._asking():
            return [dict(row) for row in self._database.execute(query, values).fetchall()]
