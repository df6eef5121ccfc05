"""A source with several hosts: which one is taken, and when it is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.resource.spec import API_VERSION, KIND
from cdcsync_core.runs.run import ExitCode, RunConfig, RunKind, TableAssignment
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.checks import Level
from cdcsync_mysql.readiness.expected_failover import expected_failovers
from cdcsync_mysql.readiness.hosts import check_hosts
from cdcsync_mysql.readiness.left_out import GLOBAL_FILTERS, read_left_out
from cdcsync_mysql.readiness.proof import SourceMoved, open_session
from cdcsync_mysql.server import read_facts
from cdcsync_mysql.sessions import hosts
from cdcsync_mysql.sessions.connection import Source, connect
from cdcsync_mysql.sessions.protocol import read_timeout_of
from cdcsync_mysql.sessions.pymysql_adapter import SourceConnection
from cdcsync_spark.app.driver import complete
from cdcsync_spark.binlog.dump.dump import end_of_ours
from cdcsync_spark.engine.process_engine import ProcessEngine
from cdcsync_spark.run.context import RunContext, open_context
from cdcsync_spark.run.progress import Reporter
from cdcsync_spark.snapshot.host_to_read import choose_host_to_read
from cdcsync_spark.stream.host_choice import choose_host
from cdcsync_spark.stream.run import run_stream
from support.relay import Relay, relays_at_one_port
from support.replicas import OPTIONS, await_replica, promote, replicate
from support.servers import VARIANTS, Server
from support.stepwise import Stepwise
from support.sync_process import GRANTS, Sync
from support.table_status import entry

_SECONDS = 180.0
#: those of `Stepwise`
_ACCOUNT, _PASSWORD = "stepwise", "only for tests"


@pytest.fixture(params=OPTIONS)
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """A primary and its replica."""
    variant = request.param
    old = VARIANTS[variant].start(tmp_path / "old", server_id=101, **OPTIONS[variant])
    try:
        new = VARIANTS[variant].start(tmp_path / "new", server_id=102, **OPTIONS[variant])
        try:
            replicate(old, new)
            yield old, new
        finally:
            new.remove()
    finally:
        old.remove()


def _copied(old: Server, new: Server, folder: Path) -> Stepwise:
    """A table of two rows and one more that the stream read; the replica has all of it."""
    old.run("CREATE DATABASE h", "CREATE TABLE h.t (id INT PRIMARY KEY)", "INSERT INTO h.t VALUES (1), (2)")
    step = Stepwise(old, "h", folder)
    step.snapshot("t")
    old.run("INSERT INTO h.t VALUES (3)")
    step.follow()
    await_replica(old, new)
    new.create_user(_ACCOUNT, _PASSWORD)
    return step


def _taken(source: Source) -> str:
    with connect(source) as connection:
        return read_facts(connection).log


def test_which_host_is_taken(pair: tuple[Server, Server], tmp_path: Path) -> None:
    old, new = pair
    step = _copied(old, new, tmp_path)
    _passes_over_what_was_demoted(old, new, step)
    old.run("SET GLOBAL read_only = OFF")
    _waits_for_what_is_followed(old, new, step)
    _passes_over_what_is_stalled(old, new, step)
    _catches_up_where_its_tables_are(old, new, step)
    _passes_over_what_lacks_ours(old, new, step)
    _expects_what_a_failover_would_do(old, new, step)


def _passes_over_what_was_demoted(old: Server, new: Server, step: Stepwise) -> None:
    """The host that is followed comes first; a reader leaves it when it is demoted and another is
    there."""
    with relays_at_one_port((old.host, old.port), (new.host, new.port)) as (first, second):
        source = replace(step.source, host="127.0.0.1", port=first.port, others=("127.0.0.2",))
        logs = [_taken(source.of_hosts(host)) for host in source.hosts]
        assert _taken(source) == logs[0]
        assert _taken(replace(source, followed=logs[1])) == logs[1]

        alone, others, position = source.of_hosts("127.0.0.1"), source.without("127.0.0.1"), step.position("t")
        end_of_ours(alone, step.facts.lineage, position, others=others)
        old.run("SET GLOBAL read_only = ON")
        assert _taken(replace(source, followed=logs[0])) == logs[1]
        with pytest.raises(SourceMoved, match="read-only and is no replica"):
            end_of_ours(alone, step.facts.lineage, position, others=others)
        with connect(source) as connection:
            used, other = check_hosts(source, connection, read_facts(connection))
        assert (used.level, other.level) == (Level.OK, Level.OK)
        assert "127.0.0.2 is used" in used.found
        assert "read-only and no replica" in other.found

        second.refuse = True
        assert _taken(source) == logs[0]
        end_of_ours(alone, step.facts.lineage, position, others=others)
        with connect(source) as connection:
            checks = check_hosts(source, connection, read_facts(connection))
        assert [c.level for c in checks] == [Level.OK, Level.WARN]
        first.refuse = True
        with pytest.raises(CdcError) as refused:
            _taken(source)
        assert refused.value.reason is Reason.SOURCE_UNREACHABLE
        assert all(f"{host}:{first.port}" in refused.value.found for host in source.hosts)


def test_a_replica_that_leaves_out_changes_is_not_taken(pair: tuple[Server, Server], tmp_path: Path) -> None:
    """Its binlog has the GTID and the commit time of what a filter left out. A filter that names
    other tables does no harm; one of the replica that was promoted still shows."""
    old, new = pair
    step = _copied(old, new, tmp_path)
    with relays_at_one_port((old.host, old.port), (new.host, new.port)) as (first, _):
        source = replace(step.source, host="127.0.0.1", port=first.port, others=("127.0.0.2",))
        hosts, log = list(source.hosts), step.facts.log
        _ignore(new, "h.other")
        assert _expected(source, step) == (None, "")
        _ignore(new, "h.t")
        assert "replicate_ignore_table=h.t" in _expected(source, step)[1]
        old.run("UPDATE h.t SET id = 4 WHERE id = 3", "INSERT INTO h.t VALUES (5)")
        step.follow()
        await_replica(old, new)
        first.refuse = True
        step.reach(new)
        for promoted in (False, True):
            if promoted:
                promote(new)
            with pytest.raises(CdcError) as refused:
                choose_host(_context(step, first.port, hosts, log))
            assert refused.value.reason is Reason.SOURCE_UNREACHABLE
            assert "127.0.0.2: replicate_ignore_table=h.t" in refused.value.found
            with pytest.raises(CdcError) as refused:
                choose_host_to_read(_context(step, first.port, hosts, log, RunKind.SNAPSHOT))
            assert refused.value.reason is Reason.SOURCE_UNREACHABLE
            assert "127.0.0.2: replicate_ignore_table=h.t" in refused.value.found
            assert "replicate_ignore_table=h.t" in _unmoved(step)
        if new.flavor == "mysql":
            _shows_filters_by_a_grant(new, step)
        _ignore(new, "h.other")
        mode = "replica_exec_mode" if new.flavor == "mysql" else "slave_exec_mode"
        new.run(f"SET GLOBAL {mode} = 'IDEMPOTENT'")
        assert f"{mode}=IDEMPOTENT" in _unmoved(step)
        new.run(f"SET GLOBAL {mode} = 'STRICT'")
        choose_host_to_read(_context(step, first.port, hosts, log, RunKind.SNAPSHOT))
        context = _context(step, first.port, hosts, log)
        choose_host(context)
        assert context.facts.log == step.facts.log


def _shows_filters_by_a_grant(promoted: Server, step: Stepwise) -> None:
    """The account that docs/source.md begins with; `check` warns without the further one."""
    promoted.create_user("plain", _PASSWORD, ["REPLICATION SLAVE", "REPLICATION CLIENT"])
    promoted.run("GRANT SELECT ON h.* TO plain")
    step.source.username_file.write_text("plain")
    for level, filters in ((Level.WARN, ""), (Level.OK, "replicate_ignore_table=h.t")):
        with connect(step.source) as connection:
            facts = read_facts(connection)
            used, _ = check_hosts(replace(step.source, others=("127.0.0.2",)), connection, facts)
            assert used.level is level
            assert read_left_out(connection, facts).of([TableId("h", "t")]) == filters
        promoted.run(f"GRANT SELECT ON {GLOBAL_FILTERS} TO plain")
    step.source.username_file.write_text(_ACCOUNT)


def _ignore(replica: Server, table: str) -> None:
    """On MySQL of its channels and of those to come, on MariaDB of the default one."""
    word = "REPLICA" if replica.flavor == "mysql" else "SLAVE"
    ignored = f"CHANGE REPLICATION FILTER REPLICATE_IGNORE_TABLE = ({table})"
    replicates = bool(replica.query(f"SHOW {word} STATUS"))
    replica.run(f"STOP {word}", ignored if word == "REPLICA" else f"SET GLOBAL replicate_ignore_table = '{table}'")
    if replicates:
        replica.run(f"START {word}")


def _unmoved(step: Stepwise) -> str:
    with pytest.raises(CdcError) as refused:
        step.move("t")
    assert refused.value.reason is Reason.POSITION_LOST
    return refused.value.found


def _waits_for_what_is_followed(old: Server, new: Server, step: Stepwise) -> None:
    with relays_at_one_port((old.host, old.port), (new.host, new.port)) as (first, _):
        source = replace(step.source, host="127.0.0.1", port=first.port, others=("127.0.0.2",), followed=step.facts.log)
        first.refuse = True
        back = threading.Thread(target=_admit_again, args=(first,))
        back.start()
        with connect(source, patience=_SECONDS) as connection:
            assert read_facts(connection).log == step.facts.log
        back.join()


def _admit_again(relay: Relay) -> None:
    """Once it has refused two connections."""
    deadline = time.monotonic() + _SECONDS
    while relay.refused < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    relay.refuse = False


def _passes_over_what_is_stalled(old: Server, new: Server, step: Stepwise) -> None:
    """A replica whose applier is stopped, although the sync follows it; as far as the account sees
    that."""
    word = "REPLICA" if new.flavor == "mysql" else "SLAVE"
    with relays_at_one_port((new.host, new.port), (old.host, old.port)) as (first, _):
        source = replace(step.source, host="127.0.0.1", port=first.port, others=("127.0.0.2",))
        at_new = _taken(source)
        new.run(f"STOP {word} SQL_THREAD")
        assert _taken(replace(source, followed=at_new)) == step.facts.log
        with connect(source) as connection:
            _, other = check_hosts(source, connection, read_facts(connection))
        assert "does not apply what its source writes" in other.found

        step.source.username_file.write_text("plain")
        for server in (old, new):
            server.create_user("plain", _PASSWORD, ["REPLICATION SLAVE"])
        assert _taken(source) == at_new, "the account does not see it"
        if new.flavor == "mysql":
            new.run("GRANT SELECT ON performance_schema.* TO plain")
            assert _taken(source) == step.facts.log
        step.source.username_file.write_text(_ACCOUNT)
        new.run(f"START {word}")
        assert _taken(source) == at_new


def test_a_host_that_hangs_holds_no_choice(
    mariadb1011: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lets the account in, and answers no question."""
    monkeypatch.setattr(hosts, "ASKED_SECONDS", 1)
    step = Stepwise(mariadb1011, "mysql", tmp_path)
    at = (mariadb1011.host, mariadb1011.port)
    with relays_at_one_port(at, at) as (first, _):
        first.hold_text = b"SHOW GLOBAL VARIABLES"
        source = replace(step.source, host="127.0.0.1", port=first.port, others=("127.0.0.2",))
        with _first_that_answers(source, max_seconds=3600) as connection:
            assert connection.source.host == "127.0.0.2"
            assert read_timeout_of(connection) == 3630
        with pytest.raises(CdcError) as refused, open_session(source.of_hosts("127.0.0.1"), read_timeout=1):
            pass
        assert refused.value.reason is Reason.SOURCE_UNREACHABLE


