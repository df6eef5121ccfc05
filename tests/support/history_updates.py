"""Updates of a history table in the benchmarks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from bench.delta_tables import TABLE, rows_of
from cdcsync_core.positions.position import Place, TransactionId
from cdcsync_spark.rows.arrow_types import captured_schema
from cdcsync_spark.rows.changes import ChangeKind, changes_schema
from cdcsync_spark.rows.events import Events
from contract.sinkcase import WATERMARK

CHANGES, COMMITS, WARM_UP, ROWS = 20_000, 30, 3, 200_000
_TRANSACTIONS = 100


def updates(number: int) -> Events:
    """Updates of random keys: the row before, and the row after."""
    count = CHANGES // 2
    ids = np.sort(np.random.default_rng(number).choice(ROWS, count, replace=False))
    before, after = rows_of(ids, number - 1), rows_of(ids, number)
    order = np.arange(2 * count).reshape(2, count).T.ravel()
    rows = pa.concat_tables([before, after]).take(pa.array(order)).combine_chunks()
    kinds = np.tile(np.array([ChangeKind.UPDATE_BEFORE, ChangeKind.UPDATE_AFTER], np.int8), count)
    of = np.repeat(np.arange(_TRANSACTIONS, dtype=np.int32), CHANGES // _TRANSACTIONS)
    schema = changes_schema(captured_schema(TABLE))
    images = pa.Table.from_arrays([pa.chunked_array([pa.array(a)]) for a in (kinds, of)] + rows.columns, schema=schema)
    places = [
        TransactionId(Place(WATERMARK.file, 1000 * number + n + 4, WATERMARK.binlog)) for n in range(_TRANSACTIONS)
    ]
    return Events(images, places, [1.7e9 + n for n in range(_TRANSACTIONS)], CHANGES * (number - 1) + 1)
