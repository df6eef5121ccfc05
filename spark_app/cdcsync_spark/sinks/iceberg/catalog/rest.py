"""A catalog by Iceberg's REST protocol.

Why it is right: requirements and updates go as they are, and the server applies all of them or
none. Only a status that says so is a lost race (409) or a refusal (other 4xx); whatever leaves open
whether the server acted (5xx, 408, an answer that is cut off, late or no JSON, a connection that
broke after the request) is `OutcomeUnknown`, and nothing is sent twice: the table as it is then
decides. That a table is not there counts where the catalog says it in the protocol's form, because
a balancer without its server answers 404, too. What the server's configuration says is taken for
the prefix of its paths and the separator of namespaces only, never for where to send a credential.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, unquote, urlencode, urlsplit

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.peer_json import parse_json
from cdcsync_core.quoting import quoted
from cdcsync_spark.memory import memory_limit
from cdcsync_spark.sinks.iceberg.catalog.connection import (
    FIELD,
    UNTRUSTED,
    CatalogServer,
    HttpAnswer,
    NoAnswer,
    Request,
    host_of,
    trusting,
)
from cdcsync_spark.sinks.iceberg.catalog.credential import secret
from cdcsync_spark.sinks.iceberg.catalog.file_settings import file_settings, other_credentials
from cdcsync_spark.sinks.iceberg.catalog.login import AccessToken, Bearer, Login, OAuth2, hidden_of
from cdcsync_spark.sinks.iceberg.catalog.port import (
    CatalogTableName,
    CommitLost,
    Json,
    LoadedTable,
    NewTable,
    OutcomeUnknown,
)
from cdcsync_spark.sinks.iceberg.catalog.sigv4 import SigV4

_SINK = "spec.sink.iceberg"
_PASSING = (408, 425, 429)
_SEPARATOR = "%1F"
#: what a path has as it is (RFC 3986), escapes among it
_PATH = "/%:@!$&'()*+,;="
#: of the memory, for an answer once it is parsed
_SHARE = 4
_UNAUTHORISED = (401, 419)
#: what asks for credentials of a table's files
_DELEGATION = {"X-Iceberg-Access-Delegation": "vended-credentials"}


@dataclass(frozen=True)
class RestSettings:
    """The catalog at `uri`, which has more than one `warehouse` or none that is named; `ca` is the
    file of the authority of its certificate, None: those that the machine knows. `seconds` bounds
    one request."""

    uri: str
    warehouse: str = ""
    login: Login | None = None
    ca: Path | None = None
    seconds: float = 30.0


class _Session:
    """What is known of a server while this process uses it: never pickled, never shown."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.servers: dict[str, CatalogServer] = {}
        self.token: AccessToken | None = None
        self.config: tuple[str, str] | None = None


