"""A catalog in a Hive metastore: its table of a name has the place of the newest `metadata.json` as
a parameter, as Iceberg's `HiveCatalog` has it, so every engine with that one finds what is written
here. No JVM.

Why it is right: for a commit (`pointer`) the metastore changes the table if the parameter still
names the file that the commit was decided on, in one transaction of its database (HIVE-26882,
HIVE-28121). Engines look and write in two steps, under
the metastore's lock of the table; so that lock is held, too. A metastore without that check changes
the table whatever is expected, so before its first commit a process asks for a change that must be
refused. Once the change was sent, an error leaves its outcome unknown and the file stays: the
metastore tries again by itself, and its refusal may be of the second time.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hive_metastore.ThriftHiveMetastore import Client
from hive_metastore.ttypes import (
    AlreadyExistsException,
    CheckLockRequest,
    Database,
    DataOperationType,
    EnvironmentContext,
    InvalidObjectException,
    InvalidOperationException,
    LockComponent,
    LockLevel,
    LockRequest,
    LockState,
    LockType,
    MetaException,
    NoSuchObjectException,
    SerDeInfo,
    StorageDescriptor,
    Table,
    UnlockRequest,
)

from cdcsync_core.errors import RUN_AGAIN, CdcError, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_spark.sinks.iceberg.catalog.connection import FIELD, UNTRUSTED, trusting
from cdcsync_spark.sinks.iceberg.catalog.metadata_files import MetadataStores
from cdcsync_spark.sinks.iceberg.catalog.metastore import NO_ANSWER, Connected
from cdcsync_spark.sinks.iceberg.catalog.pointer import (
    NEWEST,
    PointerCatalog,
    first_parameters,
    location_in,
    next_parameters,
)
from cdcsync_spark.sinks.iceberg.catalog.port import CatalogTableName, CommitLost, Json, OutcomeUnknown

#: seconds for another program's lock, and between two requests for it
_LOCKED, _LOOK = 60.0, 0.1
_CHANGED = "The table has been modified"
#: what authorizers of metastores say, which are asked before anything is changed
_REFUSED = re.compile(
    "permission denied|AccessControlException|AuthorizationException|not authori[sz]ed|does not have .{0,40}privilege",
    re.IGNORECASE,
)


class _MetastoreCheck:
    """Whether the metastore checks what it is asked to expect: never pickled."""

    def __init__(self) -> None:
        self.done = False


@dataclass(frozen=True)
class HiveCatalog(PointerCatalog):
    """See `Catalog`. The metastore is at `uri`, as `thrift://host:port`; tables lie below
    `warehouse`. `seconds` bounds one call. With the file `authority` connections are encrypted, and
    the metastore's certificate is by it."""

    uri: str
    warehouse: str
    stores: MetadataStores
    seconds: float = 30.0
    authority: Path | None = None
    _checked: _MetastoreCheck = field(default_factory=_MetastoreCheck, compare=False, repr=False)

    def __reduce__(self) -> tuple[type[HiveCatalog], tuple[Any, ...]]:
        return type(self), (self.uri, self.warehouse, self.stores, self.seconds, self.authority)

    def check(self) -> None:
        """Asks the metastore for its version, which changes nothing. Raises CdcError."""
        with self._metastore("did not say which version it has") as metastore:
            metastore.getVersion()

    def newest(self, table: CatalogTableName) -> str | None:
        with self._metastore(f"did not give the table {table.shown}") as metastore:
            entry = _table(metastore, table)
        return None if entry is None else location_in(entry.parameters or {}, table)

    def insert(self, table: CatalogTableName, metadata: Json, location: str) -> None:
        with self._metastore(f"did not create the table {table.shown}") as metastore:
            _create_database(metastore, table.namespace[0])
            try:
                metastore.create_table(_new_table(table, metadata, location))
            except AlreadyExistsException:
                if not _names(_table(metastore, table), location):
                    raise CommitLost("the table is there already") from None

    def move(self, table: CatalogTableName, before: str, after: Json, location: str) -> bool:
        doing = f"did not commit to the table {table.shown}"
        with self._metastore(doing) as metastore, _Locked(metastore, table):
            entry = _table(metastore, table)
            if entry is None or not _names(entry, before):
                return False
            self._refuse_without_check(metastore, table, entry)
            entry.parameters = next_parameters(entry.parameters, before, location)
            _change(metastore, table, entry, before)
        return True

    def drop(self, table: CatalogTableName) -> None:
        with (
            self._metastore(f"did not remove the table {table.shown}") as metastore,
            suppress(NoSuchObjectException),
        ):
            metastore.drop_table(table.namespace[0], table.name, False)

    # -- the metastore

    def _metastore(self, doing: str) -> _Metastore:
        return _Metastore(self, doing)

    def _refuse_without_check(self, metastore: Client, table: CatalogTableName, entry: Table) -> None:
        """Once a process: asks for no change of a table that is not there."""
        if self._checked.done:
            return
        with suppress(CommitLost):
            _change(metastore, table, entry, f"none-{uuid.uuid4()}")
            raise self.fail(Reason.SPEC_INVALID, f"cannot commit to the table {table.shown}", _UNCHECKED, _NEWER)
        self._checked.done = True

    # -- errors

    def fail(self, reason: Reason, doing: str, fault: str, remedy: str) -> CdcError:
        return fail(
            reason,
            f"the metastore {self.uri} {doing}: {quoted(fault)}",
            needed="a Hive metastore 2.3.10 or 4.0.1, or newer, that lets this sync write its tables: "
            "without SASL, and with TLS where tls is given, there alone",
            remedy=remedy if reason.retried else f"{remedy}, {RUN_AGAIN}",
        )


