"""The port `ResourceStore` on a cluster: the resource as the API server has it, its status, and its
labelled Secrets.

Why it is right: this is the only writer of `status`, and each write names the version that it was
decided on, so that a write on an old view is refused and decided again. A status that another
program wrote (or wiped) is noticed before anything is decided on the one in memory. Many tables lie
in owned ConfigMaps, written before the status that counts on them (see `table_shards`), each write
on the version that was read, too. An operator that has lost its lease unnoticed may still write
some of them, as may the author of any ConfigMap: who reads them takes those alone that the status
was written with. While the stored status is the one that was read or written here, all its tables
are in memory, so a reconciler that starts from it begins from all of them.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pydantic import ValidationError

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.manifest import Secrets, parse_resource
from cdcsync_core.resource.secret_hosts import accounts, destinations
from cdcsync_core.resource.source_bounds import bounded
from cdcsync_core.resource.spec import API_VERSION, CdcSync, required_secrets
from cdcsync_core.runs.status import Status
from cdcsync_core.runs.table_shards import count_shards, digest_of, with_shards
from cdcsync_kube.client import Api, ApiError, Object
from cdcsync_operator.cluster.objects.driver_pod import Image
from cdcsync_operator.cluster.objects.owned import Owned, is_owned_by
from cdcsync_operator.cluster.objects.run_objects import PART_LABEL, SYNC_LABEL, shard_name
from cdcsync_operator.cluster.policy.pod_policy import PodPolicy, violations
from cdcsync_operator.cluster.policy.secret_reader import SecretReader
from cdcsync_operator.cluster.quota.room import SECRETS, Room
from cdcsync_operator.cluster.syncs.selector import parse_selector, selects
from cdcsync_operator.decision.restart import floored
from cdcsync_operator.reconcile.table_shards import is_whole, packed

_METADATA = (
    "name", "namespace", "labels", "annotations", "generation", "uid", "resourceVersion", "creationTimestamp",
    "deletionTimestamp",
)  # fmt: skip


#: shards of one sync of which the names are read, and the content: more than the largest sync has
_MOST_NAMES, _MOST_SHARDS = 20_000, 1_000
#: bytes of their texts: 50,000 tables have about a fifth of it, and who writes the status may count
#: on any
_MOST_BYTES = 128 * 2**20
_SECRETS_SECONDS = 30.0


#: for a resource that is deleted and whose spec cannot be read: of a spec that is paused no other
#: field has an effect
_PAUSED: Object = {
    "state": "paused",
    "source": {"host": "deleted.invalid", "credentialsSecretRef": {"name": "deleted"}},
    "tables": {"include": ["deleted"]},
    "sink": {"delta": {"path": "s3://deleted/deleted"}},
}


class StatusTakenOver(Exception):
    """The status is not the one that was read or written last: what is in memory does not hold any
    more."""


class ResourceReplaced(Exception):
    """The resource was deleted, and a new one of its name exists."""


class NotSelected(Exception):
    """The resource is another release's, by its labels."""


