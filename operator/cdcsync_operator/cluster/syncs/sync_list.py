"""All syncs that there are, with what their metadata say of their specs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cdcsync_core.resource.spec import API_VERSION
from cdcsync_core.timestamps import unix_time
from cdcsync_kube.client import METADATA_LIST, Api
from cdcsync_operator.cluster.syncs.work_queue import Key

#: objects of a list at once, each as its metadata
_PAGE = 500


@dataclass(frozen=True)
class SyncMetadata:
    """`changed_at` is None where it is not known."""

    key: Key
    generation: int
    version: str
    changed_at: float | None

    @staticmethod
    def of(about: Mapping[str, Any]) -> SyncMetadata:
        """The entry of a resource's metadata."""
        key = str(about.get("namespace") or ""), str(about["name"])
        version = str(about.get("resourceVersion") or "")
        return SyncMetadata(key, int(about.get("generation") or 0), version, spec_changed_at(about))


def list_syncs(api: Api, namespaces: tuple[str, ...], selector: str = "") -> Iterator[SyncMetadata]:
    """The syncs of a label selector. Raises ApiError."""
    query = {"labelSelector": selector} if selector else {}
    base = f"/apis/{API_VERSION}"
    for path in [f"{base}/namespaces/{n}/cdcsyncs" for n in namespaces] or [f"{base}/cdcsyncs"]:
        for sync in api.items(path, METADATA_LIST, _PAGE, **query):
            yield SyncMetadata.of(sync["metadata"])


def spec_changed_at(about: Mapping[str, Any]) -> float | None:
    """When an object was last written, its status aside; None where its metadata do not say."""
    writes = [entry for entry in about.get("managedFields") or () if not entry.get("subresource")]
    times = [about.get("creationTimestamp"), *(entry.get("time") for entry in writes)]
    return max((at for text in times if (at := unix_time(text)) is not None), default=None)
