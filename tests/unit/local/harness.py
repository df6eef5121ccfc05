"""One sync in local mode: a folder with a manifest, a simulated source, and drivers that are the
fake ones of `fake_driver.py`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.chunk import Bound, Split
from cdcsync_core.positions.position import LogOffset
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.run import ExitCode, RunKind
from cdcsync_core.runs.status import Status
from cdcsync_core.tables.capture import Capture
from cdcsync_core.tables.source_table import Column, SourceTable, SourceType, TableId
from cdcsync_operator.decision.observed import ObservedTable, PreflightResult
from cdcsync_operator.decision.summary.goal import Until
from cdcsync_operator.local.controller import LocalController, open_local
from cdcsync_operator.local.state_folder import StateFolder
from cdcsync_operator.local.store import ManifestFiles
from cdcsync_operator.reconcile.preflight import PreflightOutcome, SourceCalls

DRIVER = (sys.executable, str(Path(__file__).with_name("fake_driver.py")))
PASSWORD = "hunter2-never-shown"
MANIFEST = """
apiVersion: v1
kind: Secret
metadata: {name: login, labels: {cdcsync.io/source: "true"}}
stringData: {username: cdc, password: %s}
---
apiVersion: cdcsync.io/v1alpha1
kind: CdcSync
metadata: {name: shop}
spec:
  source: {host: 127.0.0.1, credentialsSecretRef: {name: login}}
  tables: {include: ['shop\\..*']}
  sink: {delta: {path: /lake}}
  autoRestart: {backoff: {initial: 100ms, max: 1s}}
"""


def table(name: str) -> Capture:
    database, _, bare = name.partition(".")
    return Capture(
        SourceTable(TableId(database, bare), (Column("id", SourceType.parse("int"), nullable=False),)), ("id",)
    )


class LocalHarness:
    """A folder with a manifest, a simulated source of two tables, and what "targets" have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.driver_folder = folder / "driver"
        self.driver_folder.mkdir()
        self.manifest = folder / "shop.yaml"
        self.manifest.write_text(MANIFEST % PASSWORD)
        self.tables = ["shop.a", "shop.b"]
        self.errors: tuple[CdcError, ...] = ()
        self.set_log_end(100)
        self.shown: list[Status] = []
        self.faults: list[CdcError] = []
        self.secrets_seen: list[str] = []
        self.on_show: Callable[[Status], None] = lambda _: None

    @property
    def state(self) -> StateFolder:
        return StateFolder(self.folder / "state", "default", "shop")

    def set_log_end(self, offset: int) -> None:
        temporary = self.driver_folder / ".log-end"
        temporary.write_text(str(offset))
        temporary.replace(self.driver_folder / "log-end")

    def order(self, kind: RunKind, word: str) -> None:
        (self.driver_folder / f"{kind.value}.order").write_text(word)

    def change(self, old: str, new: str) -> None:
        temporary = self.folder / ".shop.yaml"
        temporary.write_text(self.manifest.read_text().replace(old, new))
        temporary.replace(self.manifest)

    # -- the simulated source

    def preflight(self, resource: CdcSync, secrets: Path, unread: frozenset[str] | None) -> PreflightOutcome:
        self.secrets_seen.append((secrets / "login" / "password").read_text())
        found = () if self.errors else tuple(ObservedTable(t) for t in self.tables)
        seen = PreflightResult(resource.metadata.generation, time.time(), self.errors, found, (), {"flavor": "mysql"})
        return PreflightOutcome(seen, {t: table(t) for t in self.tables})

    def current(self, resource: CdcSync, secrets: Path) -> LogOffset:
        return LogOffset("binlog.000001", int((self.driver_folder / "log-end").read_text()))

    def splits(self, _: Capture, start: Bound) -> Iterator[Split]:
        for end in [(i * 10,) for i in range(1, 2500)]:
            yield Split(start, end)
            start = end
        yield Split(start, None)

    # -- running

    def run(self, until: Until = Until.CAUGHT_UP, begin: Callable[[LocalController], None] | None = None) -> ExitCode:
        files = ManifestFiles([str(self.manifest)], continuous=until is not Until.FOREVER)
        calls = SourceCalls(self.preflight, self.current, lambda r, s: nullcontext(self.splits))
        manifest = files.load()
        with open_local(files, manifest, self.folder / "state", calls, self.faults.append, DRIVER) as controller:
            self.controller = controller
            if begin:
                begin(controller)
            return controller.run(until, self._show)

    def _show(self, _: CdcSync, status: Status) -> None:
        # the binlog goes on with every reconciliation, so that every high watermark is passed
        self.set_log_end(int((self.driver_folder / "log-end").read_text()) + 5)
        self.shown.append(status)
        self.on_show(status)

    @property
    def last(self) -> Status:
        return self.shown[-1]
