"""A REST catalog: what each answer means, that no request is sent twice whose outcome is not known,
that nothing is waited for without end, and where credentials go."""

from __future__ import annotations

import pickle
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.resource.networks import VARIABLE
from cdcsync_spark.sinks.iceberg.catalog import connection
from cdcsync_spark.sinks.iceberg.catalog import rest as rest_module
from cdcsync_spark.sinks.iceberg.catalog.login import AccessToken, Bearer, OAuth2
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName, CommitLost, NewTable, OutcomeUnknown
from cdcsync_spark.sinks.iceberg.catalog.rest import RestCatalog, RestSettings
from support.hostile import Hostile
from support.json_answers import JsonAnswers
from support.secure_kafka import Authority

TABLE = CatalogTableName(("shop", "eu"), "or/ders")
CONFIG, TOKENS = "/v1/config", "/v1/oauth/tokens"
NAMESPACES = "/v1/namespaces"
TABLES = f"{NAMESPACES}/shop%1Feu/tables"
PATH = f"{TABLES}/or%2Fders"
METADATA = {"format-version": 3, "table-uuid": "u", "location": "s3://lake/shop/orders"}
NEW = NewTable({"type": "struct", "fields": []}, 3, {"a": "b"})


def error(status: int, kind: str) -> tuple[int, object]:
    return status, {"error": {"message": f"it is {kind}", "type": kind, "code": status}}


@pytest.fixture
def server() -> Iterator[JsonAnswers]:
    with JsonAnswers() as answers:
        answers.answers[CONFIG] = [(200, {"defaults": {}, "overrides": {}})]
        yield answers


def catalog(server: JsonAnswers, **settings: object) -> RestCatalog:
    return RestCatalog(RestSettings(server.url(), **{"seconds": 20.0, **settings}))  # type: ignore[arg-type]


def reason(call: object) -> tuple[Reason, str]:
    with pytest.raises(CdcError) as refused:
        call()  # type: ignore[operator]
    return refused.value.reason, refused.value.message


def commit(of: RestCatalog) -> object:
    return of.commit(TABLE, [{"type": "assert-table-uuid", "uuid": "u"}], [{"action": "set-properties", "updates": {}}])


def test_the_configuration_is_asked_once_with_the_warehouse_and_decides_over_paths_only(server: JsonAnswers) -> None:
    overrides = {"prefix": "wh/one", "namespace-separator": "%2E", "uri": "http://127.0.0.1:1", "token": "theirs"}
    server.answers[CONFIG] = [(200, {"defaults": {"prefix": "no"}, "overrides": overrides})]
    path = "/v1/wh/one/namespaces/shop.eu/tables/or%2Fders"
    server.answers[path] = [(200, {"metadata": METADATA})]
    rest = catalog(server, warehouse="lake house")
    assert [rest.load(TABLE), rest.load(TABLE)] == [rest.load(TABLE)] * 2
    assert [asked.path for asked in server.of(CONFIG)] == ["/v1/config?warehouse=lake%20house"]
    assert not any("Authorization" in asked.headers for asked in server.asked)


def test_a_table_that_the_catalog_does_not_have(server: JsonAnswers) -> None:
    server.answers[PATH] = [error(404, "NoSuchTableException")]
    assert catalog(server).load(TABLE) is None
    server.answers[PATH] = [(404, "<html>no such backend</html>")]
    found, message = reason(lambda: catalog(server).load(TABLE))
    assert found is Reason.SINK_UNREACHABLE
    assert "named no table" in message


def test_what_a_table_has(server: JsonAnswers) -> None:
    given = {
        "metadata": METADATA,
        "config": {"s3.region": "eu", "s3.access-key-id": "all", "s3.secret-access-key": "secret"},
        "storage-credentials": [
            {"prefix": "s3://lake", "config": {"s3.access-key-id": "lake"}},
            {"prefix": "s3://lake/shop", "config": {"s3.access-key-id": "shop"}},
            {"prefix": "s3://other", "config": {"s3.access-key-id": "other"}},
        ],
    }
    server.answers[PATH] = [(200, given)]
    rest = catalog(server)
    loaded = rest.load(TABLE)
    assert loaded is not None
    assert loaded.metadata == METADATA
    assert rest.vended(TABLE) == {
        "s3.region": "eu",
        "s3.access-key-id": "shop",
        "s3.secret-access-key": "secret",
    }
    asked = [a.headers.get("X-Iceberg-Access-Delegation") for a in server.of(PATH)]
    assert asked == [None, "vended-credentials"], "credentials are asked for where they are needed only"
    server.answers[PATH] = [error(404, "NoSuchTableException")]
    assert rest.vended(TABLE) == {}
    server.answers[PATH] = [error(403, "ForbiddenException")]
    assert reason(lambda: rest.vended(TABLE))[0] is Reason.PRIVILEGE_MISSING