def _first_that_answers(source: Source, max_seconds: int) -> SourceConnection:
    """Asked again while none does in time, as on a machine with much to do."""
    deadline = time.monotonic() + _SECONDS
    while True:
        try:
            return cast(SourceConnection, connect(source, max_seconds=max_seconds))
        except CdcError:
            assert time.monotonic() < deadline, "no host answers"


def _context(
    step: Stepwise,
    port: int,
    hosts: list[str],
    followed: str = "",
    kind: RunKind = RunKind.STREAM,
    stop_at: str = "",
) -> RunContext:
    secret = step.folder / "source"
    secret.mkdir(exist_ok=True)
    for key in ("username", "password"):
        (secret / key).write_text((step.folder / key).read_text())
    spec = {
        "source": {"hosts": hosts, "port": port, "credentialsSecretRef": {"name": "source"}},
        "tables": {"include": [r"h\..*"]},
        "sink": {"delta": {"path": str(step.folder / "lake")}},
    }
    about = {"name": "stepwise", "namespace": "test"}
    resource = {"apiVersion": API_VERSION, "kind": KIND, "metadata": about, "spec": spec}
    tables = (TableAssignment(step.state("t").capture),)
    folder = str(step.folder)
    config = RunConfig("r", 1, kind, resource, tables, "", folder, folder, stop_at=stop_at, followed=followed)
    return open_context(config, Reporter("r", -1), threading.Event(), Future(), patience=1.0)


