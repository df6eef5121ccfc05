"""Whatever reads bytes that others wrote answers with a value or a CdcError: never with another
exception, within its time and memory.

Each test damages well-formed input for some seconds of CPU (`_SECONDS`), under a limit on the
address space: an allocation by a length that was only claimed would end in MemoryError, a loop
without end in the test's timeout. `make test-all` looks for new examples.
"""

from __future__ import annotations

import json
import resource
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.resource.manifest import load_manifest
from cdcsync_core.state import Identity, TableState
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_core.tables.target_schema import TargetSchema
from cdcsync_spark.sinks.delta.table.log import parsing
from cdcsync_spark.sinks.delta.table.vector_files import Descriptor, z85
from cdcsync_spark.sinks.delta.table.view import TableView, entry_text
from cdcsync_spark.sinks.lake.files.deletion_vectors import load, serialised
from cdcsync_spark.wire.binlog.facts import RowsEvent
from cdcsync_spark.wire.binlog.json.json_binary import json_text
from cdcsync_spark.wire.binlog.parser import EventParser, Flavor
from cdcsync_spark.wire.binlog.rows import decode
from cdcsync_spark.wire.columns.gather import PAD
from cdcsync_spark.wire.resultset.binary_row import RowDecoder
from cdcsync_spark.wire.resultset.packets import Payloads
from support.binaryjson import document
from support.events import (
    GTID,
    GTID_LIST,
    HEARTBEAT,
    HEARTBEAT_2,
    ID_V,
    INCIDENT,
    MARIADB_GTID,
    PAYLOAD,
    QUERY,
    TABLE_MAP,
    TAGGED,
    UPDATE,
    WRITE,
    XA_PREPARE,
    XID,
    event,
    format_event,
    gtid,
    gtid_list,
    image,
    mariadb_gtid,
    query,
    rotate,
    rows,
)
from support.results import UNSIGNED, UTF8, definition, receive, response, row, string

pytestmark = pytest.mark.long

_SECONDS = 5.0
#: beyond what the process has: more than any input here may ask for, less than a claimed length of
#: 32 bits
_MEMORY = 2 << 30
_LENGTHS = [b"\xff" * n for n in (1, 2, 3, 4, 8)] + [b"\0" * n for n in (1, 2, 4, 8)]
_LENGTHS += [b"\xfc\xff\xff", b"\xfd\xff\xff\xff", b"\xfe" + b"\xff" * 7 + b"\x7f", struct.pack("<I", 1 << 31)]

fuzz = settings(max_examples=1_000, deadline=None, suppress_health_check=list(HealthCheck), database=None)


@contextmanager
def _bounded() -> Iterator[None]:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class Budget:
    """For each test; begun with its first example."""

    def __init__(self) -> None:
        self._end = 0.0

    def read(self, reader: Callable[[], object]) -> None:
        self._end = self._end or time.process_time() + _SECONDS
        if time.process_time() < self._end:
            with suppress(CdcError):
                reader()


