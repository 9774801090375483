"""A listening socket, its addresses and its certificate."""

from __future__ import annotations

import errno
import socket
import ssl
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from edge_infer.errors import ServingError

if TYPE_CHECKING:
    from pathlib import Path

_BACKLOG = 2048
#: How much of an answer the system takes before its client does: to copy all that it would take, up to 4 MB, holds the
#: event loop for a millisecond or two, and is memory that no limit of the server counts.
_UNSENT_BYTES = 2**19
#: Addresses of documentation (RFC 5737, RFC 3849), by what listens everywhere: the way to them is that to any other.
_OUTSIDE = {"0.0.0.0": "192.0.2.1", "::": "2001:db8::1"}
_TLS_HINT = "--tls-cert chain.pem --tls-key key.pem"


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; port 0 takes a free one.

    Raises:
        ServingError: The port is in use, may not be used, or the address is not of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise ServingError(
            f"`{host}` is not an address of this machine: {error}", hint="--host 127.0.0.1", host=host
        ) from error
    found = socket.socket(family, kind, protocol)
    try:
        # On Windows this option would let two servers share the port.
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # what is accepted from the socket has it too
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _UNSENT_BYTES)
        found.bind(address)
        found.listen(_BACKLOG)
        found.setblocking(False)
    except OSError as error:
        found.close()
        raise _refused(host, port, error) from error
    return found


def is_local(host: str) -> bool:
    """Tell whether an address is reached from this machine alone."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _refused(host: str, port: int, error: OSError) -> ServingError:
    other = port + 1 if 1024 <= port < 65535 else 8080
    reasons = {
        errno.EADDRINUSE: (f"Port {port} is in use", f"--port {other}"),
        errno.EACCES: (f"Port {port} needs the rights of an administrator", f"--port {other}"),
        errno.EADDRNOTAVAIL: (f"`{host}` is not an address of this machine", "--host 127.0.0.1"),
    }
    message, hint = reasons.get(error.errno or 0, (f"Cannot listen on {host}:{port}: {error}", f"--port {other}"))
    return ServingError(message, hint=hint, host=host, port=port)


class Tls(NamedTuple):
    """The certificate chain and the private key, PEM files."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """Return what encrypts connections.

        Raises:
            ServingError: The certificate or its key cannot be used.
        """
        for path in self:
            try:
                path.open("rb").close()
            except OSError as error:
                raise ServingError(f"`{path}` cannot be read: {error.strerror}", hint=_TLS_HINT) from error
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise ServingError(f"The certificate or its key cannot be used: {error}", hint=_TLS_HINT) from error
        return context


def url_of(listening: socket.socket, scheme: str = "http") -> str:
    """Return the URL of a listening socket; one that listens on every address is named by the loopback one."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"{scheme}://{host}:{port}"


def url_from_outside(listening: socket.socket, scheme: str = "http") -> str:
    """Return the URL that other machines reach a listening socket by; empty where they do not, or none is known."""
    host, port = listening.getsockname()[:2]
    if host not in _OUTSIDE or not (found := _own_address(listening.family, _OUTSIDE[host])):
        return ""
    return f"{scheme}://{f'[{found}]' if ':' in found else found}:{port}"


def _own_address(family: int, outside: str) -> str:
    """Return this machine's address on the way to another; a datagram socket sends nothing when it connects."""
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as way:
        way.connect((outside, 9))
        address: str = way.getsockname()[0]
        return "" if ip_address(address.partition("%")[0]).is_loopback else address
    return ""
