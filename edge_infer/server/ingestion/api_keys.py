"""API keys: find the tenant of a request. Only their digests are known here, and no key is ever logged."""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING

from edge_infer.errors import InputError, Unauthorized
from edge_infer.server.errors import NotAdmin
from edge_infer.server.ingestion.model_paths import route_path
from edge_infer.server.metrics.access_log import note
from edge_infer.server.scheduling.shares import ANYONE, Tenant

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

_CREDENTIALS = frozenset({b"x-api-key", b"authorization"})
#: What orchestrators ask without a key, and the page that asks for one.
OPEN_PATHS = frozenset(
    {
        *("/health", "/livez", "/readyz", "/v2/health/live", "/v2/health/ready"),
        *("/dashboard", "/dashboard/dashboard.js", "/dashboard/theme.js", "/dashboard/chart.js"),
        *("/dashboard/look.css", "/dashboard/dashboard.css"),
    }
)
#: What devices ask, which have no key: files that are signed, and what has the report token instead.
_OPEN_TO_DEVICES = frozenset({"/sync/v1/events", "/sync/v1/report", "/sync/v1/advice"})
#: What people ask of a browser, which can show the report token and no key.
_FLEET = frozenset({"/fleet", "/sync/v1/fleet"})


class ApiKeys:
    """The tenants and the digests of their keys.

    A key is random and long, so that plain SHA-256 hides it; a password would need a slow hash.

    Args:
        digests: The SHA-256 digests of each tenant's keys; none at all lets everybody in.

    >>> keys = ApiKeys({Tenant("shop"): [sha256(b"secret").digest()]})
    >>> keys.tenant_of([(b"authorization", b"Bearer secret")]).name
    'shop'
    """

    def __init__(self, digests: Mapping[Tenant, Sequence[bytes]] | None = None) -> None:
        self._pairs = [(digest, tenant) for tenant, found in (digests or {}).items() for digest in found]

    @property
    def is_open(self) -> bool:
        """Whether everybody may ask."""
        return not self._pairs

    def tenant_of(self, headers: Iterable[tuple[bytes, bytes]]) -> Tenant:
        """Return the tenant of a request.

        Args:
            headers: Of the request: `X-Api-Key: KEY`, which counts where it is there, or `Authorization: Bearer KEY`.

        Raises:
            InputError: A header is there twice: a proxy in front may have checked the other one.
            Unauthorized: There is no key, or it is nobody's.
        """
        if not self._pairs:
            return ANYONE
        given: dict[bytes, bytes] = {}
        for name, value in headers:
            if name in _CREDENTIALS:
                if name in given:
                    raise InputError(f"The request has two headers {name.decode()}", hint="send one key")
                given[name] = value
        bearer = given.get(b"authorization", b"")
        # `Authorization` may be there for another: a report token, a proxy.
        key = given.get(b"x-api-key", bearer[7:] if bearer[:7].lower() == b"bearer " else b"").strip()
        if not key:
            raise Unauthorized("The request has no API key", hint="Authorization: Bearer KEY")
        digest = sha256(key).digest()
        found: Tenant | None = None
        for known, tenant in self._pairs:  # all of them: the time must not tell which one is near
            if compare_digest(known, digest):
                found = tenant
        if found is None:
            raise Unauthorized("The API key is not known", hint="ask the server's operator for one")
        return found

    def check_admin(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Refuse a request to change what all tenants share, unless its key may.

        Raises:
            Unauthorized: There is no key, or it is nobody's.
            NotAdmin: It is the key of a tenant that may not.
        """
        tenant = self.tenant_of(headers)
        if self._pairs and not tenant.is_admin:
            raise NotAdmin(
                f"The tenant `{tenant.name}` may not load, unload or try models",
                hint=f"admin = true, under [tenants.{tenant.name}]",
            )

    def check_metrics(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Refuse a request for the counts of all tenants, unless its key may.

        Raises:
            Unauthorized: There is no key, or it is nobody's.
            NotAdmin: It is the key of a tenant that may not.
        """
        tenant = self.tenant_of(headers)
        if self._pairs and not (tenant.is_admin or tenant.sees_metrics):
            raise NotAdmin(
                f"The tenant `{tenant.name}` may not read the counts of all tenants",
                hint=f"metrics = true, under [tenants.{tenant.name}]",
            )


class KeyGuard:
    """Asks for a key before anything but health, the empty dashboard and the signed store is answered.

    What only some tenants may do, what does it asks for itself: a path may lead there in several spellings.

    Args:
        app: The application.
        keys: The keys.
        has_report_token: Whether the report token, which the fleet's routes ask for themselves, opens the fleet.
    """

    def __init__(self, app: ASGIApp, keys: ApiKeys, *, has_report_token: bool = False) -> None:
        self._app = app
        self._keys = keys
        self._open = OPEN_PATHS | _OPEN_TO_DEVICES | (_FLEET if has_report_token else frozenset())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application.

        Raises:
            Unauthorized: There is no key, or it is nobody's.
        """
        if scope["type"] == "http":
            path = route_path(scope)
            if not (self._keys.is_open or path in self._open or path.startswith("/store/")):
                note(scope, tenant=self._keys.tenant_of(scope["headers"]).name)
        await self._app(scope, receive, send)
