"""A fault of one table in a transaction of several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaException

from cdcsync_core.errors import PermanentError
from cdcsync_spark.sinks.kafka.connection.brokers import is_too_large, too_large


class TableFault(Exception):
    """What is wrong with one table of a transaction, which was given up."""

    def __init__(self, table: str, error: PermanentError) -> None:
        super().__init__(table)
        self.table, self.error = table, error


@contextmanager
def faults_of(table: str) -> Iterator[None]:
    """A record that is too large is its table's fault."""
    try:
        yield
    except KafkaException as error:
        if not is_too_large(error):
            raise
        raise too_large_fault(table, "more than message.max.bytes") from None


def too_large_fault(table: str, size: str) -> TableFault:
    fault = too_large(table, size)
    assert isinstance(fault, PermanentError)
    return TableFault(table, fault)
