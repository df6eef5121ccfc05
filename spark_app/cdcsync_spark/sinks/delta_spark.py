"""A Spark session that knows Delta, beside the driver's own, on the same Spark."""

from __future__ import annotations

from pyspark.sql import SparkSession

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_SETTINGS = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # tables are not large enough to spread a log's few actions over 50 tasks
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "32",
    # the source is a table in memory: nothing can change while it is read twice
    "spark.databricks.delta.merge.materializeSource": "none",
}


def delta_session(spark: SparkSession) -> SparkSession:
    """A session of its own: extensions are a session's, so the driver's stays as it was. Needs the jars of `delta_jars`."""
    jvm = spark._jvm
    assert jvm is not None
    sessions = jvm.org.apache.spark.sql.classic.SparkSession
    before = sessions.getDefaultSession()
    builder = sessions.builder().withExtensions(getattr(jvm, _EXTENSION)())
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    made = SparkSession(spark.sparkContext, builder.create())
    if before.isDefined():
        sessions.setDefaultSession(before.get())
    return made
