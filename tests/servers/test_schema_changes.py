"""R9 on real servers: what is predicted from a statement is what the server has afterwards, in the
catalog, in the next TABLE_MAP and in every row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from cdcsync_core.errors import Reason
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import Emptied, Followed, Kind, Renamed, Stop
from cdcsync_core.tables.source_table import TableId
from cdcsync_mysql.reading.catalog import read_table
from cdcsync_spark.wire.binlog.facts import RowsEvent
from cdcsync_spark.wire.binlog.predicted_map import differences
from cdcsync_spark.wire.sql.changes.schema_change import apply
from cdcsync_spark.wire.sql.syntax.text import Statement
from support import alterations
from support.definitions import CHANGES, NOTHING, DefinitionCase
from support.dump import log_end, read_log
from support.fixtures import FreshDatabase
from support.predictions import Bench, Verdict, summary
from support.servers import Server

pytestmark = pytest.mark.server

#: the variant is the point: each server completes, converts and prints in its own way
servers = pytest.mark.parametrize("variant", ["mariadb1011", "mariadb114", "mysql97_gtid"])
Judge = Callable[..., list[Verdict]]


@pytest.fixture
def judge(request: pytest.FixtureRequest, variant: str) -> Iterator[Judge]:
    server: Server = request.getfixturevalue(variant)
    bench = Bench(server, "prediction")

    def judged(cases: Sequence[DefinitionCase], *, followed_only: bool = False) -> list[Verdict]:
        bench.play(cases, followed_only=followed_only)
        verdicts = bench.judge()
        print(f"{server}: {len(cases)} cases, {bench.refused} refused; {summary(verdicts)}")
        return verdicts

    yield judged
    bench.close()


def followed(verdicts: Sequence[Verdict]) -> int:
    return sum(v.kind not in (Kind.RESNAPSHOT, Kind.STOP, Kind.RENAME) for v in verdicts)


def check(verdicts: Sequence[Verdict], least: int) -> None:
    """No prediction is wrong, and there are as many as the reader is known to make."""
    assert [(str(v.case), v.kind, v.wrong) for v in verdicts if v.wrong] == []
    assert followed(verdicts) >= least


@servers
def test_a_part_of_the_family_in_one_session(judge: Judge) -> None:
    measured = [*CHANGES, *NOTHING]
    generated = [*alterations.additions(), *alterations.sessions()]
    check(judge([*measured[::7], *generated[::13], *alterations.special_tables()]), 50)


@pytest.mark.long
@servers
def test_the_measured_cases(judge: Judge) -> None:
    check(judge([*CHANGES, *NOTHING]), 150)


@pytest.mark.long
@servers
def test_what_changes_nothing_is_seldom_resnapshotted(judge: Judge) -> None:
    verdicts = judge(NOTHING)
    check(verdicts, 90)
    assert [str(v.case) for v in verdicts if v.kind is not Kind.NOTHING] == []


@pytest.mark.long
@servers
def test_added_columns(judge: Judge) -> None:
    check(judge([*alterations.additions(), *alterations.sessions()]), 260)


@pytest.mark.long
@servers
def test_redefined_columns(judge: Judge) -> None:
    """Only what is followed is run: nothing is claimed of the other types."""
    check(judge(list(alterations.redefinitions()), followed_only=True), 110)


@pytest.mark.long
@servers
def test_clauses_together(judge: Judge) -> None:
    check(judge(list(alterations.combinations(7, 600)), followed_only=True), 120)


class LoggedTables:
    """Some captured tables, and what is written to the binlog from then on."""

    def __init__(self, server: Server, database: str, *names: str) -> None:
        self.server, self.database = server, database
        self.definitions = {d.id: d for d in map(self.definition, names)}
        self.start = log_end(server)

    def definition(self, name: str) -> Capture:
        with self.server.connect(db=self.database) as connection:
            return read_table(connection, TableId(self.database, name))

    def outcomes(self) -> list[dict[str, object]]:
        """The outcome of each statement since then, by the table's name."""
        facts = [f for f in read_log(self.server, self.start) if isinstance(f, Statement)]
        return [{table.name: found for table, found in apply(self.definitions, f).items()} for f in facts]


@pytest.fixture
def server(request: pytest.FixtureRequest, variant: str) -> Server:
    found: Server = request.getfixturevalue(variant)
    return found


