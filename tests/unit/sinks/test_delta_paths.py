"""Which files a table's Delta log may name."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcsync_spark.sinks.delta.table.paths import inside
from cdcsync_spark.sinks.lake.storage.stores import open_store


@pytest.mark.parametrize(
    "path",
    [
        "part-0.parquet",
        "ts=2020-01-01 00:00:00/p.parquet",
        "a/b/c",
        "..a/b..",
        "100%/x",
        "a:b",
        "_resnapshot-1/p.parquet",
    ],
)
def test_files_of_the_table(path: str) -> None:
    assert inside(path)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../other/p.parquet",
        "a/../../b",
        "a//b",
        "./a",
        "a/",
        "s3://bucket/x",
        "file:/etc/passwd",
        "s3a://b/x",
        "%2e%2e/other/p.parquet",
        "%252e%252E/x",
        "a%2F..%2F..%2Fb",
        "%2Fetc%2Fpasswd",
        "a\0b",
        "a%00b",
    ],
)
def test_files_of_others(path: str) -> None:
    assert not inside(path)


@given(st.lists(st.sampled_from(["..", ".", "", "a", "%2e"]), max_size=4), st.integers(0, 3))
def test_no_encoding_leads_out(parts: list[str], times: int) -> None:
    """What is outside stays outside, however often it is encoded."""
    path = "/".join(["x", "..", "..", *parts])
    for _ in range(times):
        path = quote(path, safe="")
    assert not inside(path)


def test_links_below_a_place(tmp_path: Path) -> None:
    (tmp_path / "table/sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "table")
    (tmp_path / "table/out").symlink_to(tmp_path)
    store = open_store(str(tmp_path / "link"))
    assert not store.linked("sub/file"), "how the user names the lake is the user's affair"
    assert store.linked("out")
    assert store.linked("out/deeper/file")
