"""`verify` finds every difference and invents none, while the source is written and the stream
runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from cdcsync_core.errors import Reason
from cdcsync_core.positions.position import Position
from cdcsync_core.runs.run import ExitCode, TablePhase
from cdcsync_core.runs.table_status import TableStatus
from cdcsync_core.runs.verification import DifferenceKind, ReaderName, verdict
from cdcsync_core.tables.capture import Capture
from cdcsync_spark.sinks.contract.changes import Append, Commit, Upsert
from cdcsync_spark.snapshot.splits.low_mark import LowMark
from support import small_sync
from support.deaths import Died, dying_at
from support.fixtures import FreshDatabase, usually_on, variants
from support.key_tables import KEYS, NEARLY, Writers, create_key_tables, table_of_rows
from support.servers import Server
from support.small_sync import PASSWORD, USER, SmallSync
from support.verified import verify

MakeSync = Callable[[Server, str], SmallSync]


@pytest.fixture
def sync_of(tmp_path: Path) -> MakeSync:
    return lambda server, database: SmallSync(server, database, tmp_path)


def tamper(sync: SmallSync, table: str, upserts: list[dict[str, object]], deletes: list[dict[str, object]]) -> None:
    """Changes the target behind the sync's back: the state stays, but for its number."""
    target = sync.target(table)
    schema = target.open_snapshot().schema
    state = target.last_commit()
    assert state is not None
    keys = pa.schema([schema.field(k) for k in state.capture.key])
    change = Upsert(pa.Table.from_pylist(upserts, schema), pa.Table.from_pylist(deletes, keys))
    target.commit(1, lambda found: Commit(replace(found, commit_number=found.commit_number + 1), change))


def test_every_type_of_key_is_compared_and_confirmed(
    any_server: Server, fresh_database: FreshDatabase, sync_of: MakeSync
) -> None:
    """R3: equal tables are equal; then a changed, a lost and an invented row of each are found
    again by their keys."""
    database = fresh_database(any_server)
    tables = create_key_tables(any_server, database)
    sync = sync_of(any_server, database)
    sync.copy()
    sync.catch_up()
    results = verify(sync)
    found = {t: (r.source_rows, r.target_rows, r.equal) for t, r in results.items()}
    assert found == dict.fromkeys(tables, (120, 120, True))
    assert verdict(results.values()) is ExitCode.DONE

    for table in KEYS:
        rows = sync.target(table).open_snapshot().scan().read_all().to_pylist()
        changed, lost, invented = rows[3] | {"v": ""}, rows[4], rows[5] | {"second": 1000}
        tamper(sync, table, [changed, invented], [{"k": lost["k"], "second": lost["second"]}])
    results = verify(sync)
    for table in KEYS:
        assert results[table].counts == {
            DifferenceKind.DIFFERENT.value: 1,
            DifferenceKind.MISSING.value: 1,
            DifferenceKind.EXTRA.value: 1,
        }, table
        shown = {d.kind: d for d in results[table].keys}
        assert shown[DifferenceKind.DIFFERENT].columns["v"][1] == "''"
        assert shown[DifferenceKind.EXTRA].key["second"] == "1000"
    assert results["seed"].equal
    assert verdict(results.values()) is ExitCode.DIFFERENCES


def test_the_least_difference_of_every_type_is_found(
    mariadb1011: Server, fresh_database: FreshDatabase, sync_of: MakeSync
) -> None:
    database = fresh_database(mariadb1011)
    table_of_rows(mariadb1011, database, 60)
    sync = sync_of(mariadb1011, database)
    sync.copy()
    sync.catch_up()
    row = sync.target("t").open_snapshot().scan().read_all().slice(0, 1).to_pylist()[0]
    changes = [(column, value) for column, values in NEARLY.items() for value in values]
    tamper(sync, "t", [row | {"id": i, column: value} for i, (column, value) in enumerate(changes)], [])
    result = verify(sync)["t"]
    assert result.counts == {DifferenceKind.DIFFERENT.value: len(changes)}
    found = {int(d.key["id"]): list(d.columns) for d in result.keys}
    assert found == {i: [column] for i, (column, _) in enumerate(changes) if i in found}
    assert len(found) == 20  # the limit


