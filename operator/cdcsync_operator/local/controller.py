"""Local mode: the controller of a cluster on a laptop's ports, for one sync.

Why it is right: everything that is decided is decided by the shared reconciler; this file joins its
ports, turns signals into a drain, and ends when the goal is reached. The lock on the state folder
comes first and goes last, so two controllers never meet; the Secrets' files are removed however it
ends.
"""

from __future__ import annotations

import errno
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from cdcsync_core.errors import CdcError, Reason, fail
from cdcsync_core.resource.manifest import Manifest
from cdcsync_core.resource.spec import CdcSync
from cdcsync_core.runs.run import ExitCode, RunKind
from cdcsync_core.runs.status import Status
from cdcsync_operator.decision.observed import Decision
from cdcsync_operator.decision.summary.goal import GoalProgress, Until, snapshot_complete, verdict
from cdcsync_operator.local.drivers import LocalDrivers
from cdcsync_operator.local.state_folder import StateFolder
from cdcsync_operator.local.store import LocalResourceStore, ManifestFiles
from cdcsync_operator.local.wake import Wake
from cdcsync_operator.reconcile.preflight import DefinitionRecord, PreflightRunner, SourceCalls
from cdcsync_operator.reconcile.reconciler import Reconciler
from cdcsync_operator.reconcile.secret_files import SecretFiles, remove_leftovers

#: seconds between two reconciliations while something is under way
TICK = 0.5
#: seconds between two reconciliations when nothing is; every report of a run makes one as well
_AT_REST = 10.0
#: after so many seconds a changed manifest is seen
_MANIFEST_SECONDS = 2.0
DRIVER = (sys.executable, "-m", "cdcsync_spark")


