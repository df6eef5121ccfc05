"""Drawn tables and rows: a row that was written before the snapshot and the same row written after
it come out equal, by SELECT in both protocols and from the binlog, whether that names the columns
or not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.dump import changes, definition, log_end
from support.fixtures import FreshDatabase
from support.row_metadata import least_metadata
from support.servers import Server
from support.snapshots import assert_same

pytestmark = pytest.mark.server

_SESSION = ("SET sql_mode = 'ALLOW_INVALID_DATES'", "SET time_zone = '+00:00'")


@dataclass(frozen=True)
class RandomType:
    """A declared type and its values as SQL."""

    declared: str
    values: st.SearchStrategy[str]


def _integers(bits: int, unsigned: bool) -> st.SearchStrategy[str]:
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return st.integers(low, high).map(str)


def _decimals(precision: int, scale: int) -> st.SearchStrategy[str]:
    def printed(number: int) -> str:
        digits = f"{abs(number):0{scale + 1}d}"
        return ("-" if number < 0 else "") + (f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits)

    return st.integers(-(10**precision) + 1, 10**precision - 1).map(printed)


def _floats(width: int) -> st.SearchStrategy[str]:
    # written with an exponent, else the server takes it for a DECIMAL
    return st.floats(allow_nan=False, allow_infinity=False, width=width).map(lambda f: f"{f:.17e}")


def _texts(alphabet: st.SearchStrategy[str], size: int) -> st.SearchStrategy[str]:
    return st.text(alphabet, max_size=size).map(lambda t: f"CONVERT(x'{t.encode().hex()}' USING utf8mb4)")


def _binaries(size: int) -> st.SearchStrategy[str]:
    return st.binary(max_size=size).map(lambda b: f"x'{b.hex()}'")


def _dates() -> st.SearchStrategy[str]:
    """Zero, partial and impossible ones among them."""
    return st.builds(
        lambda y, m, d: f"{y:04d}-{m:02d}-{d:02d}", st.integers(0, 9999), st.integers(0, 12), st.integers(0, 31)
    )


def _clocks(hours: int, digits: int) -> st.SearchStrategy[str]:
    fraction = st.integers(0, 10**digits - 1).map(lambda n: f".{n:0{digits}d}" if digits else "")
    return st.builds(
        lambda h, m, s, f: f"{h:02d}:{m:02d}:{s:02d}{f}", st.integers(0, hours), *[st.integers(0, 59)] * 2, fraction
    )


def _quoted(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return values.map(lambda v: f"'{v}'")


def _datetimes(digits: int) -> st.SearchStrategy[str]:
    whole = st.builds(lambda d, c: f"{d} {c}", _dates(), _clocks(23, digits))
    # a zero date has no time
    return _quoted(whole.map(lambda v: v if not v.startswith("0000-00-00") else "0000-00-00 00:00:00"))


def _times(digits: int) -> st.SearchStrategy[str]:
    return _quoted(st.builds(lambda sign, c: sign + c, st.sampled_from(["", "-"]), _clocks(837, digits)))


def _timestamps(digits: int) -> st.SearchStrategy[str]:
    fraction = st.integers(0, 10**digits - 1).map(lambda n: n * 10 ** (6 - digits))
    return st.builds(lambda s, f: f"FROM_UNIXTIME({s}) + INTERVAL {f} MICROSECOND", st.integers(1, 2**31 - 1), fraction)


def _json() -> st.SearchStrategy[str]:
    text = st.text(_ANY, max_size=4)
    leaf = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | text
    documents = st.recursive(
        leaf, lambda d: st.lists(d, max_size=3) | st.dictionaries(text, d, max_size=3), max_leaves=6
    )
    printed = documents.map(lambda d: json.dumps(d, ensure_ascii=False).encode().hex())
    return printed.map(lambda h: f"CONVERT(x'{h}' USING utf8mb4)")


_ANY = st.characters(exclude_categories=["Cs"])
_LATIN = st.sampled_from("az Ä é ÿ€ž\0")
_CHINESE = st.sampled_from("a 你好世界丂々")

KINDS = [
    *(
        RandomType(f"{name}{sign}", _integers(bits, bool(sign)))
        for name, bits in (("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32), ("BIGINT", 64))
        for sign in ("", " UNSIGNED")
    ),
    *(RandomType(f"DECIMAL({p},{s})", _decimals(p, s)) for p, s in ((1, 0), (10, 2), (18, 18), (19, 4), (38, 20), (65, 30), (40, 0))),
    RandomType("FLOAT", _floats(32)),
    RandomType("DOUBLE", _floats(64)),
    RandomType("BIT(1)", st.sampled_from(["0", "1"])),
    RandomType("BIT(37)", _integers(37, True)),
    RandomType("YEAR", st.sampled_from(["0", "1901", "2024", "2155"])),
    RandomType("DATE", _quoted(_dates())),
    *(RandomType(f"DATETIME({d})", _datetimes(d)) for d in (0, 1, 6)),
    *(RandomType(f"TIME({d})", _times(d)) for d in (0, 2, 5)),
    *(RandomType(f"TIMESTAMP({d}) NULL", _timestamps(d)) for d in (0, 3, 6)),
    RandomType("CHAR(8)", _texts(_ANY, 8)),
    RandomType("VARCHAR(90)", _texts(_ANY, 90)),
    RandomType("TEXT", _texts(_ANY, 300)),
    RandomType("VARCHAR(20) CHARACTER SET latin1", _texts(_LATIN, 20)),
    RandomType("CHAR(9) CHARACTER SET gbk", _texts(_CHINESE, 9)),
    RandomType("VARCHAR(9) CHARACTER SET utf16", _texts(_ANY, 9)),
    RandomType("BINARY(7)", _binaries(7)),
    RandomType("VARBINARY(300)", _binaries(300)),
    RandomType("BLOB", _binaries(400)),
    RandomType("ENUM('a','b','ü','')", st.integers(0, 4).map(str)),
    RandomType("SET('x','y','z')", st.integers(0, 7).map(str)),
    RandomType("JSON", _json()),
]  # fmt: skip


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[RandomType], list[list[str]]]:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=24))
    row = st.tuples(*(st.just("NULL") | k.values for k in kinds)).map(list)
    return kinds, draw(st.lists(row, min_size=1, max_size=12))


@pytest.mark.parametrize("server_name", ["mariadb1011", "mysql97_gtid"])
def test_before_and_after_are_equal(
    server_name: str, request: pytest.FixtureRequest, fresh_database: FreshDatabase
) -> None:
    server: Server = request.getfixturevalue(server_name)
    database = fresh_database(server)

    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    @given(tables())
    def check(drawn: tuple[list[RandomType], list[list[str]]]) -> None:
        kinds, rows = drawn
        columns = ", ".join(f"c{i} {k.declared}" for i, k in enumerate(kinds))
        server.run("DROP TABLE IF EXISTS t", f"CREATE TABLE t (id INT PRIMARY KEY, {columns})", db=database)
        start = log_end(server)
        _insert(server, database, rows, 0)
        table = definition(server, database, "t")
        snapshot = assert_same(server, table).drop_columns(["id"])
        with least_metadata(server):
            _insert(server, database, rows, 1000)
        logged = pa.Table.from_batches([changes(server, table, start).batch]).select(snapshot.column_names)
        assert logged.slice(0, len(rows)).combine_chunks().equals(snapshot)
        assert logged.slice(len(rows)).combine_chunks().equals(snapshot)

    check()


def _insert(server: Server, database: str, rows: Sequence[Sequence[Any]], shift: int) -> None:
    values = ", ".join(f"({shift + i}, {', '.join(row)})" for i, row in enumerate(rows))
    server.run(*_SESSION, f"INSERT IGNORE INTO t VALUES {values}", db=database)
