"""Rules R1, R2 and R6 where the source crashes and forgets what its binlog keeps: the copy becomes
what the source is."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from threading import Thread

import pyarrow as pa
import pymysql
import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.positions.position import LogOffset, Position
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import TableId
from cdcsync_spark.binlog.search.crash_tail import TailLimits
from cdcsync_spark.stream.apply.crash_repair import Piece, Repair
from cdcsync_spark.wire.binlog.facts import FileLeft
from support.deaths import Died, dying_at
from support.dump import log_end, read_log
from support.fixtures import FreshServer
from support.locks import locked
from support.semisync import next_second
from support.servers import Server
from support.stepwise import Stepwise
from support.sync_process import Gate, Sync

pytestmark = pytest.mark.server

variants = pytest.mark.parametrize(
    "variant",
    [
        "mariadb1011",
        "mysql97_gtid",
        *(pytest.param(v, marks=pytest.mark.long) for v in ("mariadb114", "mysql97_nogtid")),
    ],
)
often = pytest.mark.parametrize("variant", ["mariadb1011", "mysql97_gtid"])


_BINLOG = ("binlog.*", "*.sock*", "*.pid")


@dataclass(frozen=True)
class Memory:
    """What the disk of `server` has as of `take`. After `restore` the server has lost all that it
    did since, but its binlog: as a machine that loses its power does to a server whose redo log is
    in the page cache."""

    server: Server
    folder: Path

    def take(self) -> None:
        self.server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.server.datadir, self.folder, ignore=shutil.ignore_patterns(*_BINLOG))
        self.server.start()

    def restore(self) -> None:
        self.server.kill()
        for path in self.server.datadir.iterdir():
            if not any(path.match(pattern) for pattern in _BINLOG):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for path in self.folder.iterdir():
            path.rename(self.server.datadir / path.name)
        self.server.start()


class Forgetful(Stepwise):
    """On a server that can forget all that it did since `remember`."""

    @property
    def _memory(self) -> Memory:
        return Memory(self.server, self.folder / "kept")

    def remember(self) -> None:
        self._memory.take()

    def crash(self) -> None:
        self._memory.restore()
        assert self.server.query("SELECT COUNT(*) FROM a WHERE id >= 1000 OR v = 'lost'", db=self.database) == [(0,)]


TABLES = (
    "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(40))",
    "CREATE TABLE b (k VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, n INT, v INT, PRIMARY KEY (k, n))",
    "INSERT INTO a VALUES " + ",".join(f"({i},'old')" for i in range(300)),
    "INSERT INTO b VALUES " + ",".join(f"('key{i}',{i},0)" for i in range(50)),
)


@pytest.fixture
def copy(variant: str, fresh_server: FreshServer, tmp_path: Path) -> Forgetful:
    """Tables `a` and `b`, which the source does not forget."""
    server = fresh_server(variant)
    database = server.create_database()
    server.run(
        *TABLES,
        db=database,
    )
    copy = Forgetful(server, database, tmp_path)
    copy.remember()
    return copy


LOST = (
    "INSERT INTO a VALUES (1000,'lost'),(1001,'lost')",
    "UPDATE a SET v = 'lost' WHERE id < 5",
    "DELETE FROM a WHERE id BETWEEN 10 AND 15",
    "UPDATE a SET id = 2000 WHERE id = 20",
    "UPDATE b SET k = 'KEY1' WHERE n = 1",
    "DELETE FROM b WHERE n = 2",
    "INSERT INTO b VALUES ('neu',7,1)",
)


def _follow(copy: Forgetful) -> None:
    assert [table.error for table in copy.follow().values() if table.error] == []


def _same(copy: Forgetful) -> None:
    for name in ("a", "b"):
        assert not copy.difference(name)


def _consistent(copy: Forgetful, name: str) -> bool:
    state = copy.targets[name].last_commit()
    assert state is not None
    return state.consistent


@variants
def test_what_the_source_forgot_is_taken_back(copy: Forgetful) -> None:
    """Rows that were copied and are lost on the source go; the binlog behind the crash wins over
    what was read of it."""
    copy.snapshot("a")
    copy.snapshot("b")
    _follow(copy)
    copy.server.run(*LOST, db=copy.database)
    _follow(copy)
    copy.crash()
    copy.server.run("INSERT INTO a VALUES (1001,'new')", "DELETE FROM a WHERE id = 3", db=copy.database)

    _follow(copy)

    _same(copy)
    assert _consistent(copy, "a")
    position = copy.position("a")
    _follow(copy)
    assert copy.position("a") == position


@variants
def test_what_was_forgotten_before_it_was_followed(copy: Forgetful) -> None:
    """The stream was not connected at the time, and meets the lost transactions and the crash
    together."""
    copy.snapshot("a")
    copy.snapshot("b")
    copy.server.run(*LOST, db=copy.database)
    copy.crash()
    _follow(copy)
    _same(copy)


@often
def test_a_table_that_began_without_a_snapshot_is_repaired(copy: Forgetful) -> None:
    """What it was read up to is a GTID set on MySQL, and what the repair read ends at a place."""
    copy.server.run("CREATE TABLE c (id INT PRIMARY KEY, v INT)", db=copy.database)
    copy.remember()
    copy.begin("c")
    copy.server.run("INSERT INTO c VALUES (1, 1), (2, 2)", db=copy.database)
    _follow(copy)
    copy.crash()
    _follow(copy)
    assert not copy.difference("c")
    assert copy.targets["c"].open_snapshot().scan().read_all().num_rows == 0


@variants
def test_rows_that_a_snapshot_read_and_the_source_forgot(copy: Forgetful) -> None:
    """LOW and HIGH are before the crash, and no stream was."""
    copy.server.run(*LOST, db=copy.database)
    copy.snapshot("a")
    copy.snapshot("b")
    copy.crash()
    _follow(copy)
    _same(copy)


@often
def test_a_table_that_is_locked_is_repaired_later_and_the_others_go_on(copy: Forgetful) -> None:
    copy.snapshot("a")
    copy.snapshot("b")
    copy.server.run(*LOST, db=copy.database)
    _follow(copy)
    copy.crash()
    copy.server.run("INSERT INTO a VALUES (1001,'new')", "UPDATE b SET v = 9 WHERE n = 5", db=copy.database)

    with locked(copy.server, copy.database, ["a"]):
        errors = {name: table.error for name, table in copy.follow().items()}
    assert {name: e.reason for name, e in errors.items() if e is not None} == {
        name: Reason.TABLE_BUSY for name in errors if name.endswith("a")
    }
    assert not copy.difference("b")
    assert copy.difference("a")

    _follow(copy)
    _same(copy)


@variants
def test_an_idle_source_that_crashed_and_was_restarted_since(copy: Forgetful) -> None:
    """No transaction is missing by GTIDs, so the server begins its dump behind the crash."""
    copy.snapshot("a")
    copy.snapshot("b")
    copy.server.run(*LOST, db=copy.database)
    _follow(copy)
    copy.crash()
    copy.server.run("FLUSH LOGS")
    copy.server.restart()
    _follow(copy)
    _same(copy)


@pytest.mark.parametrize(
    ("variant", "gate"),
    [
        ("mariadb1011", "crash-tail-read"),
        ("mysql97_gtid", "crash-repaired"),
        ("mariadb1011", "table-applied"),
        pytest.param("mysql97_gtid", "crash-tail-read", marks=pytest.mark.long),
        pytest.param("mariadb1011", "crash-repaired", marks=pytest.mark.long),
        pytest.param("mysql97_gtid", "table-applied", marks=pytest.mark.long),
    ],
)
def test_a_repair_that_died_is_begun_again(copy: Forgetful, gate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    copy.snapshot("a")
    copy.snapshot("b")
    copy.server.run(*LOST, db=copy.database)
    _follow(copy)
    copy.crash()
    copy.server.run("UPDATE a SET v = 'new' WHERE id = 4", "UPDATE b SET v = 9", db=copy.database)

    with dying_at(gate), pytest.raises(Died):
        _follow(copy)
    _follow(copy)

    _same(copy)


@variants
def test_an_xa_transaction_that_was_prepared_before_the_tail(copy: Forgetful) -> None:
    """Its rows are in the binlog at XA PREPARE; what the server makes of its commit is what the
    copy has."""
    copy.tail_limits = TailLimits(seconds=0, size=0, step=0)
    copy.server.run(
        "XA START 'x'", "UPDATE a SET v = 'xa' WHERE id = 7", "XA END 'x'", "XA PREPARE 'x'", db=copy.database
    )
    copy.remember()
    copy.snapshot("a")
    copy.snapshot("b")
    next_second()
    next_second()
    next_second()
    copy.server.run("XA COMMIT 'x'", "UPDATE a SET v = 'lost' WHERE id = 8", db=copy.database)
    _follow(copy)
    copy.crash()
    _follow(copy)
    _same(copy)


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("variant", ["mariadb1011", "mysql97_gtid"])
@pytest.mark.parametrize("gate", ["crash-tail-read", "crash-repaired"])
def test_a_driver_that_is_killed_while_it_repairs(
    variant: str, gate: str, fresh_server: FreshServer, tmp_path: Path
) -> None:
    """Kills the processes of a run, under a live stream; `verify` compares both sides in the
    end."""
    server = fresh_server(variant)
    database = server.create_database()
    server.run(*TABLES, db=database)
    with Sync(server, [rf"{database}\..*"], tmp_path) as sync:
        sync.run_to_completion()
        memory = Memory(server, tmp_path / "kept")
        memory.take()
        sync.start("forever", Gate(gate))
        sync.wait_phase("Streaming")
        server.run(*LOST, db=database)
        sync.wait_until(lambda: 2000 in sync.target(f"{database}.a")["id"].to_pylist(), "the lost rows are copied")
        memory.restore()
        sync.wait_fired()
        server.run("UPDATE a SET v = 'new' WHERE id = 4", db=database)
        sync.terminate()
        sync.run_to_completion()
        found = sync.command("verify")
        assert found.returncode == 0, found.stdout + found.stderr
        assert 2000 not in sync.target(f"{database}.a")["id"].to_pylist()


def _write_at_random(server: Server, database: str, seed: int) -> None:
    """Until the server is gone."""
    random = Random(seed)
    with suppress(pymysql.MySQLError), server.connect(db=database) as connection, connection.cursor() as cursor:
        while True:
            key = random.randrange(400)
            statement = random.choice(("REPLACE INTO a VALUES (%s, %s)", "DELETE FROM a WHERE id = %s OR v = %s"))
            cursor.execute(statement, (key, f"{seed} {random.random()}"))


class Credulous(Stepwise):
    """Believes the binlog after a crash."""

    def repair(self) -> Repair:
        class Nothing:
            def keys(self, left: FileLeft, tables: Mapping[TableId, Capture]) -> Mapping[TableId, pa.Table | CdcError]:
                return {}

            def passed(self, before: Position, place: LogOffset) -> Position:
                raise AssertionError("nothing is repaired")

            def pieces(self, table: Capture, keys: pa.Table, passed: Position) -> Iterator[Piece]:
                raise AssertionError("nothing is repaired")

        return Nothing()


@pytest.mark.long
@variants
def test_many_crashes_under_fire(variant: str, fresh_server: FreshServer, tmp_path: Path) -> None:
    """Loses what a killed server really forgets."""
    server = fresh_server(variant, innodb_flush_log_at_trx_commit=0)
    server.run("SET GLOBAL innodb_flush_log_at_trx_commit = 1")  # tables and accounts are not forgotten
    database = server.create_database()
    server.run(*TABLES, db=database)
    (tmp_path / "credulous").mkdir()
    copy, credulous = Stepwise(server, database, tmp_path), Credulous(server, database, tmp_path / "credulous")
    copy.snapshot("a")
    copy.snapshot("b")
    credulous.snapshot("a")
    server.run("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
    for number in range(6):
        writers = [Thread(target=_write_at_random, args=(server, database, 10 * number + i)) for i in range(4)]
        for writer in writers:
            writer.start()
        next_second()
        _follow(copy)
        server.kill()
        for writer in writers:
            writer.join()
        server.start()
        _follow(copy)
        _same(copy)
    _follow(credulous)
    assert credulous.difference("a"), "the crashes lost nothing"


@often
def test_many_keys_are_repaired_in_pieces(copy: Forgetful, monkeypatch: pytest.MonkeyPatch) -> None:
    """A death between two pieces leaves a table that is not consistent and has not passed the end
    of the file."""
    copy.piece_keys = 40
    copy.snapshot("a")
    copy.snapshot("b")
    copy.server.run("UPDATE a SET v = 'lost'", db=copy.database)
    _follow(copy)
    before = copy.position("a")
    copy.crash()

    with dying_at("crash-repaired", 3), pytest.raises(Died):
        _follow(copy)
    assert copy.position("a") == before
    assert not _consistent(copy, "a")
    _follow(copy)
    _same(copy)


@variants
def test_ends_that_are_no_crash(copy: Forgetful) -> None:
    """A rotation and a shutdown end a file by an event."""
    start = log_end(copy.server)
    copy.server.run("FLUSH LOGS")
    copy.server.restart()
    assert not [f for f in read_log(copy.server, start) if isinstance(f, FileLeft)]
    copy.server.kill()
    copy.server.start()
    left = [f for f in read_log(copy.server, start) if isinstance(f, FileLeft)]
    assert [LogOffset(f.next, 4).number - LogOffset(f.file, 4).number for f in left] == [1]


@pytest.mark.parametrize("variant", ["mysql97_gtid"])
def test_a_file_that_was_purged_before_its_end_was_seen(copy: Forgetful) -> None:
    """No transaction is missing, and what the crash took back cannot be known."""
    copy.snapshot("a")
    copy.snapshot("b")
    copy.server.run(*LOST, db=copy.database)
    _follow(copy)
    copy.crash()
    copy.server.purge_binlogs()
    copy.server.run("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
    with pytest.raises(CdcError) as lost:
        copy.follow()
    assert lost.value.reason is Reason.POSITION_LOST
