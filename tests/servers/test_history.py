"""Rule R6: a position is proven to belong to the binlog that a connection reaches, before anything
is read there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from cdcsync_core.errors import PermanentError, Reason, TransientError
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.positions.mariadb_gtid import MariaDbGtidPos
from cdcsync_core.positions.position import Anchor, FilePosition, GtidPosition, Position
from cdcsync_mysql.positions import watermark
from cdcsync_mysql.positions.history import verify_resumable
from cdcsync_mysql.positions.logfile import file_created_at
from support.fixtures import FreshServer, Syncing
from support.semisync import WAIT_SECONDS, next_second, open_window, until
from support.servers import VARIANTS, Server
from support.source import connected, source_of

_VARIANTS = ["mariadb1011", "mariadb114", "mysql97_gtid", "mysql97_nogtid"]


@pytest.fixture(scope="module", params=_VARIANTS)
def own_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, syncing: Syncing
) -> Iterator[Server]:
    """A server of this module's own, whose log its tests may reset, purge and cut."""
    variant = VARIANTS[request.param]
    server = variant.start(tmp_path_factory.mktemp(variant.name), **syncing[variant.flavor])
    yield server
    server.remove()


@pytest.fixture
def server(own_server: Server) -> Server:
    """A server that has an empty log and an empty table."""
    if not own_server.is_running():
        own_server.start()
    own_server.run("DROP DATABASE IF EXISTS h", "CREATE DATABASE h", "CREATE TABLE h.t (id INT PRIMARY KEY)")
    _reset(own_server)
    return own_server


def _position(server: Server) -> tuple[Lineage, Position]:
    with connected(server) as (_, facts):
        return facts.lineage, watermark.low(source_of(server), facts)


def _verify_resumable(server: Server, lineage: Lineage, position: Position | None, commit_seconds: int = 10) -> None:
    with connected(server) as (connection, facts):
        verify_resumable(connection, facts, lineage, position, commit_seconds)


def _lost(server: Server, lineage: Lineage, position: Position | None) -> str:
    with pytest.raises(PermanentError) as lost:
        _verify_resumable(server, lineage, position)
    assert lost.value.reason is Reason.POSITION_LOST
    assert "spec.resnapshot" in lost.value.remedy
    return lost.value.found


def _reset(server: Server, to: str = "") -> None:
    server.run(("RESET MASTER" if server.flavor == "mariadb" else "RESET BINARY LOGS AND GTIDS") + to)


def _writes(server: Server, first: int, count: int = 3) -> None:
    server.run(*(f"INSERT INTO h.t VALUES ({n})" for n in range(first, first + count)))


def test_a_binlog_that_goes_on_is_the_same(server: Server) -> None:
    """The proof raises where it fails."""
    lineage, position = _position(server)
    _writes(server, 1)
    _verify_resumable(server, lineage, position)
    server.run("FLUSH BINARY LOGS")
    _writes(server, 11)
    server.restart()
    _verify_resumable(server, lineage, position)
    server.kill()
    server.start()
    _verify_resumable(server, lineage, position)
    _verify_resumable(server, lineage, None)


def test_a_reset_is_noticed_though_names_sizes_and_numbers_come_again(server: Server) -> None:
    """After RESET the same three inserts, of other rows, give the same file, the same offset and
    the same GTID."""
    _writes(server, 100)
    lineage, position = _position(server)
    next_second()
    _reset(server)
    _writes(server, 200)
    _, again = _position(server)
    if isinstance(position, FilePosition):
        assert isinstance(again, FilePosition)
        assert (again.at, again.gtid_pos) == (position.at, position.gtid_pos)
    else:
        assert isinstance(again, GtidPosition)
        assert again.gtids == position.gtids
    assert "was begun at" in _lost(server, lineage, position)


def test_a_reset_to_an_emptier_binlog_is_noticed(server: Server) -> None:
    _writes(server, 100)
    lineage, position = _position(server)
    next_second()
    _reset(server)
    _writes(server, 300, count=2)
    assert _lost(server, lineage, position)


@pytest.mark.parametrize("first_file", [1, 100])
def test_a_reset_stays_noticed_without_the_file_that_shows_it(server: Server, first_file: int) -> None:
    """Other transactions have the same GTIDs, and the file of the position is no longer listed: it
    was purged since, or the numbers of files went on (`RESET ... TO 100`)."""
    _writes(server, 100)
    lineage, position = _position(server)
    next_second()
    _reset(server, f" TO {first_file}")
    _writes(server, 200)
    server.run("FLUSH BINARY LOGS")
    server.purge_binlogs()
    assert "binlog files" in _lost(server, lineage, position)
    _writes(server, 300)
    assert "binlog files" in _lost(server, lineage, position)


def test_purged_files_are_noticed(server: Server) -> None:
    lineage, position = _position(server)
    _writes(server, 1)
    server.run("FLUSH BINARY LOGS")
    server.purge_binlogs()
    found = _lost(server, lineage, position)
    assert ("gtid_purged" if isinstance(position, GtidPosition) else "binlog files") in found


