"""Content that begins where `spec.start` says, without a snapshot: the position that each kind of
start finds, what is refused, and a history that begins there, whatever dies."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.positions.position import GtidPosition, Position
from cdcsync_core.resource.spec import API_VERSION, KIND, CdcSync
from cdcsync_core.resource.start_spec import Start
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.checks import Check, Level
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_mysql.sessions.connection import Source
from cdcsync_operator.reconcile.start_calls import check_start
from cdcsync_spark.binlog.dump.client import BinlogClient
from cdcsync_spark.binlog.search.start_place import StartPlace
from cdcsync_spark.wire.binlog.facts import RowsEvent
from cdcsync_spark.wire.binlog.parser import EventParser
from cdcsync_spark.wire.binlog.rows import batches
from support.fixtures import FreshDatabase, usually_on
from support.semisync import until
from support.servers import Server
from support.source import source_of
from support.sync_process import Gate, Sync

_WAITING = "SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE = 'User lock' AND INFO"

HISTORY = {"sink": {"delta": {"mode": "history"}}}


class Place(NamedTuple):
    """What the server says of the end of its binlog."""

    file: str
    offset: int
    gtids: str


def _end(server: Server) -> Place:
    """After the last transaction, which may be of some other session: none writes."""
    if server.flavor == "mariadb":
        file, offset, *_ = server.query("SHOW MASTER STATUS")[0]
        return Place(file, int(offset), server.query("SELECT @@gtid_binlog_pos")[0][0])
    file, offset, _, _, gtids = server.query("SHOW BINARY LOG STATUS")[0]
    return Place(file, int(offset), gtids.replace("\n", ""))


def _ids_from(source: Source, table: TableId, start: Start) -> tuple[Position, list[object]]:
    """The ids of the rows behind the position that is found."""
    with open_session(source) as session:
        facts = session.facts
        definition = read_table(session.proved(facts.lineage), table)
    position = StartPlace(source, facts).find(start)
    with open_session(source) as session:
        client = BinlogClient(
            session.proved(facts.lineage, position),
            flavor=facts.flavor,
            start=position,
            replica_id=0,
            heartbeat_seconds=10,
            nonblocking=True,
        )
        file = "" if isinstance(position, GtidPosition) else position.at.file
        parser = EventParser(facts.flavor, file=file, is_wanted=lambda mapped: mapped == table)
        with client:
            read = [fact for event in client.events() for fact in parser.feed(event)]
    events = [fact for fact in read if isinstance(fact, RowsEvent)]
    rows = [b.batch.column("id").to_pylist() for b in batches(definition, events, [0] * len(events))]
    return position, [row for batch in rows for row in batch]


def _seconds(server: Server) -> str:
    [(now,)] = server.query("SELECT UNIX_TIMESTAMP(NOW(6))")
    return datetime.fromtimestamp(float(now), UTC).isoformat().replace("+00:00", "Z")


@usually_on("mariadb1011", "mysql97_gtid", "mysql97_nogtid")
def test_each_start_is_found(any_server: Server, fresh_database: FreshDatabase) -> None:
    """Everything behind it comes, and nothing before it, across files."""
    server, database = any_server, fresh_database(any_server)
    server.run("CREATE TABLE t (id INT PRIMARY KEY)", db=database)
    places: list[Place] = []
    for number in range(4):
        places.append(_end(server))
        server.run(f"INSERT INTO t VALUES ({number})", db=database)
        if number % 2:
            server.run("FLUSH BINARY LOGS")
    places.append(_end(server))
    source, table = source_of(server), TableId(database, "t")
    for number, place in enumerate(places):
        rest = list(range(number, 4))
        _, ids = _ids_from(source, table, Start(**{"from": "position", "file": place.file, "offset": place.offset}))
        assert ids == rest
        if place.gtids:
            _, ids = _ids_from(source, table, Start(**{"from": "gtid", "gtidSet": place.gtids}))
            assert ids == rest
    for number, place in ((4, places[4]), (2, places[2])):
        position, ids = _ids_from(source, table, Start(**{"from": "position", "file": place.file, "offset": 4}))
        assert ids == list(range(number, 4))
        assert position.binlog is not None


@usually_on("mariadb1011", "mysql97_gtid")
def test_a_start_at_a_time(any_server: Server, fresh_database: FreshDatabase) -> None:
    """The first transaction that was committed then or later, by the seconds of its events."""
    server, database = any_server, fresh_database(any_server)
    server.run("CREATE TABLE t (id INT PRIMARY KEY)", "FLUSH BINARY LOGS", "DO SLEEP(2.1)", db=database)
    server.run("INSERT INTO t VALUES (1)", "DO SLEEP(1.1)", db=database)
    moment = _seconds(server)
    server.run("FLUSH BINARY LOGS", "DO SLEEP(1.1)", "INSERT INTO t VALUES (2)", db=database)
    server.run("INSERT INTO t VALUES (3)", db=database)
    source, table = source_of(server), TableId(database, "t")
    assert _ids_from(source, table, Start(**{"from": "timestamp", "timestamp": moment}))[1] == [2, 3]
    for asked, words in (("2000-01-01T00:00:00Z", "its oldest file"), ("2999-01-01T00:00:00Z", "has not come")):
        assert words in _refusal(source, {"from": "timestamp", "timestamp": asked})


@pytest.mark.parametrize("variant", ["mariadb1011", "mysql97_gtid"])
def test_a_start_at_a_time_does_not_rely_on_when_a_file_was_begun(fresh_server: Any, variant: str) -> None:
    """A file has the second in which the statement began that rotated the binlog by its commit, and
    a session may set another one."""
    server: Server = fresh_server(variant)
    database, table = server.create_database(), "CREATE TABLE t (id INT PRIMARY KEY, v LONGTEXT)"
    server.run(table, "INSERT INTO t VALUES (1, '')", "SET GLOBAL max_binlog_size = 65536", db=database)
    with ThreadPoolExecutor(1) as pool:
        rotates = "INSERT INTO t SELECT 4, REPEAT('x', 200000) FROM (SELECT GET_LOCK('held', 300)) AS l"
        with server.connect() as held, held.cursor() as cursor:
            cursor.execute("SELECT GET_LOCK('held', 0)")
            statement = pool.submit(server.run, rotates, db=database)
            until(lambda: bool(server.query(f"{_WAITING} LIKE '{rotates[:12]}%'")), "the statement to wait")
            server.run("DO SLEEP(2.1)")
            moment = _seconds(server)
            server.run("DO SLEEP(1.1)", "INSERT INTO t VALUES (2, '')", db=database)
            server.run("SET TIMESTAMP = 1700000000", "FLUSH BINARY LOGS")
            server.run("INSERT INTO t VALUES (3, '')", "FLUSH BINARY LOGS", db=database)
        statement.result(300)
    server.run("INSERT INTO t VALUES (5, '')", db=database)
    start = Start(**{"from": "timestamp", "timestamp": moment})
    assert _ids_from(source_of(server), TableId(database, "t"), start)[1] == [2, 3, 4, 5]


@usually_on("mariadb1011", "mysql97_gtid", "mysql97_nogtid")
def test_what_is_no_start_is_refused(any_server: Server, fresh_database: FreshDatabase) -> None:
    server, database = any_server, fresh_database(any_server)
    server.run("CREATE TABLE t (id INT PRIMARY KEY)", db=database)
    before = _end(server)
    server.run("INSERT INTO t VALUES (1), (2)", db=database)
    after, source = _end(server), source_of(server)
    position = {"from": "position", "file": before.file}
    for offset in (before.offset + 1, after.offset - 1, after.offset - 31):
        words = _refusal(source, position | {"offset": offset})
        assert f"between {before.file}:{before.offset} and {after.file}:{after.offset}" in words
    assert "behind the binlog's end" in _refusal(source, position | {"offset": after.offset + 1})
    assert "(the oldest)" in _refusal(source, position | {"file": "other.000001", "offset": 4})
    never = "0-1-999999999" if server.flavor == "mariadb" else "11111111-2222-3333-4444-555555555555:1-5"
    assert "start.gtidSet" in _refusal(source, {"from": "gtid", "gtidSet": never}) or not before.gtids


def _refusal(source: Source, start: dict[str, Any]) -> str:
    with open_session(source) as session:
        facts = session.facts
    with pytest.raises(CdcError) as refused:
        StartPlace(source, facts).find(Start(**start))
    assert refused.value.reason is Reason.START_UNAVAILABLE
    return refused.value.message


def test_a_start_before_what_was_purged(fresh_server: Any, tmp_path: Path) -> None:
    """Refused with the oldest that is left."""
    server: Server = fresh_server("mysql97_gtid")
    database = server.create_database()
    server.run("CREATE TABLE t (id INT PRIMARY KEY)", db=database)
    before = _end(server)
    server.run("INSERT INTO t VALUES (1)", "FLUSH BINARY LOGS", db=database)
    oldest = _end(server).file
    server.run(f"PURGE BINARY LOGS TO '{oldest}'")
    source = source_of(server)
    words = _refusal(source, {"from": "gtid", "gtidSet": before.gtids})
    assert "has purged" in words
    assert "the oldest start that the binlog holds" in words
    assert oldest in _refusal(source, {"from": "position", "file": before.file, "offset": before.offset})

    (refused,) = _checked(server, tmp_path, {"from": "gtid", "gtidSet": before.gtids})
    assert (refused.level, refused.reason) == (Level.FAIL, Reason.START_UNAVAILABLE)
    assert "the oldest start that the binlog holds" in refused.needed
    (held,) = _checked(server, tmp_path, {"from": "position", "file": oldest, "offset": 4})
    assert held.level is Level.OK
    assert "the binlog holds it" in held.found
    assert _checked(server, tmp_path, {"from": "latest"}) == []


def _checked(server: Server, secrets: Path, start: dict[str, Any]) -> list[Check]:
    """As `cdcsync check` shows it."""
    (secrets / "login").mkdir(exist_ok=True)
    for key, value in (("username", "root"), ("password", "")):
        (secrets / "login" / key).write_text(value)
    spec = {
        "source": {"host": server.host, "port": server.port, "credentialsSecretRef": {"name": "login"}},
        "tables": {"include": ["a.b"]},
        "sink": {"delta": {"path": "/lake", "mode": "history"}},
        "start": start,
    }
    about = {"name": "s", "namespace": "test"}
    resource = {"apiVersion": API_VERSION, "kind": KIND, "metadata": about, "spec": spec}
    return check_start(CdcSync.model_validate(resource), secrets)


def _rows(sync: Sync, table: str) -> list[tuple[Any, ...]]:
    if not sync.has_version(table):
        return []
    events = sorted(sync.target(table).to_pylist(), key=lambda e: e["_cdc_seq"])
    return [(e["_cdc_op"], e["id"], e["v"]) for e in events]


@pytest.mark.spark
@usually_on()
def test_a_history_begins_without_a_snapshot(any_server: Server, fresh_database: FreshDatabase, tmp_path: Path) -> None:
    """At the position that its first commit has, though all die behind that; it is never called
    consistent. A table with a statement behind the start stops alone, also one that does nothing to
    the columns of now; one that appears later and one that is resnapshotted are read."""
    server, database = any_server, fresh_database(any_server)
    for name in ("t", "altered", "again", "idempotent"):
        server.run(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES (1, 1)", db=database)
    place = _end(server)
    server.run("UPDATE t SET v = 2", "ALTER TABLE altered ADD COLUMN w INT", db=database)
    if server.flavor == "mariadb":
        clauses = "DROP COLUMN IF EXISTS v", "ADD COLUMN IF NOT EXISTS w INT"
        server.run(*(f"ALTER TABLE idempotent {clause}" for clause in clauses), db=database)
    asked = {"from": "position", "file": place.file, "offset": place.offset}
    spec = HISTORY | {"start": asked, "resnapshot": [{"table": f"{database}.again", "nonce": 1}]}
    with Sync(server, [rf"{database}\..*"], tmp_path / "sync", spec=spec) as sync:
        sync.start("forever", Gate("table-begun"))
        sync.wait_fired()
        sync.kill_all()
        server.run("INSERT INTO t VALUES (3, 3)", db=database)
        sync.start("forever")
        sync.wait_until(lambda: len(_rows(sync, f"{database}.t")) == 3, "the changes")
        assert _rows(sync, f"{database}.t") == [("-U", 1, 1), ("+U", 1, 2), ("+I", 3, 3)]
        status = sync.wait_for(lambda s: _table(s, f"{database}.again")["phase"] == "Streaming")
        stopped = _table(status, f"{database}.altered")
        assert (stopped["phase"], stopped["reason"]) == ("Failed", "StartUnavailable")
        assert "ADD COLUMN w" in stopped["message"]
        if server.flavor == "mariadb":
            idempotent = _table(status, f"{database}.idempotent")
            assert (idempotent["phase"], idempotent["reason"]) == ("Failed", "StartUnavailable")
        sync.write_manifest(start={"from": "latest", "file": None, "offset": None})
        sync.wait_for(lambda s: _table(s, f"{database}.altered")["phase"] == "Streaming")
        server.run("CREATE TABLE late (id INT PRIMARY KEY, v INT)", "INSERT INTO late VALUES (1, 1)", db=database)
        names = [f"{database}.{name}" for name in ("again", "altered", "late", "t")]
        status = sync.wait_for(lambda s: all(_table(s, name).get("phase") == "Streaming" for name in names))
        assert [_table(status, name)["withoutSnapshot"] for name in names] == [False, True, False, True]
        assert [len(_rows(sync, name)) for name in names] == [1, 0, 1, 3]
        [condition] = [c for c in status["conditions"] if c["type"] == "Consistent"]
        assert (condition["status"], condition["reason"]) == ("False", "WithoutSnapshot")
        assert "without the rows of before" in sync.command("verify", "-o", "json").stdout


def _table(status: dict[str, Any], name: str) -> dict[str, Any]:
    """Empty where it is not there yet."""
    return next((t for t in status["tableStatus"] if t["name"] == name), {})
