"""The login that Kopf gets for its lists and watches."""

from __future__ import annotations

import asyncio
import time

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