def test_a_key_twice_in_the_target_is_a_difference(
    mariadb1011: Server, fresh_database: FreshDatabase, sync_of: MakeSync
) -> None:
    database = fresh_database(mariadb1011)
    table_of_rows(mariadb1011, database, 10)
    sync = sync_of(mariadb1011, database)
    sync.copy()
    sync.catch_up()
    target = sync.target("t")
    rows = target.open_snapshot().scan().read_all()
    twice = target.stage(_table(sync, "t"), rows.slice(0, 3).to_batches(), "again")
    target.commit(1, lambda found: Commit(replace(found, commit_number=found.commit_number + 1), Append(tuple(twice))))
    result = verify(sync)["t"]
    assert (result.source_rows, result.target_rows) == (10, 13)
    assert result.counts == {DifferenceKind.DUPLICATE.value: 3}


def test_a_target_behind_is_right_as_of_its_position_and_wrong_rows_in_it_are_found(
    any_server: Server, fresh_database: FreshDatabase, sync_of: MakeSync
) -> None:
    """Nothing runs and the source went on: the binlog has what the target must have where it
    stands."""
    database = fresh_database(any_server)
    table_of_rows(any_server, database, 100)
    sync = sync_of(any_server, database)
    sync.copy()
    sync.catch_up()
    any_server.run(
        "DELETE FROM t WHERE id = 1",
        "UPDATE t SET text_ = 'changed' WHERE id IN (2, 3)",
        "UPDATE t SET text_ = 'changed again' WHERE id = 2",
        "UPDATE t SET id = 1000 WHERE id = 4",
        "INSERT INTO t (id) VALUES (1001)",
        "DELETE FROM t WHERE id = 5",
        "INSERT INTO t (id) VALUES (5)",
        db=database,
    )
    result = verify(sync)["t"]
    assert result.equal, result
    row = next(r for r in sync.target("t").open_snapshot().scan().read_all().to_pylist() if r["id"] == 2)
    tamper(sync, "t", [row | {"text_": "never there"}, row | {"id": 1001}], [{"id": 3}, {"id": 7}])
    result = verify(sync)["t"]
    assert {d.key["id"]: d.kind for d in result.keys} == {
        "2": DifferenceKind.DIFFERENT,
        "3": DifferenceKind.MISSING,
        "7": DifferenceKind.MISSING,
        "1001": DifferenceKind.DIFFERENT,
    }
    sync.catch_up()
    # the stream has replaced whatever the binlog changes
    assert {d.key["id"]: d.kind for d in verify(sync)["t"].keys} == {"7": DifferenceKind.MISSING}


#: each with the values of three rows, which later become one another's
READ_EXACTLY = {
    "TINYINT": ("-128", "0", "NULL"), "SMALLINT UNSIGNED": ("65535", "0", "1"), "MEDIUMINT": ("-8388608", "1", "NULL"),
    "MEDIUMINT UNSIGNED": ("16777215", "0", "8388608"), "INT": ("-1", "NULL", "2147483647"),
    "BIGINT UNSIGNED": ("18446744073709551615", "0", "NULL"), "BIGINT": ("-9223372036854775808", "1", "0"),
    "DECIMAL(38,9)": ("-12345678901234567890123456789.123456789", "0", "0.000000001"), "DECIMAL(5,0)": ("-1", "99999", "0"),
    "FLOAT": ("1.5", "-0.1", "NULL"), "DOUBLE": ("1e300", "-0.1", "0"), "DATE": ("'1000-01-01'", "'9999-12-31'", "NULL"),
    "DATETIME(6)": ("'2024-02-29 23:59:59.000001'", "'1000-01-01 00:00:00.9'", "NULL"),
    "DATETIME(3)": ("'2024-02-29 23:59:59.999'", "'2024-02-29 23:59:59.001'", "NULL"),
    "DATETIME": ("'9999-12-31 23:59:59'", "'2000-01-01'", "NULL"),
    "TIMESTAMP(1) NULL": ("'2024-01-01 00:00:00.9'", "'2037-12-31 00:00:00.1'", "NULL"),
    "TIMESTAMP NULL": ("'1970-01-02 00:00:00'", "'2024-07-01 12:00:00'", "NULL"),
    "VARCHAR(40) CHARACTER SET utf8mb4": ("'a😀 '", "''", "NULL"), "VARCHAR(300) CHARACTER SET utf8mb3": ("'é'", "'e'", "NULL"),
    "CHAR(9) CHARACTER SET ascii": ("'a b  '", "''", "NULL"), "CHAR(80) CHARACTER SET utf8mb4": ("'ж'", "REPEAT('€', 80)", "NULL"),
    "LONGTEXT CHARACTER SET utf8mb4": ("REPEAT('x', 70000)", "''", "NULL"), "TINYTEXT CHARACTER SET utf8mb4": ("'t'", "''", "NULL"),
    "VARBINARY(9)": ("x'00ff'", "x'ff00'", "NULL"), "BLOB": ("x'80'", "''", "NULL"), "MEDIUMBLOB": ("x'00'", "''", "NULL"),
}  # fmt: skip


