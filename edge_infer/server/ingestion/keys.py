"""API keys: who asks. Only their digests are known here, and no key is ever logged."""

from __future__ import annotations

from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING

from edge_infer.errors import Unauthorized
from edge_infer.server.problems import NotAdmin
from edge_infer.server.scheduling.shares import ANYONE, Tenant

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send

#: What orchestrators ask without a key, and the page that asks for one.
OPEN_PATHS = frozenset(
    {
        *("/health", "/livez", "/readyz", "/v2/health/live", "/v2/health/ready"),
        *("/dashboard", "/dashboard/dashboard.js", "/dashboard/chart.js", "/dashboard/dashboard.css"),
    }
)
#: What tells of the requests of all tenants, as do the statistics of models.
_METRICS = frozenset({"/metrics", "/dashboard/state.json"})
#: What devices ask, which have no key: files that are signed, and what has the report token instead.
_OPEN_TO_DEVICES = ("/sync/v1/events", "/sync/v1/report", "/sync/v1/advice")


class ApiKeys:
    """The tenants and the digests of their keys.

    A key is random and long, so that plain SHA-256 hides it; a password would need a slow hash.

    Args:
        digests: The SHA-256 digests of each tenant's keys; none at all lets everybody in.

    >>> keys = ApiKeys({Tenant("shop"): [sha256(b"secret").digest()]})
    >>> keys.tenant_of([(b"authorization", b"Bearer secret")])
    Tenant(name='shop', weight=1.0, is_admin=False, sees_metrics=False)
    """

    def __init__(self, digests: Mapping[Tenant, Sequence[bytes]] | None = None) -> None:
        self._pairs = [(digest, tenant) for tenant, found in (digests or {}).items() for digest in found]

    @property
    def is_open(self) -> bool:
        """Whether everybody may ask."""
        return not self._pairs

    def tenant_of(self, headers: Iterable[tuple[bytes, bytes]]) -> Tenant:
        """Return who asks.

        Args:
            headers: Of the request: `Authorization: Bearer KEY`, or `X-Api-Key: KEY`.

        Raises:
            Unauthorized: There is no key, or it is nobody's.
        """
        if not self._pairs:
            return ANYONE
        key = b""
        for name, value in headers:
            if name == b"authorization" and value[:7].lower() == b"bearer ":
                key = value[7:].strip()
            elif name == b"x-api-key":
                key = value.strip()
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
        """Refuse who asks to change what all tenants share, unless it may.

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
        """Refuse who asks for the counts of all tenants, unless it may.

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

    Args:
        app: The application.
        keys: The keys.
    """

    def __init__(self, app: ASGIApp, keys: ApiKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application.

        Raises:
            Unauthorized: There is no key, or it is nobody's.
            NotAdmin: It asks for the counts of all tenants, and may not.
        """
        if scope["type"] == "http" and not self._keys.is_open and not _is_open(scope["path"]):
            if scope["path"] in _METRICS or scope["path"].endswith("/stats"):
                self._keys.check_metrics(scope["headers"])
            else:
                self._keys.tenant_of(scope["headers"])
        await self._app(scope, receive, send)


def _is_open(path: str) -> bool:
    return path in OPEN_PATHS or path in _OPEN_TO_DEVICES or path.startswith("/store/")
