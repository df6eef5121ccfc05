"""The names of topics: what a template makes of a sync and a table. Pure."""

from __future__ import annotations

import re

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.tables.source_table import TableId

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NOT_IN_TOPICS = re.compile(r"[^A-Za-z0-9._-]")


def check_template(template: str) -> str:
    placeholders = _PLACEHOLDER.findall(template)
    if (
        set(placeholders) - {"namespace", "name", "database", "table"}
        or "table" not in placeholders
        or "database" not in placeholders
    ):
        raise ValueError("a template with {database} and {table}, and {namespace} or {name} of the sync")
    if not _TOPIC.fullmatch(_PLACEHOLDER.sub("x", template)):
        raise ValueError("letters, digits, '.', '_' and '-' beside the placeholders")
    return template


def topic_name(template: str, sync: str, table: TableId) -> str:
    """The topic of a table of the sync `namespace/name`; what a topic's name cannot have becomes an
    underscore. Raises SpecInvalid for one that is too long."""
    topic = _filled(template, sync, {"database": table.database, "table": table.name})
    if not _TOPIC.fullmatch(topic):
        raise fail(
            Reason.SPEC_INVALID,
            f"the topic {topic[:60]}... has {len(topic)} characters",
            needed="at most 249",
            remedy="shorten spec.sink.kafka.topic",
            table=str(table),
        )
    return topic


def topic_prefix(template: str, sync: str) -> str:
    """What all topics of the sync begin with, before the names of tables and what parts it from
    them; the sync's name where they begin with a table's."""
    begin = min(template.index("{database}"), template.index("{table}"))
    return _filled(template[:begin], sync, {}).rstrip("._-") or sync.partition("/")[2]


def _filled(template: str, sync: str, table: dict[str, str]) -> str:
    namespace, _, name = sync.partition("/")
    values = {"namespace": namespace, "name": name, **table}
    return _PLACEHOLDER.sub(lambda m: _NOT_IN_TOPICS.sub("_", values[m[1]]), template)


def shared_topic(table: str, topic: str, other: str) -> CdcError:
    return fail(
        Reason.SPEC_INVALID,
        f"the topic {topic} is that of {other}, too",
        needed="a topic for each table",
        remedy="correct spec.sink.kafka.topic, or leave one of them out (tables.exclude)",
        table=table,
    )