@variants("mariadb1011", "mysql97_gtid")
@pytest.mark.parametrize("reader", ReaderName)
def test_a_table_that_catches_up_may_have_what_its_snapshot_read_later(
    reader: ReaderName,
    variant: str,
    request: pytest.FixtureRequest,
    fresh_database: FreshDatabase,
    sync_of: MakeSync,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R2: its rows are younger than its position, which is LOW, and no stream runs yet. A row that
    the key never had is a difference all the same."""
    server: Server = request.getfixturevalue(variant)
    database = fresh_database(server)
    rows = ", ".join(f"({i}, {i}, 'text')" for i in range(1, 11))
    create = "CREATE TABLE t (id INT PRIMARY KEY, number INT, text_ VARCHAR(20)) CHARSET utf8mb4"
    server.run(create, f"INSERT INTO t VALUES {rows}", db=database)
    take = LowMark.take

    def take_and_write(mark: LowMark) -> Position:
        low = take(mark)
        server.run(
            "UPDATE t SET text_ = 'newer' WHERE id IN (2, 6)",
            "INSERT INTO t (id, number) VALUES (20, 0)",
            "DELETE FROM t WHERE id = 3",
            db=database,
        )
        return low

    monkeypatch.setattr(small_sync.LowMark, "take", take_and_write)
    sync = sync_of(server, database)
    sync.copy()
    monkeypatch.undo()
    state = sync.target("t").last_commit()
    assert state is not None
    assert not state.consistent
    server.run(
        "UPDATE t SET text_ = 'newest' WHERE id = 2",
        "DELETE FROM t WHERE id = 20",
        "INSERT INTO t (id, number) VALUES (3, 1)",
        db=database,
    )
    result = verify(sync, reader=reader)["t"]
    assert (result.error, result.counts, result.changing) == (None, {}, 3)
    tamper(sync, "t", [{"id": 6, "number": 6, "text_": "never"}], [{"id": 4}])
    result = verify(sync, reader=reader)["t"]
    assert {d.key["id"]: d.kind for d in result.keys} == {"6": DifferenceKind.DIFFERENT, "4": DifferenceKind.MISSING}
    sync.catch_up()
    result = verify(sync)["t"]
    assert {d.key["id"]: d.kind for d in result.keys} == {"4": DifferenceKind.MISSING}


@variants("mariadb1011", "mysql97_gtid", also=("mariadb1011_loose", "mariadb114", "mariadb118", "mysql97_nogtid"))
def test_a_decoder_of_others_confirms_what_it_reads_exactly(
    request: pytest.FixtureRequest, variant: str, fresh_database: FreshDatabase, sync_of: MakeSync
) -> None:
    """The target is behind, and rows are explained by mysql-replication's values alone: each type's
    must be equal to the last bit. What it cannot judge has the columns' names."""
    any_server: Server = request.getfixturevalue(variant)
    database = fresh_database(any_server)
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(READ_EXACTLY))
    rows = [f"({i}, {', '.join(values[i] for values in READ_EXACTLY.values())})" for i in range(3)]
    odd = "odd (id INT PRIMARY KEY, e ENUM('a','b'), l VARCHAR(9) CHARACTER SET latin1, y YEAR)"
    any_server.run(
        f"CREATE TABLE t (id INT PRIMARY KEY, {columns})",
        f"INSERT INTO t VALUES {', '.join(rows)}",
        f"CREATE TABLE {odd}",
        "INSERT INTO odd VALUES (1, 'a', 'a', 2024)",
        "CREATE TABLE part (id INT PRIMARY KEY, a INT, b INT)",
        "INSERT INTO part VALUES (1, 1, 1)",
        db=database,
    )
    sync = sync_of(any_server, database)
    sync.copy()
    sync.catch_up()
    any_server.run(
        *("UPDATE t SET id = id + 10", "UPDATE t SET id = (id + 1) % 3 ORDER BY id"),
        "BEGIN",
        "DELETE FROM t WHERE id = 2",
        "SAVEPOINT s",
        f"INSERT INTO t VALUES (2{rows[0].removeprefix('(0')}",
        "COMMIT",
        "UPDATE odd SET e = 'b'",
        db=database,
    )
    results = verify(sync, reader=ReaderName.MYSQL_REPLICATION)
    assert results["t"].equal, (results["t"].error, results["t"].keys)
    assert results["odd"].error is not None
    assert results["odd"].error["reason"] == Reason.TYPE_UNSUPPORTED
    assert all(name in results["odd"].error["found"] for name in ("e enum", "l varchar", "y year"))
    row = next(r for r in sync.target("t").open_snapshot().scan().read_all().to_pylist() if r["id"] == 1)
    tamper(sync, "t", [row | {"c0": 99}, row | {"id": 77}], [{"id": 0}])
    assert {d.key["id"]: d.kind for d in verify(sync, reader=ReaderName.MYSQL_REPLICATION)["t"].keys} == {
        "0": DifferenceKind.MISSING,
        "1": DifferenceKind.DIFFERENT,
        "77": DifferenceKind.EXTRA,
    }
    any_server.run("ALTER TABLE t COMMENT = 'other'", db=database)
    any_server.run("SET binlog_row_image = 'MINIMAL'", "UPDATE part SET a = 5", db=database)
    errors = {name: result.error for name, result in verify(sync, reader=ReaderName.MYSQL_REPLICATION).items()}
    assert {name: error and error["reason"] for name, error in errors.items()} == {
        "t": Reason.SCHEMA_CHANGE_REFUSED,
        "odd": Reason.TYPE_UNSUPPORTED,
        "part": Reason.ROW_IMAGE_NOT_FULL,
    }


