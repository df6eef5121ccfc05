"""One tenant's source cannot take the operator from others: time, memory, slots and addresses are
bounded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.resource.spec import CdcSync, Spec
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_mysql.sessions import question
from cdcsync_mysql.sessions.connection import Source, Tls, connect, fetch
from cdcsync_mysql.sessions.question import AnswerLimits, Question
from cdcsync_operator.cluster.quota.room import RoomBounds
from cdcsync_operator.cluster.source import ClusterSource, SourceBounds
from cdcsync_operator.reconcile.preflight import PreflightOutcome
from support import hostile
from support.fixtures import FreshDatabase
from support.hostile import Hostile
from support.semisync import until
from support.servers import Server
from support.source import source_of

pytestmark = [pytest.mark.server, pytest.mark.timeout(240)]
_TABLE = Capture(SourceTable(TableId("d", "t"), (Column("id", SourceType.parse("int"), nullable=False),)), ("id",))
Way = Callable[[Hostile, Any], None]
#: far more than a client's and a server's socket buffers hold
_UNBOUNDED = 64 * 2**20
_STALLING = [hostile.dripping_greeting, hostile.dripping_handshake, hostile.silence]


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """A folder of Secrets' files."""
    (tmp_path / "login").mkdir()
    (tmp_path / "login/username").write_text("cdc")
    (tmp_path / "login/password").write_text("pw")
    return tmp_path


def _source(port: int, account: Path, tls: Tls, asked: Question | None = None) -> Source:
    login = account / "login"
    return Source("127.0.0.1", port, login / "username", login / "password", tls, asked)


def _tls(way: Way) -> Tls:
    return Tls("required" if way is hostile.dripping_handshake else "disabled", allow_unverified=True)


def test_packets_before_the_login_are_bounded(account: Path) -> None:
    """Any connection has the bound, a driver's too: what is joined without end would take all
    memory."""
    server = Hostile(hostile.endless_packets)
    with server.listening() as port, pytest.raises(CdcError, match="before the login") as caught:
        connect(_source(port, account, Tls("disabled")))
    assert caught.value.reason is Reason.SOURCE_UNREACHABLE
    assert server.sent < _UNBOUNDED


@pytest.mark.parametrize(
    ("way", "found"), [(hostile.endless_rows, "5000 rows"), (hostile.one_endless_value, "1048576 bytes")]
)
def test_answers_to_a_question_are_bounded(way: Way, found: str, account: Path) -> None:
    server = Hostile(way)
    with (
        server.listening() as port,
        Question(limits=AnswerLimits(5000, 2**20)) as asked,
        pytest.raises(CdcError, match=f"an answer of more than {found}") as caught,
    ):
        connect(_source(port, account, Tls("disabled"), asked))
    assert caught.value.reason is Reason.SOURCE_UNREACHABLE
    assert server.sent < _UNBOUNDED


def test_the_answers_of_a_real_server_are_within_the_limits(mariadb1011: Server) -> None:
    """The limit is an answer's, not the connection's."""
    with (
        Question(limits=AnswerLimits(5000, 2**20)) as asked,
        connect(replace(source_of(mariadb1011), question=asked)) as real,
    ):
        many = "information_schema.COLLATIONS"
        for _ in range(20):
            assert len(fetch(real, "SHOW GLOBAL VARIABLES")) > 400
        with pytest.raises(CdcError, match="5000 rows"):
            fetch(real, f"SELECT 1 FROM {many} a, {many} b LIMIT 5001")


@pytest.mark.parametrize("way", _STALLING)
def test_a_wall_clock_ends_a_question(way: Way, account: Path) -> None:
    """A timeout of the socket does not: a byte comes before each."""
    server = Hostile(way)
    with server.listening() as port, Question() as asked, asked.within(0.5):
        with pytest.raises(CdcError, match="did not answer in time") as caught:
            connect(_source(port, account, _tls(way), asked))
        with pytest.raises(CdcError, match="did not answer in time"):
            connect(_source(port, account, _tls(way), asked))
    assert caught.value.reason is Reason.SOURCE_UNREACHABLE


def test_a_login_has_less_time_than_the_question(account: Path) -> None:
    with (
        Hostile(hostile.dripping_greeting).listening() as port,
        Question(login_seconds=0.5) as asked,
        asked.within(3600),
        pytest.raises(CdcError, match="did not answer in time"),
    ):
        connect(_source(port, account, Tls("disabled"), asked))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::ffff:127.0.0.1"])
def test_a_refused_address_is_not_connected_to(host: str, account: Path) -> None:
    """Not the name decides, but what it is resolved to."""
    server = Hostile(hostile.silence)
    with (
        server.listening() as port,
        Question(("127.0.0.0/8", "::1/128")) as asked,
        pytest.raises(CdcError, match="policy refuses") as caught,
    ):
        connect(replace(_source(port, account, Tls("disabled"), asked), host=host))
    assert caught.value.reason is Reason.SPEC_INVALID
    assert not server.met.acquire(blocking=False)


# ---- syncs of many namespaces


