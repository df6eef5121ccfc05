"""Batches of three tables while all that makes them ends by turns: the writer, its connection in
COMMIT, the server. Another session, in READ COMMITTED, sees no part of a batch, and at the end the
rows are those of all batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cdcsync_core.state import TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.schema_change import Filled, Kept, Origin
from cdcsync_spark.sinks.contract.changes import Build, Upsert
from cdcsync_spark.sinks.contract.writer import Writer
from cdcsync_spark.sinks.sql import sessions
from cdcsync_spark.sinks.sql.dialects.names import table_name
from cdcsync_spark.sinks.sql.target import SqlSink
from contract.sinkcase import SYNC, batch, content, in_order, keys_of, make_table, rows_of, step, whole_snapshot
from support import sql_sink
from support.commit_cuts import CommitCuts, cuts_to
from support.deaths import Died, at_gate, dying_at
from support.fixtures import FreshServer
from support.postgresql import postgres_server
from support.target_server import MySqlReader, PostgresReader, TargetReader
from support.threads import repeated

pytestmark = [pytest.mark.server, pytest.mark.timeout(1800)]
NAMES, ACCOUNTS, AMOUNT, MOVES = ("checking", "saving", "gone"), 40, 100, 6
COLUMNS = {"id": "int(11)", "amount": "int(11)"}
PLAIN = [make_table(COLUMNS, ["id"], name=name) for name in NAMES]
#: the last table with a column more
WIDER = make_table({**COLUMNS, "fee": "int(11)"}, ["id"], name=NAMES[-1])
#: what happens to a batch, by turns
FAULTS = ("cut", "landed", "sql-rows-written", "sql-committed", "crash", "step")
TURNS = 3


@contextmanager
def served(kind: str, fresh_server: FreshServer, folder: Path) -> Iterator[tuple[Any, TargetReader]]:
    """A server of its own, which may be killed."""
    with ExitStack() as stack:
        if kind == "postgresql":
            postgres = stack.enter_context(postgres_server())
            dialect: Any = stack.enter_context(sql_sink.postgresql(postgres, folder))
            yield dialect, PostgresReader(postgres, dialect.database)
        else:
            server = fresh_server({"mariadb": "mariadb1011", "mysql": "mysql97_nogtid"}[kind])
            yield stack.enter_context(sql_sink.mysql(server, folder)), MySqlReader(server)


@dataclass
class Accounts:
    """Rows of the tables as all batches have left them; `writers` are those of a run."""

    sink: SqlSink
    folder: Path
    random: Random = field(default_factory=lambda: Random(38))
    number: int = 0
    wide: bool = False

    def __post_init__(self) -> None:
        self.rows = [dict.fromkeys(range(ACCOUNTS), AMOUNT) for _ in PLAIN]
        for table, rows in zip(PLAIN, self.rows, strict=True):
            whole_snapshot(self.sink.target(table.id), list(rows.items()), table)
        self.begin()

    def begin(self) -> None:
        """A run, which knows nothing of the one before."""
        sessions.close_idle()
        self.writers: list[Writer] = [self.sink.target(table.id).writer(self.folder) for table in PLAIN]

    @property
    def tables(self) -> list[Capture]:
        return [*PLAIN[:-1], WIDER if self.wide else PLAIN[-1]]

    def values(self, number: int, ids: Sequence[int]) -> list[tuple[Any, ...]]:
        more = (None,) if self.wide and number == len(PLAIN) - 1 else ()
        return [(n, self.rows[number][n], *more) for n in ids]

    def moves(self) -> list[Build]:
        """Amounts go from one table to another; every second account with all that it has."""
        self.number += 1
        before = [dict(rows) for rows in self.rows]
        for _ in range(MOVES):
            giver, taker = self.random.sample(range(len(PLAIN)), 2)
            account = self.random.choice(sorted(self.rows[giver]))
            amount = self.rows[giver][account] if account % 2 else 1
            self.rows[giver][account] -= amount
            self.rows[taker][account] = self.rows[taker].get(account, 0) + amount
            if not self.rows[giver][account]:
                del self.rows[giver][account]
        return [batch(self.number, self._change(n, before[n])) for n in range(len(PLAIN))]

    def _change(self, number: int, before: dict[int, int]) -> Upsert:
        now, table = self.rows[number], self.tables[number]
        changed = [n for n in now if before.get(n) != now[n]]
        return Upsert(rows_of(table, self.values(number, changed)), keys_of(table, [(n,) for n in before.keys() - now]))

    def commit(self, builds: Sequence[Build]) -> None:
        outcomes = list(self.sink.commit_all(1, list(zip(self.writers, builds, strict=True))))
        assert all(isinstance(outcome, TableState) for outcome in outcomes), outcomes

    def change_columns(self) -> None:
        """The last table gets a column, or loses it."""
        self.number += 1
        self.wide = not self.wide
        origins: list[Origin] = [Kept(name) for name in COLUMNS]
        if self.wide:
            origins.append(Filled())
        self.writers[-1].commit(1, step(self.number, self.tables[-1], origins))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["postgresql", "mariadb", "mysql"])
def test_a_reader_sees_whole_batches_while_all_is_killed(kind: str, fresh_server: FreshServer, tmp_path: Path) -> None:
    with served(kind, fresh_server, tmp_path) as (dialect, reader):
        with cuts_to(dialect.login.host, dialect.login.port) as relay:
            sink = SqlSink(replace(dialect, login=replace(dialect.login, port=relay.port)), SYNC)
            accounts, totals = Accounts(sink, tmp_path), set[int]()
            names = [table_name(dialect, dialect.place(table.id)) for table in PLAIN]
            total = " + ".join(f"(SELECT SUM(amount) FROM {name})" for name in names)

            def read() -> bool:
                rows = reader.read(f"SELECT {total}")
                totals.update(int(row[0]) for row in rows or ())
                return rows is not None

            with repeated(read) as reads:
                for fault in FAULTS * TURNS:
                    before = len(reads)
                    commit_with(fault, accounts, relay, reader)
                    while len(reads) == before:
                        time.sleep(0.01)
            assert relay.cuts == 2 * TURNS
        sessions.close_idle()
        for number, table in enumerate(accounts.tables):
            rows = in_order(accounts.values(number, sorted(accounts.rows[number])))
            assert content(SqlSink(dialect, SYNC).target(table.id)) == rows
            columns = ", ".join(column.name for column in table.captured)
            assert in_order(reader.read(f"SELECT {columns} FROM {names[number]}") or ()) == rows
    assert totals == {len(PLAIN) * ACCOUNTS * AMOUNT}


def commit_with(fault: str, accounts: Accounts, relay: CommitCuts, reader: TargetReader) -> None:
    if fault == "step":
        accounts.change_columns()
        return
    builds = accounts.moves()
    if fault in ("cut", "landed"):
        relay.cut(landed=fault == "landed")
    if fault.startswith("sql-"):
        with dying_at(fault), pytest.raises(Died):
            accounts.commit(builds)
        accounts.begin()
    with at_gate("sql-rows-written", reader.crash) if fault == "crash" else nullcontext():
        accounts.commit(builds)
