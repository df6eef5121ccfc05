"""The resource: what a user asks for, checked when it is made.

Why it exists: one manifest is the whole interface, on a laptop and on a cluster; its field names
and defaults are fixed. Why it is right: the models forbid every field that they do not name, so
that nothing is accepted and ignored; scalars are strict (a quoted number is not a number, `on` is
not true); patterns are compiled by RE2, which cannot run away; the models are frozen. No field
holds a secret: credentials are references to Secrets.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import cached_property
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, PrivateAttr, model_validator

from cdcsync_core.positions.lineage import BinlogId
from cdcsync_core.resource.connection_spec import CredentialsRef, SourceTls, is_loopback, joined
from cdcsync_core.resource.pod_size import Driver, Executors, StreamDriver
from cdcsync_core.resource.schedule_spec import Schedule
from cdcsync_core.resource.sink_spec import SinkSpec
from cdcsync_core.resource.snapshot_spec import SnapshotSpec
from cdcsync_core.resource.spark_conf import SparkConf
from cdcsync_core.resource.spec_part import (
    DnsLabel,
    Flag,
    Host,
    Part,
    Seconds,
    Size,
    TableName,
    Text,
    Whole,
)
from cdcsync_core.resource.start_spec import Start
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.table_selection import TableSelection, check_pattern, matches

GROUP = "cdcsync.io"
#: of a manifest; both have the same fields
ApiVersion = Literal["cdcsync.io/v1alpha1", "cdcsync.io/v1beta1"]
API_VERSIONS: tuple[str, ...] = get_args(ApiVersion)
#: what programs ask an API server for: a CRD of an earlier release has it, too
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "CdcSync"
MAX_PATTERN = 256
MAX_HOSTS = 8
_SPARE_IDS = 3

Pattern = Annotated[str, Field(strict=True, min_length=1, max_length=MAX_PATTERN), AfterValidator(check_pattern)]


def _each_once(hosts: tuple[str, ...]) -> tuple[str, ...]:
    if len({host.lower().rstrip(".") for host in hosts}) < len(hosts):
        raise ValueError("each host once")
    return hosts


class SourceSpec(Part):
    """Where the source is: one `host`, or `hosts`, of which one is taken by what their servers are
    (`cdcsync_mysql.sessions.hosts`). `snapshot_host` is a replica of it on which snapshots read
    rows; its port and account are those of the source."""

    host: Host | None = None
    hosts: Annotated[tuple[Host, ...], Field(max_length=MAX_HOSTS), AfterValidator(_each_once)] = ()
    snapshot_host: Host | None = None
    port: Annotated[Whole, Field(ge=1, le=65535)] = 3306
    credentials_secret_ref: CredentialsRef
    tls: SourceTls
    server_id: Annotated[Whole, Field(ge=0, le=2**32 - 1)] = 0
    heartbeat_interval: Annotated[Seconds, Field(ge=1, le=600)] = 30.0
    lost_tail: Literal["resnapshot", "fail"] = "resnapshot"
    _followed: BinlogId = PrivateAttr("")

    @model_validator(mode="before")
    @classmethod
    def _tls_by_host(cls, data: Any) -> Any:
        """Verified where an authority is given; else encrypted unless the server is this
        machine."""
        if not isinstance(data, dict) or not isinstance(data.get("tls", {}), dict):
            return data
        tls, hosts = data.get("tls", {}), data.get("hosts") or [data.get("host")]
        replica = [data["snapshotHost"]] if data.get("snapshotHost") else []
        local = isinstance(hosts, list | tuple) and all(is_loopback(str(host)) for host in [*hosts, *replica])
        mode = "disabled" if local else "required"
        return data | {"tls": {"mode": "verify-identity" if tls.get("caSecretRef") else mode} | tls}

    @model_validator(mode="after")
    def _one_or_several(self) -> Self:
        if (self.host is None) == (not self.hosts):
            raise ValueError("host, or hosts, one of both")
        if self.snapshot_host in self.servers:
            raise ValueError("snapshotHost is a replica, which host and hosts do not name")
        return self

    @property
    def servers(self) -> tuple[str, ...]:
        """The hosts in the order in which they are tried."""
        return self.hosts if self.host is None else (self.host,)

    @property
    def all_hosts(self) -> tuple[str, ...]:
        """All hosts that get the account."""
        return self.servers if self.snapshot_host is None else (*self.servers, self.snapshot_host)

    @property
    def followed(self) -> BinlogId:
        """The binlog that the sync's tables are in, as far as it is known here: of several hosts,
        its server comes first. It is no part of the manifest, and empty for one host."""
        return self._followed

    def following(self, binlog: BinlogId) -> Self:
        copy = self.model_copy()
        copy._followed = binlog if self.hosts else ""
        return copy


def _once_a_table(entries: tuple[Any, ...]) -> tuple[Any, ...]:
    counts = Counter(e.table for e in entries)
    repeated = sorted(name for name, count in counts.items() if count > 1)
    if repeated:
        raise ValueError(f"each table once, found again: {', '.join(repeated[:5])}")
    return entries


class SchemaChange(Part):
    """What becomes of a table whose definition changes on the source.

    `resnapshot`: whether a table that cannot be followed is resnapshotted by itself, up to
    `resnapshot_max_rows` rows; a larger one asks, because a resnapshot loads the source.
    """

    behavior: Literal["evolve", "fail"] = "evolve"
    dropped_columns: Literal["keep", "drop"] = "keep"
    emptied: Literal["follow", "fail"] = "follow"
    resnapshot: Literal["automatic", "ask"] = "automatic"
    resnapshot_max_rows: Annotated[Whole, Field(ge=0, le=2**53)] = 100_000_000

    @property
    def resnapshots(self) -> bool:
        return self.behavior == "evolve" and self.resnapshot == "automatic"


class OverrideSchemaChange(Part):
    """What one table has otherwise than the sync; None: as the sync."""

    behavior: Literal["evolve", "fail"] | None = None
    dropped_columns: Literal["keep", "drop"] | None = None
    emptied: Literal["follow", "fail"] | None = None
    resnapshot: Literal["automatic", "ask"] | None = None
    resnapshot_max_rows: Annotated[Whole, Field(ge=0, le=2**53)] | None = None

    def over(self, base: SchemaChange) -> SchemaChange:
        return base.model_copy(update=self.model_dump(exclude_none=True))


class OverrideColumns(Part):
    exclude: tuple[Text, ...] = ()


def _names_once(names: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(names)) != len(names):
        raise ValueError("each column once")
    return names


class Override(Part):
    """Settings of one table, by its literal name `database.table`; `key` declares the columns that
    tell its rows apart where the source has no index that does."""

    table: TableName
    key: Annotated[tuple[Text, ...], Field(max_length=32), AfterValidator(_names_once)] = ()
    columns: OverrideColumns = OverrideColumns()
    accept_unlogged_cascades: Flag = False
    schema_change: OverrideSchemaChange | None = None


class Tables(Part):
    """`new_tables`: what becomes of a table that appears while the sync runs and matches."""

    include: Annotated[tuple[Pattern, ...], Field(min_length=1, max_length=256)]
    exclude: Annotated[tuple[Pattern, ...], Field(max_length=256)] = ()
    new_tables: Literal["capture", "ignore"] = "capture"
    invalid_characters: Literal["fail", "replace"] = "fail"
    overrides: Annotated[tuple[Override, ...], Field(max_length=10_000), AfterValidator(_once_a_table)] = ()

    @property
    def replaces_invalid(self) -> bool:
        return self.invalid_characters == "replace"

    def as_read(self, table: Capture) -> Capture:
        """The table with its texts read as the resource asks."""
        return table.replacing() if self.replaces_invalid else table

    @cached_property
    def selection(self) -> TableSelection:
        return TableSelection(self.include, self.exclude)

    def override(self, name: str) -> Override:
        """The settings of one table; the defaults where none are given."""
        return self._by_name.get(name) or Override(table=name)

    @cached_property
    def _by_name(self) -> dict[str, Override]:
        """A scan of ten thousand overrides for each of ten thousand tables takes seconds of every
        reconciliation."""
        return {o.table: o for o in self.overrides}


class Stream(Part):
    """`schedule` None: it runs all the time."""

    interval: Annotated[Seconds, Field(ge=0.1, le=3600)] = 1.0
    max_batch_bytes: Annotated[Size, Field(ge=4096, le=2**34)] = 64 * 2**20
    schedule: Schedule | None = None
    driver: StreamDriver = StreamDriver()


class Backoff(Part):
    initial: Annotated[Seconds, Field(ge=0.1, le=3600)] = 5.0
    max: Annotated[Seconds, Field(ge=0.1, le=86400)] = 600.0

    @model_validator(mode="after")
    def _ordered(self) -> Backoff:
        if self.max < self.initial:
            raise ValueError("max at least initial")
        return self


class AutoRestart(Part):
    """`max_restarts` None: without end."""

    enabled: Flag = True
    backoff: Backoff = Backoff()
    max_restarts: Annotated[Whole, Field(ge=0)] | None = None


#: patterns that a controller compares with the name of each table, again and again
MOST_PATTERNS = 100


class ResnapshotRequest(Part):
    """A request for one table by its literal name, or for all whose names match the pattern
    `tables`; an API server fills the other field with an empty text."""

    table: Annotated[str, Field(strict=True, pattern=r"(?s)^(.+\..+)?$", max_length=129)] = ""
    tables: Annotated[str, Field(strict=True, max_length=MAX_PATTERN), AfterValidator(check_pattern)] = ""
    nonce: Annotated[Whole, Field(ge=0, le=2**53)]

    @model_validator(mode="after")
    def _one_of_both(self) -> ResnapshotRequest:
        if bool(self.table) == bool(self.tables):
            raise ValueError("table (a literal name) or tables (a pattern), one of both")
        return self


class VerifyRequest(Part):
    """A request to compare source and target: of the tables that match one of the patterns
    `tables`, of all where there are none. A larger `nonce` asks again; 0: nothing is asked for."""

    nonce: Annotated[Whole, Field(ge=0, le=2**53)] = 0
    tables: Annotated[tuple[Pattern, ...], Field(max_length=MOST_PATTERNS)] = ()

    def includes(self, table: str) -> bool:
        return not self.tables or any(matches(p, table) for p in self.tables)


def _once_each(entries: tuple[ResnapshotRequest, ...]) -> tuple[ResnapshotRequest, ...]:
    """Each name once, and each pattern, of which there are few."""
    _once_a_table(tuple(e for e in entries if e.table))
    counts = Counter(e.tables for e in entries if e.tables)
    repeated = sorted(pattern for pattern, count in counts.items() if count > 1)
    if repeated:
        raise ValueError(f"each pattern once, found again: {', '.join(repeated[:5])}")
    if len(counts) > MOST_PATTERNS:
        raise ValueError(f"at most {MOST_PATTERNS} patterns, found {len(counts)}; table names one table literally")
    return entries


class Spec(Part):
    state: Literal["running", "paused"] = "running"
    source: SourceSpec
    tables: Tables
    snapshot: SnapshotSpec = SnapshotSpec()
    start: Start = Start()
    stream: Stream = Stream()
    sink: SinkSpec
    schema_change: SchemaChange = SchemaChange()
    on_position_lost: Literal["fail", "resnapshot"] = "fail"
    driver: Driver = Driver()
    executors: Executors = Executors()
    spark_conf: SparkConf = Field(default_factory=dict)
    image: Text = ""
    auto_restart: AutoRestart = AutoRestart()
    restart_nonce: Annotated[Whole, Field(ge=0, le=2**53)] = 0
    resnapshot: Annotated[tuple[ResnapshotRequest, ...], Field(max_length=10_000), AfterValidator(_once_each)] = ()
    verify: VerifyRequest = VerifyRequest()

    @model_validator(mode="after")
    def _only_has_no_schedule(self) -> Spec:
        if self.snapshot.only and self.stream.schedule is not None:
            raise ValueError("stream.schedule or snapshot.only, because such a sync ends with its snapshot")
        return self

    @model_validator(mode="after")
    def _only_has_a_snapshot(self) -> Spec:
        if self.snapshot.only and not self.start.with_snapshot:
            raise ValueError("start.from snapshot, or snapshot.only false: nothing else is done of such a sync")
        return self

    @model_validator(mode="after")
    def _early_events(self) -> Spec:
        if self.snapshot.delivery == "early" and not self.sink.kind.keeps_events:
            raise ValueError(
                "snapshot.delivery early with sink.delta.mode history or sink.kafka only: a replica shows a "
                "snapshot's rows at once anyway"
            )
        return self

    def nonce(self, table: str) -> int:
        """The resnapshot nonce asked for `database.table`: the largest of the entries that name or
        match it; 0 where none does."""
        by_name = self._nonces.get(table, 0)
        return max([by_name, *(r.nonce for r in self._patterns if matches(r.tables, table))])

    def begins_at_start(self, table: str) -> bool:
        """Whether the first content of `database.table` begins where `start` says, without a
        snapshot. A resnapshot that was asked for is one."""
        return not self.start.with_snapshot and not self.nonce(table)

    def schema_change_of(self, table: str) -> SchemaChange:
        """The policy for `database.table`."""
        own = self.tables.override(table).schema_change
        return self.schema_change if own is None else own.over(self.schema_change)

    def snapshot_executors(self, rows: int | None = None) -> int:
        """Executors that a snapshot of so many rows asks for (None: of any number of rows): no more
        than read at once; 0 where its driver reads by itself."""
        return min(self.executors.wanted(rows), -(-self.snapshot.parallelism // self.executors.cores))

    def splits_at_once(self) -> int:
        """How many splits a snapshot reads at once, with the executors that it gets."""
        return min(self.snapshot.parallelism, self.snapshot_executors() * self.executors.cores)

    @cached_property
    def _nonces(self) -> dict[str, int]:
        return {r.table: r.nonce for r in self.resnapshot if r.table}

    @cached_property
    def _patterns(self) -> tuple[ResnapshotRequest, ...]:
        return tuple(r for r in self.resnapshot if r.tables)


class Metadata(Part):
    """The fields that a user sets, and those that a server adds (read back by
    `kubectl get -o yaml`)."""

    name: Annotated[DnsLabel, Field(max_length=40)]
    namespace: DnsLabel = "default"
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    generation: int = 1
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: Any = None
    deletion_timestamp: Any = None
    deletion_grace_period_seconds: Any = None
    finalizers: list[Any] = Field(default_factory=list)
    owner_references: list[Any] = Field(default_factory=list)
    managed_fields: list[Any] = Field(default_factory=list)


class CdcSync(Part):
    """The resource without its status (which the controller keeps: `cdcsync_core.runs.status`)."""

    api_version: ApiVersion
    kind: Literal["CdcSync"]
    metadata: Metadata
    spec: Spec

    @property
    def full_name(self) -> str:
        """`namespace/name`, the sync's identity in its targets."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def following(self, binlog: BinlogId) -> CdcSync:
        """The resource with what is known of `SourceSpec.followed`."""
        spec = self.spec.model_copy(update={"source": self.spec.source.following(binlog)})
        return self.model_copy(update={"spec": spec})

    def paused(self) -> CdcSync:
        """As if the user had paused it."""
        return self.model_copy(update={"spec": self.spec.model_copy(update={"state": "paused"})})

    def without_schedule(self) -> CdcSync:
        """As if the stream ran all the time."""
        stream = self.spec.stream.model_copy(update={"schedule": None})
        return self.model_copy(update={"spec": self.spec.model_copy(update={"stream": stream})})

    def to_dict(self) -> dict[str, Any]:
        """The resource with all defaults filled in, as JSON values; `CdcSync.model_validate` reads
        it again."""
        data = self.model_dump(by_alias=True, mode="json", exclude_none=True)
        names = ("name", "namespace", "labels", "annotations", "generation", "uid")
        return data | {"metadata": {k: v for k, v in data["metadata"].items() if k in names and v}}


def replica_id(namespace: str, name: str) -> int:
    """The replica id of a sync that sets none: stable, and in 2^31 ... 2^32 - 1, where few people
    number servers."""
    digest = hashlib.sha256(f"{namespace}/{name}".encode()).digest()
    return 2**31 + int.from_bytes(digest[:8], "big") % 2**31


def replica_ids(namespace: str, name: str, server_id: int = 0) -> tuple[int, ...]:
    """The ids that a sync's dump may use, in their order: `server_id` where the spec sets one, else
    the derived one, then the spare ones. Those are derived in any case, because the numbers next to
    a set one may be another sync's."""
    spares = (replica_id(namespace, f"{name}/spare-{n}") for n in range(1, 1 + _SPARE_IDS))
    return (server_id or replica_id(namespace, name), *spares)


def required_secrets(spec: Spec) -> dict[str, set[str]]:
    """Secret name -> keys that must be in it (the sink's keys are the store's business: at least
    the Secret must be there)."""
    source = spec.source
    return joined(source.credentials_secret_ref.secrets(), source.tls.secrets(), spec.sink.kind.secrets())
