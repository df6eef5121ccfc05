"""What a file of MySQL's binlog says was before it."""

from __future__ import annotations

import pytest

from cdcsync_core.errors import DecodeError
from cdcsync_core.positions.gtid import GtidSet
from cdcsync_spark.binlog.dump.client import encode_gtid_set
from cdcsync_spark.wire.binlog.event.previous_gtids import parse_previous_gtids

A, B = "11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"


@pytest.mark.parametrize("text", ["", f"{A}:1-5:7,{B}:3", f"{A}:1-5,{A}:blue:1-2:9,{B}:3"])
def test_a_set_is_read_as_servers_write_it(text: str) -> None:
    """A checksum may follow it."""
    gtids = GtidSet.parse(text)
    assert parse_previous_gtids(encode_gtid_set(gtids) + b"sum!") == gtids


def test_what_is_cut_or_no_set_is_refused() -> None:
    whole = encode_gtid_set(GtidSet.parse(f"{A}:1-5"))
    for broken in (whole[:-1], b"\xff" * 8, whole[:32] + whole[32:40] + whole[32:40]):
        with pytest.raises(DecodeError):
            parse_previous_gtids(broken)