def _resource(namespace: str, port: int, include: str = "d", tls: str = "disabled") -> CdcSync:
    source = {"host": "127.0.0.1", "port": port, "credentialsSecretRef": {"name": "login"}, "tls": {"mode": tls}}
    spec = {"source": source, "tables": {"include": [include]}, "sink": {"delta": {"path": "s3://lake/cdc"}}}
    about = {"name": "shop", "namespace": namespace}
    return CdcSync.model_validate(
        {"apiVersion": "cdcsync.io/v1alpha1", "kind": "CdcSync", "metadata": about, "spec": spec}
    )


@contextmanager
def _looking(source: ClusterSource, resource: CdcSync, folders: list[Path]) -> Iterator[list[CdcError]]:
    """A preflight of one sync for each folder, in threads of their own; their errors."""
    ends: list[CdcError] = []

    def check(folder: Path) -> None:
        try:
            ends.extend(source.preflight(resource, folder).result.errors)
        except CdcError as error:
            ends.append(error)

    threads = [threading.Thread(target=check, args=(f,)) for f in folders]
    for thread in threads:
        thread.start()
    yield ends
    for folder in folders:
        source.give_up(folder)
    for thread in threads:
        thread.join(600)
    assert not any(t.is_alive() for t in threads)


def _folders(account: Path, count: int) -> list[Path]:
    """One for each sync, as the operator has them."""
    made = [account / f"sync-{n}" for n in range(count)]
    for folder in made:
        (folder / "login").mkdir(parents=True)
        for name in ("username", "password"):
            (folder / "login" / name).write_text((account / "login" / name).read_text())
    return made


def _honest(source: ClusterSource, server: Server, database: str, account: Path, namespace: str) -> PreflightOutcome:
    server.create_user("cdc", "pw")
    return source.preflight(_resource(namespace, server.port, rf"{database}\..*"), account)


def test_one_namespaces_stalling_sources_leave_slots_to_others(
    mariadb1011: Server, fresh_database: FreshDatabase, account: Path
) -> None:
    database, source = fresh_database(mariadb1011), ClusterSource()
    mariadb1011.run("CREATE TABLE t (id INT PRIMARY KEY)", db=database)
    server = Hostile(hostile.dripping_greeting)
    with server.listening() as port, ExitStack() as stack:
        stack.enter_context(_looking(source, _resource("evil", port), _folders(account, 40)))
        for _ in range(32):
            assert server.met.acquire(timeout=600), "they have the slots that they get"
        found = _honest(source, mariadb1011, database, account, "good")
        assert [t.name for t in found.result.tables] == [f"{database}.t"]
        assert not server.met.acquire(blocking=False), "and no more"


def test_silent_sources_of_twenty_namespaces_delay_no_sync(
    mariadb1011: Server, fresh_database: FreshDatabase, account: Path
) -> None:
    """A preflight, a plan and the binlog's end of a source that answers are there while all of the
    others still wait for their login."""
    database, source = fresh_database(mariadb1011), ClusterSource()
    mariadb1011.run("CREATE TABLE t (id INT PRIMARY KEY)", db=database)
    server, folders = Hostile(hostile.silence), _folders(account, 20)
    with server.listening() as port, ExitStack() as stack:
        ends = [
            stack.enter_context(_looking(source, _resource(f"silent-{number}", port), [folder]))
            for number, folder in enumerate(folders)
        ]
        for _ in folders:
            assert server.met.acquire(timeout=600), "none of them waits for another"
        found = _honest(source, mariadb1011, database, account, "good")
        resource = _resource("good", mariadb1011.port)
        assert source.current(resource, account).file
        with source.planning(resource, account) as splits:
            assert list(splits(_TABLE.named(TableId(database, "t")), None))
        assert [t.name for t in found.result.tables] == [f"{database}.t"]
        assert not any(ends), "their time is not over"


def test_a_closed_sync_frees_its_slot(mariadb1011: Server, fresh_database: FreshDatabase, account: Path) -> None:
    """In its own namespace, long before its time is over."""
    database, source = fresh_database(mariadb1011), ClusterSource()
    mariadb1011.run("CREATE TABLE t (id INT PRIMARY KEY)", db=database)
    server, folders = Hostile(hostile.dripping_greeting), _folders(account, 4)
    with server.listening() as port, _looking(source, _resource("one", port), folders) as ends:
        for _ in range(4):
            assert server.met.acquire(timeout=600)
        for folder in folders:
            source.give_up(folder)
        found = _honest(source, mariadb1011, database, account, "one")
        assert [t.name for t in found.result.tables] == [f"{database}.t"]
    assert [e.reason for e in ends] == [Reason.SOURCE_UNREACHABLE] * 4


@pytest.mark.parametrize("way", [hostile.dripping_greeting, hostile.one_endless_value])
def test_a_plan_ends(way: Way, account: Path) -> None:
    source = ClusterSource(bounds=SourceBounds(split_seconds=1.0))
    with (
        Hostile(way).listening() as port,
        pytest.raises(CdcError) as caught,
        source.planning(_resource("evil", port), account) as splits,
    ):
        list(splits(_TABLE, None))
    assert caught.value.reason is Reason.SOURCE_UNREACHABLE


