"""Kopf's part: it watches and queues the syncs that changed. Nothing is decided or done here.

Only events are handled: no finalizer, no webhook, no timer, no daemon, nothing of Kopf's in an
annotation. `python -m cdcsync_operator.cluster.handlers` is the operator's process.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import kopf
import structlog
from kopf._cogs.structs import references

from cdcsync_core.resource.spec import GROUP, VERSION
from cdcsync_kube.access import connect_api
from cdcsync_kube.pages import serve
from cdcsync_operator.cluster.objects.run_objects import PART_LABEL, SYNC_LABEL
from cdcsync_operator.cluster.operator import KubeOperator
from cdcsync_operator.cluster.policy.cluster_networks import ClusterNetworks
from cdcsync_operator.cluster.settings import from_environment
from cdcsync_operator.cluster.source import ClusterSource
from cdcsync_operator.cluster.syncs.sync_list import SyncMetadata
from cdcsync_operator.cluster.watch_session import WatchLogin
from cdcsync_operator.reconcile.secret_files import remove_leftovers

#: objects of a list at once, each as its metadata
_PAGE = 10
#: levels of an object: the API server takes 10,000, and a decoder may use two calls for each
_LEVELS = 30_000
#: a pattern, of which Kopf knows no namespace by itself, because it scans none
_NO_NAMESPACE_AT_FIRST = "*"


def register(registry: kopf.OperatorRegistry, operator: KubeOperator) -> None:
    """The handlers of an operator. The API server selects by labels: Kopf alone would take every
    pod of a cluster and drop it."""

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.posting.enabled = False
        settings.scanning.disabled = True
        settings.peering.standalone = True
        settings.persistence.diffbase_storage = _NoEssence()
        settings.watching.chunk_size = _PAGE
        settings.networking.error_backoffs = Backoffs()
        settings.watching.label_selectors["", "v1", "pods"] = f"{SYNC_LABEL},{PART_LABEL}=driver"
        if operator.settings.selector:
            settings.watching.label_selectors[GROUP, VERSION, "cdcsyncs"] = operator.settings.selector

    kopf.on.login(registry=registry)(WatchLogin(operator.api.login).log_in)

    @kopf.on.event(GROUP, VERSION, "cdcsyncs", registry=registry)
    async def sync_changed(meta: Mapping[str, Any], **_: Any) -> None:
        operator.changed(SyncMetadata.of(meta))

    @kopf.on.event("", "v1", "pods", labels={SYNC_LABEL: kopf.PRESENT, PART_LABEL: "driver"}, registry=registry)
    async def driver_changed(namespace: str | None, labels: Mapping[str, str], **_: Any) -> None:
        operator.driver_changed((namespace or "", labels[SYNC_LABEL]))


class Backoffs:
    """Seconds between the attempts of a watch that is refused: without an end, because a namespace
    whose rights are gone ends no watch of the others. An API server that is lost ends the lease."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain((1, 1, 2, 3, 5, 8, 13, 21), itertools.repeat(30))


class _NoEssence(kopf.DiffBaseStorage):
    """Kopf copies each object to compare it with what it was; nothing here asks for a
    difference."""

    def build(self, **_: Any) -> kopf.BodyEssence:
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        return None

    def store(self, **_: Any) -> None:
        return None


def raise_file_limit() -> None:
    """As many open files as the machine allows: a connection of each thread, and of each source
    that is asked, is one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def main() -> int:
    """Runs until SIGTERM. Exit 1 where the lease, the watch or a thread was lost: its
    Deployment starts it again."""
    _log_to_stderr()
    sys.setrecursionlimit(_LEVELS)
    raise_file_limit()
    remove_leftovers()
    settings = from_environment()
    api = connect_api()
    lost = threading.Event()

    def leave() -> None:
        lost.set()
        os.kill(os.getpid(), signal.SIGTERM)

    networks = ClusterNetworks(api, settings.refuse_nodes, settings.refuse_ranges)
    source = ClusterSource(lambda: (*settings.policy.refused_source_networks, *networks.current))
    operator = KubeOperator(api, settings, source.calls, networks, leave)
    serve(settings.metrics_port, _pages(operator))
    registry = kopf.OperatorRegistry()
    register(registry, operator)
    operator.start()
    try:
        asyncio.run(_watch(registry, operator))
    finally:
        operator.stop()
    return 1 if lost.is_set() else 0


async def _watch(registry: kopf.OperatorRegistry, operator: KubeOperator) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    rule, insights = operator.settings.namespaces, references.Insights()

    def watch_these(names: frozenset[str]) -> None:
        asyncio.run_coroutine_threadsafe(_watch_these(insights, names), loop)

    if rule.selector:
        operator.namespaces.follow(watch_these)
    await kopf.operator(
        registry=registry,
        standalone=True,
        clusterwide=not rule.names and not rule.selector,
        namespaces=list(rule.names) or ([_NO_NAMESPACE_AT_FIRST] if rule.selector else []),
        insights=insights,
        stop_flag=stop,
    )


async def _watch_these(insights: references.Insights, names: frozenset[str]) -> None:
    """Kopf begins and ends its watches of namespaces when what it knows of the cluster is
    revised."""
    async with insights.revised:
        insights.namespaces.clear()
        insights.namespaces.update(references.NamespaceName(name) for name in names)
        insights.revised.notify_all()


def _pages(operator: KubeOperator) -> dict[str, Any]:
    def metrics() -> tuple[int, str]:
        return 200, operator.metrics.text(operator.statuses(), calls=operator.api_calls, leading=operator.leading)

    def health() -> tuple[int, str]:
        return (200, "ok\n") if operator.healthy() else (500, "a worker is stuck\n")

    def readiness() -> tuple[int, str]:
        return health() if operator.ready() else (500, "the cluster's nodes could not be listed\n")

    return {"/metrics": metrics, "/healthz": health, "/readyz": readiness}


def _log_to_stderr() -> None:
    """One JSON object a line."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


if __name__ == "__main__":
    sys.exit(main())