def _catches_up_where_its_tables_are(old: Server, new: Server, step: Stepwise) -> None:
    """The place where a stream on another host is has no order in the binlog of the tables."""
    old.run("INSERT INTO h.t VALUES (100)")
    await_replica(old, new)
    with relays_at_one_port((old.host, old.port), (new.host, new.port)) as (first, _):
        streams = _taken(replace(step.source, host="127.0.0.2", port=first.port))
        context = _catch_up(step, first.port, ["127.0.0.1", "127.0.0.2"], f"{streams}/binlog.000900:4")
        assert context.source.host == "127.0.0.1"
        assert step.state("t").identity.lineage.newest == step.facts.log
        assert step.position("t").has_reached(step.end())


def _passes_over_what_lacks_ours(old: Server, new: Server, step: Stepwise) -> None:
    """An old primary that comes back is not taken in the place of the one that it was left for."""
    with (
        relays_at_one_port((old.host, old.port), (new.host, new.port)) as (first, second),
        new.connect() as blocker,
    ):
        olds, news = "127.0.0.1", "127.0.0.2"
        blocker.query("LOCK TABLES h.t WRITE")  # the replica applies nothing, and shows no fault
        old.run("INSERT INTO h.t VALUES (4)")
        step.follow()
        context = _context(step, first.port, [news, olds])
        assert context.source.host == news
        choose_host(context)
        assert (context.source.host, context.facts.log) == (olds, step.facts.log)
        assert context.others is not None
        assert context.others.hosts == (news,)
        assert _context(step, first.port, [news, olds], step.facts.log).source.host == olds
        first.refuse = True
        context = _context(step, first.port, [olds, news], step.facts.log)
        choose_host(context)
        assert context.source.host == news
        first.refuse = False

        blocker.query("UNLOCK TABLES")
        await_replica(old, new)
        promote(new)
        new.run("INSERT INTO h.t VALUES (5)", "INSERT INTO h.t VALUES (6)")
        step.reach(new)
        first.refuse = True
        _catch_up(step, first.port, [olds, news], f"{step.facts.log}/{step.end()}")
        assert step.state("t").identity.lineage.newest == step.facts.log
        assert step.position("t").has_reached(step.end())
        first.refuse = False
        context = _context(step, first.port, [olds, news])
        assert context.source.host == olds
        choose_host(context)
        assert context.source.host == news
        _needs_no_view_of_replication(step, first.port, (old, new))
        second.refuse = True
        with pytest.raises(CdcError) as refused:
            choose_host(_context(step, first.port, [olds, news], step.facts.log))
        assert refused.value.reason is Reason.SOURCE_UNREACHABLE
        assert "127.0.0.1 lacks transactions of the server that it was left for" in refused.value.found
        with pytest.raises(CdcError) as refused:
            choose_host_to_read(_context(step, first.port, [olds, news], step.facts.log, RunKind.SNAPSHOT))
        assert refused.value.reason is Reason.SOURCE_UNREACHABLE
        assert "which the sync has left for another one" in refused.value.found


