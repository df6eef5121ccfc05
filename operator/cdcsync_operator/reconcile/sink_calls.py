"""The check of the sink as controllers and commands ask for it.

Why it is right: only who has the driver's own credentials can check for the driver. On this machine
that is everyone. On a cluster it is the operator where the manifest names a Secret for the sink; a
cloud's identity, and a folder that the podTemplates mount, are the pods' own, so nothing is claimed
of them: the driver finds out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cdcsync_core.errors import CdcError
from cdcsync_core.spec import CdcSync
from cdcsync_lake.check import SinkCheck, check_lake
from cdcsync_lake.location import Location

_NO_SECRET = "no credentialsSecretRef in spec.sink: the driver uses an identity of its own"
_NO_KEYS = "no access key in the Secret of the sink: the driver uses an identity of its own"
#: without these a client would take the operator's own identity, which is not for the authors of
#: manifests
_KEYS = frozenset(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
_NO_STORE = "a folder of the driver's pods"


def check_sink(resource: CdcSync, secrets: Path) -> SinkCheck:
    """With this process's own rights and the Secret's credentials."""
    sink = resource.spec.sink.kind.location()
    try:
        return check_lake(Location.of(sink, secrets))
    except CdcError as error:
        return SinkCheck(sink.path, (error,))


def check_sink_from_cluster(
    resource: CdcSync, secrets: Path, check: Callable[[Location], SinkCheck] = check_lake
) -> SinkCheck:
    """By `check`; unchecked where only the driver's pods reach it."""
    sink = resource.spec.sink.kind.location()
    try:
        location = Location.of(sink, secrets)
    except CdcError as error:
        return SinkCheck(sink.path, (error,))
    if location.local:
        return SinkCheck(location.uri, unchecked=_NO_STORE)
    if not sink.secret:
        return SinkCheck(location.uri, unchecked=_NO_SECRET)
    try:
        has_keys = location.credentials().keys() >= _KEYS
    except CdcError as error:
        return SinkCheck(location.uri, (error,))
    return check(location) if has_keys else SinkCheck(location.uri, unchecked=_NO_KEYS)