class _Metastore:
    """A connection within a `with`, whose errors become CdcError: `doing` is what the metastore
    then did not do."""

    def __init__(self, catalog: HiveCatalog, doing: str) -> None:
        self._catalog, self._doing = catalog, doing
        tls = partial(trusting, catalog.authority) if catalog.authority else None
        self._connected = Connected(catalog.uri, f"{FIELD}.uri", catalog.seconds, tls)

    def __enter__(self) -> Client:
        try:
            return self._connected.__enter__()
        except NO_ANSWER as error:
            raise self._translated(error) from None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._connected.__exit__()
        if isinstance(error, NO_ANSWER):
            raise self._translated(error) from None

    def _translated(self, error: BaseException) -> CdcError:
        if _is_refusal(error):
            return self._catalog.fail(Reason.PRIVILEGE_MISSING, self._doing, _text(error), _RIGHTS)
        if isinstance(error, ssl.SSLCertVerificationError):
            refused = f"its certificate is refused: {error.verify_message}"
            return self._catalog.fail(Reason.AUTHENTICATION_FAILED, self._doing, refused, UNTRUSTED)
        if isinstance(error, InvalidObjectException):
            return self._catalog.fail(Reason.SPEC_INVALID, self._doing, _text(error), _NAMES)
        return self._catalog.fail(Reason.SINK_UNREACHABLE, self._doing, _text(error), _AWAY)


class _Locked:
    """Holds the table's lock within a `with`. One that is not given back ends by the metastore's
    own clock."""

    def __init__(self, metastore: Client, table: CatalogTableName) -> None:
        self._metastore, self._table = metastore, table

    def __enter__(self) -> None:
        namespace, name = self._table.namespace[0], self._table.name
        component = LockComponent(
            LockType.EXCLUSIVE, LockLevel.TABLE, namespace, name, operationType=DataOperationType.NO_TXN
        )
        self._lock = self._metastore.lock(LockRequest([component], user="cdcsync", hostname=socket.gethostname()))
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise

    def _wait(self) -> None:
        end, state = time.monotonic() + _LOCKED, self._lock.state
        while state == LockState.WAITING and time.monotonic() < end:
            time.sleep(_LOOK)
            state = self._metastore.check_lock(CheckLockRequest(self._lock.lockid)).state
        if state != LockState.ACQUIRED:
            raise OSError(f"another program holds the table's lock for {_LOCKED:g} s")

    def __exit__(self, *_: object) -> None:
        with suppress(*NO_ANSWER):
            self._metastore.unlock(UnlockRequest(self._lock.lockid))


_AWAY = f"check that the metastore is up, and {FIELD}.uri"
_RIGHTS = (
    "let the metastore create and change tables of the namespace and their folders "
    "for a client without an account, for which it acts as its own user"
)
_NAMES = "compare the metastore's text with the names of the tables and with spec.sink.iceberg"
_UNCHECKED = "it changes a table without looking at what the change expects"
_NEWER = f"use a metastore with HIVE-26882 and HIVE-28121, or a catalog of another type in {FIELD}"


def _table(metastore: Client, table: CatalogTableName) -> Table | None:
    try:
        return metastore.get_table(table.namespace[0], table.name)
    except NoSuchObjectException:
        return None


def _names(entry: Table | None, location: str) -> bool:
    return entry is not None and (entry.parameters or {}).get(NEWEST) == location


def _create_database(metastore: Client, name: str) -> None:
    try:
        metastore.get_database(name)
    except NoSuchObjectException:
        with suppress(AlreadyExistsException):
            metastore.create_database(Database(name, parameters={}))


def _new_table(table: CatalogTableName, metadata: Json, location: str) -> Table:
    """Has no columns: engines read those of the metadata, and a metastore may refuse to change
    the type of one."""
    storage = StorageDescriptor(
        cols=[],
        location=metadata["location"],
        inputFormat="org.apache.hadoop.mapred.FileInputFormat",
        outputFormat="org.apache.hadoop.mapred.FileOutputFormat",
        serdeInfo=SerDeInfo(serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", parameters={}),
        parameters={},
    )
    return Table(
        table.name,
        table.namespace[0],
        owner="cdcsync",
        createTime=int(time.time()),
        sd=storage,
        partitionKeys=[],
        parameters=first_parameters(metadata, location),
        tableType="EXTERNAL_TABLE",
    )


def _change(metastore: Client, table: CatalogTableName, changed: Table, expected: str) -> None:
    """Changes the table if its parameter is as expected. Raises CommitLost and OutcomeUnknown, and
    the metastore's own error where a right is missing."""
    conditions = {"expected_parameter_key": NEWEST, "expected_parameter_value": expected}
    context = EnvironmentContext({"DO_NOT_UPDATE_STATS": "true", **conditions})
    try:
        metastore.alter_table_with_environment_context(table.namespace[0], table.name, changed, context)
    except NO_ANSWER as error:
        if _is_refusal(error):
            raise
        if isinstance(error, MetaException) and _CHANGED in str(error.message):
            raise CommitLost("another commit came first") from None
        raise OutcomeUnknown(f"the metastore: {quoted(_text(error))}") from None


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, MetaException | InvalidOperationException) and bool(_REFUSED.search(_text(error)))


def _text(error: BaseException) -> str:
    return str(getattr(error, "message", "") or error) or type(error).__name__
