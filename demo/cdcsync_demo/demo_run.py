"""One run of the demo: a server, a shop, writes, the sync, and two proofs that the copy is right.

The sync is run by the same controller as `cdcsync run`, in the main thread; the demo goes on in
a thread of its own and reads the status that the controller shows. Whatever
happens, what was started is ended: the server, the writes, the drivers, a verification.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

from cdcsync_core.errors import CdcError
from cdcsync_core.positions.position import LogOffset
from cdcsync_core.resource.manifest import Manifest
from cdcsync_core.resource.quantity import show_seconds
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.run import ExitCode
from cdcsync_core.runs.status import Status
from cdcsync_core.runs.table_status import CONSISTENT
from cdcsync_core.runs.verification import TableResult, verdict
from cdcsync_demo import shop as demo_shop
from cdcsync_demo.embedded import EmbeddedMariaDB
from cdcsync_demo.folder import DemoFolder
from cdcsync_demo.lake import QUERY, draw_iceberg_tables, draw_query, draw_tables
from cdcsync_demo.server_process import LOOPBACK
from cdcsync_demo.view import DemoView
from cdcsync_demo.writes import DemoWriter
from cdcsync_operator.cli.plan import opened_manifest
from cdcsync_operator.cli.views.output import Output
from cdcsync_operator.decision.summary.goal import Until
from cdcsync_operator.local.controller import LocalController, open_local
from cdcsync_operator.local.store import ManifestFiles
from cdcsync_operator.local.verification_process import Verification, verify_config

_USER = "cdc"
_SERVER_OPTIONS = {"innodb-buffer-pool-size": "384M", "innodb-log-file-size": "256M"}
_VERIFY_TIMEOUT = 120.0
_STREAM_SECONDS = 5.0


@dataclass(frozen=True)
class DemoSize:
    """`rows` of the largest table, `rate` of the writes in transactions a second."""

    rows: int = 1_000_000
    rate: float = 100.0


class Aborted(Exception):
    """The sync ended before the demo did."""


def run_demo(folder: DemoFolder, size: DemoSize, sink: str, view: DemoView, output: Output) -> ExitCode:
    """`sink` is the kind of the tables. Raises CdcError; KeyboardInterrupt passes."""
    with ExitStack() as stack:
        server = _start_server(folder, stack, view)
        password = secrets.token_urlsafe(18)
        _open_shop(server, size, password, view)
        writer = _start_writes(server, size, stack, view)
        assert server.port
        folder.write_manifest(LOOPBACK, server.port, _USER, password, sink)
        code = _run_sync(folder, writer, view, output)
    if code is ExitCode.DONE:
        (_show_iceberg if sink == "iceberg" else _show_lake)(folder, view)
    return code


# ---- before the sync


def _start_server(folder: DemoFolder, stack: ExitStack, view: DemoView) -> EmbeddedMariaDB:
    server = EmbeddedMariaDB(folder.datadir, _SERVER_OPTIONS)
    stack.callback(server.remove)
    server.start()
    view.say(f"[bold]MariaDB {server.binaries.version()}[/] runs on {LOOPBACK}:{server.port}, with a row binlog")
    return server


def _open_shop(server: EmbeddedMariaDB, size: DemoSize, password: str, view: DemoView) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(demo_shop.FILL_SESSION)
        for statement in demo_shop.create_statements(_USER, password):
            cursor.execute(statement)
    fill = demo_shop.fill_statements(size.rows)
    largest = demo_shop.TABLES[0].name
    with ThreadPoolExecutor(2) as pool:
        others = [sql for name, sql in fill.items() if name != largest]
        filled = [pool.submit(_fill, server, [fill[largest]]), pool.submit(_fill, server, others)]
        for future in filled:
            future.result()
    rows = demo_shop.sizes(size.rows)
    view.say(
        f"[bold]A shop[/] of {len(rows)} tables with {sum(rows.values()):,} rows, {max(rows.values()):,} in the largest"
    )


def _fill(server: EmbeddedMariaDB, statements: list[str]) -> None:
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(demo_shop.FILL_SESSION)
        for statement in statements:
            cursor.execute(statement)


def _start_writes(server: EmbeddedMariaDB, size: DemoSize, stack: ExitStack, view: DemoView) -> DemoWriter:
    rows = demo_shop.sizes(size.rows)
    writer = DemoWriter(server.connect, size.rate, rows["customers"], rows["orders"])
    stack.callback(writer.stop)
    writer.start()
    view.say(
        "[bold]Customers[/] order, pay, cancel, rename products ... from now on, and go on while everything else happens"
    )
    return writer


# ---- the sync


def _run_sync(folder: DemoFolder, writer: DemoWriter, view: DemoView, output: Output) -> ExitCode:
    from cdcsync_operator.reconcile.source_calls import CALLS

    files = ManifestFiles([str(folder.manifest), str(folder.secret)])
    manifest = files.load()
    view.say("[bold]The sync[/] starts, as this command would start it:")
    manifest_shown, secret_shown, state_shown = map(folder.shown, (folder.manifest, folder.secret, folder.state))
    view.detail(f"cdcsync run -f {manifest_shown} -f {secret_shown} --state-dir {state_shown}")
    with open_local(files, manifest, folder.state, CALLS, on_fault=output.error) as controller, view.going_on():
        demo = DemoRun(folder, manifest, controller, writer, view)
        demo.start()
        try:
            code = controller.run(Until.FOREVER, demo.show)
        finally:
            demo.end()
    if demo.failure is not None:
        raise demo.failure
    if not demo.finished:
        _show_failure(controller, view, output)
        return ExitCode.RETRY if code is ExitCode.DONE else code
    return verdict(demo.results)


def _show_failure(controller: LocalController, view: DemoView, output: Output) -> None:
    """The sync ended first: because of a failure, or because it was interrupted."""
    stalled = controller.store.load()[1].condition("Stalled")
    if stalled.status == "True":
        output.failure(stalled.reason, stalled.message)
    else:
        view.say("[yellow]Interrupted.[/] Everything that was started is ended")


@dataclass
class DemoRun:
    """What happens while the sync runs; `finished` when it came to its end."""

    folder: DemoFolder
    manifest: Manifest
    controller: LocalController
    writer: DemoWriter
    view: DemoView
    results: list[TableResult] = field(default_factory=list)
    failure: BaseException | None = None
    finished: bool = False

    def __post_init__(self) -> None:
        self._changed = threading.Condition()
        self._status = Status()
        self._ending = False
        self._verification: Verification | None = None
        self._thread = threading.Thread(target=self._run, name="demo", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Ends the demo where it is, a verification included."""
        with self._changed:
            self._ending = True
            verification = self._verification
            self._changed.notify_all()
        if verification is not None:
            verification.end()
        self._thread.join()

    def show(self, resource: CdcSync, status: Status) -> None:
        """Called by the controller after every reconciliation."""
        self.view.status(resource, status)
        with self._changed:
            self._status = status
            self._changed.notify_all()
        if self.controller.closing and not self._ending and not self.finished:
            self.end()

    # -- the thread

    def _run(self) -> None:
        try:
            self._play()
            self.finished = True
        except Aborted:
            self.finished = False
        except BaseException as e:  # noqa: BLE001 (raised in the main thread)
            self.failure = e
        finally:
            if not self._ending:
                self.controller.interrupt()

    def _play(self) -> None:
        self._wait_for(lambda s: s.condition("SnapshotComplete").status == "True")
        snapshot = self._status.snapshot
        self.view.say(f"[bold]Snapshot complete[/]: {snapshot.rows:,} rows, {snapshot.splits_finished} splits")
        self._wait_for(_consistent)
        self.view.say("[bold]Consistent[/]: the stream has passed everything that was written during the snapshot")
        until = time.monotonic() + _STREAM_SECONDS
        self._wait_for(lambda _: time.monotonic() > until)
        self._verify(f"while the writes go on ({self.writer.transactions:,} transactions so far)")
        self.writer.stop()
        self.view.say(
            f"[bold]The writes end[/] after {self.writer.transactions:,} transactions, {self.writer.rows:,} rows"
        )
        end = self._log_end()
        began = time.monotonic()
        self._wait_for(lambda s: _reached(s, end))
        self.view.say(f"[bold]Caught up[/] in {show_seconds(time.monotonic() - began)}, with the source's end at {end}")
        self._verify("at rest")
        self.view.say("The sync drains")

    def _wait_for(self, condition: Callable[[Status], bool]) -> None:
        """Raises Aborted when the demo is ended."""
        with self._changed:
            while not condition(self._status):
                if self._ending:
                    raise Aborted
                self._changed.wait(0.5)

    def _log_end(self) -> LogOffset:
        from cdcsync_operator.reconcile.source_calls import current

        with opened_manifest((str(self.folder.manifest), str(self.folder.secret))) as (resource, folder):
            return current(resource, folder)

    def _verify(self, when: str) -> None:
        self.view.say(f"[bold]Verifying[/] every table, row for row, {when}")
        with (
            opened_manifest((str(self.folder.manifest), str(self.folder.secret))) as (resource, folder),
            self.view.verifying() as on_progress,
        ):
            verification = Verification(verify_config(resource, folder, self.folder.state, 20, _VERIFY_TIMEOUT))
            with self._changed:
                if self._ending:
                    raise Aborted
                self._verification = verification
            try:
                results = verification.run(on_progress)
            except CdcError:
                if self._ending:
                    raise Aborted from None
                raise
        self.results += results
        self.view.results(results)


def _consistent(status: Status) -> bool:
    return bool(status.table_status) and all(t.phase in CONSISTENT for t in status.table_status)


def _reached(status: Status, end: LogOffset) -> bool:
    return all(status.has_reached(table, end) for table in status.table_status)


# ---- after it


def _show_lake(folder: DemoFolder, view: DemoView) -> None:
    view.say("[bold green]Equal both times.[/] The Delta tables stay:")
    view.table(draw_tables(folder.lake, folder.shown))
    view.say("For example, with delta-rs:")
    for line in QUERY.splitlines():
        view.detail(line)
    view.table(draw_query(folder.lake))
    view.say("Spark, DuckDB, Polars, Trino ... read them as well")


def _show_iceberg(folder: DemoFolder, view: DemoView) -> None:
    view.say("[bold green]Equal both times.[/] The Iceberg tables stay:")
    view.table(draw_iceberg_tables(folder.catalog, folder.shown))
    view.say("PyIceberg, DuckDB and Polars read such a file. Spark reads the catalog:")
    view.detail(folder.shown(folder.catalog))
