"""A run into Kafka as a process of its own, which a test kills or stops at a failpoint:
`python kafka_stream.py BROKERS FOLDER SEED ROLE [plain] [early]` follows the random source of the
contract of event sinks to its end; with the role `snapshot` it reads what its target does not have
of a snapshot that is sent early. `plain` is without transactions. Exit code 3: it was superseded.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

from cdcsync_spark.sinks.contract.checks import Superseded
from cdcsync_spark.sinks.delta.replica.staging_table import DeltaStaging
from cdcsync_spark.sinks.kafka.connection.client import KafkaSettings
from cdcsync_spark.sinks.kafka.connection.topics import TopicSettings
from cdcsync_spark.sinks.kafka.topic.target import KafkaSink
from cdcsync_spark.sinks.lake.storage.stores import open_store
from contract.sinkcase import SYNC

SUPERSEDED = 3


def kafka_sink(
    brokers: str, folder: Path, role: str, form: str = "changelog-json", *, exactly_once: bool = True
) -> KafkaSink:
    """Each folder has topics of its own; parts of a snapshot are small."""
    topics = TopicSettings(f"{folder.name}.{{database}}.{{table}}", partitions=3)
    settings = KafkaSettings(brokers, exactly_once=exactly_once)
    staging = DeltaStaging(open_store(str(folder / "lake")), SYNC)
    return KafkaSink(settings, topics, form, SYNC, staging, role, 5, f"{folder.name}.state")


def main(brokers: str, folder: Path, seed: int, role: str, *options: str) -> int:
    from support.early_topic import early_sink, read_early_topic
    from support.event_source import NAME, EventSource, applier, follow

    source = EventSource(random.Random(seed))
    source.rng = random.Random()
    scratch = folder / f"{role}-{random.getrandbits(32)}"
    scratch.mkdir()
    sink = (early_sink if "early" in options else kafka_sink)(
        brokers, folder, role, exactly_once="plain" not in options
    )
    try:
        if role == "snapshot":
            read_early_topic(sink, source)
        else:
            follow(sink, source, scratch)
    except Superseded:
        return SUPERSEDED
    except AssertionError:
        error = applier(sink, scratch).tables[NAME].error
        sys.stderr.write(f"{error}\n")
        raise
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:]))
