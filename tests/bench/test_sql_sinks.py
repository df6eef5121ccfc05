"""Rows and changes into tables of MySQL and PostgreSQL, beside Debezium's JDBC sink and Spark's
JDBC writer.

    make bench ARGS='-k sql_sinks -s'

All get the same rows of `customer` (18 columns) in their memory and write into a table with the
same columns and key: what Kafka, its converters and the binlog cost is in no figure. Debezium's
sink task runs without Kafka, with records of its own connector's form. Each contender is a process
that `accounted.py` charges with all that it starts; it does a small work and a large one, and the
difference is counted, so no start is. The server's CPU is that of its processes meanwhile. Every
table ends in the same count and sums.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from bench.measured import Figures, measure, show
from bench.sql_changes import TABLE, cdcsync_load, dialect, rows
from cdcsync_spark.sinks.sql.target import SqlSink
from contract.sinkcase import SYNC, first_state
from support.postgresql import PASSWORD, postgres_server
from support.servers import Server

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]
_FOLDER = Path(__file__).parent
#: Debezium's JDBC sink, which brings the databases' drivers
_DEBEZIUM = _FOLDER.parents[1] / ".cache" / "debezium-jdbc-3.3.1"
_ARTIFACTS = (
    "io.debezium:debezium-connector-jdbc:3.3.1.Final",
    "org.apache.kafka:connect-runtime:4.1.0",
    "org.slf4j:slf4j-simple:1.7.36",
)
_PARAMETERS = {
    "mysql": "rewriteBatchedStatements=true&sslMode=DISABLED&allowPublicKeyRetrieval=true",
    "postgresql": "reWriteBatchedInserts=true",
}
#: rows of a batch, of the small load, and of the large ones: of those whose start costs more than a
#: hundred thousand rows, and of Debezium's
BATCH, FEWEST, MOST, MANY = 10_000, 10_000, 1_010_000, 110_000
#: rows that are changed, and how often all of them are
CHANGED, TURNS = 10_000, (1, 11)
#: changes of a commit whose latency is measured, and how many of them come first
FEW, WARM_UP, PIECES = 100, 20, 12
_SUMMED = ("c_customer_sk", "c_current_addr_sk", "c_birth_year", "LENGTH(c_email_address)")
_SUMS = ", ".join(f"CAST(SUM({column}) AS CHAR(30))" for column in ("1", *_SUMMED))


@dataclass
class Database:
    """A server; `kind` is that of the sink."""

    kind: str
    server: Any
    user: str
    password: str
    folder: Path
    created: list[str] = field(default_factory=list)

    @property
    def place(self) -> tuple[str, str, str]:
        return self.kind, str(self.server.port), str(self.folder)

    def new(self, filled: int) -> str:
        """A database with the product's table and so many rows."""
        name = f"bench{os.getpid()}_{len(self.created)}"
        self.created.append(name)
        self.server.run(f"CREATE DATABASE {name}")
        SqlSink(dialect(*self.place, name), SYNC).target(TABLE.id).prepare(first_state(TABLE))
        if filled:
            cdcsync_load(*self.place, name, str(filled), str(BATCH))
        return name

    def url(self, name: str) -> str:
        return f"jdbc:{self.kind}://127.0.0.1:{self.server.port}/{name}?{_PARAMETERS[self.kind]}"

    def sums(self, name: str) -> tuple[int, ...]:
        with closing(dialect(*self.place, name).open()) as session:
            table = f"{name if self.kind == 'mysql' else 'public'}.customer"
            (found,) = session.fetch((str,) * 5, f"SELECT {_SUMS} FROM {table}")
        return tuple(map(int, found))

    def cpu(self) -> float:
        """Seconds of the server's processes; those that ended are their parent's."""
        process, spent = psutil.Process(self.server.pid), 0.0
        for one in process.children():
            with suppress(psutil.NoSuchProcess):
                spent += sum(one.cpu_times()[:2])
        return spent + sum(process.cpu_times()[:4])


