"""The public door to the Spark data sources: `from cdcsync_spark.datasource import MySqlBinlog`.

Why it exists: users' programs import this name (docs/spark-sources.md), wherever the code is kept.
"""

from __future__ import annotations

from cdcsync_spark.sources.datasource import MySqlBinlog, MySqlSnapshot, low_watermark

__all__ = ["MySqlBinlog", "MySqlSnapshot", "low_watermark"]
