"""The connection by which Kopf lists and watches: objects arrive as their metadata alone.

Why it exists: an object of a tenant may have megabytes, and Kopf holds a page of a list, or an
event, as a whole; a name and labels are all that is used of it. Why it is right: the API server
strips the object before it sends it (`PartialObjectMetadata`), and what remains is bounded by the
API server: 256 KiB of annotations, and `managedFields`, whose levels are at most as many as the
API server's decoder of JSON takes. Source: "Kubernetes API Concepts", Receiving resources as
metadata; Kopf, "Custom HTTP sessions".
"""

from __future__ import annotations

from typing import Any

import aiohttp
import kopf

from cdcsync_kube.client import METADATA_LIST, METADATA_ONLY

#: resources whose objects tenants write
_OF_TENANTS = ("/cdcsyncs", "/pods")


async def log_in(**arguments: Any) -> kopf.AiohttpSession | None:
    """Logs in as Kopf does by itself, by the pod's account or a kubeconfig."""
    login = kopf.login_with_service_account(**arguments) or kopf.login_with_kubeconfig(**arguments)
    if login is None:
        return None
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=login.as_ssl_context()),
        headers=login.as_http_headers(),
        middlewares=(_ask_for_metadata,),
        response_class=_Answer,
    )
    return kopf.AiohttpSession(
        server=login.server,
        default_namespace=login.default_namespace,
        expiration=login.expiration,
        aiohttp_session=session,
    )


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