def test_a_cut_tail_is_noticed(server: Server) -> None:
    """What a crash with sync_binlog=0 leaves: the binlog's last transactions are gone, the engine
    may still have them.

    With GTIDs such transactions are executed and in no file: to a reader that lacks them they are
    purged.
    """
    lineage, before_writes = _position(server)
    file, before = server.binlog_status()
    _writes(server, 1)
    _, position = _position(server)
    lost = before_writes if isinstance(position, GtidPosition) else position
    server.kill()
    with (server.binlog_dir / file).open("r+b") as binlog:
        binlog.truncate(before)
    server.start()
    assert ("gtid_purged" if isinstance(lost, GtidPosition) else "bytes") in _lost(server, lineage, lost)


def test_a_position_within_an_event_is_no_position(mariadb1011: Server) -> None:
    mariadb1011.run("FLUSH BINARY LOGS")
    lineage, position = _position(mariadb1011)
    assert isinstance(position, FilePosition)
    mariadb1011.run("FLUSH BINARY LOGS")
    inside = replace(position, at=replace(position.at, offset=position.at.offset - 1))
    assert "no event ends" in _lost(mariadb1011, lineage, inside)


def test_another_gtid_position_at_the_same_place(any_mariadb: Server) -> None:
    any_mariadb.run("FLUSH BINARY LOGS")  # an event of more than 16 MiB in the file would be in the way
    lineage, position = _position(any_mariadb)
    assert isinstance(position, FilePosition)
    _verify_resumable(any_mariadb, lineage, replace(position, gtid_pos=MariaDbGtidPos()))
    assert "GTID position" in _lost(any_mariadb, lineage, replace(position, gtid_pos=MariaDbGtidPos.parse("0-99-1")))


def test_gtid_positions_are_compared_as_sets(mariadb1011: Server) -> None:
    mariadb1011.run("SET SESSION gtid_domain_id = 7", "CREATE DATABASE IF NOT EXISTS marks", "DROP DATABASE marks")
    mariadb1011.run("CREATE DATABASE IF NOT EXISTS marks", "DROP DATABASE marks")
    lineage, position = _position(mariadb1011)
    assert isinstance(position, FilePosition)
    parts = position.gtid_pos.gtids
    assert len(parts) > 1
    _verify_resumable(mariadb1011, lineage, replace(position, gtid_pos=MariaDbGtidPos(tuple(reversed(parts)))))


def test_another_server(mysql97_gtid: Server, mysql97_nogtid: Server, mariadb1011: Server) -> None:
    lineage, position = _position(mysql97_gtid)
    for other in (mysql97_nogtid, mariadb1011):
        assert "log is" in _lost(other, lineage, position)
        assert "log is" in _lost(other, lineage, None)


def test_transactions_that_the_server_never_had(mysql97_gtid: Server) -> None:
    lineage, position = _position(mysql97_gtid)
    assert isinstance(position, GtidPosition)
    uuid = lineage.newest.removeprefix("mysql:")
    ahead = GtidPosition(position.gtids.union(GtidSet.parse(f"{uuid}:1-1000000")))
    assert "gtid_executed" in _lost(mysql97_gtid, lineage, ahead)


def test_a_transaction_on_its_way_is_waited_for(fresh_server: FreshServer) -> None:
    """A reader has a transaction before the engine commits it: that is no lost position."""
    server = fresh_server("mysql97_gtid")
    lineage, _ = _position(server)
    with open_window(server) as window, ThreadPoolExecutor(1) as pool:
        uuid = lineage.newest.removeprefix("mysql:")
        executed = GtidSet.parse(str(server.query("SELECT @@GLOBAL.gtid_executed")[0][0]))
        last = next(iter(executed.items()))[1][-1][1]
        ahead = GtidPosition(GtidSet.parse(f"{uuid}:1-{last + 1}"))
        proof = pool.submit(_verify_resumable, server, lineage, ahead)
        waits = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT WAIT_FOR_EXECUTED%'"
        until(lambda: bool(server.query(waits)[0][0]), "the proof to wait")
        window.close()
        proof.result(WAIT_SECONDS)


def test_a_transaction_that_waits_for_a_replica_is_not_lost(fresh_server: FreshServer) -> None:
    """However long that takes: the binlog that was read is there. A shorter one has lost it."""
    server = fresh_server("mysql97_gtid")
    lineage, _ = _position(server)
    with open_window(server) as window:
        executed = GtidSet.parse(str(server.query("SELECT @@GLOBAL.gtid_executed")[0][0]))
        last = next(iter(executed.items()))[1][-1][1]
        at = window.naive()
        created = file_created_at(source_of(server), at.file)
        ahead = GtidPosition(
            GtidSet.parse(f"{lineage.newest.removeprefix('mysql:')}:1-{last + 1}"), anchor=Anchor(at, created)
        )
        for seconds in (1, 0):
            with pytest.raises(TransientError) as waits:
                _verify_resumable(server, lineage, ahead, commit_seconds=seconds)
            assert waits.value.reason is Reason.SOURCE_UNREACHABLE
            assert "semi-synchronous" in waits.value.remedy
        cut = replace(ahead, anchor=Anchor(replace(at, offset=at.offset + 1), created))
        assert "bytes" in _lost(server, lineage, cut)
        another = replace(ahead, anchor=Anchor(at, created - 1))
        assert "was begun at" in _lost(server, lineage, another)
        window.close()
        _verify_resumable(server, lineage, ahead)
