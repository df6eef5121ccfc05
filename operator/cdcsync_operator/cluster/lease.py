"""The lock that makes one of several operators the one that acts: a Lease of the API server.

Why it is right: it is taken and renewed by writes on the version that was read, so of two writers
one is refused. A holder that could not renew for most of the term ends, before another one may take
over (clocks are not compared: a candidate waits the whole term on its own clock
since it last saw the lease change). An attempt ends in time for that, because its calls have a
short timeout: four of them at most, a kept connection being opened again once. Should two act all
the same, each write of a status is guarded by its version, and targets are guarded by themselves
(rule R8). The operator's Deployment owns the lease: the cluster removes it with the release, also
one that a holder on its way out creates again. Source: https://kubernetes.io/docs/concepts/architecture/leases/
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from cdcsync_kube.client import Api, ApiError, Object

TERM = 15.0
RENEW_EVERY = 5.0
#: seconds to the next attempt after one that failed
TRY_AGAIN = 1.0
#: seconds that a call may wait
TIMEOUT = 2.0
#: a holder gives up after so many seconds without a renewal
GIVE_UP = 10.0


@dataclass
class Lease:
    """`clock` counts seconds and never goes back. `owner()` is the reference to what the lease goes
    with; it is asked when the lease is taken, until there is one."""

    api: Api
    namespace: str
    name: str
    identity: str
    clock: Callable[[], float]
    owner: Callable[[], Object | None] = lambda: None
    pause: float = RENEW_EVERY
    _owner: Object | None = None
    _seen: tuple[str, float] = ("", 0.0)
    _renewed_at: float = field(default=float("-inf"))

    def attempt(self) -> bool:
        """Takes or renews the lease if it can; True while it is held. To be called again after
        `pause` seconds."""
        self.pause = RENEW_EVERY
        try:
            held = self._attempt_twice()
        except ApiError as error:
            self.pause = TRY_AGAIN
            return not error.conflict and self.clock() - self._renewed_at < GIVE_UP
        if held:
            self._renewed_at = self.clock()
        return held

    def release(self) -> None:
        """Lets the next one begin at once."""
        try:
            lease = self.api.get(self._path)
            if lease["spec"].get("holderIdentity") == self.identity:
                lease["spec"]["holderIdentity"] = ""
                self.api.replace(self._path, lease)
        except ApiError:
            return  # it runs out by itself

    @property
    def _folder(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{self.namespace}/leases"

    @property
    def _path(self) -> str:
        return f"{self._folder}/{self.name}"

    def _attempt_twice(self) -> bool:
        """A conflict may be with our own renewal, whose answer was lost: the lease names its
        holder."""
        try:
            return self._attempt()
        except ApiError as error:
            if not error.conflict:
                raise
        return self._attempt()

    def _attempt(self) -> bool:
        try:
            lease = self.api.get(self._path)
        except ApiError as error:
            if not error.gone:
                raise
            about = self._owned({"name": self.name, "namespace": self.namespace})
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": about}
            self.api.create(self._folder, body | {"spec": self._spec({})})
            return True
        if not self._may_take(lease):
            return False
        about, before = lease["metadata"], lease.get("spec") or {}
        if before.get("holderIdentity") != self.identity:
            about = self._owned(about)
        self.api.replace(self._path, lease | {"metadata": about, "spec": self._spec(before)})
        return True

    def _owned(self, about: Object) -> Object:
        """The metadata, with the owner."""
        self._owner = self._owner or self.owner()
        return about | {"ownerReferences": [self._owner]} if self._owner else about

    def _may_take(self, lease: Object) -> bool:
        holder, version = lease["spec"].get("holderIdentity"), lease["metadata"]["resourceVersion"]
        if holder in (self.identity, "", None):
            return True
        if self._seen[0] != version:
            self._seen = (version, self.clock())
        return self.clock() - self._seen[1] > TERM

    def _spec(self, before: Object) -> Object:
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        taken = before.get("holderIdentity") != self.identity
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(TERM),
            "renewTime": now,
            "acquireTime": now if taken else before.get("acquireTime", now),
            "leaseTransitions": int(before.get("leaseTransitions") or 0) + (1 if taken else 0),
        }
