"""The check of the sink as controllers and commands ask for it.

Why it is right: only who has the driver's own credentials can check for the driver. On this machine
that is everyone. On a cluster it is the operator where the manifest names a Secret for the sink; a
cloud's identity, and a folder that the podTemplates mount, are the pods' own, so nothing is claimed
of them: the driver finds out. Servers of targets may name the addresses that their clients connect
to, as brokers do, so on a cluster only drivers ask them: the author of a manifest must not choose
whom the operator speaks with. On this machine they are asked in a process of its own, because their
client belongs to the Spark side.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.quoting import quoted
from cdcsync_core.resource.sinks.kind import StoreUse
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.sink_check import Checks, SinkQuestion
from cdcsync_core.tables.source_table import TableId
from cdcsync_lake.check import SinkCheck, check_lake
from cdcsync_lake.location import Location

_NO_SECRET = "no credentialsSecretRef in spec.sink: the driver uses an identity of its own"
_NO_KEYS = "no access key in the Secret of the sink: the driver uses an identity of its own"
#: without these a client would take the operator's own identity, which is not for the authors of
#: manifests
_KEYS = frozenset(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
_NO_STORE = "a folder of the driver's pods"
_SERVERS_ALONE = "servers that only drivers ask"
_SERVERS = (sys.executable, "-m", "cdcsync_spark.app.sink_check")
#: a check of servers that answer takes two
_SERVERS_SECONDS = 90.0
_TAIL = 500


def check_sink(resource: CdcSync, secrets: Path, tables: Sequence[TableId] = ()) -> SinkCheck:
    """Checks the sink with this process's own rights and the Secret's credentials; also the targets
    of `tables` on its servers."""
    sink = resource.spec.sink.kind
    stores = _together([_check_store(store, secrets) for store in sink.stores()])
    if not sink.asked_field:
        return stores
    return replace(stores, servers=_check_servers(resource, secrets, tables), nouns=sink.nouns)


def _check_store(store: StoreUse, secrets: Path) -> SinkCheck:
    try:
        return check_lake(Location.of(store, secrets))
    except CdcError as error:
        return SinkCheck(store.path, (error,))


def _together(checks: Sequence[SinkCheck]) -> SinkCheck:
    """All stores as one: what is wrong with each, and why the first of those was not checked that
    were not."""
    return SinkCheck(
        ", ".join(check.uri for check in checks),
        tuple(error for check in checks for error in check.errors),
        next((check.unchecked for check in checks if check.unchecked), ""),
    )


def _check_servers(resource: CdcSync, secrets: Path, tables: Sequence[TableId]) -> Checks:
    question = SinkQuestion(resource.to_dict(), str(secrets), tuple(tables))
    try:
        answer = subprocess.run(
            _SERVERS, input=question.to_json(), capture_output=True, text=True, timeout=_SERVERS_SECONDS, check=False
        )
        return Checks.from_json(answer.stdout)
    except subprocess.TimeoutExpired:
        ended = f"did not end within {_SERVERS_SECONDS:.0f} s"
    except (ValueError, KeyError, TypeError):
        ended = f"ended without an answer: {quoted(answer.stderr[-_TAIL:])}"
    sink = resource.spec.sink.kind
    error = fail(
        Reason.SINK_UNREACHABLE,
        f"the check of the {sink.nouns.servers} {ended}",
        needed=f"{sink.nouns.servers} that answer",
        remedy=f"check {sink.asked_field}, and that the {sink.nouns.servers} are up",
    )
    return Checks(errors=(error,))


def check_sink_from_cluster(
    resource: CdcSync, secrets: Path, check: Callable[[Location], SinkCheck] = check_lake
) -> SinkCheck:
    """The stores by `check`; unchecked where only the driver's pods reach one."""
    stores = resource.spec.sink.kind.stores()
    if not stores:
        return SinkCheck("", unchecked=_SERVERS_ALONE)
    return _together([_check_from_cluster(store, secrets, check) for store in stores])


def _check_from_cluster(store: StoreUse, secrets: Path, check: Callable[[Location], SinkCheck]) -> SinkCheck:
    try:
        location = Location.of(store, secrets)
    except CdcError as error:
        return SinkCheck(store.path, (error,))
    if location.local:
        return SinkCheck(location.uri, unchecked=_NO_STORE)
    if not store.secret:
        return SinkCheck(location.uri, unchecked=_NO_SECRET)
    try:
        has_keys = location.credentials().keys() >= _KEYS
    except CdcError as error:
        return SinkCheck(location.uri, (error,))
    return check(location) if has_keys else SinkCheck(location.uri, unchecked=_NO_KEYS)
