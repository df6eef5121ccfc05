"""Logins at an API server, for tests that know its address and a token."""

from __future__ import annotations

from kubernetes.client.configuration import Configuration

from cdcsync_kube.login import LoadedLogin, Login


def by_token(server: str, token: str, authority: str | None = None) -> Login:
    """`authority` is the file of its certificate; "" is no token."""
    key = {"BearerToken": f"Bearer {token}"} if token else {}
    return Login(lambda: LoadedLogin(Configuration(host=server, api_key=key, ssl_ca_cert=authority)))