class KubeStore:
    """One resource. `on_secrets` gets the Secrets that it names whenever they are read; `image` is
    that of the operator's pods; `networks` are refused besides those of the policy."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        policy: PodPolicy,
        image: Image,
        on_secrets: Callable[[Secrets], None],
        clock: Callable[[], float] = time.monotonic,
        room: Room | None = None,
        selector: str = "",
        networks: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self._networks = networks
        self._selector = parse_selector(selector)
        self._api, self._on_secrets, self._clock = api, on_secrets, clock
        self._policy, self._image = policy, image
        self.namespace, self.name = namespace, name
        self._path = f"/apis/{API_VERSION}/namespaces/{namespace}/cdcsyncs/{name}"
        self._shards = KubeTableShards(api, namespace, name)
        self._secrets = SecretReader(
            api, namespace, name, room or Room(SECRETS), must_name_hosts=policy.secrets_name_hosts
        )
        self._object: Object = {}
        self._resource: CdcSync | None = None
        self._judged: tuple[tuple[object, ...], str] | None = None
        self._written: Object | None = None
        self._saved: Status | None = None
        self._bounds: dict[str, str] | None = None
        self._complete: tuple[object, ...] | None = None
        self._complete_at = 0.0

    def load(self) -> tuple[CdcSync, Status]:
        """The resource is within the bounds of its source's Secret as that was read last: an
        operator that has not read it yet reads it first, so that it does not take what runs for
        another spec's. One that is deleted counts as paused while a finalizer holds it, whatever
        its spec holds. Raises
        ApiError (gone: the resource was deleted), SpecInvalid, StatusTakenOver, ResourceReplaced,
        NotSelected."""
        self.refresh()
        self._resource = floored(_parsed(self._object), self._policy.least_restart_seconds)
        if self._bounds is None and self._resource.spec.state != "paused":
            self.missing_secrets()
        return bounded(self._resource, self._bounds or {}), self.status()

    def refusal(self) -> str:
        """Judges by the operator's policy; a resource that is as it was is not judged again."""
        assert self._resource is not None
        about, networks = self._object["metadata"], self._networks()
        judged = (self._object["spec"], about.get("labels"), about.get("annotations"), networks)
        if self._judged is None or self._judged[0] != judged:
            policy = replace(self._policy, refused_source_networks=(*self._policy.refused_source_networks, *networks))
            self._judged = judged, _refused(violations(self._resource, policy, self._image))
        return self._judged[1]

    def refresh(self) -> None:
        """Reads the resource. Raises StatusTakenOver if its status is not the one that was read or
        written here, ResourceReplaced, NotSelected."""
        stored = self._api.get(self._path)
        if not selects(self._selector, stored["metadata"].get("labels") or {}):
            raise NotSelected
        if self._object and self._object["metadata"]["uid"] != stored["metadata"]["uid"]:
            raise ResourceReplaced
        self._object, self._shards.owner = _without_weight(stored), owner_of(stored)
        if self._saved is not None and self._object.get("status") != self._written:
            self._written = self._saved = None
            raise StatusTakenOver

    @property
    def generation(self) -> int:
        return int(self._object["metadata"]["generation"])

    @property
    def version(self) -> str:
        """The version of the resource as it was written here, or read, last."""
        return str(self._object["metadata"]["resourceVersion"]) if self._object else ""

    @property
    def uid(self) -> str:
        return str(self._object["metadata"]["uid"])

    def status(self) -> Status:
        """As stored, with all its tables. A status that cannot be read counts as lost: the targets
        know (rule R4)."""
        if self._saved is None:
            self._written, self._saved = self._object.get("status"), self._read()
        return self._saved

    def _read(self) -> Status:
        try:
            return self._shards.read(Status.model_validate(self._object.get("status") or {}))
        except ValidationError:
            return Status()

    def save(self, status: Status) -> None:
        """Raises ApiError, with a conflict if the resource has changed since it was loaded."""
        shown = self._shards.write(status).model_dump(by_alias=True, mode="json", exclude_none=True)
        about = {
            k: v for k, v in self._object["metadata"].items() if k in ("name", "namespace", "resourceVersion", "uid")
        }
        body = {k: self._object[k] for k in ("apiVersion", "kind", "spec")} | {"metadata": about, "status": shown}
        self._object = _without_weight(self._api.replace(f"{self._path}/status", body))
        self._written, self._saved = self._object.get("status"), status

    def missing_secrets(self) -> tuple[str, ...]:
        """Asked again after a while where all were there: a changed one is read in time, and
        reconciling stays cheap."""
        assert self._resource is not None
        required = required_secrets(self._resource.spec)
        asked = (required, destinations(self._resource.spec), accounts(self._resource.spec))
        if self._complete == asked and self._clock() - self._complete_at < _SECRETS_SECONDS:
            return ()
        secrets = self._secrets.read(self._resource)
        self._on_secrets(secrets.values)
        self._bounds = self._bounds if secrets.of_source is None else secrets.of_source
        self._complete, self._complete_at = (None if secrets.missing else asked), self._clock()
        return secrets.missing

    def close(self) -> None:
        """Nothing of this resource is kept any more."""
        self._secrets.close()


def _refused(problems: list[str]) -> str:
    if not problems:
        return ""
    return fail(Reason.SPEC_INVALID, "; ".join(problems), remedy="change the spec, or the operator's policy").message


def _without_weight(stored: Object) -> Object:
    """Drops what the API server keeps for its own use, which the author of a resource can make as
    large as the rest."""
    return stored | {"metadata": {k: v for k, v in stored["metadata"].items() if k != "managedFields"}}


def _parsed(stored: Object) -> CdcSync:
    """Raises SpecInvalid."""
    data = _known(stored)
    if "deletionTimestamp" not in data["metadata"]:
        return parse_resource(data)
    try:
        return parse_resource(data).paused()
    except CdcError:
        return parse_resource(data | {"spec": _PAUSED})


def _known(stored: Object) -> Object:
    """Leaves out what the server adds for its own use."""
    about = {k: v for k, v in stored["metadata"].items() if k in _METADATA}
    return {"apiVersion": stored["apiVersion"], "kind": stored["kind"], "metadata": about, "spec": stored["spec"]}


