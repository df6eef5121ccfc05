"""History tables as a user runs them: a real server, writers that never stop, drivers that are
killed. The table is read by another program (delta-rs), and a consumer checks every row of it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from cdcsync_core.runs.run import ExitCode
from cdcsync_operator.cli.main import cli
from support.compare import compare, source_rows
from support.event_consumer import CheckingConsumer, Row
from support.fixtures import FreshDatabase, usually_on
from support.gtids import run_with_gtids
from support.history import METADATA, events_of
from support.servers import Server
from support.sync_process import Gate, Sync
from support.workload import Pace, Workload
from support.workload_tables import KEYS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]
HISTORY = {"sink": {"delta": {"mode": "history"}}, "snapshot": {"chunkSize": 500, "parallelism": 2}}
#: where a run is killed, one after the other: while it stages and publishes, and while it follows
USUAL = ((Gate("before-publish", 2),), (Gate("data-written", 3),))
MORE = (
    (Gate("wave-staged", 2), Gate("vectors-written"), Gate("published", 2)),
    (Gate("entry-written", 2), Gate("table-applied", 2)),
)


def _shown(sync: Sync, command: str, code: ExitCode) -> Result:
    """What a command says that only reads."""
    result = CliRunner().invoke(cli, [command, "-f", str(sync.manifest), "-o", "json"])
    assert result.exit_code == code, result.output
    return result


@pytest.mark.long
@pytest.mark.parametrize("kills", [USUAL, MORE], ids=["usual", "more"])
@usually_on("mariadb1011")
def test_no_row_is_false_whatever_is_written_and_killed(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path, kills: tuple[tuple[Gate, ...], tuple[Gate, ...]]
) -> None:
    database = fresh_database(any_server)
    workload = Workload(any_server, database, 7, Pace(rows=8000, writers=6, per_second=80))
    workload.prepare()
    with Sync(any_server, [rf"{database}\..*"], tmp_path / "sync", spec=HISTORY) as sync:
        with workload:
            _kill_at(sync, kills[0])
            sync.start("forever")
            sync.wait_for(lambda s: s.get("tables", {}).get("streaming") == len(workload.tables))
            names = [f"{database}.{table}" for table in workload.tables]
            sync.wait_until(lambda: all(_changes(sync.target(n)).num_rows for n in names), "a change of each table")
            sync.kill_all()
            _kill_at(sync, kills[1])
        sync.run_to_completion()
        for table in workload.tables:
            _check(sync, any_server, database, table)
        verified = sync.command("verify", "-o", "json")
        assert verified.returncode == ExitCode.DONE, verified.stdout + verified.stderr


def _kill_at(sync: Sync, gates: tuple[Gate, ...]) -> None:
    for gate in gates:
        sync.start("forever", gate)
        sync.wait_fired()
        sync.kill_all()


def _changes(history: pa.Table) -> pa.Table:
    """The rows that are not the snapshot's."""
    return history.filter(pa.compute.greater(history["_cdc_seq"], 0))


def _check(sync: Sync, server: Server, database: str, table: str) -> None:
    history = sync.target(f"{database}.{table}")
    consumer = CheckingConsumer(KEYS[table]).take(events_of(history))
    assert consumer.faults == [], (table, consumer.faults[:3])
    _check_rows(consumer.rows.values(), history.schema, server, database, table)
    changes = _changes(history)
    assert changes.num_rows, "changes came after the snapshot"
    assert changes["_cdc_ts"].null_count == changes["_cdc_position"].null_count == 0
    snapshot = history.filter(pa.compute.equal(history["_cdc_seq"], 0))
    assert snapshot["_cdc_position"].null_count == snapshot.num_rows
    assert set(snapshot["_cdc_op"].to_pylist()) <= {"+I"}


