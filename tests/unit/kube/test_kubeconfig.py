"""A kubeconfig that cannot be used, and why."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdcsync_core.errors import PermanentError
from cdcsync_kube import kubeconfig
from cdcsync_kube.access import by_kubeconfig, connect_api, has_cluster
from cdcsync_kube.login import proxy_of


def _config(**user: Any) -> dict[str, Any]:
    return {
        "clusters": [{"name": "c", "cluster": {"server": "https://x"}}],
        "contexts": [{"name": "k", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": user}],
        "current-context": "k",
    }


def _written(path: Path, config: Any) -> Path:
    path.write_text(config if isinstance(config, str) else yaml.safe_dump(config))
    return path


@pytest.mark.parametrize(
    "config",
    ["", "[", "a: [b]", "- a", _config() | {"current-context": "other"}, _config() | {"clusters": []},
     _config(**{"client-certificate": "none.pem", "client-key": "none.key"}), _config(tokenFile="none")],
)  # fmt: skip
def test_a_file_that_is_no_usable_kubeconfig_is_an_error_that_names_it(tmp_path: Path, config: Any) -> None:
    path = _written(tmp_path / "config", config)
    with pytest.raises(PermanentError, match=f"no usable kubeconfig at {path}") as caught:
        by_kubeconfig(path)
    assert "set KUBECONFIG" in str(caught.value)


@pytest.mark.parametrize("config", [_config() | {"users": [{"name": "u", "token": "a-secret"}]}, "token: a-secret: x"])
def test_the_error_does_not_quote_the_file(tmp_path: Path, config: Any) -> None:
    with pytest.raises(PermanentError, match="no usable kubeconfig") as caught:
        by_kubeconfig(_written(tmp_path / "config", config))
    assert "a-secret" not in str(caught.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="there is no such file"):
        by_kubeconfig(tmp_path / "none")


@pytest.mark.parametrize("field", [{"as": "admin"}, {"as-groups": ["system:masters"]}, {"as-uid": "7"}])
def test_a_user_that_acts_as_another_is_refused(tmp_path: Path, field: dict[str, Any]) -> None:
    """The client would act as the user itself."""
    with pytest.raises(PermanentError, match="acts as another"):
        by_kubeconfig(_written(tmp_path / "config", _config(token="t", **field)))


@pytest.mark.parametrize("missing", ["command", "apiVersion"])
def test_a_login_program_that_is_not_whole_is_an_error(tmp_path: Path, missing: str) -> None:
    login = {"command": "/bin/false", "apiVersion": "client.authentication.k8s.io/v1"}
    del login[missing]
    with pytest.raises(PermanentError, match=f"login program .* failed: .*{missing}"):
        by_kubeconfig(_written(tmp_path / "config", _config(exec=login)))


def test_what_a_login_program_prints_has_to_be_a_credential(tmp_path: Path) -> None:
    login = {"command": "echo", "args": ["no", "credential"], "apiVersion": "client.authentication.k8s.io/v1"}
    with pytest.raises(PermanentError, match=r"login program `echo` failed: .*decode"):
        by_kubeconfig(_written(tmp_path / "config", _config(exec=login)))


def test_a_proxy_by_socks_is_refused(tmp_path: Path) -> None:
    config = _config(token="t")
    config["clusters"][0]["cluster"]["proxy-url"] = "socks5://127.0.0.1:1080"
    with pytest.raises(PermanentError, match="SOCKS"):
        by_kubeconfig(_written(tmp_path / "config", config))


def test_the_files_of_kubeconfig_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As kubectl merges them; the paths of each are beside it."""
    whole = _config(token="of-the-user")
    (tmp_path / "more").mkdir()
    first = _written(tmp_path / "first", {"users": whole["users"], "current-context": "k"})
    second = _written(tmp_path / "more" / "second", {"clusters": whole["clusters"], "contexts": whole["contexts"]})
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}")
    assert not has_cluster()
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}:{first}:{second}")
    assert has_cluster()
    login = connect_api().login
    assert (login.server, login.access().authorization) == ("https://x", "Bearer of-the-user")


def test_a_kubeconfig_is_not_written(tmp_path: Path) -> None:
    """A token in place of the program is for this process alone."""
    (tmp_path / "token").write_text("t\n")
    path = _written(tmp_path / "config", _config(tokenFile="token"))
    before = path.read_text()
    loaded = kubeconfig.load(str(path))
    assert loaded.configuration.get_api_key_with_prefix("BearerToken") == "Bearer t"
    assert path.read_text() == before


@pytest.mark.parametrize(("no_proxy", "proxy"), [("", "http://p:1"), ("x", ""), ("y,.x", ""), ("*", "")])
def test_no_proxy_is_a_list_of_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_proxy: str, proxy: str
) -> None:
    for name in ("https_proxy", "no_proxy", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://p:1")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    loaded = kubeconfig.load(str(_written(tmp_path / "config", _config(token="t"))))
    assert proxy_of(loaded.configuration) == proxy


_MALFORMED = {"name": "oidc", "config": {"id-token": "no.token"}}


@pytest.mark.parametrize(
    ("user", "shown"),
    [({"auth-provider": {"name": "azure", "config": {"access-token": "a-secret"}}}, "auth-provider azure"),
     ({"auth-provider": _MALFORMED}, "auth-provider oidc"), ({"auth-provider": {"config": {}}}, "auth-provider"),
     ({"username": "a"}, "username"), ({"tokenFile": "empty"}, "tokenFile")],
)  # fmt: skip
def test_a_user_whose_login_the_client_does_not_take_is_refused(
    tmp_path: Path, user: dict[str, Any], shown: str
) -> None:
    """The client would call without a login."""
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(PermanentError, match=rf"no login comes from .* \({shown}\)") as caught:
        by_kubeconfig(_written(tmp_path / "config", _config(**user)))
    assert "a-secret" not in str(caught.value)


def test_a_certificate_without_tls_is_refused(tmp_path: Path) -> None:
    config = _config(**{"client-certificate-data": "eA==", "client-key-data": "eA=="})
    config["clusters"][0]["cluster"]["server"] = "http://x"
    with pytest.raises(PermanentError, match="no login comes from"):
        by_kubeconfig(_written(tmp_path / "config", config))


def test_a_user_that_is_missing_is_an_error_and_one_without_a_login_is_none(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="Expected object with name u"):
        by_kubeconfig(_written(tmp_path / "config", _config() | {"users": []}))
    for config in (_config(), _config(extensions=[{"name": "x"}])):
        login = by_kubeconfig(_written(tmp_path / "config", config)).login
        assert login.access().authorization == ""
    config = _config() | {"contexts": [{"name": "k", "context": {"cluster": "c"}}]}
    assert by_kubeconfig(_written(tmp_path / "config", config)).login.access().authorization == ""


def test_a_user_with_a_password_logs_in(tmp_path: Path) -> None:
    login = by_kubeconfig(_written(tmp_path / "config", _config(username="a", password="b"))).login
    assert login.access().authorization == "Basic YTpi"


def test_a_token_file_is_read_again_though_its_token_has_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("first")
    login = by_kubeconfig(_written(tmp_path / "config", _config(tokenFile="token"))).login
    (tmp_path / "token").write_text("second")
    assert login.access().authorization == "Bearer first"
    now = time.time()
    monkeypatch.setattr("cdcsync_kube.login.time.time", lambda: now + 61)
    access = login.access()
    assert (access.authorization, access.ends) == ("Bearer second", math.inf)
