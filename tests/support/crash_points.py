"""The crash points of a sync, which of them are passed when, and the plans of faults that pass all
of them in one run over all variants of servers."""

from __future__ import annotations

from typing import Literal

from support.kills import Fault

Phase = Literal["snapshot", "stream", "steps", "again", "end"]


Plan = dict[Phase, tuple[Fault, ...]]

PLANS: dict[str, Plan] = {
    "mariadb1011": {
        "snapshot": (Fault("table-created", 3), Fault("wave-staged", 2, then="controller"), Fault("split-read", 5)),
        "stream": (Fault("table-applied", 2), Fault("vectors-written"), Fault(part="reader", then="recovers")),
        "end": (Fault("before-stamp"),),
    },
    "mariadb1011_loose": {
        "snapshot": (
            Fault("staged", 4),
            Fault("before-commit", 2, then="controller"),
            Fault(part="worker", then="recovers"),
        ),
        "stream": (Fault("committed", 2, forget=True), Fault("batch-read", 2, then="controller")),
    },
    "mysql97_gtid": {
        "snapshot": (Fault("table-prepared", 4), Fault("wave-read", 2, then="controller")),
        "stream": (Fault("batch-applied", 2), Fault("data-written", 2)),
        "again": (Fault("before-publish"), Fault("published", then="controller")),
    },
    "mysql97_nogtid": {
        "snapshot": (
            Fault("run-recorded"),
            Fault("low-taken", 2),
            Fault("wave-committed", 3, then="controller", forget=True),
            Fault(part="jvm"),
        ),
        "stream": (Fault("entry-written", 2), Fault(part="driver", then="recovers")),
    },
}

#: under changes of the schema (tests/stress/test_schema_stress.py)
STEP_PLANS: dict[str, Plan] = {
    "mariadb1011": {
        "snapshot": (Fault("wave-committed", 2),),
        "steps": (Fault("step-staged", 2), Fault("step-committed", 3, then="recovers"), Fault("resnapshot-decided")),
    },
    "mariadb1011_loose": {
        "steps": (Fault("resnapshot-decided", then="controller"), Fault("step-staged", 4, then="recovers")),
        "again": (Fault("published"),),
    },
    "mariadb114": {
        "snapshot": (Fault("staged", 3, then="recovers"),),
        "steps": (Fault("step-staged"), Fault("resnapshot-decided"), Fault("step-committed", 2, then="controller")),
    },
    "mysql97_gtid": {
        "snapshot": (Fault("low-taken", 2, then="recovers"),),
        "steps": (Fault("step-committed", forget=True), Fault(part="driver", then="recovers"), Fault("step-staged")),
    },
    "mysql97_nogtid": {
        "snapshot": (Fault("wave-staged", 3, then="controller"),),
        "steps": (Fault("step-staged", 3, then="controller"), Fault(part="reader"), Fault("step-committed", 5)),
        "again": (Fault("before-publish"),),
    },
}

#: what every run of the tests takes
SHORT_STEP_PLAN: Plan = {"steps": (Fault("step-committed", 2),)}

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
            Fault("table-created", 3),
            Fault("kafka-opened", then="controller"),
            Fault("staged", 3),
            Fault("wave-staged", 2, then="controller"),
            Fault("wave-committed", 2),
            Fault("data-written", 2, then="recovers"),
            Fault("kafka-sent", 3),
            Fault("part-sent", 2, then="controller"),
        ),
        "stream": (Fault("kafka-begun", 3, then="recovers"), Fault("kafka-sent", 4), Fault("table-applied", 5)),
        "again": (Fault("before-publish"), Fault("kafka-committed", 2, then="controller")),
        "end": (Fault("before-stamp"),),
    },
    "mysql97_gtid": {
        "snapshot": (
            Fault("run-recorded"),
            Fault("table-prepared", 4, then="recovers"),
            Fault("low-taken", 2),
            Fault("split-read", 4),
            Fault("wave-read", 2, then="controller"),
            Fault("before-commit", 2),
            Fault("entry-written", 3, then="recovers"),
            Fault("committed", 4, forget=True),
            Fault("vectors-written"),
            Fault("published", 2),
        ),
        "stream": (
            Fault("batch-read", 2, then="controller"),
            Fault("kafka-committed", 4),
            Fault("batch-applied", 2, then="recovers"),
            Fault(part="reader"),
        ),
        "again": (Fault("kafka-begun", 2), Fault("part-sent"), Fault("published", then="controller")),
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
