"""Metadata of signed stores that lies, signed by the right keys or by none: refused by one error, here and in a page.

Whoever holds an online key may sign what he likes, but may crash nobody and write nowhere.
"""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from securesystemslib.formats import encode_canonical

from edge_infer.errors import EdgeInferError
from edge_infer.sync.keys import load_keys
from edge_infer.sync.repository import Repository
from edge_infer.sync.source import open_source
from edge_infer.sync.trust import Floor, newest
from tests.support.sync.delegated import TEAM, delegate, number_of
from tests.support.sync.publisher import Publisher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DRIVER = Path(__file__).with_name("metadata.mjs")
ROLES = ("root", "timestamp", "snapshot", "targets", "team")
#: No metadata of this size takes longer.
MOST_S = 10.0


class Store(NamedTuple):
    """An honest store, which each case changes a copy of."""

    publisher: Publisher
    root: str


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("metadata")
    publisher = Publisher(folder / "store", folder / "keys", folder / "bundles")
    Repository(publisher.folder).create(publisher.keys)
    publisher.publish(1)
    delegate(publisher)
    root = (publisher.folder / "tuf/1.root.json").read_text()
    # The second root is the one that is changed: the first is trusted.
    document = json.loads(root)["signed"] | {"version": 2}
    (publisher.folder / "tuf/2.root.json").write_bytes(signed(publisher, "root", document))
    return Store(publisher, root)


def path_of(folder: Path, role: str) -> Path:
    return folder / "tuf" / ("timestamp.json" if role == "timestamp" else f"{number_of(folder, role)}.{role}.json")


def signed(publisher: Publisher, role: str, document: Any) -> bytes:
    """Sign a document as its role does; what cannot be signed has a signature that does not fit."""
    signers = [TEAM] if role == "team" else load_keys(publisher.keys, role)
    try:
        data = (encode_canonical(document) or "").encode()
    except Exception:
        data = b""
    signatures = [{"keyid": one.public_key.keyid, "sig": one.sign(data).signature} for one in signers]
    return json.dumps({"signatures": signatures, "signed": document}).encode()


# -- what is changed --

GONE = object()