@dataclass(frozen=True)
class RestCatalog:
    """See `Catalog`."""

    settings: RestSettings
    _session: _Session = field(default_factory=_Session, compare=False, repr=False)

    def __reduce__(self) -> tuple[Callable[[RestSettings], RestCatalog], tuple[RestSettings]]:
        return _of_this_process, (self.settings,)

    def check(self) -> None:
        """Asks for the catalog's configuration, which changes nothing. Raises CdcError."""
        self._configuration()

    def has_namespace(self, namespace: tuple[str, ...]) -> bool:
        doing = f"did not say whether the namespace {'.'.join(namespace)} is there"
        answer = self._asked("GET", f"namespaces/{self._named(namespace)}", doing)
        if answer.status == 404 and _error_type(answer):
            return False
        self._object(answer, doing)
        return True

    def load(self, table: CatalogTableName) -> LoadedTable | None:
        doing = f"did not give the table {table.shown}"
        answer = self._asked("GET", f"{self._path(table)}?snapshots=all", doing)
        if answer.status == 404 and _error_type(answer):
            return None
        return self._loaded(self._object(answer, doing), doing)

    def vended(self, table: CatalogTableName) -> Mapping[str, str]:
        doing = f"gave no credentials for the table {table.shown}"
        answer = self._asked("GET", f"{self._path(table)}?snapshots=refs", doing, more=_DELEGATION)
        if answer.status == 404 and _error_type(answer):
            return {}
        body = self._object(answer, doing)
        location = self._loaded(body, doing).metadata["location"]
        if other := other_credentials(body, location):
            remedy = (
                f"let the catalog give keys of S3, or name an account for the store in {_SINK}.credentialsSecretRef"
            )
            names = ", ".join(quoted(name, 60) for name in other)
            raise self._fail(doing, Reason.SPEC_INVALID, f"it gave some of another form: {names}", remedy)
        return file_settings(body, location)

    def create(self, table: CatalogTableName, new: NewTable) -> LoadedTable:
        body = {
            "name": table.name,
            "schema": new.schema,
            "stage-create": False,
            "properties": {**new.properties, "format-version": str(new.format_version)},
        }
        doing, path = f"did not create the table {table.shown}", f"namespaces/{self._named(table.namespace)}/tables"
        answer = self._asked("POST", path, doing, body)
        if answer.status == 404 and _error_type(answer):
            self._create_namespace(table.namespace)
            answer = self._asked("POST", path, doing, body)
        if answer.status == 409:
            raise CommitLost(_message(answer))
        loaded = self._loaded(self._object(answer, doing), doing)
        if loaded.metadata["format-version"] != new.format_version:
            raise self._fail(
                doing.replace("did not create", "created"),
                Reason.SPEC_INVALID,
                f"with format version {loaded.metadata['format-version']}, not {new.format_version}",
                "use a catalog that has tables of that version, and remove the table",
            )
        return loaded

    def commit(self, table: CatalogTableName, requirements: Sequence[Json], updates: Sequence[Json]) -> LoadedTable:
        body = {
            "identifier": {"namespace": list(table.namespace), "name": table.name},
            "requirements": list(requirements),
            "updates": list(updates),
        }
        doing = f"did not commit to the table {table.shown}"
        try:
            answer = self._authorised("POST", self._path(table), body)
        except NoAnswer as error:
            if error.sent:
                raise OutcomeUnknown(f"the catalog {self.settings.uri} {doing}: {error.found}") from None
            raise self._unanswered(doing, error) from None
        if answer.status == 409 or (answer.status == 404 and _error_type(answer)):
            raise CommitLost(_message(answer))
        if answer.status >= 500 or answer.status == 408:
            raise OutcomeUnknown(f"the catalog {self.settings.uri} {doing}: {_answered(answer)}")
        if answer.status != 200:
            self._refuse(answer, doing)
        try:
            return self._loaded(_parsed(answer), doing)
        except (ValueError, CdcError):
            raise OutcomeUnknown(f"the catalog {self.settings.uri} {doing}: its answer has no table") from None

    def unnamed(self, table: CatalogTableName, names: Sequence[str]) -> list[str]:
        """None: the server writes these files."""
        return []

    def drop(self, table: CatalogTableName) -> None:
        doing = f"did not remove the table {table.shown}"
        answer = self._asked("DELETE", f"{self._path(table)}?purgeRequested=false", doing)
        if answer.status not in (200, 202, 204) and not (answer.status == 404 and _error_type(answer)):
            self._refuse(answer, doing)

    # -- paths

    def _path(self, table: CatalogTableName) -> str:
        return f"namespaces/{self._named(table.namespace)}/tables/{quote(table.name, safe='')}"

    def _named(self, namespace: tuple[str, ...]) -> str:
        _, separator = self._configuration()
        return separator.join(quote(level, safe="") for level in namespace)

    def _create_namespace(self, namespace: tuple[str, ...]) -> None:
        """And those above it; one that is there is no error."""
        for levels in range(1, len(namespace) + 1):
            doing = f"did not create the namespace {'.'.join(namespace[:levels])}"
            answer = self._asked("POST", "namespaces", doing, {"namespace": namespace[:levels], "properties": {}})
            if answer.status not in (200, 204, 409):
                self._refuse(answer, doing)

    def _configuration(self) -> tuple[str, str]:
        """The prefix of paths and the separator of a namespace's levels in them; asked once."""
        with self._session.lock:
            configuration = self._session.config
        if configuration is None:
            configuration = self._asked_configuration()
            with self._session.lock:
                self._session.config = configuration
        return configuration

    def _asked_configuration(self) -> tuple[str, str]:
        doing = "did not give its configuration"
        query = (
            f"?{urlencode({'warehouse': self.settings.warehouse}, quote_via=quote)}" if self.settings.warehouse else ""
        )
        try:
            answer = self._authorised("GET", f"config{query}", None, prefix="")
        except NoAnswer as error:
            raise self._unanswered(doing, error) from None
        body = self._object(answer, doing)
        parts = [body.get(name) or {} for name in ("defaults", "overrides")]
        if ("defaults" not in body and "overrides" not in body) or not all(isinstance(part, dict) for part in parts):
            raise self._fail(doing, Reason.SPEC_INVALID, "its answer has no configuration", _NOT_ONE)
        config = parts[0] | parts[1]
        prefix, separator = str(config.get("prefix") or ""), str(config.get("namespace-separator") or _SEPARATOR)
        return quote(prefix.strip("/"), safe=_PATH), quote(unquote(separator), safe="")

    # -- requests

    def _asked(
        self, method: str, path: str, doing: str, body: Json | None = None, more: Json | None = None
    ) -> HttpAnswer:
        """An answer that decides something. Raises CdcError where none comes."""
        try:
            answer = self._authorised(method, path, body, more=more)
        except NoAnswer as error:
            raise self._unanswered(doing, error) from None
        if answer.status in _PASSING or answer.status >= 500 or answer.status in (*_UNAUTHORISED, 403):
            self._refuse(answer, doing)
        return answer

    def _authorised(
        self, method: str, path: str, body: Json | None, prefix: str | None = None, more: Json | None = None
    ) -> HttpAnswer:
        """Once more with a new token where its own is not taken; `more` are headers."""
        prefix = self._configuration()[0] if prefix is None else prefix
        whole = f"v1/{prefix}/{path}" if prefix else f"v1/{path}"
        answer = self._sent(method, whole, body, more)
        if answer.status in _UNAUTHORISED and isinstance(self.settings.login, OAuth2):
            with self._session.lock:
                self._session.token = None
            answer = self._sent(method, whole, body, more)
        return answer

    def _sent(self, method: str, path: str, body: Json | None, more: Json | None) -> HttpAnswer:
        headers = {"Accept": "application/json", "User-Agent": "cdcsync", **(more or {})}
        content = None if body is None else json.dumps(body).encode()
        headers |= {"Content-Type": "application/json"} if content else {}
        target = f"{urlsplit(self.settings.uri).path.rstrip('/')}/{path}"
        request = self._identified(Request(method, target, headers, content))
        answer = self._server(self.settings.uri, "uri").ask(request)
        if answer.status == 200 or self.settings.login is None:
            return answer
        credential = request.headers.get("Authorization", "").partition(" ")[2]
        return answer.without((credential, *hidden_of(self.settings.login)))

    def _identified(self, request: Request) -> Request:
        """The request with what the catalog knows this sync by."""
        login = self.settings.login
        if login is None:
            return request
        if isinstance(login, SigV4):
            return login.signed(request, host_of(self.settings.uri))
        return replace(request, headers={**request.headers, "Authorization": f"Bearer {self._token(login)}"})

    def _token(self, login: Bearer | OAuth2) -> str:
        if isinstance(login, Bearer):
            return secret(login.token)
        with self._session.lock:
            token = self._session.token
        if token is None or token.until <= time.monotonic():
            token = self._new_token(login)
            with self._session.lock:
                self._session.token = token
        return token.text

    def _new_token(self, login: OAuth2) -> AccessToken:
        url, doing = login.url or f"{self.settings.uri.rstrip('/')}/v1/oauth/tokens", "gave no token"
        try:
            answer = self._server(url, "oauth2.serverUri").ask(login.request(_target(url)))
        except NoAnswer as error:
            raise self._unanswered(doing, error) from None
        if answer.status in (400, 401, 403):
            found = f"it answered {answer.status}"  # what it adds may repeat what it was sent
            raise self._fail(doing, Reason.AUTHENTICATION_FAILED, found, f"correct the Secret of {FIELD}")
        token = AccessToken.of(
            self._object(answer if answer.status == 200 else answer.without(hidden_of(login)), doing)
        )
        if token is None:
            raise self._fail(doing, Reason.SPEC_INVALID, "its answer has no token", f"correct {FIELD}.oauth2")
        return token

    def _server(self, url: str, name: str) -> CatalogServer:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        with self._session.lock:
            if origin not in self._session.servers:
                server = CatalogServer(
                    origin, f"{FIELD}.{name}", partial(trusting, self.settings.ca), self.settings.seconds
                )
                self._session.servers[origin] = server
            return self._session.servers[origin]

    # -- answers

    def _object(self, answer: HttpAnswer, doing: str) -> dict[str, Any]:
        if answer.status != 200:
            self._refuse(answer, doing)
        try:
            body = _parsed(answer)
        except ValueError as error:
            raise self._fail(
                doing, Reason.SPEC_INVALID, f"its answer is no JSON: {quoted(str(error))}", _NOT_ONE
            ) from None
        if not isinstance(body, dict):
            raise self._fail(doing, Reason.SPEC_INVALID, "its answer is no JSON object", _NOT_ONE)
        return body

    def _loaded(self, body: Any, doing: str) -> LoadedTable:
        metadata = body.get("metadata") if isinstance(body, dict) else None
        if not isinstance(metadata, dict) or not all(isinstance(metadata.get(k), t) for k, t in _NEEDED.items()):
            raise self._fail(doing, Reason.SPEC_INVALID, "its answer has no table", _NOT_ONE)
        return LoadedTable(metadata)

    def _refuse(self, answer: HttpAnswer, doing: str) -> NoReturn:
        if answer.status in _PASSING or answer.status >= 500:
            raise self._fail(doing, Reason.SINK_UNREACHABLE, _answered(answer), _AWAY)
        if answer.status == 404 and not _error_type(answer):
            found = "it answered 404 and named no table or namespace"
            raise self._fail(doing, Reason.SINK_UNREACHABLE, found, _AWAY)
        reason, remedy = _REFUSALS.get(answer.status, (Reason.SPEC_INVALID, _NOT_ONE))
        if answer.status == 403 and isinstance(self.settings.login, SigV4):
            remedy = f"{_SIGNED}; or {remedy}"
        raise self._fail(doing, reason, _answered(answer), remedy)

    def _unanswered(self, doing: str, error: NoAnswer) -> CdcError:
        if error.untrusted:
            return self._fail(doing, Reason.AUTHENTICATION_FAILED, error.found, UNTRUSTED)
        return self._fail(doing, Reason.SINK_UNREACHABLE, error.found, _LARGE if error.too_large else _AWAY)

    def _fail(self, doing: str, reason: Reason, found: str, remedy: str) -> CdcError:
        return fail(
            reason,
            f"the catalog {self.settings.uri} {doing}: {found}",
            needed="a catalog with Iceberg's REST protocol that lets this sync write its tables",
            remedy=remedy if reason.retried else f"{remedy}, {RUN_AGAIN}",
        )


