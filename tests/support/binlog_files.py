"""Binlog files of other servers, which lie beside the project (`../shared/binlogs`): what each
holds, and what the program reads of it."""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from cdcsync_core.errors import CdcError, DecodeError, Reason
from cdcsync_core.runs.run import Decoder
from cdcsync_core.tables.capture import Capture, uncertain_members
from cdcsync_core.tables.source_table import LABELLED, Column, SourceTable, SourceType
from cdcsync_spark.wire.binlog import table_map as types
from cdcsync_spark.wire.binlog.facts import (
    MappedColumn,
    Operation,
    RowsEvent,
    TableMap,
    TransactionEnd,
    TransactionRollback,
)
from cdcsync_spark.wire.binlog.parser import EventParser, Flavor
from cdcsync_spark.wire.binlog.rows import DecodedRows, decode
from cdcsync_spark.wire.columns.charset import charset_of
from cdcsync_spark.wire.sql.column.column_types import max_bytes
from cdcsync_spark.wire.sql.syntax.text import Statement
from support.events import rotate

FOLDER = Path(__file__).parents[2].parent / "shared/binlogs"
_MAGIC = b"\xfebin"
_HEAD = struct.Struct("<IBIIIH")
#: MariaDB keeps it for a UNIQUE key that is too long for an index
_ROW_HASH = re.compile(r"DB_ROW_HASH_\d+")
_BINARY, _UTF8MB4, _LONGEST_BINARY = 63, 45, 255


@dataclass(frozen=True)
class Expected:
    """What the folder's README says of a file; `refused` are rows events that one version of the
    program did not decode."""

    name: str
    rows: tuple[int, int, int]
    transactions: int
    statements: int
    refused: int
    error: str

    @property
    def flavor(self) -> Flavor:
        return "mariadb" if self.name.startswith("mariadb") else "mysql"

    def events(self) -> Iterator[bytes]:
        """As a dump sends them; what is behind the last whole event is one, too."""
        data = (FOLDER / self.name).read_bytes()
        assert data[:4] == _MAGIC
        at = 4
        while at < len(data):
            size = _HEAD.unpack_from(data, at)[3] if at + _HEAD.size <= len(data) else len(data)
            yield data[at : at + max(size, 1)]
            at += max(size, 1)


def expected() -> list[Expected]:
    """The rows of the table in the README; none without the folder."""
    readme = FOLDER / "README.md"
    if not readme.exists():
        return []
    rows = [line.strip("|\n ").split(" | ") for line in readme.read_text().splitlines() if line.startswith("| m")]
    rows += [line.strip("|\n ").split(" | ") for line in readme.read_text().splitlines() if line.startswith("| u")]
    return [_expected([cell.strip(" |") for cell in row]) for row in rows]


def _expected(cells: list[str]) -> Expected:
    name, counts, error = cells[0], cells[5], cells[8] if len(cells) > 8 else ""
    inserted, updated, deleted = map(int, re.findall(r"\d+", counts)[:3])
    refused = re.search(r"\+ (\d+) rows events refused", counts)
    return Expected(
        name, (inserted, updated, deleted), int(cells[6]), int(cells[7]), int(refused[1]) if refused else 0, error
    )


@dataclass
class Read:
    """What was read of a file, both decoders agreeing on each row."""

    rows: Counter[Operation] = field(default_factory=Counter)
    transactions: int = 0
    statements: int = 0
    refused: list[CdcError] = field(default_factory=list)
    error: DecodeError | None = None
    values: list[dict[str, object]] = field(default_factory=list)


def read(file: Expected, excluded: frozenset[str] = frozenset()) -> Read:
    """Reads the file; all tables leave out the columns that are `excluded`."""
    parser, found = EventParser(file.flavor), Read()
    maps: dict[int, tuple[Capture, TableMap]] = {}
    try:
        for event in [rotate("binlog.000001"), *file.events()]:
            for fact in parser.feed(event):
                found.transactions += isinstance(fact, (TransactionEnd, TransactionRollback))
                found.statements += isinstance(fact, Statement)
                if isinstance(fact, RowsEvent):
                    _count(fact, found, maps, excluded)
    except DecodeError as error:
        found.error = error
    return found


def _count(event: RowsEvent, found: Read, maps: dict[int, tuple[Capture, TableMap]], excluded: frozenset[str]) -> None:
    if id(event.map) not in maps:
        maps[id(event.map)] = described(event.map, excluded)
    table, table_map = maps[id(event.map)]
    try:
        one, other = (decode(table, [event._replace(map=table_map)], [0], decoder) for decoder in Decoder)
    except CdcError as error:
        found.refused.append(error)
        return
    one.batch.validate(full=True)
    assert one.batch.equals(other.batch)
    assert one.nulled == other.nulled
    _compare_undescribed(event, table, table_map, one)
    found.values += one.batch.to_pylist()
    found.rows[event.operation] += one.images // (2 if event.operation is Operation.UPDATE else 1)


