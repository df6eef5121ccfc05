"""Reading the state topic: an error that comes beside records loses none of them, though the client
is behind them by then."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from confluent_kafka import KafkaError, TopicPartition

from cdcsync_core.errors import CdcError, Reason
from cdcsync_spark.sinks.kafka.connection.brokers import Brokers
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings
from cdcsync_spark.sinks.kafka.state import state_topic as state_topic_module
from cdcsync_spark.sinks.kafka.state.state_topic import StateTopic
from cdcsync_spark.sinks.kafka.state.table_record import TableRecord
from contract.sinkcase import first_state
from support.traced import traced

RECORD = TableRecord(first_state(), "topic", "id", 3)
STATE = "orders.state"


class Message(NamedTuple):
    """As `confluent_kafka.Message`, whose members are methods."""

    at: int
    content: bytes = b""
    failed: KafkaError | None = None

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return b"shop.orders"

    def value(self) -> bytes:
        return self.content

    def error(self) -> KafkaError | None:
        return self.failed


@dataclass
class StateConsumer:
    """A consumer of `log`. It gives all records behind its place at once, then each of `errors`
    beside them, and is behind them afterwards."""

    log: list[bytes]
    errors: list[KafkaError] = field(default_factory=list)
    place: int = 0

    def assign(self, places: list[TopicPartition]) -> None:
        self.place = places[0].offset

    def consume(self, _most: int, _timeout: float) -> list[Message]:
        messages = [Message(at, self.log[at]) for at in range(self.place, len(self.log))]
        self.place = len(self.log)
        return messages + ([Message(self.place, failed=self.errors.pop())] if self.errors and messages else [])

    def poll(self, _: float) -> None:
        return None


class OwnClients(Brokers):
    def __init__(self, clients: dict[str, StateConsumer]) -> None:
        super().__init__(KafkaSettings("127.0.0.1:1"))
        self.clients = clients

    def consumer(self, isolation: str) -> Any:
        return self.clients[isolation]


def written(number: int, writer: str = "me") -> bytes:
    return replace(RECORD, state=replace(RECORD.state, commit_number=number)).to_json(writer)


def state_topic(log: list[bytes]) -> tuple[StateTopic, dict[str, StateConsumer]]:
    clients = {isolation: StateConsumer(log) for isolation in ("read_committed", "read_uncommitted")}
    brokers: Any = OwnClients(clients)
    topics: Any = SimpleNamespace(end=lambda _: len(log), begins=lambda *_: (0,))
    return StateTopic(brokers, topics, STATE), clients


def forbidden() -> KafkaError:
    return KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)


@pytest.mark.parametrize("before", [0, 2])
def test_a_later_refresh_has_the_records_that_came_with_an_error(before: int) -> None:
    log = [written(number) for number in range(before)]
    states, clients = state_topic(log)
    if before:
        states.refresh()
    log += [written(number) for number in range(before, before + 3)]
    clients["read_committed"].errors.append(forbidden())
    with pytest.raises(CdcError) as found:
        states.refresh()
    assert found.value.reason is Reason.PRIVILEGE_MISSING
    states.refresh()
    assert states.records["shop.orders"].state.commit_number == before + 2
    assert states.read == before + 3


def test_another_writer_is_found_after_an_error_that_came_with_its_record() -> None:
    log = [written(1)]
    states, clients = state_topic(log)
    states.refresh()
    log.append(written(2, "another"))
    clients["read_uncommitted"].errors.append(forbidden())
    with pytest.raises(CdcError):
        states.followed(["shop.orders"], "me")
    assert states.followed(["shop.orders"], "me")


def test_records_of_more_tables_than_there_is_memory_for_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_topic_module, "memory_limit", lambda: 4 * 1600)
    states, _ = state_topic([written(number) for number in range(50)])
    states.refresh()
    assert 0 < states._fold.size < 1600
    monkeypatch.setattr(Message, "key", lambda message: b"shop.%d" % message.at)
    states, _ = state_topic([written(number) for number in range(50)])
    with pytest.raises(CdcError, match="bytes of records of different tables") as found:
        states.refresh()
    assert found.value.reason is Reason.SINK_CONFLICT
    assert found.value.remedy.startswith("raise spec.driver.memory, or spec.stream.driver.memory; or, ")


def test_other_writers_of_more_tables_than_a_sync_has_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    states, clients = state_topic([written(1)])
    states.refresh()
    clients["read_uncommitted"].log += [written(number, "another") for number in range(2, 9)]
    monkeypatch.setattr(state_topic_module, "memory_limit", lambda: 4 * (states._fold.size + 2000))
    assert states.followed(["shop.orders"], "me")
    states.refresh()
    monkeypatch.setattr(Message, "key", lambda message: b"shop.%d" % message.at)
    clients["read_uncommitted"].log += [written(number, "another") for number in range(9, 16)]
    with pytest.raises(CdcError, match="other writers of 4 tables") as found:
        states.followed(["shop.orders"], "me")
    assert found.value.reason is Reason.SINK_CONFLICT


def test_long_names_of_tables_of_other_writers_are_counted_by_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    states, clients = state_topic([written(1)])
    states.refresh()
    clients["read_uncommitted"].log += [written(2, "another")]
    monkeypatch.setattr(state_topic_module, "memory_limit", lambda: 4 * 100_000)
    monkeypatch.setattr(Message, "key", lambda message: b"\xff" * 60_000)
    with pytest.raises(CdcError, match="other writers of 1 tables"):
        states.followed(["shop.orders"], "me")


def test_a_tail_of_many_records_is_read_in_the_memory_of_a_few() -> None:
    """A start reads it for where to begin, and another writer may have made it of any length."""
    repeat = b'{"v": 1, "writer": "' + b"w" * 200 + b'", "repeats": 7, '
    states, clients = state_topic([])
    states._all = cast(Any, clients["read_uncommitted"])
    pairs = ((b"k", repeat) for _ in range(100_000))
    states._pairs_seen = lambda *_: pairs  # type: ignore[method-assign]

    def read() -> int:
        assert states._found_since(100) == 0
        return tracemalloc.get_traced_memory()[1]

    assert traced(read) < 8 << 20


@pytest.mark.parametrize(
    ("tail", "begins"),
    [([None], 0), ([(None, 3)], 0), ([(0, 3)], 0), ([(5, 3), (7, 4), (6, 4)], 7), ([(5, 3), None], 5)],
)
def test_a_start_begins_where_the_last_records_say_at_most(
    tail: list[tuple[int | None, int] | None], begins: int
) -> None:
    """Each is a plain record, or a repeat with how far the topic was read."""
    log = [written(1) if each is None else _repeat(*each) for each in tail]
    states, clients = state_topic(log)
    states._all = cast(Any, clients["read_uncommitted"])
    assert states._found_since(len(log)) == begins


def _repeat(since: int | None, repeats: int) -> bytes:
    says = b"" if since is None else b'"since": %d, ' % since
    return b'{"v": 1, "writer": "", ' + says + b'"repeats": %d, ' % repeats


def test_a_topic_without_end_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something comes all the time."""
    states, clients = state_topic([])
    monkeypatch.setattr(state_topic_module, "LONGEST_READING", 0.5)
    monkeypatch.setattr(states.topics, "end", lambda _: 2**62)

    def consume(_most: int, _timeout: float) -> list[Message]:
        clients["read_committed"].place += 1
        return [Message(clients["read_committed"].place, written(1))]

    for client in clients.values():
        monkeypatch.setattr(client, "consume", consume)
    with pytest.raises(CdcError, match=r"for more than 0\.5 s") as found:
        states.refresh()
    assert found.value.reason is Reason.SINK_UNREACHABLE
