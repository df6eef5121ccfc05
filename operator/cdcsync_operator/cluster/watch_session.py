"""The connection by which Kopf lists and watches: objects arrive as their metadata alone.

Why it exists: an object of a tenant may have megabytes, and Kopf holds a page of a list, or an
event, as a whole; a name and labels are all that is used of it. Why it is right: the API server
strips the object before it sends it (`PartialObjectMetadata`), and what remains is bounded by the
API server: 256 KiB of annotations, and `managedFields`, whose levels are at most as many as the
API server's decoder of JSON takes. Source: "Kubernetes API Concepts", Receiving resources as
metadata; Kopf, "Custom HTTP sessions".
"""

from __future__ import annotations

import asyncio
import datetime
import math
from typing import Any

import aiohttp
import kopf

from cdcsync_core.errors import CdcError
from cdcsync_kube.client import METADATA_LIST, METADATA_ONLY
from cdcsync_kube.login import Access, Login, proxy_of

#: resources whose objects tenants write
_OF_TENANTS = ("/cdcsyncs", "/pods")
#: seconds until a login that failed is tried again
_AGAIN = 5


class WatchLogin:
    """Kopf's login is the operator's own. Kopf asks for another one when the API server refuses the
    last, or its end has come."""

    def __init__(self, login: Login) -> None:
        self._login = login
        self._last: Access | None = None

    async def log_in(self, **_: Any) -> kopf.AiohttpSession:
        try:
            access = await asyncio.to_thread(self._access)
        except CdcError as error:
            raise kopf.TemporaryError(f"no login at the API server: {error}", delay=_AGAIN) from None
        return _session(access)

    def _access(self) -> Access:
        access = self._login.access()
        if access == self._last:
            access = self._login.renewed(access) or access
        self._last = access
        return access


def _session(access: Access) -> kopf.AiohttpSession:
    configuration = access.configuration
    tls = kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    ).as_ssl_context()
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=tls),
        headers={"Authorization": access.authorization} if access.authorization else {},
        middlewares=(_ask_for_metadata,),
        response_class=_Answer,
        proxy=proxy_of(configuration) or None,
    )
    ends = None if math.isinf(access.ends) else datetime.datetime.fromtimestamp(access.ends, datetime.UTC)
    return kopf.AiohttpSession(server=configuration.host, expiration=ends, aiohttp_session=session)


async def _ask_for_metadata(
    request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    if request.url.path.endswith(_OF_TENANTS):
        watches = request.url.query.get("watch") == "true"
        request.headers["Accept"] = METADATA_ONLY if watches else METADATA_LIST
    return await handler(request)


class _Answer(aiohttp.ClientResponse):
    """An answer whose empty list is a list: the API server writes `null` for no metadata."""

    async def json(self, **options: Any) -> Any:
        content = await super().json(**options)
        if isinstance(content, dict) and "items" in content:
            content["items"] = content["items"] or []
        return content
