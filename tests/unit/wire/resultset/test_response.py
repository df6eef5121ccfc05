"""A response to COM_STMT_EXECUTE: the same whole and byte by byte; complete only with its end
packet, which is the last."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_core.errors import DecodeError
from cdcsync_spark.wire.resultset.packets import ResultPackets
from cdcsync_spark.wire.resultset.response import Definition, ResultSet, parse_definition
from support.results import EOF, KILLED, UNSIGNED, UTF8, definition, packets, receive, response, row, string

COLUMNS = [definition("id", 3, UNSIGNED), definition("náme", 253, 0, UTF8)]
ROWS = [row([b"\1\0\0\0", string(b"a")]), row([b"\2\0\0\0", None]), row([b"\3\0\0\0", string(b"c" * 300)])]
WHOLE = response(COLUMNS, ROWS)


@pytest.mark.parametrize("step", [1, 2, 7, 1 << 16])
@pytest.mark.parametrize("capacity", [128, 1 << 12])
def test_a_result_is_the_same_whole_and_byte_by_byte(step: int, capacity: int) -> None:
    """The last row does not fit in the smaller buffer."""
    definitions, rows, result = receive(WHOLE, step, capacity)
    assert definitions == [Definition("id", 3, UNSIGNED, 63), Definition("náme", 253, 0, UTF8)]
    assert rows == ROWS
    assert (result.ended, result.error) == (True, b"")


def test_a_response_that_breaks_off_anywhere_has_not_ended() -> None:
    for length in range(len(WHOLE)):
        _, rows, result = receive(WHOLE[:length])
        assert not result.ended
        assert rows == ROWS[: len(rows)]


def test_bytes_behind_the_end_are_an_error() -> None:
    for extra in (b"\0", b"".join(packets([EOF], 9)), b"".join(packets([ROWS[0]], 9))):
        with pytest.raises(DecodeError):
            receive(WHOLE + extra)


@pytest.mark.parametrize("rows_before", range(len(ROWS) + 1))
def test_an_error_among_the_rows_ends_the_result(rows_before: int) -> None:
    _, rows, result = receive(response(COLUMNS, ROWS[:rows_before], KILLED))
    assert (rows, result.ended, result.error) == (ROWS[:rows_before], True, KILLED)


@pytest.mark.parametrize("at", range(4))
def test_an_error_may_come_before_the_rows(at: int) -> None:
    payloads = [b"\2", *COLUMNS, EOF][:at]
    definitions, rows, result = receive(b"".join(packets([*payloads, KILLED])))
    assert (definitions, rows, result.error) == ([], [], KILLED)


def test_no_rows_are_a_result() -> None:
    assert receive(response(COLUMNS, []))[1:2] == ([],)


@pytest.mark.parametrize("length", [0xFFFFFF - 1, 0xFFFFFF, 0xFFFFFF + 1, 2 * 0xFFFFFF])
def test_a_row_may_span_packets(length: int) -> None:
    """One of 2^24-1 bytes needs a second packet, which is empty."""
    long = b"\0" + b"x" * (length - 1)
    _, rows, result = receive(response(COLUMNS, [ROWS[0], long, ROWS[1]]), 1 << 20)
    assert rows == [ROWS[0], long, ROWS[1]]
    assert result.ended


def test_a_number_that_does_not_go_on_is_an_error() -> None:
    stream = [*packets([b"\2", *COLUMNS, EOF, *ROWS, EOF])]
    for lost in range(len(stream) - 1):
        with pytest.raises(DecodeError):
            receive(b"".join([*stream[:lost], *stream[lost + 1 :]]))


def test_numbers_begin_again_after_255() -> None:
    rows = [row([bytes([i & 0xFF, i >> 8, 0, 0]), None]) for i in range(2000)]
    assert receive(response(COLUMNS, rows))[1] == rows


def test_an_end_that_announces_another_result_is_an_error() -> None:
    """Status 0x0008: more results follow."""
    with pytest.raises(DecodeError, match="another"):
        receive(response(COLUMNS, ROWS, b"\xfe\0\0\x0a\0"))


@pytest.mark.parametrize(
    "payloads",
    [
        [b"\0\0\0\2\0\0\0"],  # OK: no result set
        [b"\xfb/etc/passwd"],  # LOCAL INFILE
        [b"\2", COLUMNS[0], EOF],  # a definition is missing
        [b"\1", *COLUMNS],
        [b"\xfc\xff\xff"],  # more columns than there can be
        [b"\1\1"],
        [b"\2", COLUMNS[0], COLUMNS[1][:-1]],
        [b"\2", COLUMNS[0], COLUMNS[1] + b"\0"],
        [b"\2", *COLUMNS, EOF + b"\0"],
        [b"\2", *COLUMNS, EOF, b""],
        [b"\2", *COLUMNS, EOF, b"\1\2\3"],
        [b"\2", *COLUMNS, EOF, b"\xfe"],
        [b"\2", *COLUMNS, EOF, b"\xff\x25"],
    ],
    ids=str,
)
def test_what_is_no_result_is_an_error(payloads: list[bytes]) -> None:
    with pytest.raises(DecodeError):
        receive(b"".join(packets(payloads)))


def test_without_an_eof_packet_where_the_connection_agreed_on_that() -> None:
    """CLIENT_DEPRECATE_EOF: the end is an OK packet with the header 0xfe: rows, insert id, status,
    warnings."""
    for end, ended in ((b"\xfe\0\0\2\0\0\0", True), (b"\xfe\0\0\x0a\0\0\0", False)):
        stream = b"".join(packets([b"\2", *COLUMNS, ROWS[0], end]))
        result = ResultSet(ResultPackets(), deprecate_eof=True)
        result.packets.room()[: len(stream)] = stream
        result.packets.filled(len(stream))
        assert len(result.definitions() or ()) == 2
        if ended:
            assert len(result.rows()) == 1
            assert result.ended
        else:
            with pytest.raises(DecodeError, match="another"):
                result.rows()


def test_a_definition_by_hand() -> None:
    """Each name with its length; 12; collation 45, length 20, type 253, flags 0x1001, decimals 0,
    filler."""
    raw = b"\3def\1s\1t\1o\1c\1d\x0c" + b"\x2d\0" + b"\x14\0\0\0" + b"\xfd" + b"\1\x10" + b"\0" + b"\0\0"
    assert parse_definition(raw) == Definition("c", 253, 0x1001, 45)


def test_what_looks_like_an_end_is_looked_at() -> None:
    result = ResultSet(ResultPackets())
    for length in range(1, len(WHOLE) + 1):
        room = result.packets.room()
        room[:1] = WHOLE[length - 1 : length]
        result.packets.filled(1)
        # the EOF packet behind the definitions, and the last one
        assert result.may_have_ended == WHOLE[:length].endswith((EOF,)) or length < 9


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_garbage_is_an_error_or_not_the_end(data: st.DataObject) -> None:
    """Never another exception, never without end, in a buffer of the same size."""
    raw = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(DecodeError):
        receive(bytes(raw), data.draw(st.integers(1, 500)), data.draw(st.sampled_from([64, 512, 1 << 20])))
