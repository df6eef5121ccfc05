"""A topic whose snapshot is sent early, and what every record of it has to be: the rows that were
read, each once and before the changes of its key, and each change since LOW once, in its order."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, starmap
from pathlib import Path
from typing import NamedTuple

from cdcsync_core.positions.chunk import Split
from cdcsync_core.state import TableState
from cdcsync_spark.rows.changes import ChangeKind
from cdcsync_spark.sinks.kafka.topic.target import KafkaSink
from contract.sinkcase import ORDERS, SYNC
from support.event_consumer import Event
from support.event_source import END, HIGH, LOW, EventSource, read_early
from support.kafka import read_topic
from support.kafka_stream import kafka_sink
from support.topic_events import debezium_events

FORM = "debezium-json"
#: they have more rows than one transaction
SPLITS = tuple(starmap(Split, pairwise((None, (7,), (14,), (21,), (27,), (33,), None))))


class Seen(NamedTuple):
    """A record of a key: what it is, and the values before and after."""

    op: str
    before: str | None
    after: str | None


def seen(brokers: str, topic: str) -> dict[int, list[Seen]]:
    """The committed records of each key in their order, tombstones left out."""
    found: dict[int, list[Seen]] = {}
    for record in read_topic(brokers, topic):
        if record.value is not None:
            value = json.loads(record.value)
            notes = (image and image["note"] for image in (value["before"], value["after"]))
            found.setdefault(json.loads(record.key or b"")["id"], []).append(Seen(value["op"], *notes))
    return found


def early_rows(brokers: str, topic: str) -> list[Event]:
    """The rows of the snapshot."""
    found = seen(brokers, topic)
    return [Event("+I", {"id": key, "note": r.after}, 0) for key, rs in found.items() for r in rs if r.op == "r"]


def read_early_topic(sink: KafkaSink, source: EventSource, waves: int = len(SPLITS)) -> TableState:
    """As `read_early`, the first `waves` splits: what consumers have is read of the topic."""
    topic = sink.topics.name(SYNC, ORDERS.id)
    return read_early(sink, source.snapshot(), lambda _: early_rows(sink.settings.bootstrap, topic), SPLITS[:waves])


def changes(source: EventSource, upto: int = END) -> dict[int, list[Seen]]:
    """What the binlog has of each key since LOW."""
    found: dict[int, list[Seen]] = {}
    images = [image for end, images in sorted(source.log.items()) if end <= upto for image in images]
    for n, (kind, key, note) in enumerate(images):
        before = images[n - 1] if kind is ChangeKind.UPDATE_AFTER else None
        moves = kind is ChangeKind.UPDATE_BEFORE and images[n + 1][1] != key
        if kind is ChangeKind.DELETE or moves:
            found.setdefault(key, []).append(Seen("d", note, None))
        elif before and before[1] == key:
            found.setdefault(key, []).append(Seen("u", before[2], note))
        elif kind is not ChangeKind.UPDATE_BEFORE:
            found.setdefault(key, []).append(Seen("c", None, note))
    return found


def check(source: EventSource, brokers: str, topic: str, upto: int = END, *, repeats: bool = False) -> None:
    """Checks a topic that has everything up to `upto`, at HIGH or behind it; with `repeats` a
    record may be there more than once."""
    found, due = seen(brokers, topic), changes(source, upto)
    for key in found.keys() | due.keys():
        records = found.get(key, [])
        rows = [r for r in records if r.op == "r"]
        assert records[: len(rows)] == rows, f"a row of {key} behind its changes"
        assert {r.after for r in rows} <= {at.get(key) for place, at in source.at.items() if LOW <= place <= HIGH}
        if repeats:
            assert set(records[len(rows) :]) == set(due.get(key, [])), f"each change of {key}"
        else:
            assert records[len(rows) :] == due.get(key, []), f"each change of {key} once, in order"
            assert len(rows) <= 1, f"a row of {key} twice"
    last = {key: records[-1].after for key, records in found.items()}
    assert {key: note for key, note in last.items() if note is not None} == source.at[upto]


def events_behind(brokers: str, topic: str, begins: tuple[int, ...]) -> Iterator[Event]:
    """The events of the newest snapshot, and the changes since."""
    behind = [r for r in read_topic(brokers, topic) if r.offset >= begins[r.partition]]
    return debezium_events((json.loads(r.key or b""), r.value and json.loads(r.value)) for r in behind)


def early_sink(brokers: str, folder: Path, role: str, *, exactly_once: bool = True) -> KafkaSink:
    """As `kafka_sink`, with fewer rows in a transaction than a split has."""
    return replace(kafka_sink(brokers, folder, role, FORM, exactly_once=exactly_once), part_rows=2)


def topic_in(brokers: str, folder: Path) -> str:
    return kafka_sink(brokers, folder, "").topics.name(SYNC, ORDERS.id)
