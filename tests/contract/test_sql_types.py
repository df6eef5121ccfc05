"""Values of every type of a source at its ends, in tables of SQL databases."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, Reason
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.evolve import DroppedColumns, evolve
from cdcsync_core.tables.schema_change import Converted, Filled, Followed, Kept, Value
from cdcsync_core.tables.source_table import TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.sinks.contract.changes import Upsert
from cdcsync_spark.sinks.sql.target import SqlSink
from contract.conftest import DATABASES, SELDOM, served
from contract.sinkcase import (
    ORDERS,
    Row,
    batch,
    content,
    first_state,
    in_order,
    keys_of,
    make_table,
    rows_of,
    step,
    whole_snapshot,
)

pytestmark = pytest.mark.parametrize(
    ("sink", "store"), [served(name, name in SELDOM) for name in DATABASES], indirect=True
)
UTC = dt.UTC
#: its rows: the type in the source, in memory, in MySQL and MariaDB, in PostgreSQL
_MANUAL = Path(__file__).parents[2] / "docs" / "reference" / "types.md"
_ROW = re.compile(r"^\| `([A-Z].*?)` \| `(.*?)` \| `?(.*?)`? \| `(.*?)` \|", re.MULTILINE)
#: the declared type, the least and the greatest value
ENDS: dict[str, tuple[object, object]] = {
    "bit(1)": (False, True),
    "bit(10)": (b"\0\0", b"\3\xff"),
    "tinyint(4)": (-128, 127),
    "tinyint(3) unsigned": (0, 255),
    "smallint(6)": (-(2**15), 2**15 - 1),
    "smallint(5) unsigned": (0, 2**16 - 1),
    "int(11)": (-(2**31), 2**31 - 1),
    "int(10) unsigned": (0, 2**32 - 1),
    "bigint(20)": (-(2**63), 2**63 - 1),
    "bigint(20) unsigned": (Decimal(0), Decimal(2**64 - 1)),
    "decimal(38,30)": (Decimal("-" + "9" * 8 + "." + "9" * 30), Decimal("1E-30")),
    "decimal(65,30)": ("-" + "9" * 35 + "." + "9" * 30, "0." + "0" * 29 + "1"),
    "float": (-3.4028234663852886e38, 16777216.0),
    "double": (-1.7976931348623157e308, 5e-324),
    "year(4)": (0, 2155),
    "date": (dt.date(1, 1, 1), dt.date.max),
    "datetime(6)": (dt.datetime(1, 1, 1), dt.datetime.max),
    "timestamp(6)": (
        dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        dt.datetime(2038, 1, 19, 3, 14, 7, 999999, tzinfo=UTC),
    ),
    "time(6)": ("-838:59:59.000000", "838:59:59.000000"),
    "char(3)": ("", "\U0010ffff" * 3),
    "varchar(200)": (" ", "ü\t\\N\n" * 40),
    "longtext": ("'", "😀" * 30_000),
    "binary(4)": (b"\0\0\0\0", b"\xff\xff\xff\0"),
    "varbinary(300)": (b"", bytes(range(256))),
    "longblob": (b"\\N", b"\\x" * 70_000),
    "enum('a','ü')": ("", "ü"),
    "set('a','ü')": ("", "a,ü"),
    "json": ("null", '{"a": [1, 1.1, "\\u0000"]}'),
    "geometry": (b"\0\0\0\0\1\1\0\0\0" + bytes(16), b"\xe6\x10\0\0\1\1\0\0\0" + b"\xff" * 16),
}
#: the declared type of a column that is added, its default in the terms of the source, and the
#: value that is read
FILLS: dict[str, tuple[Value, object]] = {
    "bit(1)": (1, True),
    "bit(10)": (513, b"\2\1"),
    "int(11)": (-5, -5),
    "bigint(20) unsigned": (2**64 - 1, Decimal(2**64 - 1)),
    "decimal(10,3)": (Decimal("-1.5"), Decimal("-1.500")),
    "decimal(65,3)": (Decimal("-1.5"), "-1.500"),
    "float": (0.10000000149011612, 0.10000000149011612),
    "double": (1e-300, 1e-300),
    "year(4)": (2024, 2024),
    "date": (dt.date(1000, 2, 3), dt.date(1000, 2, 3)),
    "datetime(6)": (dt.datetime(1000, 2, 3, 4, 5, 6, 7), dt.datetime(1000, 2, 3, 4, 5, 6, 7)),
    "timestamp": (dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC), dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=UTC)),
    "timestamp(6)": (dt.datetime(2024, 3, 31, 2, 30, 0, 7, UTC), dt.datetime(2024, 3, 31, 2, 30, 0, 7, UTC)),
    "time(3)": (dt.timedelta(hours=101, milliseconds=5), "101:00:00.005"),
    "varchar(20)": ("ü\t'\"\\%s\n", "ü\t'\"\\%s\n"),
    "longtext": ("", ""),
    "varbinary(20)": (b"\0\xff\\'", b"\0\xff\\'"),
    "enum('a','ü')": ("ü", "ü"),
}
#: the declared type of a column, a wider one, a value of the first, and what it is in the second
WIDENED: list[tuple[str, str, object, object]] = [
    ("tinyint(4)", "bigint(20)", -128, -128),
    ("int(10) unsigned", "bigint(20) unsigned", 2**32 - 1, Decimal(2**32 - 1)),
    ("float", "double", 3.4028234663852886e38, 3.4028234663852886e38),
    ("decimal(10,2)", "decimal(38,30)", Decimal("-1.25"), Decimal("-1.25")),
    ("decimal(10,2)", "decimal(65,4)", Decimal("-1.25"), "-1.2500"),
    ("decimal(38,10)", "decimal(65,30)", Decimal("1E-10"), "0.0000000001" + "0" * 20),
    ("decimal(38,0)", "decimal(65,0)", Decimal(-(10**37)), str(-(10**37))),
    ("decimal(40,0)", "decimal(65,2)", "7", "7.00"),
    ("date", "datetime(6)", dt.date(1, 2, 3), dt.datetime(1, 2, 3)),
    ("datetime", "datetime(6)", dt.datetime(9999, 12, 31), dt.datetime(9999, 12, 31)),
    ("time", "time(3)", "-838:59:59", "-838:59:59.000"),
    ("bit(9)", "bit(16)", b"\1\2", b"\1\2"),
    ("char(5)", "longtext", "é\\", "é\\"),
    ("varchar(5)", "varchar(2000)", "\t", "\t"),
    ("varbinary(5)", "longblob", b"\0a\xff", b"\0a\xff"),
    ("enum('a')", "enum('longer','a')", "a", "a"),
]
TABLE = make_table({"id": "int(11)"} | {f"c{n}": declared for n, declared in enumerate(ENDS)}, ["id"])
LEAST, GREATEST = ([end[n] for end in ENDS.values()] for n in (0, 1))
NULLS: list[object] = [None] * len(ENDS)


def test_every_type_is_kept_at_its_ends(sink: SqlSink, store: object) -> None:
    """As a snapshot loads them, and as a batch changes them."""
    target = sink.target(TABLE.id)
    first: list[Row] = [(1, *LEAST), (2, *GREATEST), (3, *NULLS)]
    whole_snapshot(target, first, TABLE)
    assert content(target) == in_order(first)
    changed: list[Row] = [(1, *NULLS), (2, *LEAST), (3, *GREATEST), (4, *GREATEST)]
    target.commit(1, batch(1, Upsert(rows_of(TABLE, changed), keys_of(TABLE, []))))
    assert content(target) == in_order(changed)


def test_added_columns_are_filled_with_their_defaults(sink: SqlSink, store: object) -> None:
    table = make_table({"id": "int(11)"}, ["id"])
    wider = make_table({"id": "int(11)"} | {f"c{n}": kind for n, kind in enumerate(FILLS)}, ["id"])
    change = Followed(table, wider, (Kept("id"), *(Filled(default) for default, _ in FILLS.values())))
    _, origins = evolve(TargetSchema.of(table), change, DroppedColumns.KEEP)
    target = sink.target(table.id)
    whole_snapshot(target, [(1,), (2,)], table)
    target.commit(1, step(1, wider, origins))
    assert content(target) == [(n, *(filled for _, filled in FILLS.values())) for n in (1, 2)]


def test_a_wider_type_keeps_the_values(sink: SqlSink, store: object) -> None:
    table = make_table({"id": "int(11)"} | {f"c{n}": case[0] for n, case in enumerate(WIDENED)}, ["id"])
    wider = make_table({"id": "int(11)"} | {f"c{n}": case[1] for n, case in enumerate(WIDENED)}, ["id"])
    change = Followed(table, wider, (Kept("id"), *(Converted(f"c{n}") for n in range(len(WIDENED)))))
    _, origins = evolve(TargetSchema.of(table), change, DroppedColumns.KEEP)
    target, nulls = sink.target(table.id), [None] * len(WIDENED)
    whole_snapshot(target, [(1, *(case[2] for case in WIDENED)), (2, *nulls)], table)
    target.commit(1, step(1, wider, origins))
    assert content(target) == [(1, *(case[3] for case in WIDENED)), (2, *nulls)]


def test_a_name_that_the_database_keeps_for_itself_is_refused(sink: SqlSink, store: object) -> None:
    """PostgreSQL has columns and schemas of its own, InnoDB a column for its full-text indexes."""
    refused, taken = ("xmin", "FTS_DOC_ID") if sink.dialect.alters_in_transactions else ("FTS_DOC_ID", "xmin")
    table = make_table({"id": "int(11)", refused: "int(11)"}, ["id"], name="refused")
    _assert_type_refused(sink, table.id, table, refused)
    if sink.dialect.alters_in_transactions:
        _assert_type_refused(sink, TableId("pg_shop", "orders"), ORDERS, "pg_shop")
    table = make_table({"id": "int(11)", taken: "int(11)"}, ["id"], name="taken")
    whole_snapshot(sink.target(table.id), [(1, 2)], table)
    assert content(sink.target(table.id)) == [(1, 2)]


def _assert_type_refused(sink: SqlSink, place: TableId, table: Capture, name: str) -> None:
    with pytest.raises(CdcError, match=name) as refused:
        sink.target(place).prepare(first_state(table))
    assert refused.value.reason is Reason.TYPE_UNSUPPORTED


def test_a_zero_keeps_its_sign_where_the_database_has_one(sink: SqlSink, store: object) -> None:
    """As a snapshot loads it, and as a batch changes it; MariaDB stores none below 0."""
    table = make_table({"id": "int(11)", "d": "double", "f": "float"}, ["id"], name="zeros")
    target, session = sink.target(table.id), sink.dialect.open()
    least = 0.0 if not sink.dialect.alters_in_transactions and session.is_mariadb else -0.0  # type: ignore[attr-defined]
    session.close()
    whole_snapshot(target, [(1, -0.0, -0.0), (2, 0.0, 0.0)], table)
    assert repr(content(target)) == repr([(1, least, least), (2, 0.0, 0.0)])
    target.commit(1, batch(1, Upsert(rows_of(table, [(1, 0.0, 0.0), (2, -0.0, -0.0)]), keys_of(table, []))))
    assert repr(content(target)) == repr([(1, 0.0, 0.0), (2, least, least)])


def test_the_manual_has_the_servers_types(sink: SqlSink, store: object) -> None:
    """Creates a column of each type outside the key; a type that is refused has none."""
    at = 3 if sink.dialect.alters_in_transactions else 2
    shown = {declared: cells[at - 1] for declared, *cells in _ROW.findall(_MANUAL.read_text())}
    shown = {declared: kind for declared, kind in shown.items() if kind != "refused"}
    table = make_table({"id": "int(11)"} | {f"c{n}": t.lower() for n, t in enumerate(shown)}, ["id"])
    target = sink.target(table.id)
    target.prepare(first_state(table))
    session = sink.dialect.open()
    created = sink.dialect.definitions(session, target.place.name)
    session.close()
    texts = "" if at == 3 else " CHARACTER SET utf8mb4"
    declared = [kind + (texts if re.match("VARCHAR|LONGTEXT", kind) else "") for kind in shown.values()]
    assert len(declared) == 35 - (at == 2)
    differing = [kind for n, kind in enumerate(declared) if not sink.dialect.is_defined(kind, created[f"c{n}"])]
    assert differing == []


def test_more_digits_than_the_database_has_are_refused_before_a_table_is_there(sink: SqlSink, store: object) -> None:
    """MariaDB has 38 behind the point, MySQL 30."""
    table = make_table({"id": "int(11)", "d": "decimal(38,35)"}, ["id"])
    target, session = sink.target(table.id), sink.dialect.open()
    if sink.dialect.alters_in_transactions or session.is_mariadb:  # type: ignore[attr-defined]
        rows: list[Row] = [(1, Decimal("-1." + "0" * 34 + "1")), (2, None)]
        whole_snapshot(target, rows, table)
        assert content(target) == in_order(rows)
    else:
        with pytest.raises(CdcError, match=r"scale 35 .*'d'") as refused:
            target.prepare(first_state(table))
        assert refused.value.reason is Reason.TYPE_UNSUPPORTED
        assert sink.dialect.columns(session, target.place.name) == []
    session.close()


@pytest.mark.parametrize("year", [1970, 2100])
def test_a_timestamp_that_the_database_does_not_have_stops_its_table(sink: SqlSink, store: object, year: int) -> None:
    """A source on MariaDB has some in the second 0 of 1970, and from 11.5 on those behind 2038."""
    table = make_table({"id": "int(11)", "at": "timestamp(6)"}, ["id"])
    target, rows = sink.target(table.id), [(2, dt.datetime(year, 1, 1, microsecond=500_000, tzinfo=UTC))]
    whole_snapshot(target, [(1, None)], table)
    change = batch(1, Upsert(rows_of(table, rows), keys_of(table, [])))
    session = sink.dialect.open()
    if sink.dialect.alters_in_transactions or (session.is_mariadb and year == 1970):  # type: ignore[attr-defined]
        target.commit(1, change)
        assert content(target) == in_order([(1, None), *rows])
    else:
        with pytest.raises(CdcError, match="'at'") as refused:
            target.commit(1, change)
        assert refused.value.reason is Reason.SINK_CONFLICT
        assert content(target) == [(1, None)]
    session.close()


def test_a_character_nul_stops_its_table_where_the_database_has_none(sink: SqlSink, store: object) -> None:
    table = make_table({"id": "int(11)", "note": "text"}, ["id"])
    target, rows = sink.target(table.id), [(2, "a\0b")]
    whole_snapshot(target, [(1, "first")], table)
    change = batch(1, Upsert(rows_of(table, rows), keys_of(table, [])))
    if sink.dialect.alters_in_transactions:
        with pytest.raises(CdcError, match="0x00") as refused:
            target.commit(1, change)
        assert refused.value.reason is Reason.SINK_CONFLICT
        assert content(target) == [(1, "first")]
    else:
        target.commit(1, change)
        assert content(target) == in_order([(1, "first"), *rows])


def test_a_vector_is_kept_where_the_database_has_arrays(sink: SqlSink, store: object) -> None:
    table = make_table({"id": "int(11)", "v": "vector(2)"}, ["id"])
    target = sink.target(table.id)
    if sink.dialect.alters_in_transactions:
        rows: list[Row] = [(1, [0.5, 3.4028234663852886e38]), (2, None)]
        whole_snapshot(target, rows, table)
        assert content(target) == in_order(rows)
    else:
        with pytest.raises(CdcError, match="'v'") as refused:
            target.prepare(first_state(table))
        assert refused.value.reason is Reason.TYPE_UNSUPPORTED
