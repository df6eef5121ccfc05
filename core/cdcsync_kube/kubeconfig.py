"""The login that a kubeconfig describes, loaded by the official client.

Why more than `load_kube_config`: it logs the failure of a login program and goes on without a
login, reads a token file once, and ignores whom a user wants to act as. Here a program that fails
is an error that names it, its credentials expire, a token file is reloaded, and what the client
does not support is refused. Source: "Authenticating", client-go credential plugins; `kubectl
config`.
"""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_kube import auth_provider, login_program
from cdcsync_kube.login import LoadedLogin, proxy_of

if TYPE_CHECKING:
    from kubernetes.client.configuration import Configuration
    from kubernetes.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger

T = TypeVar("T")
#: seconds after which a token file is reloaded
_REREAD = 60.0
#: fields of a user that are no credentials
_ASIDE = ("extensions",)
_IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")


def load(files: str, context: str = "") -> LoadedLogin:
    """A context of the files, which are separated as in `KUBECONFIG`; empty: the current one.
    Raises SpecInvalid."""
    return _reading(files, lambda: _load(files, context or None))


def namespace(files: str, context: str = "") -> str:
    """The one that a context names, else `default`. Raises SpecInvalid."""

    def named() -> str:
        chosen = _loader(_merged(files), context or None).current_context["context"]
        return str(chosen.get("namespace") or "default")

    return _reading(files, named)