def test_a_change_that_is_not_in_the_log_is_found(
    mariadb1011: Server, fresh_database: FreshDatabase, sync_of: MakeSync
) -> None:
    """R10: `sql_log_bin=0` cannot be seen by the stream; it is what verify is for. Also where later
    logged changes touch the row."""
    database = fresh_database(mariadb1011)
    table_of_rows(mariadb1011, database, 10)
    sync = sync_of(mariadb1011, database)
    sync.copy()
    sync.catch_up()
    mariadb1011.run("SET sql_log_bin = 0", "UPDATE t SET text_ = 'hidden' WHERE id IN (1, 2)", db=database)
    mariadb1011.run("UPDATE t SET number = 7 WHERE id = 2", db=database)
    result = verify(sync)["t"]
    assert {d.key["id"]: d.kind for d in result.keys} == dict.fromkeys(["1", "2"], DifferenceKind.DIFFERENT)


def test_a_row_without_a_key_is_a_difference_of_its_table_alone(
    mariadb1011: Server, fresh_database: FreshDatabase, sync_of: MakeSync
) -> None:
    """Another program may write one, because every column of a target takes NULL. A value that
    cannot be compared ends the verification of its table, and of no other."""
    database = fresh_database(mariadb1011)
    table_of_rows(mariadb1011, database, 10)
    mariadb1011.run(
        "CREATE TABLE composite (a INT, b INT, PRIMARY KEY (a, b))",
        "INSERT INTO composite VALUES (1, 1)",
        "CREATE TABLE dated (id DATETIME PRIMARY KEY)",
        "INSERT INTO dated VALUES ('2024-01-01')",
        db=database,
    )
    sync = sync_of(mariadb1011, database)
    sync.copy()
    sync.catch_up()
    beyond = pa.array([253_402_300_800_000_000], pa.int64()).cast(pa.timestamp("us"))
    for table, columns in {
        "t": {"id": pa.nulls(1)},
        "composite": {"a": pa.array([1], pa.int32()), "b": pa.nulls(1)},
        "dated": {"id": beyond},
    }.items():
        schema = sync.target(table).open_snapshot().schema
        row = [columns.get(f.name, pa.nulls(1)).cast(f.type) for f in schema]
        write_deltalake(str(sync.folder / "lake" / database / table), pa.table(row, schema=schema), mode="append")
    results = verify(sync)
    assert [d.key for d in results["t"].keys] == [{"id": "NULL"}]
    assert [d.key for d in results["composite"].keys] == [{"a": "1", "b": "NULL"}]
    extra = {DifferenceKind.EXTRA.value: 1}
    assert (results["t"].counts, results["composite"].counts) == (extra, extra)
    error = results["dated"].error
    assert error is not None
    assert error["reason"] == Reason.INTERNAL_ERROR.value


