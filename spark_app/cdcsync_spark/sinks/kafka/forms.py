"""The sync's form of records: one of the JSON forms, or Avro, whose schemas are registered before
the first record is made with them, and asked for by their ids when records are read back.

Each topic has two subjects, `<topic>-key` and `<topic>-value`. A changed definition of a table is
another schema of them, which the registry takes or refuses by its rules of compatibility.

From one snapshot to the next the keys of a topic have one schema, and so one id. A registry that
has lost its schemas may give another one: then each key would go on in another partition, and its
order be lost. So the id is kept with the table's state, and another one is refused.
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from cdcsync_core.errors import Reason, fail
from cdcsync_spark.rows.events import Events
from cdcsync_spark.sinks.formats.avro_reader import AVRO, AvroReader
from cdcsync_spark.sinks.formats.avro_records import Registered, debezium_avro, key_schema, value_schema
from cdcsync_spark.sinks.formats.debezium_reader import DEBEZIUM_EXACT, DebeziumReader
from cdcsync_spark.sinks.formats.debezium_records import debezium_exact_json
from cdcsync_spark.sinks.formats.json_reader import JsonReader
from cdcsync_spark.sinks.formats.json_records import FORMS, Form, Origin, Records
from cdcsync_spark.sinks.formats.record_reader import RecordReader
from cdcsync_spark.sinks.formats.record_steps import columns_of
from cdcsync_spark.sinks.kafka.connection.registry import Registry
from cdcsync_spark.sinks.kafka.transactions.conflicts import other_key_schema


def form_of(name: str, registry: Registry | None, topic: str, key_schema: int | None = None) -> Form:
    """What makes the records of `topic`, whose keys have the schema with the id `key_schema`; None:
    that is not known."""
    if name == AVRO:
        return partial(_avro, _needed(registry), topic, key_schema)
    return debezium_exact_json if name == DEBEZIUM_EXACT else FORMS[name]


def registered_keys(name: str, registry: Registry | None, topic: str, columns: pa.Schema, origin: Origin) -> int | None:
    """The id of the schema of a topic's keys; None where they have none."""
    return _key_id(_needed(registry), topic, columns, origin) if name == AVRO else None


def reader_of(name: str, registry: Registry | None) -> RecordReader:
    """What reads records of the form."""
    if name == AVRO:
        return AvroReader(_needed(registry).schema)
    return DebeziumReader() if name == DEBEZIUM_EXACT else JsonReader(name)


def _needed(registry: Registry | None) -> Registry:
    if registry is None:
        raise fail(
            Reason.SPEC_INVALID,
            "the format debezium-avro has no schema registry",
            needed="spec.sink.kafka.schemaRegistry",
            remedy="name a registry, or take a JSON format",
        )
    return registry


def _key_id(registry: Registry, topic: str, columns: pa.Schema, origin: Origin) -> int:
    return registry.register(f"{topic}-key", key_schema(columns, origin), str(origin.table))


def _avro(registry: Registry, topic: str, schema_id: int | None, changes: Events, origin: Origin) -> Records:
    columns, table = columns_of(changes.images).schema, str(origin.table)
    key = _key_id(registry, topic, columns, origin)
    if schema_id is not None and key != schema_id:
        raise other_key_schema(table, topic, schema_id, key)
    value = registry.register(f"{topic}-value", value_schema(columns, origin), table)
    return debezium_avro(changes, origin, Registered(key, value))
