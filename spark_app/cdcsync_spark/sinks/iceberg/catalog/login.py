"""How a catalog knows who asks: a token of the Secret, one by OAuth2 with the account of the Secret
(RFC 6749, client credentials), or signatures with its access key (`sigv4`).

Why it is right: what is in the Secret is read when it is needed and is in no object that is shown.
A token by OAuth2 is used until a minute before its end, or half of its life where that is less.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from cdcsync_core.account_texts import hidden_texts
from cdcsync_spark.sinks.iceberg.catalog.connection import Request
from cdcsync_spark.sinks.iceberg.catalog.credential import secret
from cdcsync_spark.sinks.iceberg.catalog.sigv4 import SigV4

#: seconds before its end at which a token is renewed, and the life of one that names none
_MARGIN, _LIFE = 60.0, 3600.0
#: an end beyond that is no number of seconds
_LONGEST_LIFE = 1e9


@dataclass(frozen=True)
class Bearer:
    """A token that another program renews, in the file `token`."""

    token: Path


@dataclass(frozen=True)
class OAuth2:
    """Tokens by the server at `url`, empty for the catalog's own; the files have the account."""

    client_id: Path
    client_secret: Path
    url: str = ""
    scope: str = "catalog"

    def request(self, path: str) -> Request:
        form = {
            "grant_type": "client_credentials",
            "client_id": secret(self.client_id),
            "client_secret": secret(self.client_secret),
            "scope": self.scope,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        return Request("POST", path, headers, urlencode(form).encode())


Login = Bearer | OAuth2 | SigV4


def hidden_of(login: Login) -> tuple[str, ...]:
    """What of it no message may show."""
    if isinstance(login, Bearer):
        return hidden_texts(None, login.token)
    if isinstance(login, OAuth2):
        return hidden_texts(login.client_id, login.client_secret)
    return hidden_texts(login.access_key, login.secret_key)


@dataclass(frozen=True)
class AccessToken:
    text: str = field(repr=False)
    until: float

    @classmethod
    def of(cls, answer: Any, clock: Callable[[], float] = time.monotonic) -> AccessToken | None:
        """The token of a server's answer; None where it has none."""
        text = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(text, str) or not text or not text.isascii() or not text.isprintable():
            return None
        life = answer.get("expires_in")
        seconds = float(life) if type(life) in (int, float) and 0 < life < _LONGEST_LIFE else _LIFE
        return cls(text, clock() + max(seconds - _MARGIN, seconds / 2))
