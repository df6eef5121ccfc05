"""The login that Kopf gets for its lists and watches."""

from __future__ import annotations

import asyncio
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import kopf
import pytest
from kubernetes.client.configuration import Configuration

from cdcsync_kube.login import LoadedLogin, Login
from cdcsync_operator.cluster.watch_session import WatchLogin


async def _session(login: Login) -> kopf.AiohttpSession:
    session = await WatchLogin(login).log_in()
    await session.aiohttp_session.close()
    return session


@pytest.mark.parametrize("ends", [True, False])
def test_a_session_ends_with_its_credentials_and_not_where_they_are_read_again(ends: bool) -> None:
    """A session that ends breaks all watches, which list again."""
    at = float(int(time.time()) + 3600)
    configuration = Configuration(host="https://x", api_key={"BearerToken": "Bearer t"})
    loaded = LoadedLogin(configuration, ends=at) if ends else LoadedLogin(configuration, reload_at=at)
    session = asyncio.run(asyncio.wait_for(_session(Login(lambda: loaded)), 60))
    assert (session.expiration and session.expiration.timestamp()) == (at if ends else None)


_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@pytest.mark.parametrize(
    ("path", "accepted"),
    [
        ("/apis/cdcsync.io/v1alpha1/cdcsyncs", _LIST),
        ("/apis/cdcsync.io/v1alpha1/namespaces/shop/cdcsyncs?watch=true", _METADATA),
        ("/api/v1/namespaces/shop/pods", _LIST),
        ("/api/v1/pods?watch=true&resourceVersion=7", _METADATA),
    ],
)
def test_of_what_tenants_write_the_metadata_is_asked_for(path: str, accepted: str) -> None:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Accept"])
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    async def get(url: str) -> None:
        session = await WatchLogin(Login(lambda: LoadedLogin(Configuration(host=url)))).log_in()
        async with session.aiohttp_session as client, client.get(url + path):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            asyncio.run(asyncio.wait_for(get(f"http://127.0.0.1:{server.server_port}"), 60))
        finally:
            server.shutdown()
    assert asked == [accepted]
