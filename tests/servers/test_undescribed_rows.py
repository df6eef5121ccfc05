"""Rows that do not name their columns, as servers write them by themselves (`binlog_row_metadata`
MINIMAL on MySQL, NO_LOG on MariaDB): the copy equals the source after each class of statements, and
what no statement announces is found by the catalog (R9)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdcsync_core.errors import Reason
from cdcsync_core.state import TableState
from cdcsync_core.stops import UNANNOUNCED
from cdcsync_core.tables.evolve import DroppedColumns
from cdcsync_spark.binlog.schema.steps import FollowPolicy
from support.dump import changes, definition, log_end
from support.fixtures import FreshDatabase, variants
from support.memory_target import MemorySink
from support.row_metadata import least_metadata
from support.schema_classes import CLASSES, TABLES, WRITES
from support.servers import Server
from support.stepwise import Stepwise

pytestmark = pytest.mark.server

servers = variants("mariadb1011", "mysql97_gtid", also=("mariadb114", "mariadb118", "mysql97_nogtid"))
#: classes of which rows without names show the least
NOT_SHOWN = ("swap-names", "members", "drop-add-at-once", "convert", "truncate")


@pytest.fixture
def server(request: pytest.FixtureRequest, variant: str) -> Iterator[Server]:
    found: Server = request.getfixturevalue(variant)
    with least_metadata(found):
        yield found


def _copy(server: Server, database: str, folder: Path) -> Stepwise:
    """A copy of the tables a and b, confirmed by the catalog after each run."""
    server.run(*TABLES, db=database)
    folder.mkdir()
    policy = FollowPolicy(follow=True, dropped=DroppedColumns.DROP)
    made = Stepwise(server, database, folder, policy=policy, confirm=lambda: None)
    made.snapshot("a")
    made.snapshot("b")
    return made


@pytest.fixture
def copy(server: Server, fresh_database: FreshDatabase, tmp_path: Path) -> Stepwise:
    return _copy(server, fresh_database(server), tmp_path / "copy")


def _run(copy: Stepwise, *statements: str) -> None:
    copy.server.run(*statements, db=copy.database)


def _write(copy: Stepwise, number: int) -> None:
    _run(copy, *(w.format(number) for w in WRITES))


def _state(copy: Stepwise) -> TableState:
    state = copy.targets["a"].last_commit()
    assert state is not None
    return state


def _errors(copy: Stepwise) -> dict[str, tuple[Reason, str]]:
    return {name: (t.error.reason, t.error.found) for name, t in copy.follow().items() if t.error}


@servers
@pytest.mark.parametrize(
    "names", [NOT_SHOWN, pytest.param(tuple(CLASSES), marks=pytest.mark.long)], ids=["some", "all"]
)
def test_the_copy_equals_the_source_after_each_class(
    server: Server, names: tuple[str, ...], fresh_database: FreshDatabase, tmp_path: Path
) -> None:
    """Writes before and after it are read by one run; the catalog has confirmed each definition."""
    for name in names:
        kind, statements = CLASSES[name]
        copy = _copy(server, fresh_database(server), tmp_path / name)
        _write(copy, 10)
        _run(copy, *statements)
        _write(copy, 20)
        assert _errors(copy) == {}, name
        assert not copy.difference("a"), (name, str(copy.difference("a")))
        change = _state(copy).change
        assert change is not None
        assert (change.kind, change.unconfirmed, _state(copy).undescribed) == (kind, False, True), name


@servers
def test_a_change_that_rows_cannot_show_is_found_by_the_catalog(copy: Stepwise) -> None:
    """Names that change places without a statement in the binlog."""
    _run(copy, "ALTER TABLE a ADD m INT AFTER n")
    _write(copy, 10)
    assert _errors(copy) == {}
    _run(copy, "SET sql_log_bin = 0", "ALTER TABLE a CHANGE n m INT, CHANGE m n INT")
    _write(copy, 20)
    [(table, (reason, found))] = _errors(copy).items()
    assert (table, reason) == ("a", Reason.SCHEMA_CHANGE_REFUSED)
    assert found.endswith(UNANNOUNCED)


@servers
def test_a_change_that_rows_show_stops_the_table_before_them(copy: Stepwise) -> None:
    """Rows show it on either server by what they carry: lengths, and whether a column may be
    NULL."""
    _write(copy, 10)
    assert _errors(copy) == {}
    for number, (name, clauses) in enumerate({"a": "v VARCHAR(50)", "b": "v VARCHAR(40) NOT NULL"}.items()):
        before = copy.targets[name].last_commit()
        _run(copy, "SET sql_log_bin = 0", f"ALTER TABLE {name} MODIFY {clauses}")
        _write(copy, 20 + 10 * number)
        reason, found = _errors(copy)[name]
        assert reason is Reason.SCHEMA_CHANGE_REFUSED
        assert found.endswith(UNANNOUNCED)
        assert copy.targets[name].last_commit() == before


@servers
def test_a_statement_while_the_table_is_read_is_not_followed(copy: Stepwise) -> None:
    """Rows before it were read by the definition of the catalog, which may be that of after it. One
    that defines no column is none of those."""
    copy.chunk_size = 1
    _run(copy, "ALTER TABLE a ADD m INT AFTER n")
    swap = "ALTER TABLE a CHANGE n m INT AFTER v, CHANGE m n INT AFTER m"
    back = "ALTER TABLE a CHANGE m n INT AFTER v, CHANGE n m INT AFTER n"

    harmless = ["UPDATE a SET n = 5", "ALTER TABLE a ADD INDEX k (n)", "UPDATE a SET n = 6"]

    def among(split: int) -> None:
        if split == 0:
            _run(copy, "UPDATE a SET n = 1, m = 2", swap, "UPDATE a SET n = 3, m = 4 WHERE id = 3", back)

    copy.sink = MemorySink(sync="test/stepwise")
    copy.snapshot("a", lambda split: _run(copy, *(harmless if split == 0 else [])))
    assert _errors(copy) == {}
    copy.sink = MemorySink(sync="test/stepwise")
    copy.snapshot("a", among)
    [(table, (reason, found))] = _errors(copy).items()
    assert (table, reason) == ("a", Reason.SCHEMA_CHANGE_REFUSED)
    assert "do not name their columns" in found


@servers
def test_a_table_dropped_and_made_again_with_other_columns_of_the_same_types(copy: Stepwise) -> None:
    _write(copy, 10)
    _run(copy, "DROP TABLE b", "CREATE TABLE b (id INT PRIMARY KEY, w VARCHAR(40))", "INSERT INTO b VALUES (7, 'x')")
    assert {name: reason for name, (reason, _) in _errors(copy).items()} == {"b": Reason.TABLE_GONE}


@servers
def test_lengths_are_compared_by_the_widths_of_every_character_set(
    server: Server, fresh_database: FreshDatabase
) -> None:
    """On a table that nothing changed no difference is found."""
    database = fresh_database(server)
    charsets = [name for (name,) in server.query("SELECT character_set_name FROM information_schema.character_sets")]
    forms = ("CHAR(3)", "VARCHAR(70)", "TEXT", "ENUM('a', 'b')", "SET('a', 'b')")
    columns = [f"c{i}_{n} {form} CHARACTER SET {c}" for i, c in enumerate(charsets) for n, form in enumerate(forms)]
    plain = ("CHAR", "BINARY", "BIT", "DECIMAL", "DEC(7)", "FLOAT(7,3)", "REAL", "SERIAL", "NATIONAL VARCHAR(9)")
    sized = (
        "TINYTEXT",
        "MEDIUMTEXT",
        "LONGTEXT",
        "TINYBLOB",
        "MEDIUMBLOB",
        "LONGBLOB",
        "BLOB(9)",
        "TEXT(90000)",
        "LONG",
    )
    others = ("CHAR(255)", "VARCHAR(3000)", "BINARY(255)", "VARBINARY(256)", "BOOL", "DATETIME", "TIME(3)", "YEAR")
    columns += [f"p{n} {form}" for n, form in enumerate((*plain, *sized, *others))]
    tables = [columns[i : i + 60] for i in range(0, len(columns), 60)]
    for number, some in enumerate(tables):
        server.run(f"CREATE TABLE t{number} (id INT PRIMARY KEY, {', '.join(some)})", db=database)
        start = log_end(server)
        server.run(f"INSERT INTO t{number} (id) VALUES (1)", db=database)
        assert changes(server, definition(server, database, f"t{number}"), start).images == 1