@usually_on("mysql97_gtid")
def test_verify_while_writers_write(any_server: Server, fresh_database: FreshDatabase, sync_of: MakeSync) -> None:
    """The stream runs, 8 writers work on few keys, one row changes in every transaction; then
    single rows are tampered with."""
    database = fresh_database(any_server)
    table_of_rows(any_server, database, 3000)
    any_server.run("INSERT INTO t (id, number) VALUES (-1, 0)", db=database)
    sync = sync_of(any_server, database)
    with Writers(any_server, database):
        sync.copy()
        with sync.running() as stream:
            stream.wait_for(lambda: stream.applier.consistent(stream.tables[f"{database}.t"]))
            result = verify(sync)["t"]
            assert result.equal, result
        # keys that the writers leave alone: a difference there stays
        row = next(r for r in sync.target("t").open_snapshot().scan().read_all().to_pylist() if r["id"] == 2900)
        tamper(sync, "t", [row | {"text_": None}, row | {"id": 5000}], [{"id": 2901}])
        with sync.running():
            result = verify(sync)["t"]
    assert {d.key["id"]: d.kind for d in result.keys} == {
        "2900": DifferenceKind.DIFFERENT,
        "2901": DifferenceKind.MISSING,
        "5000": DifferenceKind.EXTRA,
    }


def test_what_cannot_be_compared_is_said_table_by_table(
    mariadb1011: Server, fresh_database: FreshDatabase, sync_of: MakeSync
) -> None:
    database = fresh_database(mariadb1011)
    table_of_rows(mariadb1011, database, 10)
    mariadb1011.run("CREATE TABLE u (id INT PRIMARY KEY)", db=database)
    sync = sync_of(mariadb1011, database)
    sync.copy()
    sync.catch_up()
    sync.write_status(*(TableStatus(name=f"{database}.{t}", phase=TablePhase.STREAMING) for t in "tuv"))
    mariadb1011.run("CREATE TABLE later (id INT PRIMARY KEY)", "ALTER TABLE u ADD COLUMN more INT", db=database)
    results = verify(sync)
    assert results["t"].equal
    assert "no target table yet" in results["later"].skipped
    assert results["u"].error is not None
    assert results["u"].error["reason"] == Reason.SCHEMA_CHANGE_REFUSED
    assert results["v"].error is not None
    assert results["v"].error["reason"] == Reason.NO_SUCH_TABLE
    assert verdict(results.values()) is ExitCode.USER_MUST_ACT


