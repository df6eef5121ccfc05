"""The crash points of a sync, which of them are passed when, and the plans of faults that pass all
of them in one run over all variants of servers."""

from __future__ import annotations

from typing import Literal

from support.kills import Interruption

Phase = Literal["snapshot", "stream", "steps", "again", "end"]


Plan = dict[Phase, tuple[Interruption, ...]]

PLANS: dict[str, Plan] = {
    "mariadb1011": {
        "snapshot": (
            Interruption("table-created", 3),
            Interruption("wave-staged", 2, then="controller"),
            Interruption("split-read", 5),
        ),
        "stream": (
            Interruption("table-applied", 2),
            Interruption("vectors-written"),
            Interruption(part="reader", then="recovers"),
        ),
        "end": (Interruption("before-stamp"),),
    },
    "mariadb1011_loose": {
        "snapshot": (
            Interruption("staged", 4),
            Interruption("before-commit", 2, then="controller"),
            Interruption(part="worker", then="recovers"),
        ),
        "stream": (Interruption("committed", 2, forget=True), Interruption("batch-read", 2, then="controller")),
    },
    "mysql97_gtid": {
        "snapshot": (Interruption("table-prepared", 4), Interruption("wave-read", 2, then="controller")),
        "stream": (Interruption("batch-applied", 2), Interruption("data-written", 2)),
        "again": (Interruption("before-publish"), Interruption("published", then="controller")),
    },
    "mysql97_nogtid": {
        "snapshot": (
            Interruption("run-recorded"),
            Interruption("low-taken", 2),
            Interruption("wave-committed", 3, then="controller", forget=True),
            Interruption(part="jvm"),
        ),
        "stream": (Interruption("entry-written", 2), Interruption(part="driver", then="recovers")),
    },
}

#: under changes of the schema (tests/stress/test_schema_stress.py)
STEP_PLANS: dict[str, Plan] = {
    "mariadb1011": {
        "snapshot": (Interruption("wave-committed", 2),),
        "steps": (
            Interruption("step-staged", 2),
            Interruption("step-committed", 3, then="recovers"),
            Interruption("resnapshot-decided"),
        ),
    },
    "mariadb1011_loose": {
        "steps": (
            Interruption("resnapshot-decided", then="controller"),
            Interruption("step-staged", 4, then="recovers"),
        ),
        "again": (Interruption("published"),),
    },
    "mariadb114": {
        "snapshot": (Interruption("staged", 3, then="recovers"),),
        "steps": (
            Interruption("step-staged"),
            Interruption("resnapshot-decided"),
            Interruption("step-committed", 2, then="controller"),
        ),
    },
    "mysql97_gtid": {
        "snapshot": (Interruption("low-taken", 2, then="recovers"),),
        "steps": (
            Interruption("step-committed", forget=True),
            Interruption(part="driver", then="recovers"),
            Interruption("step-staged"),
        ),
    },
    "mysql97_nogtid": {
        "snapshot": (Interruption("wave-staged", 3, then="controller"),),
        "steps": (
            Interruption("step-staged", 3, then="controller"),
            Interruption(part="reader"),
            Interruption("step-committed", 5),
        ),
        "again": (Interruption("before-publish"),),
    },
}

#: what every run of the tests takes
SHORT_STEP_PLAN: Plan = {"steps": (Interruption("step-committed", 2),)}