def test_a_plan_of_a_real_server_is_whole_and_leaves_no_connection(
    mariadb1011: Server, fresh_database: FreshDatabase, account: Path
) -> None:
    """Plans two tables on one connection; also where one is left before its end."""
    database, source = fresh_database(mariadb1011), ClusterSource()
    mariadb1011.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t SELECT seq FROM seq_1_to_900", db=database)
    mariadb1011.create_user("cdc", "pw")
    table, resource = _TABLE.named(TableId(database, "t")), _resource("one", mariadb1011.port)
    resource = resource.model_copy(update={"spec": _with_chunks(resource.spec, 100)})
    connections = "SELECT 1 FROM information_schema.processlist WHERE user = 'cdc'"
    with source.planning(resource, account) as splits:
        for _ in range(2):
            found = list(splits(table, None))
            assert (found[0].start, found[-1].end) == (None, None)
            assert len(found) >= 8
        left = splits(table, None)
        next(left)
        assert len(mariadb1011.query(connections)) == 1
    until(lambda: not mariadb1011.query(connections), "the end of the plans' connections")


def _with_chunks(spec: Spec, rows: int) -> Spec:
    return spec.model_copy(update={"snapshot": spec.snapshot.model_copy(update={"chunk_size": rows})})


@pytest.mark.parametrize("way", [*_STALLING, hostile.endless_packets, hostile.endless_rows, hostile.one_endless_value])
def test_every_preflight_ends(way: Way, account: Path) -> None:
    source = ClusterSource(bounds=SourceBounds(preflight_seconds=1.0))
    with Hostile(way).listening() as port:
        try:
            errors = source.preflight(_resource("evil", port, tls=_tls(way).mode), account).result.errors
        except CdcError as error:
            errors = (error,)
    assert {e.reason for e in errors} == {Reason.SOURCE_UNREACHABLE}
    assert question.LOGIN_SECONDS > 1


# ---- memory


def test_what_a_question_holds_is_taken_and_given_back(mariadb1011: Server) -> None:
    """Memory for an answer is taken as long as it is read, for what is kept until the end."""
    taken = [0]

    def take(size: int) -> bool:
        taken.append(size)
        return size < 12 * 2**20

    many = "information_schema.COLLATIONS"
    with Question(take=take) as asked, connect(replace(source_of(mariadb1011), question=asked)) as real:
        fetch(real, f"SELECT 1 FROM {many} a, {many} b LIMIT 20000")
        assert 3 * 2**20 < max(taken) < 6 * 2**20
        fetch(real, "SELECT 1")
        assert taken[-1] == 0
        assert asked.keep(8 * 2**20)
        fetch(real, "SELECT 1")
        assert taken[-1] == 8 * 2**20
        with pytest.raises(CdcError, match="has memory for") as caught:
            fetch(real, f"SELECT 1 FROM {many} a, {many} b LIMIT 60000")
    assert caught.value.reason is Reason.SOURCE_UNREACHABLE


def test_a_sync_of_too_many_tables_names_the_bound_and_the_field(
    mariadb1011: Server, fresh_database: FreshDatabase, account: Path
) -> None:
    """Its source was reached, and is not what is wrong."""
    database = fresh_database(mariadb1011)
    columns = ", ".join(f"c{n} TINYINT" for n in range(900))
    mariadb1011.run(
        f"CREATE TABLE t0 (id INT PRIMARY KEY, {columns})",
        *(f"CREATE TABLE t{n} LIKE t0" for n in (1, 2, 3)),
        db=database,
    )
    source = ClusterSource(bounds=SourceBounds(answers=RoomBounds(total=2**20, own=0, namespaces=1)))
    (error,) = _honest(source, mariadb1011, database, account, "good").result.errors
    assert error.reason is Reason.SPEC_INVALID
    assert "more tables than the operator has memory for" in error.found
    assert error.needed.startswith("at most 1.0 MiB for a namespace")
    assert "spec.tables.include" in error.remedy


def test_one_namespaces_long_answers_leave_memory_to_others(
    mariadb1011: Server, fresh_database: FreshDatabase, account: Path
) -> None:
    """Each holds what it was sent as long as its server likes: two at a time beyond their own."""
    answers = RoomBounds(total=24 * 2**20, own=2**20, namespaces=8)
    database, source = fresh_database(mariadb1011), ClusterSource(bounds=SourceBounds(answers=answers))
    mariadb1011.run("CREATE TABLE t (id INT PRIMARY KEY)", db=database)
    server = Hostile(hostile.rows_then_silence)
    with server.listening() as port, _looking(source, _resource("evil", port), _folders(account, 4)) as ends:
        until(lambda: len(ends) >= 2, "those for which there is no memory end")
        found = _honest(source, mariadb1011, database, account, "good")
        assert [t.name for t in found.result.tables] == [f"{database}.t"]
    assert sum("memory" in e.message for e in ends) >= 2
    assert source._answers.held("evil") == 0