def _needs_no_view_of_replication(step: Stepwise, port: int, servers: tuple[Server, Server]) -> None:
    """To go on at a host that lacks nothing."""
    if step.server.flavor == "mysql":
        return  # one right shows it and the end of the binlog
    for server in servers:
        server.create_user("plain", _PASSWORD, ["SELECT", "REPLICATION SLAVE", "BINLOG MONITOR"])
    step.source.username_file.write_text("plain")
    context = _context(step, port, ["127.0.0.1", "127.0.0.2"])
    choose_host(context)
    assert context.source.host == "127.0.0.2"
    step.source.username_file.write_text(_ACCOUNT)


def _expects_what_a_failover_would_do(old: Server, new: Server, step: Stepwise) -> None:
    """Back to the old server, which is a replica of the new one by now."""
    old.create_user(_ACCOUNT, _PASSWORD)
    with relays_at_one_port((new.host, new.port), (old.host, old.port)) as (first, second):
        source = replace(step.source, host="127.0.0.1", port=first.port, others=("127.0.0.2",))
        assert _expected(source, step) == (None, "")
        replicate(new, old)
        await_replica(new, old)
        assert _expected(source, step) == (None, "")
        second.refuse = True
        reason, why = _expected(source, step)
        assert (reason, "127.0.0.2" in why) == (Reason.POSITION_LOST, True)
        second.refuse = False
        if new.flavor == "mysql":
            old.run("STOP REPLICA", "SET GLOBAL replica_preserve_commit_order = OFF")
            refused = "replica_preserve_commit_order=OFF"
            assert _expected(source, step) == (Reason.POSITION_LOST, f"127.0.0.2: {refused}")
            old.run("SET GLOBAL gtid_mode = ON_PERMISSIVE")
            assert _expected(source.of_hosts("127.0.0.2"), step)[1] == "a server with gtid_mode that is not ON, as here"
            return
        new.run("CREATE TABLE h.drawn (id INT PRIMARY KEY, r DOUBLE DEFAULT RAND())")
        assert _expected(source, step, "drawn") == (Reason.HISTORY_DIVERGED, "each server draws its own r (rand())")
        old.restart(log_slave_updates="OFF")
        assert _expected(source, step) == (Reason.POSITION_LOST, "127.0.0.2: log_slave_updates=OFF")
        new.run("SET gtid_domain_id = 5", "INSERT INTO h.t VALUES (7)")
        assert _expected(source, step)[1] == "127.0.0.1: transactions of several domains"


