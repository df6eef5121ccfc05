"""Rows on their way into a SQL database: portions of bounded memory, and their text."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from cdcsync_spark.sinks.sql.dialects.arrow_text import copy_text, insert_values, load_text
from cdcsync_spark.sinks.sql.dialects.portions import next_portion, portions

MIB = 2**20


def test_large_rows_come_in_small_portions() -> None:
    rows = pa.table({"raw": [b"x" * MIB] * 40})
    sizes = [portion.num_rows for portion in portions(rows)]
    assert sum(sizes) == 40
    assert max(sizes) <= 16
    assert [p.num_rows for p in portions(pa.table({"raw": [b"x" * 40 * MIB]}))] == [1]
    assert [p.num_rows for p in portions(pa.table({"id": range(12_000)}))] == [5_000, 5_000, 2_000]


def test_rows_of_an_answer_come_in_portions_of_bounded_memory() -> None:
    """However small the rows before were."""
    values = ["a"] * 6_000 + ["b" * MIB] * 40 + ["c"]
    rows = iter([[(value,)] for value in values])
    sizes = [len(portion) for portion in iter(lambda: next_portion(rows), [])]
    assert sizes == [5_000, 1_016, 16, 9]


def test_a_moment_has_its_zone_in_a_copy_and_texts_are_escaped() -> None:
    rows = pa.table(
        {
            "at": pa.array([datetime(2026, 1, 2, tzinfo=UTC), None], pa.timestamp("us", tz="UTC")),
            "word": pa.array(["tab\t\\N'", None]),
        }
    )
    assert copy_text(rows) == b"2026-01-02 00:00:00.000000+00\ttab\\t\\\\N'\n\\N\t\\N\n"
    assert insert_values(rows) == ["('2026-01-02 00:00:00.000000','tab\t\\\\N\\'')", "(NULL,NULL)"]
    raw = rows.append_column("raw", pa.array([b"\x00\xff", None]))
    assert load_text(raw.slice(0, 1)) == b"2026-01-02 00:00:00.000000\ttab\\t\\\\N'\t00ff\n"
    assert load_text(raw.slice(1)) == b"\\N\t\\N\t\\N\n"
    assert load_text(pa.table({"word": pa.chunked_array([["", "nul\0"], ["ü"]])})) == "\nnul\\0\nü\n".encode()


def test_the_greatest_float_of_mysql_is_no_greater_as_text() -> None:
    rows = pa.table({"f": pa.array([3.4028234663852886e38, 0.1], pa.float32())})
    assert load_text(rows) == b"3.4028234663852886e+38\n0.10000000149011612\n"
    assert insert_values(rows) == ["('3.4028234663852886e+38')", "('0.10000000149011612')"]
