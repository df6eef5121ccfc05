"""Ways to bring a batch into a Delta table: our own entry, the MERGE of delta-rs, the MERGE of
Spark with deletion vectors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Protocol

import psutil
import pyarrow as pa
from deltalake import CommitProperties, PostCommitHookProperties
from pyspark.sql import SparkSession
from pyspark.sql.functions import broadcast

from bench.delta_tables import TABLE, target_in
from cdcsync_spark.sinks.contract.changes import Upsert
from cdcsync_spark.sinks.delta.fallback.delta_rs import opened
from cdcsync_spark.sinks.delta.fallback.merge import merge
from contract.sinkcase import batch, first_state


class DeltaContender(Protocol):
    def commit(self, number: int, change: Upsert) -> None: ...

    def maintain(self) -> None:
        """What keeps the table as quick as it is, outside the commits."""
        ...

    def cpu(self) -> float:
        """CPU seconds that it has spent so far."""
        ...


class OwnEntry:
    """The product, with its maintenance."""

    def __init__(self, folder: Path, scratch: Path) -> None:
        self._writer = target_in(folder).writer(scratch)
        self._writer.warm()

    def commit(self, number: int, change: Upsert) -> None:
        self._writer.commit(1, batch(number, change))

    def maintain(self) -> None:
        """As the stream does it: one step after each batch."""
        self._writer.maintain()

    def cpu(self) -> float:
        return time.process_time()


class DeltaRs:
    """The MERGE to which the product falls back where it may not write entries of its own, without
    what it does around it."""

    def __init__(self, folder: Path) -> None:
        self._path = target_in(folder).path

    def commit(self, number: int, change: Upsert) -> None:
        handle = opened(self._path)
        assert handle
        hooks = PostCommitHookProperties(create_checkpoint=False)
        merge(handle, first_state(TABLE), change, CommitProperties(), hooks)

    def maintain(self) -> None:
        """Nothing: its files are large."""

    def cpu(self) -> float:
        return time.process_time()


class DeltaSparkMerge:
    """A broadcast source, deletion vectors on."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._path = spark, target_in(folder).uri

    def commit(self, number: int, change: Upsert) -> None:
        upserts = change.upserts.append_column("_gone", pa.array([False] * change.upserts.num_rows))
        deletes = change.deletes.append_column("_gone", pa.array([True] * change.deletes.num_rows))
        source = pa.concat_tables([upserts, deletes], promote_options="default").combine_chunks()
        broadcast(self._spark.createDataFrame(source)).createOrReplaceTempView("batch")
        names = [column.name for column in TABLE.columns]
        sets = ", ".join(f"t.{n} = s.{n}" for n in names)
        values = ", ".join(f"s.{n}" for n in names)
        self._spark.sql(
            f"MERGE INTO delta.`{self._path}` t USING batch s ON t.id = s.id WHEN MATCHED AND s._gone THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {sets} "
            f"WHEN NOT MATCHED AND NOT s._gone THEN INSERT ({', '.join(names)}) VALUES ({values})"
        )

    def maintain(self) -> None:
        """Nothing."""

    def cpu(self) -> float:
        children = psutil.Process().children(recursive=True)
        return time.process_time() + sum(sum(p.cpu_times()[:2]) for p in children)
