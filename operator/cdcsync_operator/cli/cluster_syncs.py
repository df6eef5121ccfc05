"""The CdcSyncs of a namespace of a cluster, as commands read them: by the rights of the user, who
may have few. What the API server refuses is an error in words."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import ValidationError

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.manifest import parse_resource
from cdcsync_core.resource.spec import API_VERSION, KIND, CdcSync
from cdcsync_core.runs.status import Status, with_condition
from cdcsync_kube.client import Api, ApiError, Object
from cdcsync_operator.cli.views.sync_view import ShownSync
from cdcsync_operator.cluster.objects.run_objects import PART_LABEL, SYNC_LABEL
from cdcsync_operator.cluster.store import KubeTableShards, owner_of
from cdcsync_operator.reconcile.table_shards import is_whole

_GROUP = f"/apis/{API_VERSION}"
#: the first is the pod of a run, the second one that ended, of which the log is kept
_DRIVERS = ("driver", "kept-driver")
#: bytes of a log that are asked for at most; less than an answer may have
_LOG_BYTES = 4 * 2**20
#: readings of tables that do not fit their status, and seconds between them
_READINGS, _PAUSE = 5, 0.5


@dataclass(frozen=True)
class ClusterSyncs:
    """`namespace` empty: those of all namespaces."""

    api: Api
    namespace: str

    def all(self) -> list[Object]:
        with _explained("the CdcSyncs cannot be listed", "list cdcsyncs"):
            return list(self.api.items(self._path()))

    def get(self, name: str) -> Object:
        """Raises SpecInvalid where there is none."""
        title = f"CdcSync {self.namespace}/{name}"
        with _explained(f"the {title} cannot be read", "get cdcsyncs", absent=f"no {title} on the cluster"):
            return self.api.get(f"{self._path()}/{name}")

    def change(self, name: str, body: Object) -> Object:
        """Applies a merge patch. Raises SpecInvalid with the API server's words, InternalError
        where it cannot be asked now; ApiError with a conflict where the patch names another
        version."""
        try:
            return self.api.merge(f"{self._path()}/{name}", body)
        except ApiError as error:
            if error.conflict:
                raise
            if _may_pass(error):
                raise _unanswered(f"it is not known whether {self.namespace}/{name} was changed", error) from None
            remedy = "`kubectl auth can-i patch cdcsyncs` tells whether you may" if error.status == 403 else ""
            raise fail(Reason.SPEC_INVALID, f"the API server answered: {error}", remedy=remedy) from None

    def shown(self, name: str) -> ShownSync:
        return shown(self.get(name))

    def all_tables(self, sync: Object) -> Status:
        """The status with the tables that the resource has no room for; those that need most
        attention where the user may not read the ConfigMaps of the others. The operator writes
        these before the resource, so they are read again with it where they do not fit."""
        status = status_of(sync)
        for attempt in range(_READINGS):
            try:
                status = status_of(self._read_again(sync)) if attempt else status
                complete = self._shards(sync).read(status)
                if is_whole(complete):
                    return complete
            except ApiError as error:
                if error.status in (401, 403):
                    break
            except ValidationError:  # of an entry
                pass
        return status

    def _read_again(self, sync: Object) -> Object:
        time.sleep(_PAUSE)
        about = sync["metadata"]
        return self.api.get(f"{_GROUP}/namespaces/{about['namespace']}/cdcsyncs/{about['name']}")

    def _shards(self, sync: Object) -> KubeTableShards:
        about = sync["metadata"]
        shards = KubeTableShards(self.api, about["namespace"], about["name"])
        shards.owner = owner_of(sync)
        return shards

    def events(self, name: str, most: int = 10) -> list[Object]:
        """The last ones, the newest last."""
        selector = f"involvedObject.kind={KIND},involvedObject.name={name}"
        with _explained("the events cannot be listed", "list events"):
            events = self.api.items(f"/api/v1/namespaces/{self.namespace}/events", fieldSelector=selector)
            return sorted(events, key=event_time)[-most:]

    def pods(self, name: str, part: str) -> list[Object]:
        """In order of their start."""
        selector = f"{SYNC_LABEL}={name},{PART_LABEL}={part}"
        with _explained("the pods cannot be listed", "list pods"):
            pods = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods", labelSelector=selector)
            return sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")))

    def drivers(self, name: str) -> list[Object]:
        """The driver pods of the runs that there are; where there is none, those of the last runs
        that are kept."""
        return next((pods for part in _DRIVERS if (pods := self.pods(name, part))), [])

    def log(self, pod: str, container: str, lines: int) -> str:
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/log"
        with _explained(f"the log of {pod} cannot be read", "get pods --subresource=log"):
            return self.api.text(path, container=container, tailLines=str(lines), limitBytes=str(_LOG_BYTES))

    def _path(self) -> str:
        return f"{_GROUP}/namespaces/{self.namespace}/cdcsyncs" if self.namespace else f"{_GROUP}/cdcsyncs"


def shown(sync: Object) -> ShownSync:
    about = sync["metadata"]
    return ShownSync(about["namespace"], about["name"], status_of(sync), running=True)


def status_of(sync: Object) -> Status:
    """One that another version wrote, and this one cannot read, says so in its Ready."""
    try:
        return Status.model_validate(sync.get("status") or {})
    except ValidationError as error:
        why = f"its status cannot be read by this version of the command ({error.error_count()} fields differ)"
        return with_condition(Status(), "Ready", None, "Unreadable", why, 0.0)


def resource_of(sync: Object) -> CdcSync:
    """Raises SpecInvalid."""
    about = {k: sync["metadata"][k] for k in ("name", "namespace")}
    return parse_resource({k: sync[k] for k in ("apiVersion", "kind", "spec")} | {"metadata": about})


def event_time(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp"))


@contextmanager
def _explained(what: str, right: str, absent: str = "") -> Iterator[None]:
    """What the API server refuses, as an error: InternalError, which is tried again, where it
    cannot be asked now. `right` is one that `kubectl auth can-i` takes; `absent`: what it means
    that there is nothing."""
    try:
        yield
    except ApiError as error:
        if _may_pass(error):
            raise _unanswered(what, error) from None
        if error.gone and absent:
            raise fail(
                Reason.SPEC_INVALID, absent, remedy="give its name and -n; see `kubectl get cdcsync -A`"
            ) from None
        if error.status in (401, 403):
            raise fail(Reason.SPEC_INVALID, f"{what}: {error}", remedy=f"see `kubectl auth can-i {right}`") from None
        raise fail(Reason.SPEC_INVALID, f"{what}: {error}", remedy="see that the cluster has CdcSync") from None


def _may_pass(error: ApiError) -> bool:
    return error.transient and not error.unreadable


def _unanswered(what: str, error: ApiError) -> CdcError:
    return fail(Reason.INTERNAL_ERROR, f"{what}: {error}", remedy="see that the cluster answers, and try again")