_PAIR = {"s3.access-key-id": "a", "s3.secret-access-key": "b"}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"config": {"adls.sas-token.account.dfs.core.windows.net": "hidden"}}, "adls.sas-token.account"),
        ({"config": {"gcs.oauth2.token": "hidden", "gcs.oauth2.token-expires-at": "1"}}, "gcs.oauth2.token"),
        ({"config": {"s3.remote-signing-enabled": "true", "s3.signer.uri": "x"}}, "s3.remote-signing-enabled"),
        ({"config": {"s3.access-key-id": "hidden"}}, "s3.access-key-id"),
        ({"config": {"s3.session-token": "hidden"}}, "s3.session-token"),
        ({"config": {**_PAIR, "s3.session-token": "hid\r\nden"}}, "s3.session-token"),
        ({"config": {**_PAIR, "s3.secret-access-key": "hid\ud83d\ude00den"}}, "s3.secret-access-key"),
        ({"storage-credentials": [{"prefix": "s3://lake", "config": {"a.key.of.tomorrow": "hidden"}}]}, "s3://lake"),
        ({"storage-credentials": [{"prefix": "s3://other", "config": _PAIR}]}, "s3://other"),
        ({"config": {"gcs.no-auth": "true", "client.region": "eu", "s3.signer.uri": "x", "s3.sse.key": "k"}}, ""),
        ({"config": {**_PAIR, "adls.sas-token": "also"}}, ""),
        ({"config": ["a"], "storage-credentials": 7}, ""),
        ({"config": None, "storage-credentials": [7, None]}, ""),
        ({}, ""),
    ],
    ids=str,
)
def test_credentials_of_another_form_are_refused_by_their_names(
    server: JsonAnswers, given: dict[str, object], named: str
) -> None:
    """Left out in silence, the identity of the process would serve in their place."""
    server.answers[PATH] = [(200, {"metadata": METADATA, **given})]
    rest = catalog(server)
    if not named:
        rest.vended(TABLE)
        return
    found, message = reason(lambda: rest.vended(TABLE))
    assert found is Reason.SPEC_INVALID
    assert named in message
    assert "spec.sink.iceberg.credentialsSecretRef" in message
    assert "hid" not in message


@pytest.mark.parametrize("life", [10**400, -1, True, "3600", [1], None])
def test_a_tokens_life_that_is_none_counts_as_an_hour(life: object) -> None:
    token = AccessToken.of({"access_token": "a", "expires_in": life}, lambda: 0.0)
    assert token is not None
    assert token.until == 3540


@pytest.mark.parametrize("prefix", ["ü/x y", "a?b#c", "x\r\nHost: y", "/a%20b/", 7])
def test_a_prefix_of_any_text_is_a_path(server: JsonAnswers, prefix: object) -> None:
    server.answers[CONFIG] = [(200, {"overrides": {"prefix": prefix}})]
    reason(lambda: catalog(server).load(TABLE))
    assert all(asked.path.isascii() and asked.path.isprintable() and "?b" not in asked.path for asked in server.asked)


@pytest.mark.parametrize("part", ["prefix", "location"])
def test_half_of_a_surrogate_pair_is_no_text(server: JsonAnswers, part: str) -> None:
    server.answers[CONFIG] = [(200, {"overrides": {"prefix": "\ud800" if part == "prefix" else "x"}})]
    server.answers[PATH.replace("v1", "v1/x")] = [(200, {"metadata": {**METADATA, "location": "s3://l/\udfff"}})]
    found, message = reason(lambda: catalog(server).load(TABLE))
    assert found is Reason.SPEC_INVALID
    assert "its answer is no JSON" in message


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (error(409, "CommitFailedException"), CommitLost),
        (error(404, "NoSuchTableException"), CommitLost),
        (error(500, "CommitStateUnknownException"), OutcomeUnknown),
        (error(502, "CommitStateUnknownException"), OutcomeUnknown),
        (error(503, "ServiceUnavailableException"), OutcomeUnknown),
        (error(504, "CommitStateUnknownException"), OutcomeUnknown),
        ((408, ""), OutcomeUnknown),
        ((200, "no JSON"), OutcomeUnknown),
        ((200, {}), OutcomeUnknown),
        ((200, "[" * 100_000), OutcomeUnknown),
        (error(400, "ValidationException"), Reason.SINK_CONFLICT),
        (error(401, "NotAuthorizedException"), Reason.AUTHENTICATION_FAILED),
        (error(403, "ForbiddenException"), Reason.PRIVILEGE_MISSING),
        (error(429, "TooManyRequests"), Reason.SINK_UNREACHABLE),
        ((404, "no backend"), Reason.SINK_UNREACHABLE),
        ((405, ""), Reason.SPEC_INVALID),
    ],
)
def test_what_becomes_of_a_commit(server: JsonAnswers, answer: tuple[int, object], expected: object) -> None:
    server.answers[PATH] = [answer]
    rest = catalog(server)
    if isinstance(expected, Reason):
        assert reason(lambda: commit(rest))[0] is expected
    else:
        with pytest.raises(expected):  # type: ignore[call-overload]
            commit(rest)
    assert len(server.of(PATH)) == 1


