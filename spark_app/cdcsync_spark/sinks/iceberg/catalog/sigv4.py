"""Requests that are signed by AWS' Signature Version 4, for catalogs of AWS (Glue, S3 Tables).

Why it exists: PyIceberg signs by botocore, which has 31 MB, sends requests by itself, and looks for
credentials in places that no manifest names. The form is that of "Create a signed AWS API request"
in AWS' manual of IAM; tests compare it with botocore's.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from urllib.parse import quote

from cdcsync_spark.sinks.iceberg.catalog.connection import Request
from cdcsync_spark.sinks.iceberg.catalog.credential import secret

_ALGORITHM = "AWS4-HMAC-SHA256"
#: headers that a proxy may change
_UNSIGNED = ("accept", "user-agent")


@dataclass(frozen=True)
class SigV4:
    """Signs with the access key in two files, which are read for each request, for a `service` by
    the name that signatures have for it."""

    access_key: Path
    secret_key: Path
    region: str
    service: str = "glue"

    def signed(self, request: Request, host: str, now: float | None = None) -> Request:
        """The request to `host` (a name, with a port where it is not the usual one), with its
        signature; `now` in unix seconds."""
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        payload = hashlib.sha256(request.body or b"").hexdigest()
        headers = {**request.headers, "Host": host, "X-Amz-Date": date, "X-Amz-Content-Sha256": payload}
        scope = (date[:8], self.region, self.service, "aws4_request")
        names, canonical = _canonical(request, headers, payload)
        text = "\n".join((_ALGORITHM, date, "/".join(scope), hashlib.sha256(canonical.encode()).hexdigest()))
        key = reduce(_keyed, scope, b"AWS4" + secret(self.secret_key).encode())
        credential = "/".join((secret(self.access_key), *scope))
        headers["Authorization"] = (
            f"{_ALGORITHM} Credential={credential}, SignedHeaders={names}, Signature={_keyed(key, text).hex()}"
        )
        return replace(request, headers=headers)


def _keyed(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _canonical(request: Request, headers: Mapping[str, str], payload: str) -> tuple[str, str]:
    """The names of the headers that are signed, and the canonical form of the request. Escapes of
    its path are escaped once more, as all services but S3 have it."""
    signed = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    names = sorted(name for name in signed if name not in _UNSIGNED)
    path, _, query = request.path.partition("?")
    parameters = "&".join(sorted(query.split("&"), key=lambda part: part.partition("=")))
    lines = (request.method, quote(path, safe="/~"), parameters, *(f"{name}:{signed[name]}" for name in names), "")
    return ";".join(names), "\n".join((*lines, ";".join(names), payload))
