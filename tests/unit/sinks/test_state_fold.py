"""Whoever begins to read the state topic at `since` knows what a reader of all of it knows,
whatever is written, repeated and compacted in which order."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import NamedTuple

import pytest

from cdcsync_spark.sinks.kafka.state.fold import RecordHeader, StateFold, header_of, stating
from cdcsync_spark.sinks.kafka.state.table_record import TableRecord
from contract.sinkcase import first_state

RECORD = TableRecord(first_state(), "topic", "id", 3)
Log = list[tuple[int, bytes, bytes]]


def written(number: int, epoch: int = 1, since: int | None = None) -> bytes:
    return replace(RECORD, state=replace(RECORD.state, commit_number=number, epoch=epoch)).to_json("me", since)


def known(log: Log, since: int = 0) -> dict[str, TableRecord]:
    fold = StateFold()
    for at, key, value in log:
        if at >= since:
            fold.take(at, key, value)
    return {table: TableRecord.from_json(value) for table, value in fold.changed()}


def compacted(log: Log) -> Log:
    newest = {key: at for at, key, _ in log}
    return [(at, key, value) for at, key, value in log if newest[key] == at]


def test_a_header_is_read_without_the_rest() -> None:
    assert header_of(written(1)) == RecordHeader("me")
    assert header_of(written(1, since=7)) == RecordHeader("me", 7)
    assert header_of(b"no record") == RecordHeader()


@pytest.mark.parametrize("fenced", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_a_reader_may_begin_where_a_record_says(seed: int, fenced: bool) -> None:
    """Others write between what a repeating run has read and its repeats; older runs write late."""
    rng, log, since = random.Random(seed), Log(), [0]
    for number in range(300):
        if rng.random() < 0.05 and log:
            read = log[: rng.randint(max(0, len(log) - 10), len(log))]
            fold = StateFold()
            for entry in read:
                fold.take(*entry)
            repeats = fold.repeats()
            assert repeats is not None
            place = len(read)
            for key, value in repeats:
                log.append((len(log), key, value))
                if rng.random() < 0.2:
                    log.append((len(log), b"shop.a", written(number)))
            if repeats:
                key, value = repeats[0]
                log.append((len(log), key, stating(value, place)))
                since.append(header_of(log[-1][2]).since or 0)
        epoch = 1 if fenced or number < 100 else rng.choice((1, 1, 1, 2))
        log.append((len(log), rng.choice((b"shop.a", b"shop.b", b"shop.c", b"shop.d")), written(number, epoch)))
    expected = known(log)
    assert len(expected) == 4
    for place in since:
        assert known(log, place) == expected
        assert known(compacted(log), place) == (expected if fenced else known(compacted(log)))


class _Message(NamedTuple):
    at: int
    name: bytes | None
    text: bytes | None

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.text


@pytest.mark.parametrize("seed", range(20))
def test_records_that_are_taken_at_once_mean_what_each_means(seed: int) -> None:
    """Epochs that go back, writers of other names, repeats, removals and what is no record."""
    rng, log = random.Random(seed), list[_Message]()
    for at in range(400):
        table, epoch = rng.choice((b"shop.a", b"shop.b", b"shop.c")), rng.choice((1, 2, 2, 2, 13, at // 50))
        text = written(at, epoch).replace(b'"me"', b'"%s"' % (b"w" * rng.choice((1, 1, 1, 2))))
        kind = rng.random()
        if kind < 0.1:
            repeated = text.replace(b'", "topic"', b'", "repeats": %d, "topic"' % rng.randint(0, at), 1)
            log.append(_Message(at, b"\0" + table, repeated))
        elif kind < 0.15:
            log.append(_Message(at, *rng.choice(((table, None), (None, text), (b"shop.d", b"theirs")))))
        else:
            log.append(_Message(at, table, text))
    singly, at_once = StateFold(), StateFold()
    while log:
        batch, log = log[: (size := rng.randint(1, 60))], log[size:]
        for at, key, value in batch:
            if key is not None and value is not None:
                singly.take(at, key, value)
        at_once.take_all(batch)
        if rng.random() < 0.3:
            assert dict(at_once.changed()) == dict(singly.changed())
    assert dict(at_once.changed()) == dict(singly.changed())
    assert at_once.repeats() == singly.repeats()


def test_a_repeat_is_no_longer_than_what_it_repeats() -> None:
    """So no topic refuses it."""
    fold, value = StateFold(), written(1)
    value = value.replace(b'"me"', b'"%s"' % (b"0" * 32))
    fold.take(10**12, b"shop.a", value)
    (pair,) = fold.repeats() or ()
    assert sum(map(len, pair)) <= len(value) + len(b"shop.a")


def test_what_is_no_record_is_not_repeated() -> None:
    fold = StateFold()
    fold.take(1, b"shop.a", written(1))
    fold.take(2, b"shop.b", b"theirs")
    assert fold.repeats() is None
    with pytest.raises(ValueError, match="Expecting value"):
        [TableRecord.from_json(value) for _, value in fold.changed()]


def test_absurd_numbers_and_depths_are_no_records() -> None:
    fold = StateFold()
    fold.take(1, b"shop.a", b'{"epoch": ' + b"9" * 5000 + b', "number": 1}')
    assert [table for table, _ in fold.changed()] == ["shop.a"]
    assert header_of(b'{"v": 1, "writer": "", "since": ' + b"9" * 5000 + b", ") == RecordHeader()
    with pytest.raises(ValueError, match="too deeply"):
        TableRecord.from_json(b"[" * 100_000)
