"""Commits by Spark, for tables whose features delta-rs does not write, and where it would rewrite
too much.

Spark changes the rows in a shadow of the table (`sinks.delta.shadow`) in whatever way the table's
features ask for, by deletion vectors where it has them; the entry that comes of it is completed and
entered by `DeltaWriter`. The batch is broadcast, because it is small against the table. Before
anybody sees it the counts of a MERGE must add up, as for delta-rs (`sinks.delta.merge`), and so
must the live rows of every file that went or came; Spark must have made one commit, not more.

Extensions belong to a session: Delta's are in one of its own, apart from the driver's, made when it
is first needed.
"""

from __future__ import annotations

import re
import uuid
from functools import lru_cache
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.state import TableState
from cdcsync_core.target_schema import TargetSchema
from cdcsync_spark.sinks.base import Append, Commit, Replace, Upsert
from cdcsync_spark.sinks.delta.merge import check_counts, merge_source, unused_name
from cdcsync_spark.sinks.delta.shadow import Shadow, new_paths, shadowed
from cdcsync_spark.sinks.delta.strategy import spark_may
from cdcsync_spark.sinks.delta.table_path import TablePath
from cdcsync_spark.sinks.delta.view import Action, LiveFile, TableView
from cdcsync_spark.sinks.lake.staging import DataFile, data_files
from cdcsync_spark.wire.columns.typemap import arrow_schema

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
#: an error class of Delta, or of the analyser about a column or a type
_NAMED = re.compile(r"\[(DELTA_|UNRESOLVED_COLUMN|DATATYPE_MISMATCH|INCOMPATIBLE_DATA)|AnalysisException")
_VALUES = re.compile(r" (?:by row )?with values?\b")
_SETTINGS = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    # here Spark works on many rows
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    # one task would hold a large table's touched rows at once and run out of memory [measured]
    "spark.sql.shuffle.partitions": "32",
    "spark.databricks.delta.snapshotPartitions": "1",
    # the source is a table in memory: nothing can change while it is read twice
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.databricks.delta.autoCompact.enabled": "false",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # whatever the resource's sparkConf sets: a file that cannot be read must not become fewer rows,
    # and rows are counted by statistics
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.databricks.delta.stats.collect": "true",
    # every shadow is a table of its own, used once
    "spark.databricks.delta.delta.log.cacheSize": "1",
}


def driver_session() -> SparkSession | None:
    """This process's Spark if it runs, works here alone, and has the jars of `delta_jars`."""
    spark = SparkSession._instantiatedSession
    if spark is None or spark.sparkContext._jsc is None or not spark.sparkContext.master.startswith("local"):
        return None
    assert spark._jvm is not None
    return spark if spark._jvm.org.apache.spark.util.Utils.classIsLoadable(_EXTENSION) else None


@lru_cache(maxsize=1)
def delta_session(spark: SparkSession) -> SparkSession:
    """A session that knows Delta on the same Spark; the driver's stays as it was."""
    jvm = spark._jvm
    assert jvm is not None
    _begin_cleaning(spark)
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    default, active = sessions.getDefaultSession(), sessions.getActiveSession()
    builder = sessions.builder().withExtensions(getattr(jvm, _EXTENSION)())
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    made = SparkSession(spark.sparkContext, builder.create())
    if default.isDefined():
        sessions.setDefaultSession(default.get())
    if active.isDefined():
        sessions.setActiveSession(active.get())
    return made


def _begin_cleaning(spark: SparkSession) -> None:
    """A stream's Spark has no cleaner of broadcasts and shuffles that nothing refers to any more,
    because it has no jobs (`session.start`). Spark makes one for a context that it starts, so it is
    put where Spark has it. Source: Spark 4.1, SparkContext, ContextCleaner."""
    assert spark._jvm is not None
    assert spark.sparkContext._jsc is not None
    context = spark.sparkContext._jsc.sc()
    if context.cleaner().isDefined():
        return
    cleaner, components = (context.getClass().getDeclaredField(f) for f in ("_cleaner", "_shuffleDriverComponents"))
    for field in (cleaner, components):
        field.setAccessible(True)
    made = spark._jvm.org.apache.spark.ContextCleaner(context, components.get(context))
    cleaner.set(context, spark._jvm.scala.Option.apply(made))
    made.start()


def serves(table_path: TablePath, view: TableView) -> bool:
    """Whether Spark can make a commit to the table now."""
    return table_path.store.local_folder is not None and spark_may(view) and driver_session() is not None


def work(table_path: TablePath, view: TableView, commit: Commit) -> tuple[list[Action], list[str]]:
    """Spark's actions for `commit` on top of `view`, and the files that it wrote for them, durable
    in the table."""
    spark = driver_session()
    lake, folder = table_path.lake.local_folder, table_path.store.local_folder
    assert spark is not None
    assert lake is not None
    assert folder is not None
    if isinstance(commit.change, Append | Replace):
        table_path.refuse_missing(data_files(commit.change))
    with shadowed(folder, view.version) as shadow:
        gained = _change(delta_session(spark), shadow, lake / table_path.root, commit)
        actions = shadow.committed()
        _check_rows(view, commit, actions, gained)
        paths = new_paths(view, actions)
        shadow.publish(paths)
    return actions, paths