@lru_cache(maxsize=8)
def _of_this_process(settings: RestSettings) -> RestCatalog:
    """One for all tasks that a worker runs: configuration, token and connection are asked for
    once."""
    return RestCatalog(settings)


_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_NEEDED = {"format-version": int, "table-uuid": str, "location": str}
_AWAY = f"check that the catalog is up, and {FIELD}.uri"
_LARGE = (
    "let another program expire snapshots of the table, branches and tags of its own included; "
    "then wait, and lower the table's property history.expire.max-snapshot-age-ms"
)
_NOT_ONE = f"correct {FIELD}.uri: it is what comes before /v1/config"
_ACCOUNT = f"correct the Secret of {FIELD}.credentialsSecretRef"
_SIGNED = (
    f"correct the access key in the Secret of {FIELD}.credentialsSecretRef, {FIELD}.sigv4, or this machine's clock"
)
_REFUSALS: Mapping[int, tuple[Reason, str]] = {
    400: (Reason.SINK_CONFLICT, "compare the catalog's text with the table and with spec.sink.iceberg"),
    401: (Reason.AUTHENTICATION_FAILED, _ACCOUNT),
    419: (Reason.AUTHENTICATION_FAILED, _ACCOUNT),
    403: (
        Reason.PRIVILEGE_MISSING,
        "let the account create and write tables of the namespace, and create the namespace if it is missing",
    ),
    406: (Reason.SPEC_INVALID, "use a catalog that can do this"),
    501: (Reason.SPEC_INVALID, "use a catalog that can do this"),
}


def _target(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"


def _parsed(answer: HttpAnswer) -> Any:
    """Raises ValueError, also for a text with half of a surrogate pair, which no client of a store
    and no file takes."""
    value = parse_json(answer.body, most=memory_limit() // _SHARE)
    if _SURROGATE.search(answer.body):
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _error(answer: HttpAnswer) -> Mapping[str, Any]:
    try:
        body = _parsed(answer)
    except ValueError:
        return {}
    error = body.get("error") if isinstance(body, dict) else None
    return error if isinstance(error, dict) else {}


def _error_type(answer: HttpAnswer) -> str:
    """The kind of an error in the protocol's form; empty for another answer."""
    error = _error(answer)
    return str(error.get("type") or "") if error.get("code") == answer.status else ""


def _message(answer: HttpAnswer) -> str:
    """The catalog's own words, in the protocol's form. Another answer may be that of any server
    that the uri leads to, and is shown nowhere."""
    text = _error(answer).get("message") if _error_type(answer) else ""
    return quoted(str(text)) if text else ""


def _answered(answer: HttpAnswer) -> str:
    return ": ".join(filter(None, (f"it answered {answer.status}", _message(answer))))