@dataclass
class LocalController:
    """One sync's controller in this process. Made by `open_local`."""

    store: LocalResourceStore
    drivers: LocalDrivers
    source: PreflightRunner
    reconciler: Reconciler
    woken: Wake
    closing: bool = False
    exit: ExitCode | None = None
    _interrupts: int = field(default=0)
    _announced: bool = field(default=False)

    def run(
        self, until: Until, show: Callable[[CdcSync, Status], None], note: Callable[[str], None] = lambda _: None
    ) -> ExitCode:
        """Runs to the goal or to an interrupt, then drains. `show` is called after every
        reconciliation, `note` gets messages for people.

        Raises InternalError where the state folder is removed meanwhile, or its disk is full: its
        drivers are ended, for no later run would find them.
        """
        try:
            with _signals(self.interrupt):
                self._run_to_the_end(until, show, note)
            self.reconciler.flush()
        except OSError as error:
            lost = self._lost_folder(error)
            if lost is None:
                raise
            self.drivers.kill()
            raise lost from error
        return ExitCode.RETRY if self.exit is None else self.exit

    def _run_to_the_end(
        self, until: Until, show: Callable[[CdcSync, Status], None], note: Callable[[str], None]
    ) -> None:
        while True:
            if self._interrupts == 1 and not self._announced:
                self._announced = True
                note("draining; interrupt again to end at once (what is not committed is done again next time)")
            decision = self.reconciler.reconcile(closing=self.closing)
            resource, _ = self.store.load()
            show(resource, decision.status)
            self._judge(until, resource, decision)
            if self.closing and not self._live(decision.status):
                break
            if self._interrupts > 1:
                self.drivers.kill()
            self._wait(self._pause(decision))

    def _pause(self, decision: Decision) -> float:
        steady = decision.status.condition("Reconciling").status == "False" and not self.closing
        return min(decision.requeue_after, _AT_REST if steady else TICK)

    def _wait(self, seconds: float) -> None:
        """At most so long: until a run or the source has news, a signal comes, or the manifest
        changes."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self.woken.wait(min(_MANIFEST_SECONDS, left)) or self.store.changed():
                break
        self.woken.clear()

    def _lost_folder(self, error: OSError) -> CdcError | None:
        """What a failure of the state folder means; None for a failure of something else."""
        root = self.drivers.folder.root
        if root not in Path(str(error.filename or "")).parents:
            return None
        return fail(
            Reason.INTERNAL_ERROR,
            f"the state folder cannot be used any more: {error.filename}: {error.strerror}",
            needed="a folder that stays, and can be written, as long as the sync runs",
            remedy=f"{_free_space(error)}run it again: everything that was in it is found again in the targets",
        )

    def interrupt(self, *_: object) -> None:
        """The first one drains, the second one ends the drivers. A signal's handler may run while
        this very thread holds a lock, and so must not wait for any."""
        self._interrupts += 1
        self.closing = True
        self.woken.set()

    def _judge(self, until: Until, resource: CdcSync, decision: Decision) -> None:
        if self.closing:
            if self.exit is None and until is Until.FOREVER:
                self.exit = ExitCode.DONE
            return
        progress = self._progress(decision.status)
        if not snapshot_complete(progress):
            self.source.log_end = None
        elif until is Until.CAUGHT_UP and progress.log_end is None:
            self.source.ask_log_end(resource.following(decision.status.followed))
        self.exit = verdict(until, progress)
        if self.exit is not None:
            self.closing = True
            self.woken.set()

    def _progress(self, status: Status) -> GoalProgress:
        outcome = self.source.outcome()
        ref = status.runs.stream
        stream = next((r for r in self.reconciler.runs if ref and r.id == ref.id), None)
        return GoalProgress(
            status,
            preflight_done=outcome is not None
            and not outcome.failures
            and outcome.generation == status.observed_generation,
            stream_reported=stream is not None and stream.reported_at is not None,
            log_end=self.source.log_end,
        )

    def _live(self, status: Status) -> bool:
        named = any(status.runs.get(kind) for kind in RunKind)
        return named or any(run.live for run in self.reconciler.runs)


@contextmanager
def open_local(
    files: ManifestFiles,
    manifest: Manifest,
    state_dir: Path,
    calls: SourceCalls,
    on_fault: Callable[[CdcError], None],
    command: Sequence[str] = DRIVER,
) -> Iterator[LocalController]:
    """A controller that holds the sync's lock. Raises SinkConflict if another one does, SpecInvalid
    for a broken state file."""
    metadata = manifest.resource.metadata
    folder = StateFolder(state_dir.resolve(), metadata.namespace, metadata.name)
    with ExitStack() as stack:
        stack.enter_context(folder.lock())
        remove_leftovers()
        secret_files = SecretFiles()
        stack.callback(secret_files.close)
        yield _controller(files, manifest, folder, secret_files, calls, on_fault, command)


def _controller(
    files: ManifestFiles,
    manifest: Manifest,
    folder: StateFolder,
    secret_files: SecretFiles,
    calls: SourceCalls,
    on_fault: Callable[[CdcError], None],
    command: Sequence[str],
) -> LocalController:
    woken, clock, where = Wake(), time.time, secret_files.folder
    store = LocalResourceStore(files, folder, manifest, secret_files.write, on_fault)
    record = DefinitionRecord(folder.tables_file)
    source = PreflightRunner(
        lambda r, unread: calls.preflight(r, where, unread), lambda r: calls.current(r, where), record, clock, woken.set,
        lambda r, file: calls.kept_until(r, where, file),
    )  # fmt: skip
    drivers = LocalDrivers(
        folder, where, command, clock, woken.set, record.get,
        lambda r: calls.planning(r, where),
    )  # fmt: skip
    reconciler = Reconciler(store, drivers, source, clock, lambda: secrets.token_hex(2))
    return LocalController(store, drivers, source, reconciler, woken)


def _free_space(error: OSError) -> str:
    return "free space on its disk, and " if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else ""


@contextmanager
def _signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {n: signal.signal(n, handler) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