def _compare_undescribed(event: RowsEvent, table: Capture, table_map: TableMap, expected: DecodedRows) -> None:
    """The same rows, read by the definition alone, as of a server that describes as little as it
    can; what that cannot give is refused."""
    least = tuple(MappedColumn(c.code, c.meta, c.nullable) for c in table_map.columns)
    bare = event._replace(map=replace(table_map, columns=least, key=None))
    refused = bool(uncertain_members(table)) or len(least) != len(table.columns)
    for decoder in Decoder:
        if not refused:
            assert decode(table, [bare], [0], decoder).batch.equals(expected.batch)
            continue
        with pytest.raises(CdcError) as error:
            decode(table, [bare], [0], decoder)
        assert error.value.reason in (Reason.ROW_METADATA_NOT_FULL, Reason.ROW_IMAGE_NOT_FULL)


def described(table_map: TableMap, excluded: frozenset[str]) -> tuple[Capture, TableMap]:
    """A definition that the event's own is equal to, with what it does not say made up: names, no
    signs, bytes instead of texts. The server's own columns are no part of it."""
    mapped = tuple(_completed(i, column) for i, column in enumerate(table_map.columns))
    columns = tuple(_column(column) for column in mapped if not _ROW_HASH.fullmatch(column.name or ""))
    left_out = excluded & {column.name for column in columns}
    table = Capture(SourceTable(table_map.table, columns), (columns[0].name,), left_out)
    return table, replace(table_map, columns=mapped)


def _completed(place: int, column: MappedColumn) -> MappedColumn:
    members = column.members
    if members is None and column.code in (types.ENUM, types.SET):
        members = tuple(b"%d" % i for i in range(1, _number_of_members(column) + 1))
    longest = column.code == types.STRING and column.meta > _LONGEST_BINARY
    return replace(
        column,
        name=column.name or f"c{place}",
        unsigned=bool(column.unsigned),
        collation=column.collation or (_UTF8MB4 if longest else _BINARY),
        members=members,
    )


def _number_of_members(column: MappedColumn) -> int:
    """As many as make the width of a value."""
    if column.code == types.SET:
        return 8 * column.meta
    return 64 if column.meta == 1 else 256


_NUMBERS = {
    types.TINY: "tinyint",
    types.SHORT: "smallint",
    types.INT24: "mediumint",
    types.LONG: "int",
    types.LONGLONG: "bigint",
}
_NAMES = {
    types.FLOAT: "float",
    types.DOUBLE: "double",
    types.YEAR: "year",
    types.DATE: "date",
    types.NEWDATE: "date",
    types.DATETIME: "datetime",
    types.TIMESTAMP: "timestamp",
    types.TIME: "time",
    types.JSON: "json",
    types.GEOMETRY: "geometry",
    types.VECTOR: "vector(4)",
}
_SIZED = {types.DATETIME2: "datetime", types.TIMESTAMP2: "timestamp", types.TIME2: "time", types.BIT: "bit"}


def _column(column: MappedColumn) -> Column:
    assert column.collation is not None
    charset = charset_of(column.collation)
    declared = _declared(column, charset)
    source = SourceType.parse(declared, charset if declared.split("(")[0] in LABELLED else None)
    return Column(column.name or "", source, column.nullable)


def _declared(column: MappedColumn, charset: str) -> str:
    code, meta = column.code, column.meta
    if code in _NUMBERS:
        return _NUMBERS[code] + (" unsigned" if column.unsigned else "")
    if code in _NAMES:
        return _NAMES[code]
    if code in _SIZED:
        return f"{_SIZED[code]}({meta})"
    if code == types.DECIMAL:
        return f"decimal({meta & 0xFF},{meta >> 8})"
    if code in (types.ENUM, types.SET):
        members = ",".join("'" + m.decode(errors="replace").replace("'", "''") + "'" for m in column.members or ())
        return f"{'enum' if code == types.ENUM else 'set'}({members})"
    bare = charset == "binary"
    if code == types.STRING:
        return f"binary({meta})" if bare else f"char({meta // max_bytes(charset)})"
    if code in (types.VARCHAR, types.VAR_STRING):
        return f"varbinary({meta})" if bare else f"varchar({meta // max_bytes(charset)})"
    size = ("", "tiny", "", "medium", "long")[meta]
    return f"{size}{'blob' if bare else 'text'}"
