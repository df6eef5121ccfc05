"""The order in which a reader takes its replica ids."""

from __future__ import annotations

from cdcsync_spark.binlog.dump.replica_ids import BEGIN_SECONDS, ReplicaIds


def test_a_reader_takes_its_ids_round_and_round_and_the_last_one_waits_longest() -> None:
    ids, seen = ReplicaIds((7, 8, 9)), []
    for _ in range(4):
        seen.append((ids.current, ids.begin_seconds))
        ids = ids.after()
    assert seen == [(7, BEGIN_SECONDS), (8, BEGIN_SECONDS), (9, None), (7, BEGIN_SECONDS)]


def test_a_single_id_waits_as_long_as_ever() -> None:
    ids = ReplicaIds((7,))
    assert (ids.begin_seconds, ids.after()) == (None, ids)