def _reading(files: str, read: Callable[[], T]) -> T:
    from kubernetes.config import ConfigException

    try:
        return read()
    except (ConfigException, OSError, LookupError, TypeError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise fail(
            Reason.SPEC_INVALID,
            f"no usable kubeconfig at {files} ({_cause(error)})",
            remedy="set KUBECONFIG",
        ) from None


def _cause(error: Exception) -> str:
    """Names the error without what the file contains: a parser's error quotes its lines, and the
    client's a user with its token."""
    text = "" if isinstance(error, yaml.YAMLError) else str(error).partition("{")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _merged(files: str) -> KubeConfigMerger:
    from kubernetes.config.kube_config import KubeConfigMerger

    merger = KubeConfigMerger(files)
    if merger.config is None:
        raise FileNotFoundError("there is no such file")
    return merger


def _loader(merger: KubeConfigMerger, context: str | None) -> KubeConfigLoader:
    from kubernetes.config.kube_config import KubeConfigLoader

    return KubeConfigLoader(merger.config, active_context=context)


def _load(files: str, chosen: str | None) -> LoadedLogin:
    from kubernetes.client.configuration import Configuration
    from kubernetes.config.kube_config import ConfigNode

    merger = _merged(files)
    loader = _loader(merger, chosen)
    context = loader.current_context["context"]
    cluster = merger.config["clusters"].get_with_name(context["cluster"])["cluster"]
    entry = _user(merger.config, context.get("user") or "")
    ends = reload_at = math.inf
    given: dict[str, Any] = {}
    if entry is not None:
        given = dict(entry["user"].value)
        user, ends = _plain(entry["user"], cluster)
        merger.save_changes()  # of an auth-provider's tokens
        reload_at = time.time() + _REREAD if given.get("tokenFile") else math.inf
        # another list than the one of the file, which is written
        merger.config.value["users"] = [ConfigNode(entry.name, {"name": context["user"], "user": user}, entry.path)]
        loader.set_active_context(chosen)
    configuration = Configuration()
    loader.load_and_set(configuration)
    if "proxy-url" in cluster:
        configuration.no_proxy = None  # the kubeconfig's proxy is for this server
    _refuse_socks(configuration)
    _refuse_no_login(given, configuration)
    return LoadedLogin(configuration, ends, reload_at)


def _user(config: ConfigNode, name: str) -> ConfigNode | None:
    """The context's user; None where it names none."""
    return config["users"].get_with_name(name) if name else None


def _plain(user: ConfigNode, cluster: ConfigNode) -> tuple[dict[str, Any], float]:
    """The user with a token or a certificate in place of what gives one, and when that ends."""
    value = dict(user.value)
    if other := next((name for name in _IMPERSONATION if value.get(name)), ""):
        raise fail(
            Reason.SPEC_INVALID,
            f"the kubeconfig's user acts as another ({other})",
            remedy="use a context whose user has the rights itself",
        )
    if value.get("auth-provider"):
        token, ends = _provided(value.pop("auth-provider"))
        if token:
            return value | {"token": token}, ends
    folder = Path(user.path or ".").resolve().parent
    if name := value.pop("tokenFile", ""):
        return value | {"token": (folder / name).read_text(encoding="utf-8").strip()}, math.inf
    if "exec" in value and not value.get("token"):
        del value["exec"]
        credentials, ends = _printed(user["exec"], folder, cluster)
        return value | credentials, ends
    return value, math.inf


def _provided(provider: dict[str, Any]) -> tuple[str, float]:
    """The token of an `auth-provider`, "" for none, and when it ends; the provider's entry of the
    kubeconfig gets what was renewed."""
    try:
        token, ends, now = auth_provider.login(provider)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise fail(
            Reason.SPEC_INVALID,
            f"the kubeconfig's auth-provider {provider.get('name') or '(without a name)'} failed: {error}",
            needed="a token",
            remedy="log in again, or use a login program (exec) in place of the auth-provider",
        ) from None
    provider.update(now)
    return token, ends


def _printed(login: ConfigNode, folder: Path, cluster: ConfigNode) -> tuple[dict[str, Any], float]:
    """What the user's login program prints, as fields of a user."""
    from kubernetes.config import ConfigException
    from kubernetes.config.dateutil import parse_rfc3339

    try:
        status = login_program.run(login, folder, cluster)
        end = status.get("expirationTimestamp")
        ends = parse_rfc3339(end).timestamp() if end else math.inf
        if status.get("token"):
            return {"token": status["token"].strip()}, ends
        return {
            "client-certificate-data": _encoded(status["clientCertificateData"]),
            "client-key-data": _encoded(status["clientKeyData"]),
        }, ends
    except KeyError as error:
        raise _login_failed(login, f"it printed neither a token nor a certificate with its key (no {error})") from None
    except (ConfigException, OSError, TypeError, ValueError, AttributeError) as error:
        raise _login_failed(login, str(error)) from None


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _login_failed(login: ConfigNode, why: str) -> CdcError:
    """Names the program without its arguments, which may be secrets."""
    command = login.safe_get("command") or "(none)"
    return fail(
        Reason.SPEC_INVALID,
        f"the kubeconfig's login program `{command}` failed: {why}",
        needed="an ExecCredential with a token or a certificate",
        remedy=str(login.safe_get("installHint") or "run the program by itself, as `kubectl get ns` would"),
    )


def _refuse_no_login(given: dict[str, Any], configuration: Configuration) -> None:
    """The client goes on without a login where it finds none in what the user has."""
    fields = [name for name, value in given.items() if value and name not in _ASIDE]
    if fields and not configuration.api_key.get("BearerToken") and not configuration.cert_file:
        raise fail(
            Reason.SPEC_INVALID,
            f"no login comes from what the kubeconfig's user has ({', '.join(_shown(n, given) for n in fields)})",
            needed="a token, a client certificate for https://, exec, a username with its password, or an "
            "auth-provider gcp or oidc with its token",
            remedy="log in again, or use a login program (exec) in place of another auth-provider",
        )


def _shown(field: str, given: dict[str, Any]) -> str:
    provider = given[field]
    named = field == "auth-provider" and isinstance(provider, dict) and provider.get("name")
    return f"{field} {provider['name']}" if named else field


def _refuse_socks(configuration: Configuration) -> None:
    from kubernetes.client.rest import is_socks_proxy_url

    if is_socks_proxy_url(proxy_of(configuration)):
        raise fail(
            Reason.SPEC_INVALID,
            "the API server's proxy is reached by SOCKS",
            needed="http:// or https://",
            remedy="set proxy-url in the kubeconfig, or HTTPS_PROXY",
        )
