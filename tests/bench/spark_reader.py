"""Spark as readers have it, in a process of its own: all settings are Spark's and Delta's own but
two cores and 4 GiB.

`python spark_reader.py SCRATCH` reads rounds from its input, one JSON object a line: `queries`,
`warm_up` and `counted`, each a number of rounds. It answers a line with the median seconds of each
query. Queries take turns, so that the JVM has compiled as much for one as for another.
"""

from __future__ import annotations

import json
import statistics
import sys
import time

from pyspark.sql import SparkSession

from support import delta_jars


def start(scratch: str) -> SparkSession:
    settings = {
        "spark.driver.memory": "4g",
        "spark.local.dir": scratch,
        "spark.sql.warehouse.dir": scratch,
        "spark.ui.enabled": "false",
        **delta_jars.settings(),
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def median_seconds(spark: SparkSession, queries: list[str], warm_up: int, counted: int) -> list[float]:
    seconds: list[list[float]] = [[] for _ in queries]
    for _ in range(warm_up + counted):
        for query, spent in zip(queries, seconds, strict=True):
            begun = time.perf_counter()
            spark.sql(query).collect()
            spent.append(time.perf_counter() - begun)
    return [statistics.median(spent[warm_up:]) for spent in seconds]


def main() -> None:
    spark = start(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(median_seconds(spark, **json.loads(line))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