EARLY_USUAL = ((Gate("wave-committed", 3),), (Gate("data-written", 3),))
EARLY_MORE = (
    (Gate("wave-staged", 2), Gate("entry-written", 4), Gate("wave-committed", 3)),
    (Gate("table-applied", 2),),
)
EARLY = HISTORY | {"snapshot": HISTORY["snapshot"] | {"delivery": "early"}}


@pytest.mark.long
@pytest.mark.parametrize("kills", [EARLY_USUAL, EARLY_MORE], ids=["usual", "more"])
@usually_on()
def test_rows_that_are_there_early_end_right_whatever_is_written_and_killed(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path, kills: tuple[tuple[Gate, ...], tuple[Gate, ...]]
) -> None:
    """A consumer folds by key: it is right as soon as the table flows."""
    database = fresh_database(any_server)
    workload = Workload(any_server, database, 8, Pace(rows=8000, writers=6, per_second=80))
    workload.prepare()
    with Sync(any_server, [rf"{database}\..*"], tmp_path / "sync", spec=EARLY) as sync:
        with workload:
            _kill_at(sync, kills[0])
            assert any(sync.target(f"{database}.{t}").num_rows for t in workload.tables), "before the snapshot's end"
            _kill_at(sync, kills[1])
        sync.run_to_completion()
        for table in workload.tables:
            _check_fold(sync, any_server, database, table)
        verified = sync.command("verify", "-o", "json")
        assert verified.returncode == ExitCode.DONE, verified.stdout + verified.stderr


def _check_fold(sync: Sync, server: Server, database: str, table: str) -> None:
    history, key = sync.target(f"{database}.{table}"), KEYS[table]
    rows: dict[tuple[object, ...], Row] = {}
    changes = list(events_of(history))
    for event in changes:
        place = tuple(event.row[name] for name in key)
        assert event.ordinal or place not in rows, f"{table}: a row of the snapshot twice"
        rows.pop(place, None)
        if event.operation.startswith("+"):
            rows[place] = event.row
    assert [e.ordinal for e in changes if e.ordinal] == list(range(1, 1 + sum(e.ordinal > 0 for e in changes)))
    _check_rows(rows.values(), history.schema, server, database, table)


def _check_rows(rows: Iterable[Row], history: pa.Schema, server: Server, database: str, table: str) -> None:
    """What a consumer has at the end is what the source has."""
    schema = pa.schema([f for f in history if f.name not in METADATA])
    folded = pa.Table.from_pylist([*rows], schema)
    difference = compare(table, source_rows(server, database, table, schema), folded, KEYS[table])
    assert not difference, str(difference)