def test_a_commit_whose_answer_breaks_off(server: JsonAnswers) -> None:
    server.answers[PATH] = [(200, {"metadata": METADATA})]
    rest = catalog(server)
    rest.check()
    server.early = 5
    with pytest.raises(OutcomeUnknown, match="ends early"):
        commit(rest)
    server.early = 0
    assert commit(rest) is not None


@pytest.mark.parametrize(
    "body", ["an internal page", {"message": "an internal page"}, {"error": {"message": "an internal page", "code": 9}}]
)
@pytest.mark.parametrize("status", [400, 403, 404, 405, 500])
def test_the_text_of_a_server_that_is_no_catalog_is_not_shown(server: JsonAnswers, status: int, body: object) -> None:
    server.answers[PATH] = [(status, body)]
    message = reason(lambda: catalog(server).load(TABLE))[1]
    assert f"it answered {status}" in message
    assert "internal" not in message


def test_a_token_that_a_catalog_repeats_is_not_shown(server: JsonAnswers, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret-token\n")
    server.answers[PATH] = [
        (403, {"error": {"message": "not secret-token", "type": "ForbiddenException", "code": 403}})
    ]
    found, message = reason(lambda: catalog(server, login=Bearer(tmp_path / "token")).load(TABLE))
    assert found is Reason.PRIVILEGE_MISSING
    assert '"not ***"' in message


def _commit_that_is_sent(rest: RestCatalog) -> None:
    """The connection itself may take so long on a slow machine."""
    for _ in range(60):
        with suppress(CdcError):
            commit(rest)


def test_a_commit_that_is_not_answered_in_time(server: JsonAnswers) -> None:
    server.answers[PATH] = [(200, {"metadata": METADATA})]
    rest = catalog(server, seconds=2.0)
    rest._session.config = ("", "%1F")
    server.seconds = 60.0
    with pytest.raises(OutcomeUnknown, match="within 2 s"):
        _commit_that_is_sent(rest)


def test_an_answer_that_takes_more_memory_than_there_is_for_it_is_refused(
    server: JsonAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of these lists takes forty times its two characters."""
    server.answers[PATH] = [(200, {"metadata": METADATA | {"snapshots": [[]] * 200_000}})]
    rest = catalog(server)
    assert rest.load(TABLE) is not None
    monkeypatch.setattr(rest_module, "memory_limit", lambda: 2**26)
    found, message = reason(lambda: rest.load(TABLE))
    assert found is Reason.SPEC_INVALID
    assert "bytes of memory once it is parsed" in message
    with pytest.raises(OutcomeUnknown):
        commit(rest)


def test_metadata_that_are_too_large_are_no_fault_of_the_network(
    server: JsonAnswers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "ANSWER_BYTES", 10_000)
    server.answers[PATH] = [(200, {"metadata": METADATA | {"snapshots": [[]] * 5_000}})]
    found, message = reason(lambda: catalog(server).load(TABLE))
    assert found is Reason.SINK_UNREACHABLE
    assert "more than 10000 bytes" in message
    assert "expire snapshots of the table" in message


def test_a_catalog_that_sends_a_byte_now_and_then() -> None:
    def drip(way: Hostile, client: socket.socket) -> None:
        while not way.ending.wait(0.05):
            client.sendall(b"H")

    with Hostile(drip).listening() as port:
        begun = time.monotonic()
        rest = RestCatalog(RestSettings(f"http://127.0.0.1:{port}", seconds=2.0))
        found, message = reason(rest.check)
        assert found is Reason.SINK_UNREACHABLE
        assert "within 2 s" in message
        assert time.monotonic() - begun < 60


def test_a_catalog_that_is_down_is_no_unknown_outcome(server: JsonAnswers) -> None:
    rest = catalog(server)
    rest.check()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    down = RestCatalog(RestSettings(f"http://127.0.0.1:{port}"))
    down._session.config = ("", "%1F")
    assert reason(lambda: commit(down))[0] is Reason.SINK_UNREACHABLE


def test_a_connection_that_the_catalog_closed_is_not_used_for_a_commit() -> None:
    with JsonAnswers() as server:
        server.answers = {CONFIG: [(200, {"defaults": {}, "overrides": {}})], PATH: [(200, {"metadata": METADATA})]}
        rest = catalog(server)
        rest.check()
        (kept,) = rest._session.servers[server.url()]._idle
        kept._http.sock.shutdown(socket.SHUT_RD)
        commit(rest)
        assert len(server.of(PATH)) == 1


def test_a_redirection_is_not_followed(server: JsonAnswers, tmp_path: Path) -> None:
    with JsonAnswers() as elsewhere:
        server.location = elsewhere.url() + CONFIG
        server.answers[CONFIG] = [(307, "")]
        (tmp_path / "token").write_text("secret-token\n")
        found, message = reason(catalog(server, login=Bearer(tmp_path / "token")).check)
        assert found is Reason.SPEC_INVALID
        assert not elsewhere.asked
        assert "secret-token" not in message


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"])
def test_no_proxy_of_the_environment_is_asked(
    server: JsonAnswers, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        catalog(server).check()
    assert server.of(CONFIG)


def test_what_is_no_catalog(server: JsonAnswers) -> None:
    for answer in ((200, "<html>"), (200, []), (200, {"a": 1}), (200, {"defaults": [1]}), (404, "no such page")):
        server.answers[CONFIG] = [answer]
        found, message = reason(catalog(server).check)
        assert found is (Reason.SINK_UNREACHABLE if answer[0] == 404 else Reason.SPEC_INVALID)
        assert "spec.sink.iceberg.catalog.uri" in message


def test_a_table_is_created_with_its_namespace(server: JsonAnswers) -> None:
    server.answers[TABLES] = [error(404, "NoSuchNamespaceException"), (200, {"metadata": METADATA})]
    server.answers[NAMESPACES] = [error(409, "AlreadyExistsException"), (200, {})]
    assert catalog(server).create(TABLE, NEW).metadata == METADATA
    assert [asked.body for asked in server.of(NAMESPACES)] == [
        b'{"namespace": ["shop"], "properties": {}}',
        b'{"namespace": ["shop", "eu"], "properties": {}}',
    ]
    assert b'"properties": {"a": "b", "format-version": "3"}' in server.of(TABLES)[0].body


def test_a_namespace_without_rights(server: JsonAnswers) -> None:
    server.answers[TABLES] = [error(404, "NoSuchNamespaceException")]
    server.answers[NAMESPACES] = [error(403, "ForbiddenException")]
    found, message = reason(lambda: catalog(server).create(TABLE, NEW))
    assert found is Reason.PRIVILEGE_MISSING
    assert "did not create the namespace shop" in message


def test_a_table_that_another_has_created_first(server: JsonAnswers) -> None:
    server.answers[TABLES] = [error(409, "AlreadyExistsException")]
    with pytest.raises(CommitLost):
        catalog(server).create(TABLE, NEW)


def test_a_catalog_that_makes_another_format(server: JsonAnswers) -> None:
    server.answers[TABLES] = [(200, {"metadata": {**METADATA, "format-version": 2}})]
    found, message = reason(lambda: catalog(server).create(TABLE, NEW))
    assert found is Reason.SPEC_INVALID
    assert "format version 2, not 3" in message


def test_a_token_by_oauth2_is_kept_renewed_before_its_end_and_when_it_is_refused(
    server: JsonAnswers, tmp_path: Path
) -> None:
    (tmp_path / "username").write_text("the id\n")
    (tmp_path / "password").write_text("the&secret")
    server.answers[TOKENS] = [(200, {"access_token": text, "expires_in": 3600}) for text in ("one", "two", "three")]
    server.answers[PATH] = [(200, {"metadata": METADATA})] * 2 + [
        error(401, "NotAuthorizedException"),
        (200, {"metadata": METADATA}),
    ]
    rest = catalog(server, login=OAuth2(tmp_path / "username", tmp_path / "password", scope="PRINCIPAL_ROLE:ALL"))
    rest.load(TABLE)
    form = parse_qs(server.of(TOKENS)[0].body.decode())
    assert form == {
        "grant_type": ["client_credentials"],
        "client_id": ["the id"],
        "client_secret": ["the&secret"],
        "scope": ["PRINCIPAL_ROLE:ALL"],
    }
    token = rest._session.token
    assert token is not None
    assert 3500 < token.until - time.monotonic() <= 3540
    object.__setattr__(token, "until", time.monotonic())
    rest.load(TABLE)
    rest.load(TABLE)
    sent = [asked.headers["Authorization"] for asked in server.of(PATH)]
    assert sent == ["Bearer one", "Bearer two", "Bearer two", "Bearer three"]
    shown = repr(rest) + repr(pickle.loads(pickle.dumps(rest))) + repr(rest._session.token)
    assert not any(text in shown for text in ("the id", "the&secret", "three"))


def test_the_tasks_of_a_worker_ask_for_configuration_and_token_once(server: JsonAnswers, tmp_path: Path) -> None:
    for name in ("id", "secret"):
        (tmp_path / name).write_text(name)
    server.answers[TOKENS] = [(200, {"access_token": "t", "expires_in": 3600})]
    server.answers[PATH] = [(200, {"metadata": METADATA})]
    sent = pickle.dumps(catalog(server, login=OAuth2(tmp_path / "id", tmp_path / "secret")))
    for _ in range(3):
        assert pickle.loads(sent).load(TABLE) is not None
    assert [len(server.of(path)) for path in (CONFIG, TOKENS, PATH)] == [1, 1, 3]


def test_an_account_that_is_refused_says_no_secret(server: JsonAnswers, tmp_path: Path) -> None:
    (tmp_path / "username").write_text("the id")
    (tmp_path / "password").write_text("the-secret")
    server.answers[TOKENS] = [(401, {"error": "invalid_client", "error_description": "the-secret is wrong"})]
    found, message = reason(catalog(server, login=OAuth2(tmp_path / "username", tmp_path / "password")).check)
    assert found is Reason.AUTHENTICATION_FAILED
    assert "the-secret" not in message


def test_a_client_secret_that_a_server_repeats_is_not_shown(server: JsonAnswers, tmp_path: Path) -> None:
    """Nor the client's id, where its key may be that of any secret; in JSON, too."""
    (tmp_path / "id").write_text("the-\u00e9-id")
    (tmp_path / "password").write_text('the-"secret')
    shown = {"error": {"message": 'the-\u00e9-id: not the-"secret', "type": "Busy", "code": 503}}
    server.answers[TOKENS] = [(503, shown)]
    found, message = reason(catalog(server, login=OAuth2(tmp_path / "id", tmp_path / "password")).check)
    assert found is Reason.SINK_UNREACHABLE
    assert '"***: not ***"' in message


def test_an_account_that_is_not_in_the_secret(server: JsonAnswers, tmp_path: Path) -> None:
    found, message = reason(catalog(server, login=Bearer(tmp_path / "catalog" / "token")).check)
    assert found is Reason.SPEC_INVALID
    assert "catalog/token" in message
    assert not server.asked


def test_a_refused_address_is_not_connected_with(server: JsonAnswers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "127.0.0.0/8")
    found, message = reason(catalog(server).check)
    assert found is Reason.SPEC_INVALID
    assert "spec.sink.iceberg.catalog.uri" in message
    assert not server.asked


def test_a_certificate_is_verified_by_the_authority_that_is_given_and_names_the_host(tmp_path: Path) -> None:
    authority, other = Authority("ours"), Authority("theirs")
    certificate, key = authority.pair("localhost")
    (tmp_path / "pair").write_text(certificate + key)
    (tmp_path / "ca.crt").write_text(authority.certificate)
    (tmp_path / "other.crt").write_text(other.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pair")
    with JsonAnswers(context) as server:
        server.answers[CONFIG] = [(200, {"defaults": {}, "overrides": {}})]
        RestCatalog(RestSettings(server.url("localhost"), ca=tmp_path / "ca.crt")).check()
        for host, ca in (("127.0.0.1", "ca.crt"), ("localhost", "other.crt"), ("localhost", "")):
            settings = RestSettings(server.url(host), ca=tmp_path / ca if ca else None)
            assert reason(RestCatalog(settings).check)[0] is Reason.AUTHENTICATION_FAILED
        unreadable = RestSettings(server.url("localhost"), ca=tmp_path / "none.crt")
        assert reason(RestCatalog(unreadable).check)[0] is Reason.SPEC_INVALID
