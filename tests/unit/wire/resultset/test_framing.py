"""Where packets begin: the walk in lock step finds what a walk step by step finds, whatever
payloads look like."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdcsync_spark.wire.columns.gather import PAD
from cdcsync_spark.wire.resultset import framing
from cdcsync_spark.wire.resultset.framing import walk
from support.results import packets


def places(data: bytes) -> tuple[list[int], int]:
    """The places of packets by the definition: length, number, payload, next."""
    found, at = [], 0
    while at + 4 <= len(data):
        end = at + 4 + int.from_bytes(data[at : at + 3], "little")
        if end > len(data):
            break
        found.append(at)
        at = end
    return found, at


def walked(data: bytes) -> tuple[list[int], int]:
    found = walk(np.frombuffer(data + bytes(PAD), np.uint8), 0, len(data))
    return found.headers.tolist(), found.after


def rows(kind: str, count: int) -> list[bytes]:
    rnd = random.Random(kind)
    makers = {
        "zeros": lambda: b"\0" * rnd.randint(1, 200),
        "random": lambda: b"\0" + rnd.randbytes(rnd.randint(0, 250)),
        "equal": lambda: b"\0" + bytes(range(100)),
        "short": lambda: b"\0" * rnd.randint(1, 3),
        # a payload that looks like packets itself, with numbers that go on
        "packets": lambda: b"\0" + b"".join(packets([b"\0" * 9] * 12, rnd.randint(0, 255))),
        "one long": lambda: b"\0" * (70_000 if rnd.random() < 0.001 else 60),
    }
    return [makers[kind]() for _ in range(count)]


@pytest.mark.parametrize("kind", ["zeros", "random", "equal", "short", "packets", "one long"])
def test_lock_step_finds_what_one_step_after_the_other_finds(kind: str) -> None:
    data = b"".join(packets(rows(kind, 5000)))
    assert walked(data) == places(data)
    for cut in (1, 3, 4, 50):
        assert walked(data[:-cut]) == places(data[:-cut])


def test_most_walks_begin_at_real_headers() -> None:
    """What makes it fast: of random rows, nearly every stride has a start, and the walk before it
    arrives there."""
    data = np.frombuffer(b"".join(packets(rows("random", 5000))) + bytes(PAD), np.uint8)
    starts = framing._likely_starts(data, framing._headers(data), 0, len(data) - PAD, 4096, 512)
    real = set(places(data[:-PAD].tobytes())[0])
    assert len(starts) > (len(data) / 4096) * 0.9
    assert sum(s in real for s in starts.tolist()) >= len(starts) * 0.98


def test_a_packet_that_goes_on_in_the_next_is_not_complete() -> None:
    data = struct.pack("<I", 3) + b"abc" + struct.pack("<I", 0xFFFFFF | 1 << 24) + b"x" * 0xFFFFFF
    assert walked(data) == ([0], 7)


def test_nothing_is_nothing() -> None:
    assert walked(b"") == ([], 0)
    assert walked(b"\5\0\0") == ([], 0)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=300), min_size=40, max_size=60), st.integers(1, 40), st.data())
def test_any_payloads(payloads: list[bytes], times: int, data: st.DataObject) -> None:
    stream = b"".join(packets(payloads * times))
    stream = stream[: len(stream) - data.draw(st.integers(0, 100))]
    assert walked(stream) == places(stream)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 1000), st.integers(0, 1 << 32))
def test_garbage_ends(garbage: bytes, before: int, seed: int) -> None:
    """Bytes that are no packets end the walk somewhere; it does not raise and does not leave the
    data."""
    data = b"".join(packets([b"\0" * 60] * before)) + garbage + random.Random(seed).randbytes(20_000)
    assert walked(data) == places(data)