#: after staging, before the wave's commit; in table creation; between the commits of two tables;
#: after a commit, before status; in an idle table's position checkpoint; in the handover of a
#: table; between the run id in status and its process; and the steps in between
CRASH_POINTS: dict[str, tuple[Phase, ...]] = {
    "run-recorded": ("snapshot", "stream"),
    "table-created": ("snapshot",),
    "table-prepared": ("snapshot",),
    "low-taken": ("snapshot",),
    "split-read": ("snapshot",),
    "staged": ("snapshot",),
    "wave-read": ("snapshot",),
    "wave-staged": ("snapshot",),
    "wave-committed": ("snapshot",),
    "before-commit": ("snapshot", "stream"),
    "data-written": ("stream",),
    "vectors-written": ("stream",),
    "entry-written": ("snapshot", "stream"),
    "committed": ("snapshot", "stream"),
    "batch-read": ("stream",),
    "table-applied": ("stream",),
    "batch-applied": ("stream",),
    "before-publish": ("again",),
    "published": ("again",),
    "before-stamp": ("end",),
    "step-staged": ("steps",),
    "step-committed": ("steps",),
    "resnapshot-decided": ("steps",),
}
#: where the source crashed: tests/servers/test_source_crash.py; where the catalog confirms a
#: change: tests/servers/test_followed_by_runs.py; where the state topic of Kafka is long:
#: tests/servers/test_kafka_state_topic.py; where another program wrote a target:
#: tests/servers/test_foreign_writes.py; where a topic was deleted:
#: tests/servers/test_kafka_refusals.py; where another server answers:
#: tests/servers/test_failover.py; in the commits of a SQL database:
#: tests/contract/test_sql_writer.py
PASSED_ELSEWHERE = {
    "crash-tail-read",
    "crash-repaired",
    "definitions-read",
    "states-repeated",
    "table-begun",
    "target-read",
    "topic-made-again",
    "view-opened",
    "table-moved",
    "sql-table-filled",
    "sql-rows-written",
    "sql-committed",
    "sql-pending",
    "sql-swapped",
    "sql-state-removed",
}

#: into Kafka topics (tests/stress/test_topic_stress.py): a run opens its producer; a staged copy
#: and what is folded into it; its rows as parts of a publication; a transaction with its states
TOPIC_PLANS: dict[str, Plan] = {
    "mariadb1011": {
        "snapshot": (
            Interruption("table-created", 3),
            Interruption("kafka-opened", then="controller"),
            Interruption("staged", 3),
            Interruption("wave-staged", 2, then="controller"),
            Interruption("wave-committed", 2),
            Interruption("data-written", 2, then="recovers"),
            Interruption("kafka-sent", 3),
            Interruption("part-sent", 2, then="controller"),
        ),
        "stream": (
            Interruption("kafka-begun", 3, then="recovers"),
            Interruption("kafka-sent", 4),
            Interruption("table-applied", 5),
        ),
        "again": (Interruption("before-publish"), Interruption("kafka-committed", 2, then="controller")),
        "end": (Interruption("before-stamp"),),
    },
    "mysql97_gtid": {
        "snapshot": (
            Interruption("run-recorded"),
            Interruption("table-prepared", 4, then="recovers"),
            Interruption("low-taken", 2),
            Interruption("split-read", 4),
            Interruption("wave-read", 2, then="controller"),
            Interruption("before-commit", 2),
            Interruption("entry-written", 3, then="recovers"),
            Interruption("committed", 4, forget=True),
            Interruption("vectors-written"),
            Interruption("published", 2),
        ),
        "stream": (
            Interruption("batch-read", 2, then="controller"),
            Interruption("kafka-committed", 4),
            Interruption("batch-applied", 2, then="recovers"),
            Interruption(part="reader"),
        ),
        "again": (
            Interruption("kafka-begun", 2),
            Interruption("part-sent"),
            Interruption("published", then="controller"),
        ),
    },
}

_COPIED: tuple[Phase, ...] = ("snapshot",)
_SENT: tuple[Phase, ...] = ("stream", "again", "end")
TOPIC_POINTS: dict[str, tuple[Phase, ...]] = {
    **dict.fromkeys(("table-created", "table-prepared", "low-taken", "split-read", "wave-read"), _COPIED),
    **dict.fromkeys(("staged", "wave-staged", "wave-committed", "data-written", "vectors-written"), _COPIED),
    **dict.fromkeys(("before-commit", "entry-written", "committed"), _COPIED),
    **dict.fromkeys(("before-publish", "part-sent", "published"), ("again",)),
    **dict.fromkeys(("kafka-opened", "kafka-begun", "kafka-sent", "kafka-committed"), _SENT),
    **dict.fromkeys(("run-recorded", "batch-read", "table-applied", "batch-applied"), ("stream",)),
    "before-stamp": ("end",),
}
