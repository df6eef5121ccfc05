"""What is wrong with a table's topic."""

from __future__ import annotations

from cdcsync_core.errors import RUN_AGAIN, CdcError, PermanentError, Reason, fail
from cdcsync_core.remedies import resnapshot
from cdcsync_spark.sinks.kafka.connection.rights import On, granted_for
from cdcsync_spark.sinks.kafka.connection.topics import Topic
from cdcsync_spark.sinks.kafka.state.table_record import TableRecord


def is_replaced(record: TableRecord, topic: Topic | None) -> bool:
    """Whether the topic was deleted, and perhaps made again."""
    return topic is None or topic.id != record.topic_id


def check_topic(table: str, record: TableRecord, existing: Topic | None) -> None:
    if existing is None or is_replaced(record, existing):
        what = "is gone" if existing is None else "was deleted and made again"
        raise fail(
            Reason.SINK_CONFLICT,
            f"the topic {record.topic} {what}",
            needed="the topic that the records were sent to",
            remedy=f"{resnapshot(table)}: the topic begins again with all rows; delete one that has records before",
            table=table,
        )
    if existing.partitions != record.partitions:
        raise fail(
            Reason.SINK_CONFLICT,
            f"the topic {record.topic} has {existing.partitions} partitions, and had {record.partitions}",
            needed="the number that it was made with: another one moves keys, and their order is lost",
            remedy="create this sync again with another topic template",
            table=table,
        )


def foreign_topic(table: str, topic: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"the topic {topic} has records, and the state topic has no record of the table",
        needed="an empty topic, or none",
        remedy="create this sync again with another topic template, or delete the topic",
        table=table,
    )


def other_key_schema(table: str, topic: str, registered: int, written: int) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"the schema registry gives the schema of the keys of {topic} the id {written}, and the keys there have {registered}",
        needed="one id: another one moves keys to other partitions, and their order is lost",
        remedy=f"restore the registry's schemas with their ids, {RUN_AGAIN}; or {resnapshot(table)}",
        table=table,
    )


def expiring_state(topic: str) -> CdcError:
    return fail(
        Reason.SPEC_INVALID,
        f"the states in the topic {topic} expire: its cleanup.policy is not compact",
        needed="cleanup.policy=compact, or the right ALTER_CONFIGS on it, with which a run sets that",
        remedy=f"kafka-configs --alter --topic {topic} --add-config cleanup.policy=compact, {RUN_AGAIN}",
    )


def missing_right(topic: str, operations: str, on: On, table: str = "") -> PermanentError:
    return PermanentError(
        Reason.PRIVILEGE_MISSING,
        f"a right is missing: this client may not {operations} the topic {topic}",
        needed=f"{', '.join(granted_for(on))} on {on}",
        remedy=f"grant them to the account of spec.sink.kafka.sasl, {RUN_AGAIN}",
        table=table,
    )


def replaced_state(topic: str) -> CdcError:
    return fail(
        Reason.SINK_CONFLICT,
        f"the state topic {topic} was deleted while this run wrote",
        needed="the topic with the states of the tables",
        remedy="delete the other topics of the sync, too, and create it again",
    )
