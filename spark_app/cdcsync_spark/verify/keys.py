"""Rows of given keys, from the source by SELECT and from the target by scan.

The server compares keys by their collations (R3), so a SELECT may return rows of keys that are
equal to it and not to us: every row that comes back is taken by the digest of its key's bytes, on
both sides alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cdcsync_core.errors import Reason, fail
from cdcsync_core.positions.lineage import Lineage
from cdcsync_core.remedies import resnapshot
from cdcsync_core.tables.capture import Capture
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.reading.catalog import same_definition
from cdcsync_mysql.sessions.connection import Connection, Source, fetch
from cdcsync_spark.sinks.contract.snapshot import TargetSnapshot
from cdcsync_spark.snapshot.splits.key_query import condition
from cdcsync_spark.snapshot.splits.text_select import decode, select_list
from cdcsync_spark.verify.digest import Digester, Digests, DigestSet

_KEYS_A_QUERY = 200


def select_keys(
    source: Source, lineage: Lineage, table: Capture, keys: pa.Table, max_seconds: int
) -> Iterator[pa.RecordBatch]:
    """Rows of `arrow_schema(table)` of all given keys, and of keys that the server holds for equal
    to them."""
    with open_session(source, max_seconds=max_seconds) as session, open_session(source) as other:
        connection = session.proved(lineage)
        connection.use_unicode, connection.decoders = False, {}  # cells are the bytes of the wire
        for start in range(0, keys.num_rows, _KEYS_A_QUERY):
            rows = _select(connection, table, keys.slice(start, _KEYS_A_QUERY))
            if rows:
                yield decode(table, rows).batch
        refuse_other_definition(other.proved(lineage), table)


def _select(connection: Connection, table: Capture, keys: pa.Table) -> list[tuple[Any, ...]]:
    sql = f"SELECT {select_list(table)} FROM {table.id.quoted} WHERE {condition(table, keys)}"
    return fetch(connection, sql, doing=f"reading keys of {table.id} again")


def refuse_other_definition(connection: Connection, table: Capture) -> None:
    """The rows read before were of the definition that the target has."""
    if not same_definition(connection, table):
        raise fail(
            Reason.SCHEMA_CHANGE_REFUSED,
            "the source's table has another definition than the target's copy",
            needed="the definition that was copied",
            remedy=resnapshot(table.id),
            table=str(table.id),
        )


def scan_keys(snapshot: TargetSnapshot, table: Capture, keys: pa.Table) -> Iterator[pa.RecordBatch]:
    """Rows of the target that may have the given keys: those with a value of each key column among
    them."""
    conditions = [pc.field(name).isin(keys[name].combine_chunks()) for name in table.key]
    yield from snapshot.scan(key_filter=reduce(and_, conditions))


def matching(
    batches: Iterable[pa.RecordBatch], keys: Digester, digest_set: DigestSet
) -> Iterator[tuple[pa.RecordBatch, Digests]]:
    """Only the rows whose keys are in `digest_set`, with their keys' digests."""
    for batch in batches:
        digests = keys.of(batch)
        matches = digest_set.where(digests)
        if matches:
            yield batch.take(pa.array(matches, pa.int64())), digests[matches]
