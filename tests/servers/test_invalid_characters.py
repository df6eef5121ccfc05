"""Bytes that are no character of their column's set: the snapshot and the binlog read them alike,
as U+FFFD or as one failure (R2).

How a server comes to have them: most sets have sequences of the right form without a character, and
no server refuses those. Others are refused today and lie in tables of older servers; a tablespace
that was a binary column's brings them here.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from cdcsync_core.errors import DecodeError
from cdcsync_core.runs.run import Decoder, ExitCode
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.logical_type import INCOMPLETE
from cdcsync_spark.wire.columns.charset_tables import SINGLE_BYTE
from support.dump import changes, definition, log_end
from support.fixtures import FreshDatabase
from support.servers import Server
from support.snapshots import assert_same, rows
from support.sync_process import Sync
from support.table_status import entry

pytestmark = pytest.mark.server

ALL_SERVERS = pytest.mark.parametrize(
    "server_name", ["mariadb1011", pytest.param("mariadb114", marks=pytest.mark.long), "mysql97_gtid"]
)
_ONE = [bytes([a]) for a in range(256)]
# a fifth of them, another one for each first byte: that each is the server's character is shown by
# test_binlog_charsets
_TWO = [bytes([a, b]) for a in range(0x80, 256) for b in range(a % 5, 256, 5)]
_MORE = {
    "gb18030": [bytes.fromhex(h) for h in ("fe39fe39", "e3329a36", "84318236", "8135f437", "fd308130")],
    "eucjpms": [bytes([0x8F, a, b]) for a in range(0xA0, 256) for b in range(0xA0, 256, 5)],
    "ujis": [bytes([0x8F, a, b]) for a in range(0xA0, 256) for b in range(0xA0, 256, 5)],
    "utf32": [bytes.fromhex(h) for h in ("0000d800", "0000dfff", "0010ffff", "000000e9")],
    "utf8mb3": [bytes.fromhex(h) for h in ("eda080", "edbfbf", "efbfbd", "e282ac")],
    "utf8mb4": [bytes.fromhex(h) for h in ("eda080", "edbfbf", "efbfbd", "f48fbfbf")],
    "utf16": [bytes.fromhex(h) for h in ("d83dde00", "d800", "fffd")],
}


@pytest.fixture
def server(server_name: str, request: pytest.FixtureRequest) -> Server:
    found: Server = request.getfixturevalue(server_name)
    return found


def _sets(server: Server) -> list[str]:
    names = (str(r[0]) for r in server.query("SELECT character_set_name FROM information_schema.character_sets"))
    return sorted("utf8mb3" if n == "utf8" else n for n in names if n != "binary")


def _sequences(charset: str) -> list[bytes]:
    return _ONE if charset in SINGLE_BYTE else _ONE + _TWO + _MORE.get(charset, [])


def _from_the_log(server: Server, table: Capture, start: object) -> pa.Table:
    found = changes(server, table, start)  # type: ignore[arg-type]
    return pa.table(found.batch.columns[2:], names=[c.name for c in table.captured])


def _refused(read: Callable[[], object]) -> DecodeError:
    with pytest.raises(DecodeError) as caught:
        read()
    return caught.value


@ALL_SERVERS
def test_every_sequence_that_a_server_stores_is_read_alike(server: Server, fresh_database: FreshDatabase) -> None:
    database = fresh_database(server)
    sets = _sets(server)
    stored = INCOMPLETE - {"ascii"} if server.flavor == "mysql" else INCOMPLETE
    assert len(sets) > 35
    for charset in sets:
        server.run(f"CREATE TABLE t_{charset} (id INT PRIMARY KEY, c VARCHAR(9) CHARACTER SET {charset})", db=database)
        start = log_end(server)
        with server.connect(db=database) as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = ''")
            cursor.execute(
                f"INSERT INTO t_{charset} SELECT j.i, CONVERT(UNHEX(j.h) USING {charset}) FROM JSON_TABLE(%s, '$[*]' COLUMNS"
                " (i FOR ORDINALITY, h VARCHAR(16) PATH '$')) j",
                (json.dumps([s.hex() for s in _sequences(charset)]),),
            )
        table = definition(server, database, f"t_{charset}").replacing()
        streamed = _from_the_log(server, table, start)
        read = assert_same(server, table)
        assert read.equals(streamed.cast(read.schema)), charset
        replaced = any("\ufffd" in value for value in read["c"].to_pylist() if value)
        # U+FFFD is a character of tis620 and of Unicode's forms, too; MySQL refuses what is not
        # ASCII
        assert replaced == (charset in stored) or charset == "tis620" or charset.startswith("utf"), charset


CASES = [
    ("c VARCHAR(9) CHARACTER SET cp1251", "_cp1251 x'c098e0'", "А\ufffdа", "c098e0"),
    ("c TEXT CHARACTER SET gbk", "_gbk x'61a2a162'", "aⅰb", ""),
    ("c TEXT CHARACTER SET sjis", "_sjis x'6181ad62'", "a\ufffdb", "6181ad62"),
    ("c CHAR(9) CHARACTER SET cp932", "_cp932 x'61854020'", "a\ufffd", "618540"),
    ("c MEDIUMTEXT CHARACTER SET big5", "_big5 x'61f9fe62'", "a\ufffdb", "61f9fe62"),
    ("c LONGTEXT CHARACTER SET euckr", "_euckr x'61c9a162'", "a\ufffdb", "61c9a162"),
    ("c VARCHAR(9) CHARACTER SET ucs2", "_ucs2 x'0061d83dde00'", "a\ufffd\ufffd", "0061d83dde00"),
    ("c ENUM('ok', x'6198') CHARACTER SET cp1251", "2", "a\ufffd", "6198"),
    ("c SET('ok', x'98', 'on') CHARACTER SET cp1251", "7", "ok,\ufffd,on", ""),
    ("c ENUM('ok', x'ff') CHARACTER SET binary", "2", "\ufffd", "ff"),
]


@ALL_SERVERS
@pytest.mark.parametrize(("column", "value", "text", "shown"), CASES, ids=[c[0] for c in CASES])
def test_both_paths_fail_alike_or_replace_alike(
    column: str, value: str, text: str, shown: str, server: Server, fresh_database: FreshDatabase
) -> None:
    database = fresh_database(server)
    server.run(f"CREATE TABLE t (id INT, k CHAR(3), {column}, PRIMARY KEY (id, k))", db=database)
    start = log_end(server)
    server.run("INSERT INTO t VALUES (1, 'a', NULL)", f"INSERT INTO t VALUES (7, 'é', {value})", db=database)
    table = definition(server, database, "t", ("id", "k"))

    replaced = assert_same(server, table.replacing())
    assert replaced["c"].to_pylist() == [None, text]
    assert _from_the_log(server, table.replacing(), start).equals(replaced)
    if "\ufffd" not in text:
        assert assert_same(server, table).equals(replaced)
        return

    errors = [_refused(lambda d=d: rows(server, table, d)) for d in Decoder]
    errors.append(_refused(lambda: changes(server, table, start)))
    for error in errors:
        assert (error.table, error.column, error.key) == (f"{database}.t", "c", "id=7, k='é'")
        assert "tables.invalidCharacters: replace" in error.remedy
        assert shown in error.message


@ALL_SERVERS
def test_a_label_without_a_name_stops_only_the_rows_that_have_it(server: Server, fresh_database: FreshDatabase) -> None:
    database = fresh_database(server)
    server.run(
        "CREATE TABLE t (id INT PRIMARY KEY, e ENUM('ok', x'98') CHARACTER SET cp1251, s SET('ok', x'98') CHARACTER SET cp1251)",
        db=database,
    )
    start = log_end(server)
    server.run("SET sql_mode = ''", "INSERT INTO t VALUES (1, 'ok', 'ok'), (2, NULL, NULL), (3, 0, 0)", db=database)
    table = definition(server, database, "t")
    assert assert_same(server, table).equals(_from_the_log(server, table, start))


@ALL_SERVERS
def test_a_key_is_never_replaced(server: Server, fresh_database: FreshDatabase) -> None:
    """R3: two keys would become one."""
    database = fresh_database(server)
    server.run("CREATE TABLE t (k VARCHAR(9) CHARACTER SET cp1256 COLLATE cp1256_bin PRIMARY KEY)", db=database)
    start = log_end(server)
    server.run("INSERT INTO t VALUES (_cp1256 x'8a'), (_cp1256 x'8f')", db=database)
    table = definition(server, database, "t", ("k",)).replacing()
    for d in Decoder:
        assert _refused(lambda d=d: rows(server, table, d)).column == "k"
    assert _refused(lambda: changes(server, table, start)).column == "k"


#: sequences without the form of a character, which today's servers refuse
_ILL_FORMED = {
    "utf8mb4": ("61ff62c3", "a\ufffdb\ufffd"),
    "utf8mb3": ("61f09f988062", "a\ufffdb"),
    "gbk": ("618022ff81", 'a\ufffd"\ufffd\ufffd'),
    "sjis": ("61852262", 'a\ufffd"b'),
    "ujis": ("61a14162", "a\ufffdAb"),
    "utf16": ("0061d80000620061", "a\ufffdba"),
}


@ALL_SERVERS
def test_bytes_that_servers_refuse_today_are_read_alike_where_they_lie(
    server: Server, fresh_database: FreshDatabase
) -> None:
    """A tablespace with binary columns becomes one of texts: what an upgrade of an old server
    brings."""
    database = fresh_database(server)
    binary = ", ".join(f"c_{c} VARBINARY(120)" for c in _ILL_FORMED)
    texts = ", ".join(f"c_{c} VARCHAR({_WIDTH[c]}) CHARACTER SET {c}" for c in _ILL_FORMED)
    values = ", ".join(f"x'{raw}'" for raw, _ in _ILL_FORMED.values())
    server.run(
        f"CREATE TABLE b (id INT PRIMARY KEY, n INT, {binary}) ROW_FORMAT=DYNAMIC",
        f"CREATE TABLE t (id INT PRIMARY KEY, n INT, {texts}) ROW_FORMAT=DYNAMIC",
        f"INSERT INTO b VALUES (1, 0, {values})",
        "ALTER TABLE t DISCARD TABLESPACE",
        db=database,
    )
    _take_tablespace(server, database)
    start = log_end(server)
    server.run("UPDATE t SET n = 1", db=database)
    table = definition(server, database, "t")
    read = assert_same(server, table.replacing())
    found = {name: read[name].to_pylist() for name in read.column_names}
    assert found == {"id": [1], "n": [1]} | {f"c_{c}": [text] for c, (_, text) in _ILL_FORMED.items()}
    assert _from_the_log(server, table.replacing(), start).slice(1).equals(read)
    for d in Decoder:
        assert _refused(lambda d=d: rows(server, table, d)).key == "id=1"
    assert _refused(lambda: changes(server, table, start)).key == "id=1"


_WIDTH = {"utf8mb4": 30, "utf8mb3": 40, "gbk": 60, "sjis": 60, "ujis": 40, "utf16": 30}


def _take_tablespace(server: Server, database: str) -> None:
    folder = Path(server.datadir) / database
    with server.connect(db=database) as connection, connection.cursor() as cursor:
        cursor.execute("FLUSH TABLES b FOR EXPORT")
        shutil.copyfile(folder / "b.ibd", folder / "t.ibd")
        cursor.execute("UNLOCK TABLES")
        cursor.execute("ALTER TABLE t IMPORT TABLESPACE")


@pytest.fixture
def sync(mariadb1011: Server, fresh_database: FreshDatabase, tmp_path: Path) -> Iterator[Sync]:
    database = fresh_database(mariadb1011)
    mariadb1011.run(
        "CREATE TABLE good (id INT PRIMARY KEY)",
        "INSERT INTO good VALUES (1)",
        "CREATE TABLE t (id INT PRIMARY KEY, c VARCHAR(9) CHARACTER SET cp1251)",
        "INSERT INTO t VALUES (1, _cp1251 x'c0'), (2, _cp1251 x'98')",
        db=database,
    )
    with Sync(mariadb1011, [rf"{database}\..*"], tmp_path / "sync") as found:
        found.database = database  # type: ignore[attr-defined]
        yield found


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_sync_fails_by_default_and_goes_on_with_replacements(sync: Sync) -> None:
    """Only the table concerned, until the manifest says otherwise; then the stream does as the
    snapshot did."""
    database = str(sync.database)  # type: ignore[attr-defined]
    good, bad = f"{database}.good", f"{database}.t"
    sync.start("forever")
    status = sync.wait_for(
        lambda s: (entry(s, good).get("phase"), entry(s, bad).get("phase")) == ("Streaming", "Failed")
    )
    assert "key id=2" in entry(status, bad)["message"]

    sync.write_manifest(tables={"invalidCharacters": "replace"})
    sync.wait_for(lambda s: s["tables"]["streaming"] == 2)
    sync.server.run(
        "INSERT INTO t VALUES (3, _cp1251 x'e098')", "UPDATE t SET c = _cp1251 x'9861' WHERE id = 1", db=database
    )
    assert sync.terminate() == ExitCode.DONE
    sync.run_to_completion()
    found = sync.target(f"{database}.t").select(["id", "c"]).sort_by("id").to_pylist()
    assert [(r["id"], r["c"]) for r in found] == [(1, "\ufffda"), (2, "\ufffd"), (3, "а\ufffd")]