@servers
def test_a_statement_about_several_tables(server: Server, fresh_database: FreshDatabase) -> None:
    """Renamed in a circle, or dropped, by one statement: all of them as of the same point."""
    database = fresh_database(server)
    create = [f"CREATE TABLE {n} (id INT PRIMARY KEY, {n}_v INT)" for n in "abcd"]
    server.run(*create, db=database)
    logged = LoggedTables(server, database, *"abcd")
    server.run("RENAME TABLE a TO z, b TO a, z TO b", "RENAME TABLE c TO e", "DROP TABLE a, b", db=database)
    swapped, renamed, dropped = logged.outcomes()
    old = {name: logged.definitions[TableId(database, name)] for name in "abcd"}
    assert swapped == {
        "a": Renamed(f"{database}.b", f"{database}.b", old["b"].named(TableId(database, "a"))),
        "b": Renamed(f"{database}.a", f"{database}.a", old["a"].named(TableId(database, "b"))),
    }
    assert renamed == {"c": Renamed(f"{database}.e")}
    assert dropped == dict.fromkeys("ab", Stop("the table is dropped", Reason.TABLE_GONE))


@servers
def test_the_swap_of_an_online_schema_changer(server: Server, fresh_database: FreshDatabase) -> None:
    """Nothing before the swap; then the definition and the rows are the other table's."""
    database = fresh_database(server)
    server.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1)", db=database)
    logged = LoggedTables(server, database, "t")
    server.run("CREATE TABLE _t_gho LIKE t", "ALTER TABLE _t_gho ADD w INT DEFAULT 5", "TRUNCATE _t_gho",
               "RENAME TABLE t TO _t_del, _t_gho TO t", db=database)  # fmt: skip
    *before, swap = logged.outcomes()
    assert before == [{}, {}, {}]
    assert swap == {"t": Renamed(f"{database}._t_del", f"{database}._t_gho")}


@servers
def test_emptied_tables(server: Server, fresh_database: FreshDatabase) -> None:
    database = fresh_database(server)
    server.run("CREATE TABLE t (id INT PRIMARY KEY)", db=database)
    server.run("CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY HASH(id) PARTITIONS 2", db=database)
    logged = LoggedTables(server, database, "t", "p")
    server.run("TRUNCATE t", "ALTER TABLE p TRUNCATE PARTITION ALL", db=database)
    assert logged.outcomes() == [{name: Emptied(logged.definitions[TableId(database, name)])} for name in ("t", "p")]


@pytest.mark.parametrize("variant", ["mariadb1011", "mariadb114"])
def test_an_alter_in_two_phases(server: Server, fresh_database: FreshDatabase) -> None:
    """It is one statement, at its COMMIT ALTER; one that failed is none."""
    database = fresh_database(server)
    server.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 3), (2, 3)", db=database)
    logged = LoggedTables(server, database, "t")
    with pytest.raises(Exception, match="Duplicate"):
        server.run("SET binlog_alter_two_phase = 1", "ALTER TABLE t ADD w INT DEFAULT 7, ADD UNIQUE (v)", db=database)
    server.run("SET binlog_alter_two_phase = 1", "ALTER TABLE t ADD w INT DEFAULT 7", "DELETE FROM t", db=database)
    (outcome,) = logged.outcomes()
    found = outcome["t"]
    assert isinstance(found, Followed)
    assert found.kind is Kind.FILL
    rows = [f for f in read_log(server, logged.start) if isinstance(f, RowsEvent)]
    assert [differences(found.after, f.map) for f in rows] == [[]]
    assert differences(found.before, rows[0].map) != []


@servers
def test_the_next_row_event_proves_a_prediction(server: Server, fresh_database: FreshDatabase) -> None:
    """Length, precision, nullability and key are compared, besides what the reader of rows
    needs."""
    database = fresh_database(server)
    shape = "id INT, v VARCHAR(10), d DECIMAL(5,2) UNSIGNED, tx TEXT, n INT NOT NULL, st SET('a'), PRIMARY KEY (id, n)"
    server.run(f"CREATE TABLE t ({shape})", db=database)
    logged = LoggedTables(server, database, "t")
    server.run("INSERT INTO t VALUES (1, '', 0, '', 1, '')", db=database)
    (row,) = [f for f in read_log(server, logged.start) if isinstance(f, RowsEvent)]
    assert differences(logged.definition("t"), row.map) == []
    for clause in ("MODIFY v VARCHAR(11)", "MODIFY v CHAR(10)", "MODIFY v VARCHAR(10) NOT NULL", "MODIFY d DECIMAL(5,2)",
                   "MODIFY tx MEDIUMTEXT", "DROP PRIMARY KEY, ADD PRIMARY KEY (n, id)", "MODIFY n BIGINT NOT NULL",
                   "MODIFY st SET('a','b','c','d','e','f','g','h','i')", "ADD x INT", "RENAME COLUMN d TO e"):  # fmt: skip
        server.run("DROP TABLE t", f"CREATE TABLE t ({shape})", f"ALTER TABLE t {clause}", db=database)
        assert differences(logged.definition("t"), row.map) != [], clause
