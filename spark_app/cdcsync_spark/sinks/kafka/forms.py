"""The sync's form of records: one of the JSON forms, or Avro, whose schemas are registered before
the first record is made with them, and asked for by their ids when records are read back.

Each topic has two subjects, `<topic>-key` and `<topic>-value`. A changed definition of a table is
another schema of them, which the registry takes or refuses by its rules of compatibility.
"""

from __future__ import annotations

from functools import partial

from cdcsync_core.errors import Reason, fail
from cdcsync_spark.sinks.events import Events
from cdcsync_spark.sinks.formats.avro_reader import AVRO, AvroReader
from cdcsync_spark.sinks.formats.avro_records import Registered, debezium_avro, key_schema, value_schema
from cdcsync_spark.sinks.formats.json_reader import JsonReader
from cdcsync_spark.sinks.formats.json_records import FORMS, Form, Origin, Records
from cdcsync_spark.sinks.formats.record_reader import RecordReader
from cdcsync_spark.sinks.formats.record_steps import columns_of
from cdcsync_spark.sinks.kafka.registry import Registry


def form_of(name: str, registry: Registry | None, topic: str) -> Form:
    """What makes the records of `topic`."""
    return partial(_avro, _needed(registry), topic) if name == AVRO else FORMS[name]


def reader_of(name: str, registry: Registry | None) -> RecordReader:
    """What reads records of the form."""
    return AvroReader(_needed(registry).schema) if name == AVRO else JsonReader(name)


def _needed(registry: Registry | None) -> Registry:
    if registry is None:
        raise fail(
            Reason.SPEC_INVALID,
            "the format debezium-avro has no schema registry",
            needed="spec.sink.kafka.schemaRegistry",
            remedy="name a registry, or take a JSON format",
        )
    return registry


def _avro(registry: Registry, topic: str, changes: Events, origin: Origin) -> Records:
    columns, table = columns_of(changes.images).schema, str(origin.table)
    key = registry.register(f"{topic}-key", key_schema(columns, origin), table)
    value = registry.register(f"{topic}-value", value_schema(columns, origin), table)
    return debezium_avro(changes, origin, Registered(key, value))