def put(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for one in path[:-1]:
            place = place[one]
        if value is GONE:
            del place[path[-1]]
        else:
            place[path[-1]] = value

    return change


def each(field: str, *values: Any) -> list[tuple[str, Any]]:
    return [(field, value) for value in values]


EVERYWHERE = [
    *(pair for name in ("_type", "spec_version", "version", "expires") for pair in each(name, GONE)),
    *each("_type", "", "mirror", None, [], 1),
    *each("spec_version", "2.0.0", "", "1", None, 1, [], "1.0.0.0.0"),
    *each("version", 0, -1, 1.5, "1", True, None, [], 2**63, 10**400),
    *each("expires", "never", "", None, 5, [], "9999-99-99T99:99:99Z", "2030-01-01", "-2030-01-01T00:00:00Z"),
]
_META: list[Any] = [None, [], 1, "x", {}, {"x": 1}, {"../../x.json": {"version": 1}}, {"__proto__": {"version": 1}}]
_ENTRY: list[Any] = [
    *(None, [], 1, "x", {}),
    *({"version": value} for _, value in each("", 0, "1", 1.5, 10**400, True)),
    *({"version": 1, "length": value} for _, value in each("", -1, "1", 1.5, [], 2**70, 1)),
    *({"version": 1, "hashes": value} for _, value in each("", 5, [], "x")),
    *({"version": 1, "hashes": {kind: value}} for kind, value in [("md5", "x"), *each("sha256", 5, "", "zz")]),
]
_HASHES = {"sha256": "0" * 64}
_TARGET: list[Any] = [
    *(None, [], 1, {}, {"length": 1}, {"hashes": _HASHES}),
    *({"length": value, "hashes": _HASHES} for _, value in each("", -1, "1", 1.5, None, 2**70)),
    *({"length": 5, "hashes": value} for _, value in each("", {}, [], None, {"md5": "0" * 32})),
    *({"length": 5, "hashes": {"sha256": value}} for _, value in each("", 5, "../../../etc/passwd")),
    *(
        {"length": 5, "hashes": _HASHES, "custom": value}
        for _, value in each("", None, [], 5, {"stage": 5}, {"sequence": []})
    ),
    *(
        {"length": 5, "hashes": _HASHES, "custom": {"stage": {"share": value, "number": 1}}}
        for _, value in each("", -1, "x")
    ),
]
_KEYIDS: list[Any] = [None, [], 5, "x", [5], ["x" * 64], {}, ["../../x"]]
_ROLE: list[Any] = [None, [], 5, {}, {"keyids": []}, *({"keyids": value, "threshold": 1} for value in _KEYIDS)]
_BINS = {"keyids": ["x"], "threshold": 1, "name_prefix": "bin"}
_DELEGATIONS: list[Any] = [
    *([], 5, "x", {}, {"keys": {}}, {"roles": []}, {"keys": [], "roles": []}, {"keys": {}, "roles": {}}),
    *({"keys": {}, "roles": [value]} for _, value in each("", None, 5, [], {}, {"name": "team"})),
    *(
        {"keys": {}, "succinct_roles": {**_BINS, "bit_length": bits}}
        for _, bits in each("", 0, -1, 33, 10**9, "8", None, 1.5, 8)
    ),
]
_DELEGATED = [
    *each("name", "", "root", "targets", "snapshot", "../../x", "x/../../y", None, 5, "\x00", "a" * 5000),
    *each("terminating", None, "yes", 1, GONE),
    *each("paths", None, 5, [], [5], "linear", ["*" * 60 + "x"], ["[" * 50], ["*a" * 30 + "*"], GONE),
    *each("threshold", 0, -1, "1", None, 10**400, 2, GONE),
    *each("keyids", *_KEYIDS),
    ("path_hash_prefixes", ["ab"]),
]


def corpus() -> Iterator[tuple[str, str, Callable[[dict[str, Any]], None]]]:
    """Yield the role, what is changed, and how."""

    def named(role: str, value: Any, *path: str) -> tuple[str, str, Callable[[dict[str, Any]], None]]:
        shown = "gone" if value is GONE else str(value)[:60]
        return role, f"{role}: {'.'.join(path)} = {shown}", put(*path, value=value)

    for role in ROLES:
        yield from (named(role, value, name) for name, value in EVERYWHERE)
    for role, file in (("timestamp", "snapshot.json"), ("snapshot", "targets.json"), ("snapshot", "team.json")):
        yield from (named(role, value, "meta") for value in (*_META, GONE))
        yield from (named(role, value, "meta", file) for value in (*_ENTRY, GONE))
    for role in ("targets", "team"):
        odd: list[Any] = [None, [], 5, "x", GONE, {"linear": None}, {"__proto__": {}}]
        yield from (named(role, value, "targets") for value in odd)
        yield from (named(role, value, "delegations") for value in _DELEGATIONS)
    yield from (named("team", value, "targets", "linear") for value in _TARGET)
    for field, value in _DELEGATED:
        yield "targets", f"targets: a delegated role's {field} = {str(value)[:40]}", _of_role(field, value)
    for name, change in _LOOPS.items():
        yield "targets" if "targets" in name else "team", name, change
    for role in ("root", "timestamp", "snapshot", "targets"):
        yield from (named("root", value, "roles", role) for value in (*_ROLE, GONE))
        yield from (
            named("root", value, "roles", role, "threshold") for _, value in each("", 0, -1, "1", None, 1.5, 10**400, 5)
        )
    shapes: list[Any] = [None, [], 5, {}, "x", GONE]
    yield from (named("root", value, name) for name in ("keys", "roles") for value in shapes)
    yield from (named("root", value, "consistent_snapshot") for _, value in each("", "yes", 5, [], None))
    for field in ("keytype", "scheme", "keyval"):
        values: list[Any] = [None, 5, "", "x", [], {}, *({"public": value} for value in ("zz", "00" * 10**5))]
        for value in values:
            yield "root", f"root: a key's {field} = {str(value)[:40]}", _of_keys(field, value)


def _of_role(field: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: put(field, value=value)(document["delegations"]["roles"][0])


def _of_keys(field: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        for key in document["keys"].values():
            key[field] = value

    return change


def _itself(document: dict[str, Any]) -> None:
    """The role delegates to itself, and has no target."""
    document["targets"] = {}
    key = TEAM.public_key
    role = {"name": "team", "keyids": [key.keyid], "threshold": 1, "terminating": False, "paths": ["*"]}
    document["delegations"] = {"keys": {key.keyid: key.to_dict()}, "roles": [role]}


def _crowd(document: dict[str, Any]) -> None:
    """Thousands of roles before the right one, which none of them is for."""
    right = document["delegations"]["roles"][0]
    one = {**right, "terminating": False}
    document["delegations"]["roles"] = [{**one, "name": f"r{i}"} for i in range(5000)]


_LOOPS = {"team: delegates to itself": _itself, "targets: 5000 delegated roles that are not there": _crowd}


def raw_cases(data: bytes) -> dict[str, bytes]:
    """Return what is no metadata at all, made of an honest file."""
    document = json.loads(data)
    first = document["signatures"][0]

    def with_signatures(value: Any) -> bytes:
        return json.dumps({**document, "signatures": value}).encode()

    return {
        "empty": b"",
        "null": b"null",
        "a list": b"[]",
        "a number": b"1" * 5000,
        "cut": data[: len(data) // 2],
        "not UTF-8": b"\xff\xfe" + data,
        "deep": b"[" * 15_000,
        "deep in signed": b'{"signatures": [], "signed": ' + b'{"a":' * 3000 + b"1" + b"}" * 3000 + b"}",
        "no signed": json.dumps({"signatures": document["signatures"]}).encode(),
        "signed is null": json.dumps({**document, "signed": None}).encode(),
        "HTML": b"<html>log in</html>",
        "signatures null": with_signatures(None),
        "signatures an object": with_signatures({}),
        "no signature": with_signatures([]),
        "one signature twice": with_signatures([first, first]),
        "a signature that is no object": with_signatures([5]),
        "a signature without an id": with_signatures([{"sig": first["sig"]}]),
        "a signature that is a number": with_signatures([{**first, "sig": 5}]),
        "a signature that is no hexadecimal": with_signatures([{**first, "sig": "zz" * 64}]),
        "a signature of no bytes": with_signatures([{**first, "sig": ""}]),
        "a stranger's signature": with_signatures([{**first, "sig": "00" * 64}]),
        "thousands of signatures": with_signatures([{**first, "keyid": f"{i:064x}"} for i in range(120)]),
    }


def write_cases(store: Store, folder: Path) -> list[tuple[str, Path]]:
    """Write a store for each case, of links to the honest one but for what is changed."""
    cases: list[tuple[str, str, bytes]] = []
    honest = {role: path_of(store.publisher.folder, role).read_bytes() for role in ROLES}
    for role, name, change in corpus():
        document = copy.deepcopy(json.loads(honest[role])["signed"])
        change(document)
        try:
            data = signed(store.publisher, role, document)
        except (ValueError, RecursionError):
            continue
        cases.append((role, name, data))
    for role in ROLES:
        cases += [(role, f"{role}: {name}", data) for name, data in raw_cases(honest[role]).items()]
    made = []
    for number, (role, name, data) in enumerate(cases):
        place = folder / str(number)
        shutil.copytree(store.publisher.folder / "tuf", place / "tuf")
        (place / "revisions").symlink_to(store.publisher.folder / "revisions")
        path_of(place, role).write_bytes(data)
        made.append((name, place))
    return made


def in_python(place: Path, root: str, device: Path) -> str:
    """Return the version that a device would take, or the code of its error."""
    start = time.monotonic()
    try:
        found = newest(open_source(str(place)), "linear", device, root.encode(), Floor()).revision.version
    except EdgeInferError as error:
        found = error.code
    except Exception as error:
        found = f"crash: {type(error).__name__}: {error}"
    assert time.monotonic() - start < MOST_S, f"{place} takes too long"
    return found


def test_every_case_is_an_error_of_ours_or_changes_nothing(store: Store, tmp_path: Path) -> None:
    cases = write_cases(store, tmp_path / "stores")
    assert len(cases) > 400
    device = tmp_path / "device"
    seen = {}
    for name, place in cases:
        shutil.rmtree(device, ignore_errors=True)
        seen[name] = in_python(place, store.root, device)
    crashed = {name: found for name, found in seen.items() if found.startswith("crash")}
    assert not crashed, json.dumps(crashed, indent=1)
    assert (
        {"1", "signature_error"}
        < set(seen.values())
        <= {
            *(
                "1",
                "signature_error",
                "fetch_error",
                "rollback_refused",
                "metadata_expired",
                "store_error",
                "not_released",
            )
        }
    )
    accepted = [name for name, found in seen.items() if found == "1"]
    assert len(accepted) < len(seen) / 5, accepted
    assert not list(tmp_path.glob("*.json")), "nothing is written outside"

    given = tmp_path / "cases"
    given.write_text(json.dumps([{"store": str(place), "root": store.root} for _, place in cases]))
    done = subprocess.run(["node", str(DRIVER), str(given)], capture_output=True, text=True, check=True)
    in_page = dict(zip((name for name, _ in cases), json.loads(done.stdout), strict=True))
    crashed = {name: one["crash"] for name, one in in_page.items() if "crash" in one}
    assert not crashed, json.dumps(crashed, indent=1)
    assert not {name: one["ms"] for name, one in in_page.items() if one["ms"] > 1000 * MOST_S}
    # A page may refuse what python-tuf lets pass, but takes nothing that a device refuses for its signatures or form.
    only_page = [name for name, one in in_page.items() if "version" in one and seen[name] != "1"]
    assert only_page == [], json.dumps(only_page, indent=1)