@pytest.fixture(params=["mysql", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "mysql":
        server: Server = request.getfixturevalue("mysql97_nogtid")
        server.create_user("bench", "bench", ["ALL"])
        server.run("SET GLOBAL local_infile = ON")
        found = Database("mysql", server, "bench", "bench", tmp_path)
        yield _with_account(found)
        server.run("SET GLOBAL local_infile = OFF", *(f"DROP DATABASE {name}" for name in found.created))
        return
    # it waits for the disk, unlike that of the tests
    with postgres_server({"fsync": "on", "full_page_writes": "on"}) as postgres:
        yield _with_account(Database("postgresql", postgres, "postgres", PASSWORD, tmp_path))


def _with_account(database: Database) -> Database:
    (database.folder / "username").write_text(database.user)
    (database.folder / "password").write_text(database.password)
    return database


@dataclass(frozen=True)
class SqlContender:
    """`run` does a work of so many rows or turns in the database of a name: a small one, and
    `large`."""

    name: str
    large: int
    run: Callable[[Database, str, int], Figures]


def _python(name: str, database: Database, *arguments: object) -> Figures:
    return measure(name, [sys.executable, str(_FOLDER / "sql_changes.py"), name, *map(str, arguments)])


def _java(database: Database, name: str, mode: str, count: int, turns: int, most: int) -> Figures:
    java = ["java", "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", f"{_DEBEZIUM / 'jars'}/*"]
    login = (database.url(name), database.user, database.password)
    words = (*login, "customer", mode, count, turns, most, database.folder / "times")
    return measure("debezium", [*java, str(_FOLDER / "DebeziumJdbcSink.java"), *map(str, words)])


def _spark(database: Database, name: str, count: int) -> Figures:
    table = f"{name if database.kind == 'mysql' else 'public'}.customer"
    folder, login = database.folder, (database.user, database.password)
    jars = ",".join(map(str, (_DEBEZIUM / "jars").glob("mysql-connector-j-*.jar"))) + ","
    jars += ",".join(map(str, (_DEBEZIUM / "jars").glob("postgresql-*.jar")))
    return _python("spark_load", database, database.url(name), *login, table, folder, count, BATCH, jars)


LOADERS = (
    SqlContender("CdcSync", MOST, lambda d, name, n: _python("cdcsync_load", d, *d.place, name, n, BATCH)),
    SqlContender(
        "Debezium's JDBC sink, 500 records a put", MANY, lambda d, name, n: _java(d, name, "insert", n, 0, 500)
    ),
    SqlContender("the same, 10,000 records", MANY, lambda d, name, n: _java(d, name, "insert", n, 0, BATCH)),
    SqlContender("Spark's JDBC writer", MOST, _spark),
)
CHANGERS = (
    SqlContender(
        "CdcSync",
        TURNS[1],
        lambda d, name, n: _python("cdcsync_changes", d, *d.place, name, CHANGED, n, BATCH, d.folder / "times"),
    ),
    SqlContender(
        "Debezium's JDBC sink, 500 records a put",
        TURNS[1],
        lambda d, name, n: _java(d, name, "upsert", CHANGED, n, 500),
    ),
    SqlContender("the same, 10,000 records", TURNS[1], lambda d, name, n: _java(d, name, "upsert", CHANGED, n, BATCH)),
)


@pytest.fixture(scope="module", autouse=True)
def debezium_jars() -> None:
    if not _DEBEZIUM.is_dir():
        subprocess.run([str(_FOLDER.parent / "support" / "maven-jars.sh"), str(_DEBEZIUM), *_ARTIFACTS], check=True)


def test_rows(database: Database) -> None:
    """Into an empty table."""
    for count in (FEWEST, MOST):
        pq.write_table(rows(1, count, 0), database.folder / f"{count}.parquet", row_group_size=BATCH)
    show("\n".join(_measured(database, LOADERS, FEWEST, filled=0, title="rows into an empty table")))


def test_changes(database: Database) -> None:
    """Updates of eight columns, and one delete in a hundred, by the key."""
    show("\n".join(_measured(database, CHANGERS, TURNS[0], filled=CHANGED, title="changes by key")))


def test_latency(database: Database) -> None:
    """Milliseconds from the call to the end of the commit, of so few changes."""
    lines = [f"{database.kind}: ms of a commit of {FEW} changes (Spark: of a write of {FEW} rows), median and slowest"]
    times = database.folder / "times"
    _python("cdcsync_changes", database, *database.place, database.new(BATCH), BATCH, 1, FEW, times)
    lines.append(_line("CdcSync", times, WARM_UP))
    _java(database, database.new(BATCH), "upsert", BATCH, 1, FEW)
    lines.append(_line("Debezium's JDBC sink", times, WARM_UP))
    pq.write_table(rows(1, FEW, 0), database.folder / f"{FEW}.parquet")
    for number in range(1, PIECES + 1):
        pq.write_table(rows(1 + number * FEW, FEW, 0), database.folder / f"piece-{number:02}.parquet")
    _spark(database, database.new(0), FEW)
    lines.append(_line("Spark's JDBC writer", times, 2))
    show("\n".join(lines))


def _line(name: str, times: Path, warm_up: int) -> str:
    spent = [float(word) for word in times.read_text().split()][warm_up:]
    return f"{name:42}{median(spent):9.1f}{max(spent):9.1f}   of {len(spent)}"


def _measured(
    database: Database, contenders: Sequence[SqlContender], small_size: int, *, filled: int, title: str
) -> Iterator[str]:
    yield (
        f"{database.kind}: {title}, {len(TABLE.columns)} columns, load {os.getloadavg()[0]:.1f}\n"
        f"{'':42}{'a CPU second':>14}{'CdcSync :':>11}{'server, us':>12}{'a second':>10}"
    )
    ends, ours = defaultdict[int, set[tuple[int, ...]]](set), 0.0
    for contender in contenders:
        figures, server = list[Figures](), list[float]()
        for size in (small_size, contender.large):
            name, before = database.new(filled), database.cpu()
            figures.append(contender.run(database, name, size))
            server.append(database.cpu() - before)
            ends[size].add(database.sums(name))
        small, large = figures
        count = large.rows - small.rows
        rate = count / (large.cpu - small.cpu)
        ours = ours or rate
        yield (
            f"{contender.name:42}{rate:14,.0f}{ours / rate:11.1f}{1e6 * (server[1] - server[0]) / count:12.1f}"
            f"{count / (large.wall - small.wall):10,.0f}"
        )
    assert {size: len(sums) for size, sums in ends.items()} == dict.fromkeys(ends, 1)
