"""The login of a process at the API server: the official client's configuration, and the header
that goes with a call.

Why it is right: credentials end, each in its own way. A token file is reloaded, a program of a
kubeconfig runs again when what it printed ends, and whatever the server refuses with 401 is loaded
again before the refusal counts. One thread loads at a time, and others wait for what it loads, or
for its failure: a login program that does not end would else take its time of each in turn.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdcsync_core.errors import CdcError, Reason, fail

if TYPE_CHECKING:
    from kubernetes.client.configuration import Configuration

#: what decides how a connection is made; a change needs other connections
_CONNECTING = ("host", "ssl_ca_cert", "cert_file", "key_file", "verify_ssl", "tls_server_name", "proxy", "no_proxy")


@dataclass(frozen=True)
class LoadedLogin:
    """Times of the system's clock: the credentials end at `ends`, and have to be loaded again from
    `reload_at` on, though they may hold."""

    configuration: Configuration
    ends: float = math.inf
    reload_at: float = math.inf


@dataclass(frozen=True)
class Access:
    """What one call needs: the `Authorization` header, "" for none, goes with this
    configuration."""

    configuration: Configuration
    authorization: str
    ends: float = math.inf

    @property
    def connecting(self) -> tuple[object, ...]:
        return tuple(getattr(self.configuration, name) for name in _CONNECTING)


class Login:
    """Loads at once, so that a login that cannot work fails where it is made. `load` raises
    CdcError."""

    def __init__(self, load: Callable[[], LoadedLogin]) -> None:
        self._load, self._lock = load, threading.Lock()
        self._loaded = load()
        self._failure: tuple[float, CdcError] | None = None

    @property
    def server(self) -> str:
        return str(self._loaded.configuration.host)

    def access(self) -> Access:
        """Raises CdcError."""
        asked = time.monotonic()
        with self._lock:
            if time.time() >= min(self._loaded.ends, self._loaded.reload_at):
                self._reload(asked)
            return self._access()

    def renewed(self, refused: Access) -> Access | None:
        """Another login than the one that the server refused; None if there is none. Raises
        CdcError."""
        asked = time.monotonic()
        with self._lock:
            access = self._access()
            if not _differs(access, refused):
                self._reload(asked)
                access = self._access()
        return access if _differs(access, refused) else None

    def _reload(self, asked: float) -> None:
        """A failure since the caller asked is the caller's, too."""
        if self._failure is not None and self._failure[0] > asked:
            raise self._failure[1].with_traceback(None)
        try:
            self._loaded = self._load()
        except CdcError as error:
            self._failure = (time.monotonic(), error)
            raise
        self._failure = None

    def _access(self) -> Access:
        """The client may read the token of a pod again, or renew one of OIDC."""
        from kubernetes.config import ConfigException

        configuration = self._loaded.configuration
        try:
            header = configuration.get_api_key_with_prefix("BearerToken")
        except (ConfigException, OSError, LookupError, ValueError, AttributeError) as error:
            failure = f"the login cannot be renewed ({type(error).__name__})"
            raise fail(Reason.SPEC_INVALID, failure, remedy="log in again") from None
        return Access(configuration, (header or "").strip(), self._loaded.ends)


def _differs(access: Access, other: Access) -> bool:
    return (access.authorization, access.connecting) != (other.authorization, other.connecting)


def proxy_of(configuration: Configuration) -> str:
    """The proxy by which the server is reached, "" for none."""
    from kubernetes.client.rest import should_bypass_proxies

    proxy = configuration.proxy or ""
    return "" if should_bypass_proxies(configuration.host, configuration.no_proxy or "") else proxy