@usually_on()
def test_a_history_shows_what_happened_and_follows_what_leaves_its_rows_as_they_are(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """What users see of `orders`: the order of changes, their transactions, `check` and `plan`. Of
    `parts`, whose definition changes: `verify` reads it by its newest one; a change that it cannot
    follow asks. A resnapshot begins again; another mode is refused."""
    database = fresh_database(any_server)
    any_server.run(
        "CREATE TABLE orders (id INT PRIMARY KEY, total DECIMAL(10,2))",
        "INSERT INTO orders VALUES (1, 10), (2, 20)",
        "CREATE TABLE parts (id INT PRIMARY KEY, total INT, note VARCHAR(20))",
        "INSERT INTO parts VALUES (1, 10, 'a'), (2, 20, 'b')",
        db=database,
    )
    orders, parts = f"{database}.orders", f"{database}.parts"
    with Sync(any_server, [rf"{database}\..*"], tmp_path / "sync", spec=HISTORY) as sync:
        sync.run_to_completion()
        gtids = _change_orders(any_server, database)
        any_server.run(
            "ALTER TABLE parts ADD city VARCHAR(20) AFTER id, DROP note",
            "UPDATE parts SET city = 'Graz' WHERE id = 1",
            db=database,
        )
        sync.run_to_completion()
        _check_orders(sync, orders, gtids)
        _check_parts(sync, parts)

        before = sync.target(parts)
        any_server.run("ALTER TABLE parts ADD paid INT NOT NULL DEFAULT 0", "DELETE FROM parts", db=database)
        sync.start("caught-up")
        assert sync.wait() == ExitCode.USER_MUST_ACT
        status = {t["name"]: t for t in sync.status()["tableStatus"]}[parts]
        assert status["reason"] == "SchemaChangePending"
        assert "published" in status["message"]
        assert sync.target(parts).equals(before)

        sync.write_manifest(resnapshot=[{"table": name, "nonce": 1} for name in (orders, parts)])
        sync.run_to_completion()
        assert sync.target(parts).schema.names == ["id", "city", "total", "paid", *METADATA]
        again = sync.target(orders)
        assert sorted(zip(again["_cdc_op"].to_pylist(), again["id"].to_pylist(), strict=True)) == [("+I", 1), ("+I", 4)]

        sync.write_manifest(sink={"delta": {"mode": "replica"}})
        sync.start("caught-up")
        assert sync.wait() == ExitCode.USER_MUST_ACT
        assert "holds a history" in sync.logs()
        assert sync.target(orders).equals(again)


def _change_orders(server: Server, database: str) -> list[str | None]:
    return run_with_gtids(
        server,
        "INSERT INTO orders VALUES (3, 30)",
        "UPDATE orders SET total = 11 WHERE id = 1",
        "UPDATE orders SET id = 4 WHERE id = 2",
        "DELETE FROM orders WHERE id = 3",
        db=database,
    )


def _check_orders(sync: Sync, name: str, gtids: list[str | None]) -> None:
    history = sync.target(name).sort_by([("_cdc_seq", "ascending"), ("id", "ascending")])
    assert [(r["_cdc_seq"], r["_cdc_op"], r["id"], int(r["total"])) for r in history.to_pylist()] == [
        (0, "+I", 1, 10),
        (0, "+I", 2, 20),
        (1, "+I", 3, 30),
        (2, "-U", 1, 10),
        (3, "+U", 1, 11),
        (4, "-U", 2, 20),
        (5, "+U", 4, 20),
        (6, "-D", 3, 30),
    ]
    assert history["_cdc_gtid"].to_pylist() == [None, None, *(gtids[n] for n in (0, 1, 1, 2, 2, 3))]
    checked = json.loads(_shown(sync, "check", ExitCode.DONE).stdout)["tables"]
    assert [[c["name"] for c in t["columns"]] for t in checked if t["name"] == name] == [["id", "total", *METADATA]]
    planned = json.loads(_shown(sync, "plan", ExitCode.DONE).stdout)["tables"]
    assert [t["columns"] for t in planned if t["name"] == name] == [["id", "total", *METADATA]]


def _check_parts(sync: Sync, name: str) -> None:
    history = sync.target(name)
    assert history.schema.names == ["id", "city", "total", "note", *METADATA]
    later = [r for r in history.sort_by("_cdc_seq").to_pylist() if r["_cdc_seq"]]
    assert [(r["_cdc_op"], r["city"], r["total"], r["note"]) for r in later] == [
        ("-U", None, 10, None),
        ("+U", "Graz", 10, None),
    ]
    verified = sync.command("verify", "-o", "json")
    assert verified.returncode == ExitCode.DONE, verified.stdout + verified.stderr


@usually_on("mariadb1011")
def test_a_column_with_the_name_of_a_metadata_column_is_refused(
    any_server: Server, fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    database = fresh_database(any_server)
    any_server.run("CREATE TABLE a (id INT PRIMARY KEY, _CDC_Op INT)", db=database)
    with Sync(any_server, [rf"{database}\..*"], tmp_path / "sync", spec=HISTORY) as sync:
        checked = _shown(sync, "check", ExitCode.USAGE)
        assert "_CDC_Op has the name of a metadata column" in checked.stderr
        sync.write_manifest(sink={"delta": {"historyColumns": {"op": "change"}}})
        _shown(sync, "check", ExitCode.DONE)