def test_the_command_says_what_differs(mariadb1011: Server, fresh_database: FreshDatabase, sync_of: MakeSync) -> None:
    """The exit codes 0 and 4, for people and for programs; the password is nowhere."""
    database = fresh_database(mariadb1011)
    table_of_rows(mariadb1011, database, 10)
    sync = sync_of(mariadb1011, database)
    sync.copy()
    sync.catch_up()
    manifest = sync.folder / "sync.yaml"
    secret = {
        "kind": "Secret",
        "metadata": {"name": "source", "labels": {"cdcsync.io/source": "true"}},
        "stringData": {"username": USER, "password": PASSWORD},
    }
    manifest.write_text(yaml.safe_dump_all([sync.resource.to_dict(), secret]))
    equal = run_command(sync, "-o", "json")
    assert equal.returncode == ExitCode.DONE, equal.stderr
    assert json.loads(equal.stdout)["equal"] is True
    row = sync.target("t").open_snapshot().scan().read_all().slice(0, 1).to_pylist()[0]
    tamper(sync, "t", [row | {"text_": None}], [])
    different = run_command(sync)
    assert different.returncode == ExitCode.DIFFERENCES, different.stderr
    assert "id = 0: different" in different.stdout
    assert "text_: 'a' in the source, NULL in the target" in different.stdout
    assert PASSWORD not in equal.stdout + equal.stderr + different.stdout + different.stderr


def run_command(sync: SmallSync, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cdcsync_operator", "verify", "-f", str(sync.folder / "sync.yaml")]
    return subprocess.run(
        [*command, "--state-dir", str(sync.folder / "state"), *arguments], capture_output=True, text=True, check=False
    )


def _table(sync: SmallSync, name: str) -> Capture:
    state = sync.target(name).last_commit()
    assert state is not None
    return state.capture


def test_equal_rows_end_the_note_of_another_programs_write(
    mariadb1011: Server, fresh_database: FreshDatabase, sync_of: MakeSync
) -> None:
    """R4: only equal rows, and only if nothing else came since they were read."""
    database = fresh_database(mariadb1011)
    mariadb1011.run(
        "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)", db=database
    )
    sync = sync_of(mariadb1011, database)
    sync.copy()
    sync.catch_up()

    def noted() -> str:
        state = sync.target("t").last_commit()
        assert state is not None
        return state.written.operation if state.written else ""

    delta = DeltaTable(str(sync.folder / "lake" / database / "t"))
    delta.delete("id = 2")
    result = verify(sync)["t"]
    assert (noted(), result.counts) == ("DELETE", {DifferenceKind.MISSING.value: 1})
    write_deltalake(delta, pa.table({"id": pa.array([2], pa.int32()), "v": pa.array([2], pa.int32())}), mode="append")
    for point in ("before-commit", "committed"):
        with dying_at(point), pytest.raises(Died):
            verify(sync)
        assert noted() == ("WRITE" if point == "before-commit" else "")
    assert verify(sync)["t"].equal
    mariadb1011.run("INSERT INTO t VALUES (4, 4)", db=database)
    sync.catch_up()
    assert (verify(sync)["t"].equal, noted()) == (True, "")


def test_a_definition_that_changed_meanwhile_proves_nothing(
    mariadb1011: Server, fresh_database: FreshDatabase, sync_of: MakeSync
) -> None:
    """The stream may have followed it, so its remedy is not the stream's."""
    database = fresh_database(mariadb1011)
    mariadb1011.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)", db=database)
    sync = sync_of(mariadb1011, database)
    sync.copy()
    sync.catch_up()
    mariadb1011.run("UPDATE t SET v = 2", "ALTER TABLE t ADD x INT", "ALTER TABLE t DROP x", db=database)
    error = verify(sync)["t"].error
    assert error is not None
    assert (error["reason"], error["remedy"]) == (Reason.SCHEMA_CHANGE_REFUSED, "verify again")
    assert "ALTER TABLE t ADD x INT" in error["found"]
    assert error["needed"] == "one definition of the table while it is verified"
