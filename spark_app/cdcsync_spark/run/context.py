"""What every application of a run works with: the resource, the source as it is reached, the sink,
the way to report."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from cdcsync_core.errors import CdcError
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.run import RunConfig, RunKind
from cdcsync_mysql.readiness.proof import open_session
from cdcsync_mysql.readiness.snapshot_host import SnapshotHost
from cdcsync_mysql.server import ServerFacts
from cdcsync_mysql.sessions.connection import Source, source_from_spec
from cdcsync_mysql.sessions.hosts import PATIENT_SECONDS
from cdcsync_mysql.sessions.source import snapshot_host_of
from cdcsync_spark.run.progress import Reports, failed_entry
from cdcsync_spark.sinks import refuse_unready, sink_from_spec
from cdcsync_spark.sinks.contract.driver import Role
from cdcsync_spark.sinks.contract.sink import Sink

SILENT_SECONDS = 5.0


class Draining(Exception):
    """The run was asked to stop while it waited."""


@dataclass
class RunContext:
    """`source` is the host that the run has reached and `others` are the other ones of the spec;
    `starting` gives the Spark session; `failed` collects the errors of single tables by name; the
    others flow on. `silent_seconds` is the longest time without a report in a run that waits."""

    config: RunConfig
    resource: CdcSync
    source: Source
    facts: ServerFacts
    sink: Sink
    reporter: Reports
    stopping: threading.Event
    starting: Future[SparkSession]
    failed: dict[str, CdcError] = field(default_factory=dict)
    silent_seconds: float = SILENT_SECONDS
    others: Source | None = None
    _reported_at: float = float("-inf")

    @property
    def sync(self) -> str:
        return self.resource.full_name

    @property
    def snapshot_host(self) -> SnapshotHost | None:
        """The replica on which a snapshot reads rows, if the resource names one."""
        replica = snapshot_host_of(self.resource.spec.source, self.source)
        return None if replica is None else SnapshotHost(replica, self.source, self.facts)

    def go_to(self, source: Source, facts: ServerFacts) -> None:
        """Goes on with another host; what `sink` had opened belongs to the host before."""
        hosts = (self.source.host, *(self.others.hosts if self.others else ()))
        self.others = self.source.of_hosts(*hosts).without(source.host)
        self.source, self.facts = source, facts
        self.sink = _open_sink(self.config, self.resource, facts)

    def refuse(self, table: str, error: CdcError) -> None:
        """The table takes no part in this run any more."""
        self.failed[table] = error
        self.reporter.report(tables=[failed_entry(table, error)])

    def wait(self, seconds: float) -> None:
        """Raises Draining when the run is asked to stop, and what a report raises: a
        run that reports nothing does not notice that its controller is gone."""
        if self.stopping.wait(seconds):
            raise Draining
        if time.monotonic() - self._reported_at >= self.silent_seconds:
            self._reported_at = time.monotonic()
            self.reporter.report()


def open_context(
    config: RunConfig,
    reporter: Reports,
    stopping: threading.Event,
    starting: Future[SparkSession],
    patience: float = PATIENT_SECONDS,
) -> RunContext:
    """Reaches sink and source once; raises CdcError. The server that the sync follows is asked for
    `patience` seconds before another host is taken."""
    resource = CdcSync.model_validate(config.resource).following(config.followed)
    secrets = Path(config.secrets_dir)
    hosts = source_from_spec(resource.spec.source, secrets)
    refuse_unready(resource.spec.sink, secrets, resource.full_name)
    with open_session(hosts, patience=patience) as session:
        source, facts = session.source, session.facts
    sink = _open_sink(config, resource, facts)
    others = hosts.without(source.host)
    return RunContext(config, resource, source, facts, sink, reporter, stopping, starting, others=others)


def _open_sink(config: RunConfig, resource: CdcSync, facts: ServerFacts) -> Sink:
    if not config.kind.copies:
        return sink_from_spec(resource.spec.sink, Path(config.secrets_dir), resource.full_name)
    followed = config.kind is RunKind.SNAPSHOT and not resource.spec.snapshot.only
    role = Role(config.kind.value, followed, facts.server_id)
    return sink_from_spec(resource.spec.sink, Path(config.secrets_dir), resource.full_name, role)
