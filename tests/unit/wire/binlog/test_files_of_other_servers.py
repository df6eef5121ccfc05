"""Binlog files that MySQL 5.1 to 9.7 and MariaDB 10.0 to 11.8 wrote: every event is read, both
decoders agree on every row, with and without its description, and what is not read stops with its
reason. The files lie beside the project, where they are."""

from __future__ import annotations

import datetime

import pytest

from cdcsync_core.errors import Reason
from cdcsync_spark.wire.binlog.facts import Operation
from support.binlog_files import FOLDER, Expected, Read, expected, read

_FILES = {file.name: file for file in expected()}
#: where the program reads more than the README's did: rows inserted, updated, deleted
_MORE = {
    "mariadb-11.8.9-made-here-m118gen.binlog.000001": (13, 7, 8),
    "mysql-9.0.1-blackbeam-vector.binlog": (9, 0, 1),
    "mysql-9.7.4-made-here-vec97.binlog.000001": (4, 0, 0),
}
#: the names of generated columns, which MariaDB 11.8 leaves out of images
_GENERATED = {"mariadb-11.8.9-made-here-m118gen.binlog.000001": frozenset({"g", "j"})}
#: what the README has no column for: files that are cut off, and a server without checksums
_ERRORS = {
    "mysql-5.1.30-blackbeam-bug40482-bin.000001": "a binlog of the server version 5.1.30-debug-log",
    "mysql-5.7.2-blackbeam-binlog_truncated_prev_gtid_event.000001": "an event of 9 bytes",
    "unknown-blackbeam-binlog_truncated_event.000001": "an event of 10 bytes",
}
_UTC = datetime.UTC
#: first values of some files, without the columns that every change has
_VALUES: dict[str, list[tuple[object, ...]]] = {
    "mariadb-11.8.9-made-here-m118.binlog.000001": [
        (1, b"\0\0\x80?\0\0\0@", "ü", b"\0", "é"),
        (1, "x", b"\0\0\x80?\0\0\0@\0\0@@"),
        (1, bytes.fromhex("651aed08390f4893b2f13692 3e7b7400"), bytes(15) + b"\1", b"\1\2\3\4", '{"a": 1}'),
        (
            1,
            datetime.datetime(2038, 1, 19, 3, 14, 8, tzinfo=_UTC),
            datetime.datetime(2106, 2, 7, 6, 28, 15, 999999, _UTC),
        ),
    ],
    "mysql-5.6.35-zalora-mysql-bin.01": [
        (1, b"ACME Headquaters", b"3950 North 1st Street CA 95134"),
        (2, b"ACME Sales", b"5000 North 1st Street CA 95134"),
        (1, b"Amazon", 1),
    ],
    "mysql-8.0.22-blackbeam-json.binlog.000001": [
        (1, '{"age": 24, "data": "xxxxxxxxxx", "name": "Joe"}', "Joe", 24),
        (2, '{"age": 32, "data": "yyyyyyyyyy", "name": "Sue"}', "Sue", 32),
    ],
    "mysql-8.0.26-blackbeam-mysql_type_bit.000001": [(b"\4", "foo", b" ")],
    "mysql-8.0.40-blackbeam-time_issue.000001": [("-507:48:27",)],
    "mysql-8.0.46-avaitla-03-mixed-types.binlog": [
        (1, "metric_a", 1.5, 1, '{"k": 1}', datetime.datetime(2024, 1, 1)),
        (2, "metric_b", 2.25, 0, "[1, 2, 3]", datetime.datetime(2024, 1, 1, 0, 0, 1, 500000)),
        (3, "metric_c", None, 1, None, datetime.datetime(2024, 1, 1, 0, 0, 2, 250000)),
    ],
    "mysql-9.7.4-made-here-vec97.binlog.000001": [(1, [1.0, 2.0], "x"), (1, "x", [1.0, 2.0])],
}


@pytest.fixture(scope="module", autouse=True)
def folder() -> None:
    if not _FILES:
        pytest.skip(f"there are no binlog files of other servers in {FOLDER}")


@pytest.fixture(params=sorted(_FILES) or [""])
def file(request: pytest.FixtureRequest) -> Expected:
    return _FILES[request.param]


def test_every_event_is_read_and_both_decoders_agree(file: Expected) -> None:
    found = read(file, _GENERATED.get(file.name, frozenset()))
    more = _MORE.get(file.name)
    assert _counts(found) == (more or file.rows)
    assert (found.transactions, found.statements) == (file.transactions, file.statements)
    assert len(found.refused) == (0 if more else file.refused)
    assert {error.reason for error in found.refused} <= {Reason.ROW_IMAGE_NOT_FULL}
    error = _ERRORS.get(file.name, file.error)
    assert bool(found.error) == bool(error)
    assert found.error is None or error.split(" (at ")[0] in found.error.found
    values = [tuple(row.values())[2:] for row in found.values]
    assert values[: len(_VALUES.get(file.name, ()))] == _VALUES.get(file.name, [])


def _counts(found: Read) -> tuple[int, int, int]:
    return found.rows[Operation.WRITE], found.rows[Operation.UPDATE], found.rows[Operation.DELETE]


def test_the_folder_has_the_files_that_values_are_known_of() -> None:
    assert len(_FILES) >= 67
    assert _FILES.keys() >= _MORE.keys() | _ERRORS.keys() | _VALUES.keys()
    assert {path.name for path in FOLDER.iterdir()} - {"README.md"} == _FILES.keys()
