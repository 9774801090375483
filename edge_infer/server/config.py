"""The TOML file of `edge-infer serve --config FILE`: options, pools, routes, models and tenants."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from edge_infer.errors import EdgeInferError, InputError, did_you_mean, listed
from edge_infer.server.execution.canary import Canary
from edge_infer.server.execution.repository import open_model
from edge_infer.server.execution.routing import Pool, Route, RoutingTable, VersionRange
from edge_infer.server.options import check_table
from edge_infer.server.scheduling.request import LOWEST_PRIORITY
from edge_infer.server.scheduling.shares import Bounds, Tenant
from edge_infer.server.scheduling.switch import ANY_VARIANT

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Mapping
    from pathlib import Path

    from edge_infer.bundle.manifest import Manifest

_MAX_BYTES = 2**20
_MAX_WORKERS = 64
_MAX_MEMORY_MB = 2**20  # a tebibyte
_DIGEST = "sha256:"
#: What bounds a tenant, in the order of `Bounds`: the largest value, and what it is multiplied by.
_BOUNDS = {
    "highest_priority": (LOWEST_PRIORITY, 1),
    "max_requests_per_s": (1e6, 1),
    "max_connections": (1e6, 1),
    "max_bodies_mb": (_MAX_MEMORY_MB, 2**20),
    "max_answer_mb": (_MAX_MEMORY_MB, 2**20),
}
_WHOLE = ("highest_priority", "max_connections")
#: `wasm` and `webgpu` are a page's.
_DEVICES = ["auto", "cpu", "cuda"]


class Settings(NamedTuple):
    """The settings in the file.

    Attributes:
        table: The pools, and which requests each runs.
        fast_variants: The id of the variant for when requests pile up, by model; `*` for all others.
        canaries: The versions that are being tried, by model.
        tenants: The digests of each tenant's keys.
        variants: The id of the variant that runs, by model; `*` for all others. Where there is none, it is chosen.
        options: Defaults of the command's options, by their keys.
    """

    table: RoutingTable = RoutingTable()
    fast_variants: Mapping[str, str] = {}
    canaries: Mapping[str, Canary] = {}
    tenants: Mapping[Tenant, list[bytes]] = {}
    variants: Mapping[str, str] = {}
    options: Mapping[str, Any] = {}


def read_settings(path: Path) -> Settings:
    """Read a file of settings.

    Raises:
        InputError: It cannot be read, or an entry is not what it must be; the message names it.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"`{path}` cannot be read: {error.strerror}", hint="--config FILE") from error
    if len(text) > _MAX_BYTES:
        raise InputError(f"`{path}` has more than {_MAX_BYTES} bytes", hint="is it a TOML file?")
    try:
        return parse_settings(tomllib.loads(text.decode()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"`{path}` is not TOML: {error}", hint="see docs/guide/serve_load.md") from error


def parse_settings(document: Mapping[str, Any]) -> Settings:
    """Parse settings.

    Raises:
        InputError: An entry is not what it must be; the message names it.
    """
    _refuse_unknown(document, ("server", "pools", "routes", "models", "tenants"), "the file")
    pools = {name: _pool(name, entry) for name, entry in _table(document, "pools").items()}
    _check_bounds(pools)
    routes = document.get("routes", [])
    if not isinstance(routes, list):
        raise InputError("`routes` is not a list of tables", hint="[[routes]]")
    table = RoutingTable(pools, [_route(entry, i) for i, entry in enumerate(routes)])
    fast: dict[str, str] = {}
    variants: dict[str, str] = {}
    canaries: dict[str, Canary] = {}
    for name, entry in _table(document, "models").items():
        where = f"models.{name}"
        entry = _as_table(entry, where)
        _refuse_unknown(entry, ("variant", "fast_variant", "canary"), where)
        if "variant" in entry:
            variants[name] = _text(entry, "variant", where)
        if "fast_variant" in entry:
            fast[name] = _text(entry, "fast_variant", where)
        if "canary" in entry:
            canaries[name] = parse_canary(_as_table(entry["canary"], f"{where}.canary"), f"{where}.canary")
    options = check_table(_table(document, "server"))
    return Settings(table, fast, canaries, _tenants(_table(document, "tenants")), variants, options)


def check_names(settings: Settings, models: Collection[str]) -> None:
    """Refuse settings of models or tenants that do not exist: a slip of the pen would do nothing, and say nothing.

    Args:
        settings: What the file says.
        models: The names of the models that are served.

    Raises:
        InputError: There is no such model or tenant; the message says where it is named.
    """
    tenants = [tenant.name for tenant in settings.tenants]
    of_models = [*settings.variants, *settings.fast_variants, *settings.canaries]
    named = [(f"models.{name}", name) for name in of_models if name != "*"]
    for i, route in enumerate(settings.table.routes):
        if route.model is not None:
            named.append((f"routes[{i}].model", route.model))
        if route.tenant is not None and route.tenant not in tenants:
            raise InputError(
                f"`routes[{i}].tenant` is `{route.tenant}`; there is {listed(tenants)}",
                hint=did_you_mean(route.tenant, tenants) or f"[tenants.{route.tenant}]",
            )
    for where, name in named:
        if name not in models:
            known = list(models)
            raise InputError(
                f"`{where}` is of a model that is not served; there is {listed(known)}",
                hint=did_you_mean(name, known) or "serve it too, or leave the entry out",
            )


def check_versions(settings: Settings, models: Mapping[str, Path | Sequence[Path]]) -> None:
    """Refuse canaries and routes of versions that no bundle has.

    Args:
        settings: What the file says.
        models: Where each model lies. One of which a bundle cannot be read now is not asked: it may be written anew.

    Raises:
        InputError: There is no such version; the message says where it is named.
    """
    named: list[tuple[str, str | None, str, Container[str]]] = []
    for name, canary in settings.canaries.items():
        named.append((f"models.{name}.canary.version", name, canary.version, (canary.version,)))
    for i, route in enumerate(settings.table.routes):
        if route.version is not None:
            named.append((f"routes[{i}].version", route.model, route.version, VersionRange(route.version)))
    for where, model, version, wanted in named:
        manifests = [manifest for one in ([model] if model else models) for manifest in _manifests(models[one])]
        known = sorted({manifest.version for manifest in manifests if manifest is not None})
        if None not in manifests and not any(one in wanted for one in known):
            raise InputError(
                f"`{where}` is `{version}`; there is {listed(known)}",
                hint=did_you_mean(version, known) or "serve a bundle of that version too, or leave the entry out",
                allowed=known,
            )


def check_device(where: str, device: str) -> None:
    """Refuse a device that models of no server run on; whether this machine has it, a load says.

    Args:
        where: Who names it.
        device: As `edge_infer.load` takes it.

    Raises:
        InputError: It is none of a server's.
    """
    kind, colon, index = device.partition(":")
    if kind not in _DEVICES or (colon and not (kind == "cuda" and index.isdecimal())):
        raise InputError(
            f"`{where}` is `{device}`; a server runs models on {listed(_DEVICES)} or `cuda:1`",
            hint=did_you_mean(kind, _DEVICES) or "leave it out: the server takes a GPU where it can use one",
            allowed=_DEVICES,
        )


def check_variants(settings: Settings, models: Mapping[str, Path | Sequence[Path]]) -> None:
    """Refuse variants that no version of their model has; a fast one for all models must be one of some model.

    Args:
        settings: What the file and the command say.
        models: Where each model lies. A bundle that cannot be read now is not asked: it may be written anew.

    Raises:
        InputError: There is no such variant; the message says where it is named.
    """
    known = {
        name: {variant.id for manifest in _manifests(paths) if manifest is not None for variant in manifest.variants}
        for name, paths in models.items()
    }
    for key, chosen, enough in (("variant", settings.variants, all), ("fast_variant", settings.fast_variants, any)):
        for name, variant in chosen.items():
            others = [one for one in known if one not in chosen] if name == "*" else [name]
            readable = [ids for one in others if (ids := known.get(one))]
            is_any = key == "fast_variant" and variant == ANY_VARIANT
            if not is_any and readable and not enough(variant in ids for ids in readable):
                there_are = sorted(set().union(*(ids for ids in readable if variant not in ids)))
                raise InputError(
                    f"`{'--' + key.replace('_', '-') if name == '*' else f'models.{name}.{key}'}` is `{variant}`; "
                    f"there is {listed(there_are)}",
                    hint=did_you_mean(variant, there_are) or f"convert the model as {variant} too",
                    allowed=there_are,
                )


def _manifests(paths: Path | Sequence[Path]) -> list[Manifest | None]:
    """Return the manifests of all versions of a model; None for one that cannot be read."""
    found: list[Manifest | None] = []
    for path in paths if isinstance(paths, Sequence) else [paths]:
        try:
            found.append(open_model(path).manifest)
        except EdgeInferError:
            found.append(None)
    return found


def parse_canary(entry: Mapping[str, Any], where: str) -> Canary:
    """Parse `{"version": "2", "percent": 10}`, an entry of the file or the body of a request.

    Raises:
        InputError: It is something else.
    """
    _refuse_unknown(entry, ("version", "percent"), where)
    return Canary(_text(entry, "version", where), _number(entry, "percent", where, 100))


def _tenants(entries: Mapping[str, Any]) -> dict[Tenant, list[bytes]]:
    tenants: dict[Tenant, list[bytes]] = {}
    seen: set[bytes] = set()
    for name, entry in entries.items():
        where = f"tenants.{name}"
        entry = _as_table(entry, where)
        _refuse_unknown(entry, ("keys", "weight", "admin", "metrics", *_BOUNDS), where)
        if not name:
            raise InputError("A tenant has an empty name", hint="[tenants.shop]")
        keys = entry.get("keys")
        if not isinstance(keys, list) or not keys:
            raise InputError(f"`{where}.keys` is not a list of digests", hint=f'keys = ["{_DIGEST}..."]')
        digests = [_digest(key, where) for key in keys]
        if seen & set(digests) or len(set(digests)) < len(digests):
            raise InputError(f"`{where}.keys` has a key twice, or one of another tenant", hint="one key, one tenant")
        seen |= set(digests)
        weight = _number(entry, "weight", where, 1e6) if "weight" in entry else 1.0
        if not weight:
            raise InputError(f"`{where}.weight` is 0", hint="leave the tenant out")
        given = [_number(entry, key, where, most) if key in entry else 0.0 for key, (most, _) in _BOUNDS.items()]
        for key, value in zip(_BOUNDS, given, strict=True):
            if key in entry and (not value or (key in _WHOLE and not value.is_integer())):
                raise InputError(
                    f"`{where}.{key}` is {entry[key]}, expected {'a whole number ' if key in _WHOLE else ''}above 0",
                    hint="leave it out: then there is no bound",
                )
        scales = [scale for _, scale in _BOUNDS.values()]
        first, rate, *rest = (value * scale for value, scale in zip(given, scales, strict=True))
        bounds = Bounds(int(first), rate, *map(int, rest))
        admin, metrics = _flag(entry, "admin", where), _flag(entry, "metrics", where)
        tenants[Tenant(name, weight, admin, metrics, bounds)] = digests
    return tenants


def _digest(key: object, where: str) -> bytes:
    if isinstance(key, str) and key.startswith(_DIGEST):
        try:
            digest = bytes.fromhex(key.removeprefix(_DIGEST))
        except ValueError:
            digest = b""
        if len(digest) == 32:
            return digest
    # The entry itself is not shown: it may be a key that was pasted in the place of its digest.
    raise InputError(
        f"`{where}.keys` has an entry that is not a digest, `{_DIGEST}` and 64 hexadecimal digits",
        hint="printf %s KEY | sha256sum",
    )


def _pool(name: str, entry: object) -> Pool:
    where = f"pools.{name}"
    entry = _as_table(entry, where)
    _refuse_unknown(entry, ("workers", "device", "memory_limit_mb"), where)
    workers = int(_number(entry, "workers", where, _MAX_WORKERS)) if "workers" in entry else 0
    limit = int(_number(entry, "memory_limit_mb", where, _MAX_MEMORY_MB)) if "memory_limit_mb" in entry else 0
    device = _text(entry, "device", where) if "device" in entry else ""
    if device:
        check_device(f"{where}.device", device)
    if limit and device.partition(":")[0] not in ("cpu", "cuda"):
        raise InputError(
            f"`{where}.memory_limit_mb` bounds the memory of a device, which `{where}.device` does not name",
            hint='device = "cuda"',
        )
    return Pool(workers, device, limit)


def _check_bounds(pools: Mapping[str, Pool]) -> None:
    """Refuse two bounds of one device: its memory is one."""
    found: dict[str, tuple[str, int]] = {}
    for name, pool in pools.items():
        if pool.memory_limit_mb:
            kind, _, index = pool.device.partition(":")
            other, limit = found.setdefault(f"{kind}:{index or 0}", (name, pool.memory_limit_mb))
            if limit != pool.memory_limit_mb:
                raise InputError(
                    f"`pools.{name}.memory_limit_mb` is {pool.memory_limit_mb}, that of `pools.{other}` on the same "
                    f"device {limit}: they share its memory",
                    hint=f"memory_limit_mb = {max(limit, pool.memory_limit_mb)}",
                )


def _route(entry: object, i: int) -> Route:
    where = f"routes[{i}]"
    entry = _as_table(entry, where)
    _refuse_unknown(entry, ("pool", "model", "version", "tenant"), where)
    return Route(
        _text(entry, "pool", where), *(_text(entry, key, where) if key in entry else None for key in Route._fields[1:])
    )


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return _as_table(document.get(name, {}), name)


def _as_table(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"`{where}` is not a table", hint=f"[{where}]")
    return value


def _text(entry: Mapping[str, Any], key: str, where: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value:
        raise InputError(f"`{where}.{key}` is not a text", hint=f'{key} = "..."')
    return value


def _number(entry: Mapping[str, Any], key: str, where: str, most: float) -> float:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise InputError(f"`{where}.{key}` is not a number from 0 to {most:g}", hint=f"{key} = 1")
    return float(value)


def _flag(entry: Mapping[str, Any], key: str, where: str) -> bool:
    value = entry.get(key, False)
    if not isinstance(value, bool):
        raise InputError(f"`{where}.{key}` is neither true nor false", hint=f"{key} = true")
    return value


def _refuse_unknown(entry: Mapping[str, Any], allowed: tuple[str, ...], where: str) -> None:
    for key in entry:
        if key not in allowed:
            known = list(allowed)
            raise InputError(
                f"`{key}` is not known in {where}; choose from {listed(known)}",
                hint=did_you_mean(key, known) or "leave it out",
            )
