"""What is followed of a table's schema changes: what the resource asks, as far as the sink can."""

from __future__ import annotations

from cdcsync_core.resource.spec import Spec
from cdcsync_core.tables.evolve import DroppedColumns
from cdcsync_spark.binlog.schema.steps import FollowPolicy
from cdcsync_spark.sinks.contract.changes import Emit, Evolve
from cdcsync_spark.sinks.contract.sink import Capabilities


def policy_of(spec: Spec, name: str, sink: Capabilities) -> FollowPolicy:
    """The policy of the table `name`."""
    asked = spec.schema_change_of(name)
    return FollowPolicy(
        follow=asked.behavior == "evolve" and Evolve in sink.changes,
        emptied=asked.emptied == "follow",
        dropped=DroppedColumns(asked.dropped_columns),
        excluded=frozenset(spec.tables.override(name).columns.exclude),
        append_only=Emit in sink.changes,
    )