def owner_of(stored: Object) -> Object:
    about = stored["metadata"]
    reference: Object = {"apiVersion": stored["apiVersion"], "kind": stored["kind"]}
    return reference | {"name": about["name"], "uid": about["uid"], "controller": True, "blockOwnerDeletion": False}


@dataclass
class _Shard:
    """A ConfigMap as it was read or written last: its version, and the digest of its text; empty
    where they are not known."""

    version: str = ""
    digest: str = ""


class KubeTableShards:
    """As `TableShards`, in ConfigMaps `<sync>-tables-N`."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api, self._name = api, name
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._labels = {SYNC_LABEL: name, PART_LABEL: "tables"}
        self._shards: dict[str, _Shard] = {}
        self.owner: Object = {}

    def write(self, status: Status) -> Status:
        """The status to be written: as it is, or with the worst tables only, all of them being in
        shards. Raises ApiError, with a conflict if another writer has changed one of them."""
        shown, texts = packed(status, {})
        for number, text in enumerate(texts):
            self._write(shard_name(self._name, number), text)
        for name in [n for n in self._shards if int(n.rpartition("-")[2]) >= len(texts)]:
            Owned(self._api, self.owner["uid"]).delete(f"{self._path}/{name}")
            del self._shards[name]
        return shown

    def read(self, status: Status) -> Status:
        """A written status with all its tables; with none where the shards are not those that it
        was written with. They are read twice, so that only what has its digest is ever in memory
        together."""
        if is_whole(status):
            return status
        self._shards = dict(self._listed())
        count = count_shards(status, itertools.islice(self._texts(), _MOST_SHARDS))
        complete = with_shards(status, itertools.islice(self._texts(), count))
        tables = sorted(complete.table_status, key=lambda t: t.name) if complete else ()
        return status.with_(table_status=tuple(tables), table_digest="")

    def _texts(self) -> Iterator[str]:
        """The texts of the shards in order, up to one that is not there, or another one's, or that
        is beyond the bound. Each is asked for by its name, so nothing else of such a name is
        read."""
        size = 0
        for number in itertools.count():
            name = shard_name(self._name, number)
            if name not in self._shards:
                return
            shard = self._api.get(f"{self._path}/{name}")
            if not self._is_ours(shard["metadata"]):
                return
            text = str((shard.get("data") or {}).get("tables", ""))
            size += len(text)
            if size > _MOST_BYTES:
                return
            self._shards[name] = _Shard(shard["metadata"]["resourceVersion"], digest_of([text]))
            yield text

    def _listed(self) -> Iterator[tuple[str, _Shard]]:
        selector = ",".join(f"{k}={v}" for k, v in self._labels.items())
        shards = itertools.islice(self._api.metadata(self._path, labelSelector=selector), _MOST_NAMES)
        return ((about["name"], _Shard(about["resourceVersion"])) for about in shards if self._is_ours(about))

    def _is_ours(self, about: Object) -> bool:
        named = re.fullmatch(rf"{re.escape(self._name)}-tables-[0-9]+", about["name"])
        return named is not None and is_owned_by(self.owner["uid"], about)

    def _write(self, name: str, text: str) -> None:
        shard, digest = self._shards.get(name), digest_of([text])
        if shard is not None and shard.digest == digest:
            return
        about: Object = {"name": name, "labels": self._labels, "ownerReferences": [self.owner]}
        body: Object = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"tables": text}}
        try:
            written = self._replace(shard.version, body) if shard and shard.version else self._put(body)
        except ApiError:
            self._shards = dict.fromkeys(self._shards, _Shard())  # another writer may have changed more of them
            raise
        self._shards[name] = _Shard(written["metadata"]["resourceVersion"], digest)

    def _replace(self, version: str, body: Object) -> Object:
        about = body["metadata"] | {"resourceVersion": version}
        return self._api.replace(f"{self._path}/{about['name']}", body | {"metadata": about})

    def _put(self, body: Object) -> Object:
        """Creates a shard, or replaces the one of its name if that has the same owner. Raises
        SpecInvalid for one of another owner."""
        name = body["metadata"]["name"]
        try:
            return self._api.create(self._path, body)
        except ApiError as error:
            if not error.conflict:
                raise
        about = self._api.metadata_of(f"{self._path}/{name}")
        if not is_owned_by(self.owner["uid"], about):
            raise fail(
                Reason.SPEC_INVALID,
                f"an object {name} in the namespace that is not this sync's",
                needed="that name for the tables of its status",
                remedy=f"kubectl delete configmap {name}",
            )
        return self._replace(about["resourceVersion"], body)