def _change(session: SparkSession, shadow: Shadow, root: Path, commit: Commit) -> int:
    """The rows that a MERGE adds or, below zero, takes away. Staged files are relative to
    `root`."""
    change, gained = commit.change, 0
    try:
        if isinstance(change, Upsert) and not change.empty:
            gained = _merge(session, str(shadow.folder), commit.state, change)
        if not shadow.committed():
            # also where a MERGE met no row: the state must follow even so
            _write(session, shadow, root, commit)
    except (PySparkException, Py4JJavaError) as error:
        raise spark_error(str(error), commit.state.identity.table) from None
    return gained


def _check_rows(view: TableView, commit: Commit, actions: list[Action], gained: int) -> None:
    """Raises InternalError where the table would not hold the rows that it should: those of `view`,
    changed as `commit` says."""
    change = commit.change
    added = sum(p.rows for p in change.staged) if isinstance(change, Append | Replace) else gained
    gone = [f for a in actions if "remove" in a and (f := view.files.get(a["remove"]["path"])) is not None]
    wanted = added if isinstance(change, Replace) else added + _live(gone)
    found = _live([LiveFile(a["add"]) for a in actions if "add" in a])
    if not actions or (found != wanted and all(f.rows is not None for f in gone)):
        raise fail(
            Reason.INTERNAL_ERROR,
            f"Spark's commit has {len(actions)} actions and leaves {found} rows in the files that it touched",
            needed=f"{wanted} rows, in one commit",
            remedy="see the driver's log; report it",
            table=commit.state.identity.table,
        )


def _live(files: list[LiveFile]) -> int:
    return sum((f.rows or 0) - f.deleted_rows for f in files)


def _merge(session: SparkSession, folder: str, state: TableState, change: Upsert) -> int:
    """Rows inserted less those deleted."""
    schema = state.schema
    marker = unused_name(schema.names)
    source = merge_source(change, schema, marker)
    rows = session.createDataFrame(source, from_arrow_schema(source.schema, prefer_timestamp_ntz=True))
    view = f"changes_{uuid.uuid4().hex}"
    rows.createOrReplaceTempView(view)
    deleted = f"s.{_quoted(marker)}"
    names = ", ".join(_quoted(n) for n in schema.names)
    try:
        counts = session.sql(
            f"MERGE INTO delta.{_quoted(folder)} t USING (SELECT /*+ BROADCAST({view}) */ * FROM {view}) s"
            f" ON {' AND '.join(f't.{_quoted(k)} = s.{_quoted(k)}' for k in schema.key)}"
            f" WHEN MATCHED AND {deleted} THEN DELETE"
            f" WHEN MATCHED THEN UPDATE SET {', '.join(f't.{_quoted(n)} = s.{_quoted(n)}' for n in schema.names)}"
            f" WHEN NOT MATCHED AND NOT {deleted} THEN INSERT ({names})"
            f" VALUES ({', '.join(f's.{_quoted(n)}' for n in schema.names)})"
        ).collect()[0]
    finally:
        session.catalog.dropTempView(view)
    kinds = ("inserted", "updated", "deleted")
    check_counts(state, change, {f"num_target_rows_{k}": counts[f"num_{k}_rows"] for k in kinds})
    return int(counts["num_inserted_rows"]) - int(counts["num_deleted_rows"])


def _write(session: SparkSession, shadow: Shadow, root: Path, commit: Commit) -> None:
    """Staged rows, or none; with a transaction, without which Spark commits no write of nothing."""
    change, state = commit.change, commit.state
    files = data_files(change)
    writer = _staged(session, root, state.schema, files).write.format("delta")
    writer = writer.option("txnAppId", state.identity.app_id).option("txnVersion", state.commit_number)
    if isinstance(change, Replace):
        writer = writer.mode("overwrite").option("overwriteSchema", "true")
    else:
        writer = writer.mode("append")
    writer.save(str(shadow.folder))


def _staged(session: SparkSession, root: Path, target: TargetSchema, files: tuple[DataFile, ...]) -> DataFrame:
    schema = from_arrow_schema(arrow_schema(target), prefer_timestamp_ntz=True)
    if not files:
        return session.createDataFrame([], schema)
    return session.read.schema(schema).parquet(*(str(root / f.path) for f in files))


def spark_error(text: str, table: str) -> CdcError:
    """What Delta and the analyser name is about the table; all else (memory, disk) a retry
    may fix. The values of a row that breaks a rule are left out."""
    flat = _VALUES.split(" ".join(text.split()))[0]
    named = _NAMED.search(flat)
    if named is None:
        return fail(
            Reason.SINK_UNREACHABLE,
            f"Spark failed to change the target: {flat[:500]}",
            remedy="see the driver's log; give it more memory (spec.driver.memory)",
            table=table,
        )
    return fail(
        Reason.SINK_CONFLICT,
        f"Spark refused to change the target: {flat[named.start() :][:500]}",
        needed="a table whose rules the changes keep",
        remedy=f"take the rule from the target table, {RUN_AGAIN}",
        table=table,
    )


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