@pytest.fixture
def budget() -> Iterator[Budget]:
    with _bounded():
        yield Budget()


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Some bytes of it are others, gone, doubled, or lengths that nothing has."""
    found = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(found)))
        gone = draw(st.sampled_from([0, 1, 2, 4, 8, 64]))
        new = draw(st.one_of(st.sampled_from(_LENGTHS), st.binary(max_size=8), st.just(bytes(found[at : at + 16]))))
        found[at : at + gone] = new
    return bytes(found)


# -- the binlog


_COMPRESSED = pa.compress(
    b"".join([event(QUERY, query("BEGIN")), event(TABLE_MAP, ID_V), event(XID, bytes(8))]), "zstd", asbytes=True
)
_STATUS = b"\0" + bytes(4) + b"\1" + bytes(8) + b"\6\3std" + b"\x83\1" + bytes(4) + b"\4\x2d\0\x2d\0\x08\0"
_BODIES = {
    "mysql": [
        (GTID, gtid(1, committed=5, original=4)),
        (QUERY, query("BEGIN")),
        (TABLE_MAP, ID_V),
        (WRITE, rows(18, image(1, "a") + image(2, "b"), width=2)),
        (UPDATE, rows(18, image(1, "a") * 2, width=2, update=True)),
        (XID, bytes(8)),
        (TAGGED, bytes.fromhex("027c00000202ee450341025802690322c50369028241023502dcbedc35020404")),
        (PAYLOAD, bytes([2, 1, 0, 1, 1, len(_COMPRESSED), 0]) + _COMPRESSED),
        (HEARTBEAT_2, b"\1\x0dbinlog.000001\2\1\x50\0"),
        (GTID, gtid(2)),
        (QUERY, query("ALTER TABLE t ADD x INT", status=_STATUS)),
        (XA_PREPARE, b"\1" + struct.pack("<III", 7, 1, 2) + b"abc"),
        (INCIDENT, b"\1\0\3abc"),
    ],
    "mariadb": [
        (GTID_LIST, gtid_list((0, 1, 5), (1, 2, 6))),
        (MARIADB_GTID, mariadb_gtid(1)),
        (TABLE_MAP, ID_V),
        (WRITE, rows(18, image(1, "a"), width=2)),
        (XID, bytes(8)),
        (MARIADB_GTID, mariadb_gtid(2, flags=33)),
        (QUERY, query("DROP TABLE `t`", status=_STATUS)),
        (HEARTBEAT, b"binlog.000001"),
        (MARIADB_GTID, mariadb_gtid(3, flags=1)),
        (165, query("x", status=_STATUS)[:-1] + b"\x82\0\0\0\x10"),
    ],
}
_T = Capture(
    SourceTable(
        TableId("shop", "t"),
        (Column("id", SourceType.parse("int")), Column("v", SourceType.parse("varchar(10)", "utf8mb4"))),
    ),
    ("id",),
)


def _follow(flavor: Flavor, events: list[bytes]) -> None:
    parser = EventParser(flavor)
    for raw in [rotate("binlog.000001"), format_event(), *events]:
        for fact in parser.feed(raw):
            if isinstance(fact, RowsEvent) and fact.defect is None:
                decode(_T, [fact], [0])


@fuzz
@given(data=st.data(), flavor=st.sampled_from(["mysql", "mariadb"]))
def _events(budget: Budget, data: st.DataObject, flavor: Flavor) -> None:
    chosen = data.draw(st.integers(0, len(_BODIES[flavor]) - 1))
    bodies = list(_BODIES[flavor])
    bodies[chosen] = (bodies[chosen][0], data.draw(damaged(bodies[chosen][1])))
    events = [event(kind, body, end=200 + i) for i, (kind, body) in enumerate(bodies)]
    budget.read(lambda: _follow(flavor, events))


def test_events(budget: Budget) -> None:
    _events(budget)


@fuzz
@given(body=damaged(ID_V))
def _table_maps(budget: Budget, body: bytes) -> None:
    events = [event(GTID, gtid(1)), event(QUERY, query("BEGIN")), event(TABLE_MAP, body)]
    budget.read(lambda: _follow("mysql", [*events, event(WRITE, rows(18, image(1, "a"), width=2))]))


def test_table_maps(budget: Budget) -> None:
    _table_maps(budget)


# -- JSON


_JSON = [
    document(v) for v in ({"a": 1, "b": [1.5, "x" * 200, None]}, [[], {}, True], "text", {"k" * 300: {"l": [1 << 40]}})
]


@fuzz
@given(raw=st.sampled_from(_JSON).flatmap(damaged))
def _json(budget: Budget, raw: bytes) -> None:
    budget.read(lambda: json_text(raw))


def test_json(budget: Budget) -> None:
    _json(budget)


# -- result sets


_ROWS = [row([b"\1\0\0\0", string(b"a")]), row([b"\2\0\0\0", None]), row([b"\3\0\0\0", string(b"c" * 300)])]
_RESULT = response([definition("id", 3, UNSIGNED), definition("v", 253, 0, UTF8)], _ROWS)


def _receive(raw: bytes, step: int) -> None:
    definitions, found, _ = receive(raw, step, 1 << 12)
    if definitions and found:
        ends = np.cumsum([len(r) for r in found], dtype=np.int64)
        data = np.frombuffer(b"".join(found) + b"\xee" * PAD, np.uint8)
        RowDecoder(_T, definitions).decode(Payloads(data, ends - [len(r) for r in found], ends))


@fuzz
@given(raw=damaged(_RESULT), step=st.sampled_from([1, 7, 1 << 16]))
def _results(budget: Budget, raw: bytes, step: int) -> None:
    budget.read(lambda: _receive(raw, step))


def test_result_sets(budget: Budget) -> None:
    """Packets, definitions and rows."""
    _results(budget)


# -- the manifest


_MANIFEST = (Path(__file__).parents[2] / "examples/shop.yaml").read_bytes()
_BITS = [
    *(
        b"- ",
        b": ",
        b"[",
        b"]",
        b"{",
        b"}",
        b"&a ",
        b"*a",
        b"!!int ",
        b"!!python/name:os ",
        b"| ",
        b"\n  ",
        b"\n",
        b"'",
        b'"',
        b"~",
    ),
    *(
        b"99999999999999999999",
        b"0x",
        b"0o9",
        b".inf",
        b"1e999",
        b"null",
        b"---\n",
        b"#",
        b"\xff",
        b"\0",
        b"\xc2\x85",
        b"? ",
        b"<<: ",
        b"! ",
        b"!!int ",
        b"!!float ",
        b"!!bool ",
        b"!!null ",
        b"!!map ",
        b"!!seq ",
        b"!!set ",
        b"!!timestamp ",
        b"[" * 2000,
        b"9" * 5000,
    ),
]


@fuzz
@given(
    raw=damaged(_MANIFEST), bits=st.lists(st.tuples(st.integers(0, len(_MANIFEST)), st.sampled_from(_BITS)), max_size=4)
)
def _manifests(budget: Budget, raw: bytes, bits: list[tuple[int, bytes]]) -> None:
    for at, bit in bits:
        raw = raw[:at] + bit + raw[at:]
    budget.read(lambda: load_manifest([raw.decode("utf-8", "replace")]))


def test_manifests(budget: Budget) -> None:
    _manifests(budget)


# -- the Delta log


_SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
_VECTOR = Descriptor("u", "_vectors" + z85(bytes(16)), 1, 36, 2)
_ENTRY = entry_text(
    [
        {"commitInfo": {"timestamp": 5, "operation": "WRITE"}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"], "writerFeatures": []}},
        {"metaData": {"id": "x", "schemaString": _SCHEMA, "partitionColumns": [], "configuration": {"a": "b"}}},
        {"add": {"path": "a%20b.parquet", "size": 5, "stats": '{"numRecords":3}', "deletionVector": _VECTOR.to_dict()}},
        {"remove": {"path": "c.parquet", "deletionTimestamp": 7, "deletionVector": _VECTOR.to_dict()}},
        {"txn": {"appId": "a", "version": 3}},
    ]
).encode()  # fmt: skip
_VALUES = [
    b"null",
    b"[]",
    b"{}",
    b'""',
    b"1",
    b"-1",
    b"1e999",
    b"true",
    b'"\\ud800"',
    b"[" * 5000,
    b'{"a":' * 5000,
    b"9" * 5000,
]


def _use(text: str) -> None:
    """As a reader of the table does: everything that the entry states is checked."""
    view = TableView()
    with parsing("entry"):
        view.entry(0, text)
    for live in view.files.values():
        _ = live.path, live.size, live.rows, live.vector, live.deleted
        _ = live.vector and live.vector.path
    _ = view.properties, view.partitions, view.fields if view.metadata else {}
    view.dead(8)


@fuzz
@given(raw=damaged(_ENTRY), at=st.integers(0, len(_ENTRY)), value=st.sampled_from([b"", *_VALUES]))
def _entries(budget: Budget, raw: bytes, at: int, value: bytes) -> None:
    """A value takes the place of another one, up to the next comma."""
    end = raw.find(b",", at)
    raw = raw[: raw.rfind(b":", 0, at) + 1] + value + raw[end:] if value and end > 0 else raw
    budget.read(lambda: _use(raw.decode("utf-8", "replace")))


def test_entries_of_the_delta_log(budget: Budget) -> None:
    _entries(budget)


# -- deletion vectors


_BITMAPS = [BitMap([1, 2, 3]), BitMap(range(100_000)), BitMap(range(0, 200_000, 3)), BitMap([1 << 31, 5])]
_VECTORS = [serialised(b) for b in _BITMAPS]
for _bitmap in _BITMAPS[:2]:
    _bitmap.run_optimize()
_VECTORS += [serialised(b) for b in _BITMAPS[:2]]


@fuzz
@given(data=st.data(), whole=st.sampled_from([v for v in _VECTORS if len(v) < 40_000]))
def _vectors(budget: Budget, data: st.DataObject, whole: bytes) -> None:
    """The checksum is made right again, so that it does not hide the rest."""
    head = data.draw(damaged(whole[:64])) if len(whole) > 64 else data.draw(damaged(whole))
    raw = head + whole[64:]
    framed = struct.pack(">i", len(raw)) + raw + struct.pack(">I", zlib.crc32(raw))
    stored = Descriptor("u", "_vectors" + z85(bytes(16)), 1, len(raw), 3)
    budget.read(lambda: load(stored.deleted, lambda _path, _offset, _size: framed))
    budget.read(
        lambda: load(
            Descriptor("i", z85(raw[:400]), None, min(400, len(raw)), 3).deleted, lambda _path, _offset, _size: b""
        )
    )


def test_deletion_vectors(budget: Budget) -> None:
    _vectors(budget)


@fuzz
@given(
    text=st.text(max_size=40),
    storage=st.sampled_from("ui p"),
    size=st.integers(-5, 1 << 40),
    data=st.binary(max_size=60),
)
def _descriptors(budget: Budget, text: str, storage: str, size: int, data: bytes) -> None:
    budget.read(lambda: load(Descriptor(storage, text, 0, size, 1).deleted, lambda _path, _offset, _size: data))


def test_descriptors(budget: Budget) -> None:
    _descriptors(budget)


# -- our own state in a foreign log


@fuzz
@given(data=st.data())
def _states(budget: Budget, data: st.DataObject) -> None:
    whole = TableState(Identity("a/b", Lineage.of("x"), "t"), _T, TargetSchema.of(_T), 1)
    raw = data.draw(damaged(json.dumps(whole.to_dict()).encode())).decode("utf-8", "replace")

    def read() -> None:
        with parsing("state"):
            TableState.from_dict(json.loads(raw))

    budget.read(read)


def test_states(budget: Budget) -> None:
    _states(budget)