def _expected(source: Source, step: Stepwise, name: str = "t") -> tuple[Reason | None, str]:
    table = step.state("t").capture
    table = replace(table, source=replace(table.source, id=TableId("h", name)))
    expected = expected_failovers(source, [table])[table.id]
    return expected.reason, expected.why


def _catch_up(step: Stepwise, port: int, hosts: list[str], goal: str) -> RunContext:
    """To its end, without Spark. The stream is where the goal is."""
    context = _context(step, port, hosts, goal.partition("/")[0], RunKind.CATCH_UP, goal)
    assert complete(context, partial(run_stream, open_engine=lambda: nullcontext(ProcessEngine()))) is None
    assert not context.failed
    return context


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_sync_goes_on_at_its_other_host(pair: tuple[Server, Server], tmp_path: Path) -> None:
    """After the death of the primary, and after a switchover back that leaves a connection alive;
    the old primary that comes back in between is left alone."""
    old, new = pair
    old.run("CREATE DATABASE h", "CREATE TABLE h.t (id INT PRIMARY KEY)", "INSERT INTO h.t VALUES (1), (2)")
    for server in pair:
        server.create_user("cdc", "for tests", GRANTS[server.flavor])
    await_replica(old, new)
    with relays_at_one_port((old.host, old.port), (new.host, new.port)) as (first, _):
        hosts = {"host": None, "hosts": ["127.0.0.1", "127.0.0.2"], "port": first.port}
        sync = Sync(old, [r"h\..*"], tmp_path / "sync", spec={"source": hosts}, account=("cdc", "for tests"))
        with sync:
            sync.start("forever")
            sync.wait_for(lambda s: entry(s, "h.t").get("phase") == "Streaming")
            old.run("INSERT INTO h.t VALUES (3)", "INSERT INTO h.t VALUES (4)")
            await_replica(old, new)
            sync.wait_for(lambda _: sync.target("h.t").num_rows == 4)
            old.kill()
            promote(new)
            new.run("INSERT INTO h.t VALUES (5)", "INSERT INTO h.t VALUES (6)")
            sync.wait_for(lambda _: sync.target("h.t").num_rows == 6, timeout=400)
            old.start()
            new.run("INSERT INTO h.t VALUES (7)")
            sync.wait_for(lambda _: sync.target("h.t").num_rows == 7, timeout=400)

            replicate(new, old)
            await_replica(new, old)
            new.run("SET GLOBAL read_only = ON")
            promote(old)
            old.run("INSERT INTO h.t VALUES (8)")
            sync.wait_for(lambda _: sync.target("h.t").num_rows == 8, timeout=400)
            seen = sync.wait_for(lambda s: entry(s, "h.t").get("phase") == "Streaming")
            assert entry(seen, "h.t")["generation"] == 0
            assert sync.terminate() == ExitCode.DONE
            assert sorted(sync.target("h.t")["id"].to_pylist()) == list(range(1, 9))
